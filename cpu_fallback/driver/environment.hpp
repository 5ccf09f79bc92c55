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
    // as a variable that is set later lies elsewhere: to load hundreds of strings, each on its own cache line, takes longer than to
    // score a tree.
    bool is_as_before() const {
        size_t n = 0;
        for (; environ && environ[n]; n++)
            if (n >= seen_.size() || seen_[n] != environ[n]) return false;
        if (!remembered_ || n != seen_.size()) return false;
        for (const auto& [at, text] : ours_)
            if (text != seen_[at]) return false;  // it was overwritten in place
        return true;
    }
    void remember() {
        std::vector<const char*> seen;
        std::vector<std::pair<size_t, std::string>> ours;
        for (char** at = environ; at && *at; at++) {
            if (!std::strncmp(*at, "GPUQS_", 6)) ours.emplace_back(seen.size(), *at);
            seen.push_back(*at);
        }
        seen_ = std::move(seen), ours_ = std::move(ours), remembered_ = true;
    }

private:
    bool remembered_ = false;
    std::vector<const char*> seen_;
    std::vector<std::pair<size_t, std::string>> ours_;  // GPUQS_ variables: index in seen_, and string
};

}  // namespace gpuqs
