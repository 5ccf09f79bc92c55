// Whether the process's environment has changed since it was remembered. Calls that take microseconds ask each time.
#pragma once
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace gpuqs {

class Environment {
public:
    // Whether all variables are as remembered. Only GPUQS_ variables are compared as strings. Of all others a hash of their addresses
    // suffices, as a variable that is set later lies elsewhere (unless a program gives putenv memory in which another variable was
    // before): to load hundreds of strings, each on its own cache line, takes longer than to score a tree.
    bool is_as_before() const {
        if (!is_known_ || hash() != hash_) return false;
        for (const auto& [at, text] : ours_)
            if (std::strcmp(text.c_str(), environ[at])) return false;  // it was overwritten in place
        return true;
    }
    void remember() {
        std::vector<std::pair<size_t, std::string>> ours;
        for (size_t n = 0; environ && environ[n]; n++)
            if (!std::strncmp(environ[n], "GPUQS_", 6)) ours.emplace_back(n, environ[n]);
        ours_ = std::move(ours), hash_ = hash(), is_known_ = true;
    }

private:
    // A change of one address always changes it. Addresses are multiplied because those of strings that were set one after another
    // often differ by the same bits, which would cancel where the rotation repeats.
    static uint64_t hash() {
        constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
        uint64_t hash = 0;
        for (const char* const* at = environ; at && *at; at++)
            hash = (hash << 5 | hash >> 59) ^ reinterpret_cast<uintptr_t>(*at) * kOdd;
        return hash;
    }

    bool is_known_ = false;
    uint64_t hash_ = 0;
    std::vector<std::pair<size_t, std::string>> ours_;  // GPUQS_ variables: index in environ, and string
};

}  // namespace gpuqs
