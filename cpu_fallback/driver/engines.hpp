// The engines as the driver runs them: which kernel, on how many documents, with how much scratch.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "driver/scorer.hpp"
#include "driver/threads.hpp"
#include "generic/kernels.hpp"
#include "jit/machine_code.hpp"

namespace gpuqs {

inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

template <class Layout> std::vector<int32_t> block_offsets_of(const Layout& layout) {
    return {layout.block_offsets, layout.block_offsets + layout.n_blocks + 1};
}

// Engines that read documents as float or double values: x[column][document block], or x[document][column] from load_rows.
class ByValue : public ExitLeaves {
public:
    // source: columns, and whether documents become float.
    template <class Source>
    ByValue(const Kernels& kernels, const Source& source, std::vector<int32_t> block_offsets, int block)
        : ExitLeaves(std::move(block_offsets)), kernels_(kernels), columns_(source.columns), single_(source.single), block_(block) {}

    int document_block() const override { return block_; }
    int stride(int n) const override { return (n + lanes() - 1) / lanes() * lanes(); }
    const uint16_t* order(int) const override { return nullptr; }
    size_t loaded_bytes(int stride) const override { return whole_lines(sizeof(Head)) + x_bytes(stride); }
    void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void*) const override {
        begin(documents, loaded);
        visit(loaded, [&](auto* x) { kernels_.of(x).load(documents, first, n, columns_, stride, x); });
    }

protected:
    void load_rows(const Documents& documents, int64_t first, int n, void* loaded) const {
        Head& head = begin(documents, loaded);
        visit(loaded, [&](auto* x) { head.has_missing = kernels_.of(x).load_rows(documents, first, n, columns_, x); });
    }
    struct Head {
        bool is_double, has_missing;  // only walks read has_missing
    };
    virtual int lanes() const { return 8; }  // the kernel needs a multiple of this many documents
    // At least one column: a walk reads column 0 at leaves, even if no tree tests any.
    size_t x_bytes(int stride) const { return whole_lines(sizeof(double) * std::max(columns_.n, 1) * stride); }
    // Says in `loaded` which type the values will have.
    Head& begin(const Documents& documents, void* loaded) const {
        Head& head = *static_cast<Head*>(loaded);
        head.is_double = documents.is_double && !single_;
        return head;
    }
    static const Head& head(const void* loaded) { return *static_cast<const Head*>(loaded); }
    template <class Value> static Value* x(void* loaded) {
        return reinterpret_cast<Value*>(static_cast<char*>(loaded) + whole_lines(sizeof(Head)));
    }
    // Calls f with the values, in the type that they have.
    template <class F> static void visit(void* loaded, F f) {
        if (head(loaded).is_double)
            f(x<double>(loaded));
        else
            f(x<float>(loaded));
    }
    template <class F> static void visit(const void* loaded, F f) {
        visit(const_cast<void*>(loaded), [&](const auto* x) { f(x); });
    }

    const Kernels& kernels_;
    const Columns columns_;
    const bool single_;
    const int block_;
};

// vqs (together = 0), and the engines on qs's kernel, which score `together` documents at a time.
class QuickScorer final : public ByValue {
public:
    QuickScorer(const Kernels& kernels, const QuickScorerLayout& layout, int together, int block)
        : ByValue(kernels, layout, block_offsets_of(layout), block), layout_(layout), together_(together) {}

    int leaf_bytes() const override { return layout_.oblivious ? layout_.mask_bits / 8 : 1; }
    size_t scratch_bytes(int) const override {
        return static_cast<size_t>(largest_tree_block()) * (layout_.mask_bits / 8) * (together_ ? together_ : kernels_.vqs_lanes);
    }
    void find(int block, int n, int stride, const void* loaded, void* bits, const LeafRecords&, void* leaf) const override {
        visit(loaded, [&](const auto* x) {
            const auto& kernels = kernels_.of(x);
            if (together_)
                kernels.qs(layout_, block, x, n, stride, together_, bits, leaf);
            else
                kernels.vqs(layout_, block, x, n, stride, bits, static_cast<uint8_t*>(leaf));
        });
    }

private:
    int lanes() const override { return together_ ? 8 : kernels_.vqs_lanes; }
    const QuickScorerLayout layout_;
    const int together_;
};

