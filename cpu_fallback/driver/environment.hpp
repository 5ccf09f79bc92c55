// Whether the process's environment changed since it was remembered: calls of microseconds ask each time.
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
    // Whether all variables are those that were remembered. Of others' only where they are is compared, as what is set later lies
    // elsewhere: hundreds of strings on lines of their own take longer to come from memory than a tree's score.
    bool is_as_before() const {
        size_t n = 0;
        for (; environ && environ[n]; n++)
            if (n >= seen_.size() || seen_[n] != environ[n]) return false;
        if (!remembered_ || n != seen_.size()) return false;
        for (const auto& [at, text] : ours_)
            if (text != seen_[at]) return false;  // it was written to
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
    std::vector<std::pair<size_t, std::string>> ours_;  // which they are, and what they say
};

}  // namespace gpuqs
