#include "jit/code_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ios>
#include <string>

namespace gpuqs {
namespace {

std::string hexadecimal(uintptr_t number) {
    char text[24];
    std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(number));
    return text;
}

// Appends with one write, so that the lines of threads do not mix. Follows no symbolic links: anyone can write to /tmp.
void append(const char* variable, const std::string& path, const void* data, size_t n) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool written = file >= 0 && write(file, data, n) == static_cast<ssize_t>(n);
    const int error = errno;
    if (file >= 0) close(file);
    if (!written) throw std::ios_base::failure(std::string(variable) + ": cannot write " + path + ": " + std::strerror(error));
}

std::string perf_lines(const CompiledPrograms& compiled) {
    std::string lines;
    const std::vector<size_t>& starts = *compiled.starts;
    for (size_t block = 0; block + 1 < starts.size(); block++) {
        const size_t start = starts[block], end = starts[block + 1];
        lines += hexadecimal(reinterpret_cast<uintptr_t>(compiled.address + start)) + " " + hexadecimal(end - start) + " gpuqs_trees_" +
                 std::to_string(compiled.block_offsets[block]) + "_to_" + std::to_string(compiled.block_offsets[block + 1] - 1) + "_" +
                 compiled.isa + "_" + std::to_string(compiled.documents) + "\n";
    }
    return lines;
}

}  // namespace

CodeFiles code_files_asked_for() {
    const char* const folder = std::getenv("GPUQS_DUMP_CODE");
    const char* const map = std::getenv("GPUQS_PERF_MAP");
    return {folder ? folder : "", map && *map && *map != '0'};
}

void show_code(const CompiledPrograms& compiled, const CodeFiles& files) {
    if (!files.folder.empty()) {
        const std::string name = "gpuqs-" + std::to_string(getpid()) + "-" + compiled.isa + "-" + std::to_string(compiled.documents) +
                                 "-" + hexadecimal(reinterpret_cast<uintptr_t>(compiled.address)) + ".bin";
        const std::string path = files.folder + "/" + name;
        unlink(path.c_str());  // left by an earlier program
        append("GPUQS_DUMP_CODE", path, compiled.address, compiled.starts->back());
    }
    if (files.perf_map) {
        const std::string lines = perf_lines(compiled);
        append("GPUQS_PERF_MAP", "/tmp/perf-" + std::to_string(getpid()) + ".map", lines.data(), lines.size());
    }
}

}  // namespace gpuqs