class Walk : public ByValue {
public:
    Walk(const Kernels& kernels, const WalkLayout& layout, int block)
        : ByValue(kernels, layout, block_offsets_of(layout), block), layout_(layout) {}

    int leaf_bytes() const override { return 4; }
    size_t scratch_bytes(int) const override { return 0; }
    void load(const Documents& documents, int64_t first, int n, int, void* loaded, void*) const override {
        load_rows(documents, first, n, loaded);
        if (layout_.wide && !head(loaded).is_double) {
            const float* from = x<float>(loaded);
            double* to = x<double>(loaded);
            for (int64_t i = static_cast<int64_t>(n) * columns_.n - 1; i >= 0; i--) to[i] = from[i];
            static_cast<Head*>(loaded)->is_double = true;
        }
        if (layout_.nodes_alone) return;
        visit(loaded, [&](auto* x) {
            if (columns_.n == 0) *x = 0;  // which is read at leaves
            kernels_.of(x).to_keys(static_cast<int64_t>(n) * columns_.n, x);
        });
    }
    void find(int block, int n, int stride, const void* loaded, void*, const LeafRecords&, void* leaf) const override {
        walk(block, n, stride, loaded, leaf, nullptr);
    }

protected:
    void walk(int block, int n, int stride, const void* loaded, void* leaf, const WalkStarts* starts) const {
        visit(loaded, [&](const auto* x) {
            using Keys = const WalkKey<std::decay_t<decltype(*x)>>*;
            const auto& kernels = kernels_.of(x);
            const bool has_missing = head(loaded).has_missing;
            if (layout_.nodes_alone)
                kernels.walk_nodes(layout_, block, x, has_missing, n, stride, static_cast<int32_t*>(leaf));
            else
                kernels.walk(layout_, block, reinterpret_cast<Keys>(x), has_missing, n, stride, static_cast<int32_t*>(leaf), starts);
        });
    }

private:
    int lanes() const override { return 1; }
    const WalkLayout layout_;
};

// load writes the documents' values, then their codes: document by document if there are few, which jump or walk, else entry by
// entry, in bytes.
class RankWalk final : public ByValue {
public:
    RankWalk(const Kernels& kernels, const RankWalkLayout& layout, int block)
        : ByValue(kernels, layout, block_offsets_of(layout), block), layout_(layout), copies_(copies(columns_)) {}

