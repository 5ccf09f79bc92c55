// The engines as the driver runs them: which kernel, on how many documents, with how much scratch.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.hpp"

namespace gpuqs {

inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Engines that read documents as values, feature-major: x[column][document block], float or double.
class ByValue : public ExitLeaves {
public:
    ByValue(const Kernels& kernels, const Columns& columns, bool single, int block)
        : kernels_(kernels), columns_(columns), single_(single), block_(block) {}

    int document_block() const override { return block_; }
    int stride(int n) const override { return (n + lanes() - 1) / lanes() * lanes(); }
    const uint16_t* order(int) const override { return nullptr; }
    size_t scratch_bytes(int stride) const override { return whole_lines(sizeof(Head)) + x_bytes(stride) + bits_bytes(); }
    void load(const Documents& documents, int64_t first, int n, int stride, void* scratch) const override {
        if (head_for(documents, scratch).is_double)
            kernels_.load_double(documents, first, n, columns_, stride, x<double>(scratch));
        else
            kernels_.load_float(documents, first, n, columns_, stride, x<float>(scratch));
    }

protected:
    struct Head {
        bool is_double, has_missing;  // the latter as walks ask it
    };
    virtual int lanes() const { return 8; }  // documents of which the kernel needs whole numbers
    virtual size_t bits_bytes() const { return 0; }
    // At least one column: a walk reads column 0 at leaves, also where no tree tests any.
    size_t x_bytes(int stride) const { return whole_lines(sizeof(double) * std::max(columns_.n, 1) * stride); }
    Head& head_for(const Documents& documents, void* scratch) const {
        Head& head = *static_cast<Head*>(scratch);
        head.is_double = documents.is_double && !single_;
        return head;
    }
    static const Head& head(const void* scratch) { return *static_cast<const Head*>(scratch); }
    template <class Value> static Value* x(void* scratch) {
        return reinterpret_cast<Value*>(static_cast<char*>(scratch) + whole_lines(sizeof(Head)));
    }
    void* bits(void* scratch, int stride) const { return static_cast<char*>(scratch) + whole_lines(sizeof(Head)) + x_bytes(stride); }

    const Kernels& kernels_;
    const Columns columns_;
    const bool single_;
    const int block_;
};

// qs (vectorised false) and vqs (true).
class QuickScorer final : public ByValue {
public:
    QuickScorer(const Kernels& kernels, const QuickScorerModel& model, bool vectorised, int block)
        : ByValue(kernels, model.columns, model.single, block), model_(model), vectorised_(vectorised) {}

    int leaf_bytes() const override { return 1; }
    int n_tree_blocks() const override { return model_.n_blocks; }
    int first_tree(int block) const override { return model_.block_offsets[block]; }
    void find(int block, int n, int stride, void* scratch, void* leaf) const override {
        uint8_t* to = static_cast<uint8_t*>(leaf);
        if (head(scratch).is_double) {
            const auto find = vectorised_ ? kernels_.vqs_double : kernels_.qs_double;
            find(model_, block, x<double>(scratch), n, stride, bits(scratch, stride), to);
        } else {
            const auto find = vectorised_ ? kernels_.vqs_float : kernels_.qs_float;
            find(model_, block, x<float>(scratch), n, stride, bits(scratch, stride), to);
        }
    }

private:
    int lanes() const override { return vectorised_ ? kernels_.vqs_lanes : 8; }
    size_t bits_bytes() const override {
        int trees = 0;
        for (int b = 0; b < model_.n_blocks; b++) trees = std::max(trees, first_tree(b + 1) - first_tree(b));
        return static_cast<size_t>(trees) * (model_.mask_bits / 8) * (vectorised_ ? kernels_.vqs_lanes : 1);
    }
    const QuickScorerModel model_;
    const bool vectorised_;
};

class Walk final : public ByValue {
public:
    Walk(const Kernels& kernels, const WalkModel& model, int block)
        : ByValue(kernels, model.columns, model.single, block), model_(model) {}

    int leaf_bytes() const override { return 4; }
    int n_tree_blocks() const override { return model_.n_blocks; }
    int first_tree(int block) const override { return model_.block_offsets[block]; }
    void load(const Documents& documents, int64_t first, int n, int stride, void* scratch) const override {
        Head& head = head_for(documents, scratch);
        void* block = bits(scratch, stride);
        if (head.is_double)
            head.has_missing = kernels_.load_rows_double(documents, first, n, columns_, static_cast<double*>(block), x<double>(scratch));
        else
            head.has_missing = kernels_.load_rows_float(documents, first, n, columns_, static_cast<float*>(block), x<float>(scratch));
    }
    void find(int block, int n, int stride, void* scratch, void* leaf) const override {
        int32_t* to = static_cast<int32_t*>(leaf);
        if (head(scratch).is_double)
            kernels_.walk_double(model_, block, x<double>(scratch), head(scratch).has_missing, n, stride, to);
        else
            kernels_.walk_float(model_, block, x<float>(scratch), head(scratch).has_missing, n, stride, to);
    }

private:
    size_t bits_bytes() const override { return sizeof(double) * columns_.n * kRowBlock; }
    const WalkModel model_;
};

class RankWalk final : public ByValue {
public:
    RankWalk(const Kernels& kernels, const RankWalkModel& model)
        : ByValue(kernels, model.columns, model.single, kRankWalkBlock), model_(model) {}

