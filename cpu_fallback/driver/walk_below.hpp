// walk for trees whose tops are scored by bitslice's programs.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "driver/engines.hpp"
#include "jit/executable.hpp"

namespace gpuqs {

// Programs find where documents leave the tops, a word of documents at a time, and walks go on from there. Documents walk all the
// way if they fill less than half a word, or if the process may not make code.
class WalkBelow final : public Walk {
public:
    // tops: a Bitslice of the same tree blocks, whose leaves have one byte; each tree block with nodes is a superblock of its own.
    // start: [tree][kTopExits].
    WalkBelow(const Kernels& kernels, const WalkLayout& layout, int block, const Bitslice& tops, const int32_t* start)
        : Walk(kernels, layout, block), tops_(tops), start_(start), word_(tops.document_block()) {}

    size_t loaded_bytes(int stride) const override {
        return Walk::loaded_bytes(stride) + whole_lines(sizeof(bool)) + n_words(stride) * of_word();
    }
    size_t scratch_bytes(int stride) const override {
        return fill_words(stride) ? n_words(stride) * numbers() + tops_.scratch_bytes(word_) : 0;
    }
    void make_ready(int stride, int n_threads) const override {
        if (!fill_words(stride) || refused_.load(std::memory_order_relaxed)) return;
        try {
            tops_.make_ready(word_, n_threads);
        } catch (const CodeForbidden&) {  // since the engine was chosen
            refused_.store(true, std::memory_order_relaxed);
        }
    }
    void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const override {
        Walk::load(documents, first, n, stride, loaded, scratch);
        const bool coded = fill_words(n) && tops_.is_ready(word_);  // another thread may make it ready before find
        char* planes = static_cast<char*>(loaded) + Walk::loaded_bytes(stride);
        std::memcpy(planes, &coded, sizeof coded);
        planes += whole_lines(sizeof coded);
        for (int d = 0; coded && d < n; d += word_, planes += of_word())
            tops_.load(documents, first + d, std::min(word_, n - d), word_, planes, scratch);
    }
    void find(int block, int n, int stride, const void* loaded, void* scratch, const LeafRecords& records, void* leaf) const override {
        const char* planes = static_cast<const char*>(loaded) + Walk::loaded_bytes(stride);
        bool coded;
        std::memcpy(&coded, planes, sizeof coded);
        if (!coded) return walk(block, n, stride, loaded, leaf, nullptr);
        planes += whole_lines(sizeof coded);
        uint8_t* const number = static_cast<uint8_t*>(scratch);
        uint8_t* const of_tops = number + n_words(stride) * numbers();
        const int n_trees = first_tree(block + 1) - first_tree(block);
        uint8_t* to = number;
        for (int d = 0; d < n; d += word_, planes += of_word(), to += static_cast<int64_t>(n_trees) * word_)
            tops_.find(block, std::min(word_, n - d), word_, planes, of_tops, records, to);
        const WalkStarts starts = {start_, number, tops_.order(word_), __builtin_ctz(static_cast<unsigned>(word_))};
        walk(block, n, stride, loaded, leaf, &starts);
    }

private:
    bool fill_words(int n) const { return 2 * n >= word_; }
    size_t n_words(int stride) const { return fill_words(stride) ? static_cast<size_t>((stride + word_ - 1) / word_) : 0; }
    size_t of_word() const { return tops_.loaded_bytes(word_); }
    size_t numbers() const { return whole_lines(static_cast<size_t>(largest_tree_block()) * word_); }

    const Bitslice& tops_;
    const int32_t* const start_;
    const int word_;
    mutable std::atomic<bool> refused_{false};
};

}  // namespace gpuqs