    int leaf_bytes() const override { return 1; }
    int stride(int n) const override {
        if (n <= max_apart()) return n;
        const int places = places_together(n, kernels_.rank_lanes);
        return (n + places - 1) / places * places;
    }
    size_t loaded_bytes(int stride) const override {
        const size_t apart = of_document() * std::min(stride, max_apart());
        const size_t together = static_cast<size_t>(stride) * layout_.n_entries;
        const size_t codes = fills_register(stride) ? std::max(apart, together) : of_document() * stride;
        return ByValue::loaded_bytes(stride) + whole_lines(codes);
    }
    size_t scratch_bytes(int stride) const override { return sizeof(int32_t) * columns_.n * stride; }
    void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const override {
        int32_t* rank = static_cast<int32_t*>(scratch);
        char* const codes = static_cast<char*>(loaded) + ByValue::loaded_bytes(stride);
        if (__builtin_expect(apart(n, stride), true)) {
            if (const char* const rows = rows_in_place(documents, first, n)) {
                if (documents.is_double)
                    code(reinterpret_cast<const double*>(rows), n, stride, rank, codes);
                else
                    code(reinterpret_cast<const float*>(rows), n, stride, rank, codes);
                return;
            }
            load_rows(documents, first, n, loaded);
        } else {
            ByValue::load(documents, first, n, stride, loaded, scratch);
        }
        visit(loaded, [&](const auto* x) { code(x, n, stride, rank, codes); });
    }
    bool adds_in_find() const override { return has_jumps(); }
    void find(int block, int n, int stride, const void* loaded, void*, const LeafRecords& records, void* leaf) const override {
        const char* codes = static_cast<const char*>(loaded) + ByValue::loaded_bytes(stride);
        uint8_t* const to = static_cast<uint8_t*>(leaf);
        if (!apart(n, stride))
            kernels_.rank_tests(layout_, block, reinterpret_cast<const int8_t*>(codes), records, n, stride, to);
        else if (has_jumps())
            kernels_.rank_jumps(layout_, block, reinterpret_cast<const uint8_t*>(codes), records, n, stride, to);
        else
            kernels_.rankwalk(layout_, block, reinterpret_cast<const uint32_t*>(codes), n, stride, to);
    }

private:
    // Whether load_rows copies the features from the first column's on as they are.
    static bool copies(const Columns& columns) {
        bool does = columns.n > 0 && columns.n == columns.n_numeric;
        for (int c = 0; c < columns.n && does; c++)
            does = columns.feature[c] == columns.feature[0] + c && !(columns.routing[c] & (kZeroMissing | kCategorical));
        return does;
    }
    // Documents [first, first + n) where they are, if load_rows would make an exact copy of them; else null.
    const char* rows_in_place(const Documents& documents, int64_t first, int n) const {
        const int64_t size = documents.is_double ? sizeof(double) : sizeof(float);
        if (!copies_ || (documents.is_double && single_) || documents.column_stride != size ||
            (n > 1 && documents.row_stride != columns_.n * size))
            return nullptr;
        return static_cast<const char*>(documents.data) + first * documents.row_stride + columns_.feature[0] * size;
    }
    bool has_jumps() const { return kernels_.rank_jumps && layout_.jumps.n_words > 0; }
    // Up to this many documents are scored one after another.
    int max_apart() const { return has_jumps() ? kJumping : max_walking(kernels_.rank_lanes); }
    // Threads may split a batch into blocks too small to fill a register.
    bool apart(int n, int stride) const { return n <= max_apart() || !fills_register(stride); }
    bool fills_register(int stride) const { return stride >= kernels_.rank_lanes; }
    // Bytes of the codes of a document that is scored on its own.
    size_t of_document() const { return has_jumps() ? kJumpEntries : sizeof(uint32_t) * layout_.n_entries; }
    template <class Value> void code(const Value* x, int n, int stride, int32_t* rank, char* codes) const {
        const auto& kernels = kernels_.of(x);
        if (!apart(n, stride))
            kernels.rank_bytes(layout_, x, n, stride, rank, reinterpret_cast<int8_t*>(codes));
        else if (has_jumps())
            kernels.jump_codes(layout_, x, n, rank, reinterpret_cast<uint8_t*>(codes));
        else
            kernels.rank_codes(layout_, x, n, rank, reinterpret_cast<uint32_t*>(codes));
    }
    const RankWalkLayout layout_;
    const bool copies_;
};

// load writes planes. Scratch holds the predicates of a superblock, then the slots of a group (or the planes of a tree and its
// spilled S).
class Bitslice final : public ExitLeaves {
public:
    // Words hold up to `word` documents, or the narrowest word's if that is more. Up to `together` document blocks share a
    // superblock. At least n_making threads write the code.
    Bitslice(const Kernels& kernels, const BitsliceLayout& layout, int word, int together, int n_making)
        : ExitLeaves(block_offsets_of(layout)), kernels_(kernels), layout_(layout), together_(together), n_making_(n_making) {
        while (n_widths_ < kernels.n_widths && 8 * kernels.widths[n_widths_].word_bytes <= word) n_widths_++;
        for (int w = 0; w < n_widths_; w++)
            for (int d = 0; d < 8 * kernels.widths[w].word_bytes; d++)
                // spread writes document 8 i + r at byte r * word_bytes + i.
                order_[w].push_back(static_cast<uint16_t>(d % 8 * kernels.widths[w].word_bytes + d / 8));
    }

    ~Bitslice() override {
        for (auto& code : code_) delete code.load();
    }

