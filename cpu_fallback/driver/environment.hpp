// Whether the process's environment changed: calls go by its variables, and cannot read it through each time.
#pragma once
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace gpuqs {

class Environment {
public:
    // Whether all variables are those of the last call; never at the first. Only where they are is compared, as what is set
    // later lies elsewhere: hundreds of strings on lines of their own take longer to come from memory than a tree's score.
    bool is_as_before() {
        size_t n = 0;
        bool same = seen_.size() > 0;
        for (; environ && environ[n]; n++) same = same && n < seen_.size() && seen_[n] == environ[n];
        if (same && n + 1 == seen_.size()) return true;
        seen_.assign(environ, environ + n);
        seen_.push_back(nullptr);
        return false;
    }

private:
    std::vector<const char*> seen_;  // and null
};

}  // namespace gpuqs
