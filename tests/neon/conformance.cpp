// Compares every engine's leaves and sums with those of `reference`, bit for bit, on each given instruction set.
//
//   conformance FILE NAME...       FILE: from write_cases.py; NAME: an instruction set that this processor must have
//
//   for each forest: for each engine, exact and fast: for each instruction set:
//       some numbers of documents, in one memory layout, by one thread; all documents, in each layout, by one thread and three:
//           leaves and sums equal those of the file
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "cases.hpp"
#include "driver/instruction_sets.hpp"

namespace gpuqs {
namespace {

struct Counts { long calls = 0, with_tables = 0, wrong = 0; };

struct Case {
    std::string name;
    Documents documents[2];  // row by row, and column by column
    Array<int32_t> leaves;
};

Case read_case(Reader& from) {
    Case c;
    c.name = from.text();
    const Reader::Any by_row = from.any(), by_column = from.any();
    const int64_t n = from.number(), width = from.number(), bytes = by_row.item_bytes;
    c.documents[0] = {by_row.data, n, width * bytes, bytes, bytes == 8, nullptr, false};
    c.documents[1] = {by_column.data, n, bytes, n * bytes, bytes == 8, nullptr, false};
    c.leaves = from.array<int32_t>();
    return c;
}

// Numbers of documents around the sizes of words, registers and blocks; all documents are tried as well.
constexpr int64_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129};

void compare(const Case& of, const Program& program, const Reader::Any& sums, const Kernels& kernels, Counts* counts) {
    const auto engine = program.engine(kernels);
    const LeafValues values = program.values(kernels);
    const int64_t n_all = of.documents[0].n, sum_bytes = values.n_outputs * sums.item_bytes;
    const auto check = [&](const Documents& all, int64_t n, int n_threads) {
        Documents documents = all;
        documents.n = n;
        std::vector<int32_t> leaves(n * values.n_trees + 1);
        exit_leaves(*engine, documents, values, leaves.data(), n_threads);
        std::vector<char> scored(n * sum_bytes + 1);
        score(*engine, kernels, documents, values, scored.data(), n_threads, false);
        counts->calls++;
        counts->with_tables += values.tables != nullptr;
        const bool same_leaves = std::memcmp(leaves.data(), of.leaves.data, n * values.n_trees * sizeof(int32_t)) == 0;
        const bool same_sums = std::memcmp(scored.data(), sums.data, n * sum_bytes) == 0;
        if (same_leaves && same_sums) return;
        counts->wrong++;
        std::printf("%s: %s, %s, %ld documents, %d threads:%s%s\n", kernels.isa, of.name.c_str(), program.name.c_str(),
                    static_cast<long>(n), n_threads, same_leaves ? "" : " other leaves", same_sums ? "" : " other sums");
    };
    for (const int64_t n : kSizes)
        if (n < n_all) check(of.documents[0], n, 1);
    for (const Documents& all : of.documents)
        for (const int n_threads : {1, 3}) check(all, n_all, n_threads);
}

int compare_all(const char* path, const std::vector<const Kernels*>& sets) {
    Reader from(path);
    std::vector<Counts> counts(sets.size());
    const int64_t n_cases = from.number();
    int64_t n_programs = 0;
    for (int64_t c = 0; c < n_cases; c++) {
        const Case of = read_case(from);
        const int64_t n = from.number();
        n_programs += n;
        for (int64_t p = 0; p < n; p++) {
            const Program program(from);
            const Reader::Any sums = from.any();
            for (size_t s = 0; s < sets.size(); s++) compare(of, program, sums, *sets[s], &counts[s]);
        }
    }
    std::printf("%ld forests and their documents, %ld programs of engines\n", static_cast<long>(n_cases),
                static_cast<long>(n_programs));
    bool good = n_cases > 0;
    for (size_t s = 0; s < sets.size(); s++) {
        std::printf("%s: %ld calls, %ld of them with tables in registers, %ld wrong\n", sets[s]->isa, counts[s].calls,
                    counts[s].with_tables, counts[s].wrong);
        const bool has_tables = sets[s]->table_part(64, 4) != 0;
        good &= counts[s].wrong == 0 && counts[s].calls > 0 && (counts[s].with_tables > 0) == has_tables;
    }
    return good ? 0 : 1;
}

}  // namespace
}  // namespace gpuqs

int main(int n, char** arguments) {
    if (n < 3) {
        std::fprintf(stderr, "usage: conformance FILE NAME...\n");
        return 2;
    }
    std::vector<const gpuqs::Kernels*> sets;
    for (int i = 2; i < n; i++) {
        sets.push_back(gpuqs::find_kernels(arguments[i]));
        if (!sets.back()) {
            std::fprintf(stderr, "conformance: no instruction set %s here\n", arguments[i]);
            return 2;
        }
    }
    try {
        return gpuqs::compare_all(arguments[1], sets);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "conformance: %s\n", error.what());
        return 2;
    }
}
