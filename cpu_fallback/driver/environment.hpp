// Whether the process's environment has changed since it was remembered. Calls that take microseconds ask each time.
#pragma once
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace gpuqs {

class Environment {
public:
    // Whether all variables are as remembered. Only GPUQS_ variables are compared as strings. For all others the address suffices,
    // as a variable that is set later lies elsewhere (unless a program gives putenv memory in which another variable was before): to
    // load hundreds of strings, each on its own cache line, takes longer than to score a tree.
    bool is_as_before() const {
        const char* const* const now = variables();
        for (size_t n = 0; n < seen_.size(); n++)  // goes no further than the end of `now`, where `seen_` has a string or its end
            if (now[n] != seen_[n]) return false;
        for (const auto& [at, text] : ours_)
            if (std::strcmp(text.c_str(), seen_[at])) return false;  // it was overwritten in place
        return !seen_.empty();
    }
    void remember() {
        std::vector<const char*> seen;
        std::vector<std::pair<size_t, std::string>> ours;
        for (const char* const* at = variables(); *at; at++) {
            if (!std::strncmp(*at, "GPUQS_", 6)) ours.emplace_back(seen.size(), *at);
            seen.push_back(*at);
        }
        seen.push_back(nullptr);
        seen_ = std::move(seen), ours_ = std::move(ours);
    }

private:
    static const char* const* variables() {  // up to a null
        static constexpr const char* none = nullptr;
        return environ ? environ : &none;
    }

    std::vector<const char*> seen_;  // with the null; empty before anything is remembered
    std::vector<std::pair<size_t, std::string>> ours_;  // GPUQS_ variables: index in seen_, and string
};

}  // namespace gpuqs