    int document_block() const override { return 8 * widest(); }
    int stride(int n) const override {
        int w = 0;
        while (8 * kernels_.widths[w].word_bytes < n) w++;
        return 8 * kernels_.widths[w].word_bytes;
    }
    int leaf_bytes() const override { return layout_.leaf_bytes; }
    // The first tree block of a superblock decodes its predicates.
    bool begins_superblock(int block) const override { return layout_.block_segments[block] != layout_.block_segments[block + 1]; }
    int blocks_together() const override {
        const size_t fitting = kLoadedTogether / std::max<size_t>(loaded_bytes(document_block()), 1);
        return static_cast<int>(std::clamp<size_t>(fitting, 1, together_));
    }
    const uint16_t* order(int stride) const override { return order_[width(stride)].data(); }
    // Coded documents are stored as load writes them, one document block after another.
    size_t loaded_bytes(int stride) const override { return whole_lines(static_cast<size_t>(layout_.ranks.n_planes()) * (stride / 8)); }
    size_t scratch_bytes(int stride) const override { return predicate_bytes(stride) + slot_bytes(stride); }
    void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void*) const override {
        if (documents.planes) {
            std::memcpy(loaded, documents.planes + first / document_block() * loaded_bytes(stride), loaded_bytes(stride));
            return;
        }
        kernels_.rank(layout_.ranks, documents, first, n, static_cast<uint8_t*>(loaded), stride / 8);
    }
    // Threads that come at the same time each make code, and the code that is finished first is kept. There is no lock: a fork
    // could leave it locked in the child.
    void make_ready(int stride, int n_threads) const override {
        const int w = width(stride);
        if (is_ready(stride)) return;
        n_threads = std::max(n_threads, n_making_);
        const int64_t n = layout_.n_blocks, n_parts = std::min<int64_t>(n_threads, n);
        std::vector<TreePrograms> parts(n_parts);
        share_out(n_parts, n_threads, [&](int, int64_t p) {
            parts[p] = write_programs(layout_, kernels_.encoding, code_ahead_here(), stride / 8, static_cast<int>(n * p / n_parts),
                                      static_cast<int>(n * (p + 1) / n_parts));
        });
        auto made = std::make_unique<const MachineCode>(layout_, kernels_, w, parts, code_files_);
        const MachineCode* none = nullptr;
        if (code_[w].compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) made.release();
    }
    bool is_ready(int stride) const { return !layout_.nodes || code_[width(stride)].load(std::memory_order_acquire); }
    void bring(int block, int stride, const LeafRecords& records) const override {
        if (records.first && stride < document_block())  // a full block soon reads most of them anyway
            for (int t = first_tree(block); t < first_tree(block + 1); t++) prefetch_records(records, t);
        if (layout_.nodes) code_[width(stride)].load(std::memory_order_acquire)->bring(block);
    }
    void find(int block, int, int stride, const void* loaded, void* scratch, const LeafRecords&, void* leaf) const override {
        find_predicates(block, stride, loaded, scratch);
        run_programs(block, stride, scratch, leaf);
    }

    // The two stages of find.
    void find_predicates(int block, int stride, const void* planes, void* words) const {
        if (begins_superblock(block)) kernels_.widths[width(stride)].predicates(layout_, block, planes, words);
    }
    void run_programs(int block, int stride, void* words, void* leaf) const {
        void* slots = static_cast<char*>(words) + predicate_bytes(stride);
        if (layout_.nodes)
            code_[width(stride)].load(std::memory_order_acquire)->run(block, words, slots, leaf);
        else
            kernels_.widths[width(stride)].programs(layout_, block, words, slots, leaf);
    }

private:
    static constexpr size_t kLoadedTogether = 2 << 20;  // bytes of documents that pass a superblock together: they fit the L3 cache

    int widest() const { return kernels_.widths[n_widths_ - 1].word_bytes; }
    int width(int stride) const {
        int w = 0;
        while (8 * kernels_.widths[w].word_bytes != stride) w++;
        return w;
    }
    size_t predicate_bytes(int stride) const { return whole_lines(static_cast<size_t>(layout_.n_predicates) * (stride / 8)); }
    size_t slot_bytes(int stride) const {
        return whole_lines(static_cast<size_t>(layout_.nodes ? kPlanes + kSpills : layout_.n_slots) * (stride / 8));
    }

    const Kernels& kernels_;
    const BitsliceLayout layout_;
    const int together_, n_making_;
    const CodeFiles code_files_ = code_files_asked_for();
    int n_widths_ = 1;
    std::vector<uint16_t> order_[kMaxWidths];
    mutable std::atomic<const MachineCode*> code_[kMaxWidths] = {};
};

}  // namespace gpuqs