    int leaf_bytes() const override { return 1; }
    int n_tree_blocks() const override { return model_.n_blocks; }
    int first_tree(int block) const override { return model_.block_offsets[block]; }
    size_t scratch_bytes(int stride) const override {
        return ByValue::scratch_bytes(stride) + rank_bytes(stride) + whole_lines(sizeof(uint32_t) * model_.n_entries * stride);
    }
    void load(const Documents& documents, int64_t first, int n, int stride, void* scratch) const override {
        ByValue::load(documents, first, n, stride, scratch);
        int32_t* rank = static_cast<int32_t*>(bits(scratch, stride));
        if (head(scratch).is_double)
            kernels_.rank_codes_double(model_, x<double>(scratch), n, stride, rank, codes(scratch, stride));
        else
            kernels_.rank_codes_float(model_, x<float>(scratch), n, stride, rank, codes(scratch, stride));
    }
    void find(int block, int n, int stride, void* scratch, void* leaf) const override {
        kernels_.rank_walk(model_, block, codes(scratch, stride), n, stride, static_cast<uint8_t*>(leaf));
    }

private:
    size_t rank_bytes(int stride) const { return whole_lines(sizeof(int32_t) * columns_.n * stride); }
    uint32_t* codes(void* scratch, int stride) const {
        return reinterpret_cast<uint32_t*>(static_cast<char*>(bits(scratch, stride)) + rank_bytes(stride));
    }
    const RankWalkModel model_;
};

// Scratch: planes, words of a block, slots of a group, documents feature-major.
class Bitslice final : public ExitLeaves {
public:
    Bitslice(const Kernels& kernels, const BitsliceModel& model) : kernels_(kernels), model_(model) {
        for (int w = 0; w < kernels.n_widths; w++)
            for (int d = 0; d < 8 * kernels.widths[w].word_bytes; d++)
                // What spread leaves behind: document 8 i + r at byte r * word_bytes + i.
                order_[w].push_back(static_cast<uint16_t>(d % 8 * kernels.widths[w].word_bytes + d / 8));
    }

    int document_block() const override { return 8 * widest(); }
    int stride(int n) const override {
        int w = 0;
        while (8 * kernels_.widths[w].word_bytes < n) w++;
        return 8 * kernels_.widths[w].word_bytes;
    }
    int leaf_bytes() const override { return model_.leaf_bytes; }
    int n_tree_blocks() const override { return model_.n_batches; }
    int first_tree(int block) const override { return model_.batch_offsets[block]; }
    bool may_begin(int block) const override { return decodes(block); }
    const uint16_t* order(int stride) const override { return order_[width(stride)].data(); }
    size_t scratch_bytes(int stride) const override { return planes_bytes(stride) + words_bytes(stride) + slots_bytes(stride) + x_bytes(); }
    void load(const Documents& documents, int64_t first, int n, int stride, void* scratch) const override {
        char* at = static_cast<char*>(scratch);
        if (documents.planes) {
            std::memcpy(at, documents.planes + first / document_block() * planes_bytes(stride), planes_bytes(stride));
            return;
        }
        void* x = at + planes_bytes(stride) + words_bytes(stride) + slots_bytes(stride);
        kernels_.rank(model_.ranks, documents, first, n, x, reinterpret_cast<uint8_t*>(at), stride / 8);
    }
    void find(int block, int, int stride, void* scratch, void* leaf) const override {
        find_predicates(block, stride, scratch);
        run_programs(block, stride, scratch, leaf);
    }

    // The two stages of find.
    void find_predicates(int block, int stride, void* scratch) const {
        char* planes = static_cast<char*>(scratch);
        if (decodes(block)) kernels_.widths[width(stride)].predicates(model_, block, planes, planes + planes_bytes(stride));
    }
    void run_programs(int block, int stride, void* scratch, void* leaf) const {
        char* words = static_cast<char*>(scratch) + planes_bytes(stride);
        kernels_.widths[width(stride)].programs(model_, block, words, words + words_bytes(stride), leaf);
    }

    // Coded documents are what load leaves at the start of scratch.
    size_t planes_bytes(int stride) const { return whole_lines(static_cast<size_t>(model_.ranks.n_planes()) * (stride / 8)); }

private:
    bool decodes(int batch) const { return model_.batch_segments[batch] != model_.batch_segments[batch + 1]; }
    int widest() const { return kernels_.widths[kernels_.n_widths - 1].word_bytes; }
    int width(int stride) const {
        int w = 0;
        while (8 * kernels_.widths[w].word_bytes != stride) w++;
        return w;
    }
    size_t words_bytes(int stride) const { return whole_lines(static_cast<size_t>(model_.n_words) * (stride / 8)); }
    size_t slots_bytes(int stride) const { return whole_lines(static_cast<size_t>(model_.n_slots) * (stride / 8)); }
    size_t x_bytes() const { return whole_lines(sizeof(double) * model_.ranks.columns.n * kRankBlock); }

    const Kernels& kernels_;
    const BitsliceModel model_;
    std::vector<uint16_t> order_[3];
};

}  // namespace gpuqs
