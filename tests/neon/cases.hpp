// Reads the files of write_cases.py: arrays, and the models that they form.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "driver/engines.hpp"
#include "layout/bitslice.hpp"
#include "layout/leaves.hpp"
#include "layout/quickscorer.hpp"
#include "layout/rankwalk.hpp"
#include "layout/walk.hpp"

namespace gpuqs {

constexpr size_t kLine = 64;

template <class Item> struct Array {
    const Item* data;
    int64_t n;
};

// An array is one cache line with {kind, bytes per item, number of items}, then its items, padded to whole lines.
class Reader {
public:
    explicit Reader(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        if (!file) throw std::runtime_error(std::string("cannot read ") + path);
        std::fseek(file, 0, SEEK_END);
        const size_t bytes = static_cast<size_t>(std::ftell(file));
        std::rewind(file);
        bytes_.reset(static_cast<char*>(std::aligned_alloc(kLine, bytes / kLine * kLine + kLine)));
        at_ = bytes_.get();
        const bool whole = std::fread(bytes_.get(), 1, bytes, file) == bytes;
        std::fclose(file);
        if (!whole) throw std::runtime_error(std::string("cannot read all of ") + path);
        end_ = at_ + bytes;
    }

    // The next array, which must hold items of this kind and size.
    template <class Item> Array<Item> array() {
        const char kind = !std::is_arithmetic_v<Item> ? 'V' : std::is_floating_point_v<Item> ? 'f' : std::is_signed_v<Item> ? 'i' : 'u';
        const Any any = this->any();
        if (any.kind != kind || any.item_bytes != sizeof(Item))
            throw std::runtime_error("the file of cases holds other arrays than this program reads");
        return {static_cast<const Item*>(any.data), any.n};
    }
    template <class Item> const Item* items() { return array<Item>().data; }
    int64_t number() { return *items<int64_t>(); }
    int small() { return static_cast<int>(number()); }
    std::string text() {
        const auto letters = array<uint8_t>();
        return std::string(reinterpret_cast<const char*>(letters.data), static_cast<size_t>(letters.n));
    }
    // The next array of any type, with its kind and bytes per item.
    struct Any {
        const void* data;
        char kind;
        int64_t item_bytes, n;
    };
    Any any() {
        if (at_ + kLine > end_) throw std::runtime_error("the file of cases ends too soon");
        const int64_t* head = reinterpret_cast<const int64_t*>(at_);
        const Any any = {at_ + kLine, static_cast<char>(head[0]), head[1], head[2]};
        at_ += kLine + (static_cast<size_t>(any.item_bytes * any.n) + kLine - 1) / kLine * kLine;
        if (at_ > end_) throw std::runtime_error("the file of cases ends too soon");
        return any;
    }

private:
    struct Free {
        void operator()(char* p) const { std::free(p); }
    };
    std::unique_ptr<char, Free> bytes_;
    const char* at_ = nullptr;
    const char* end_ = nullptr;
};

inline Columns read_columns(Reader& from) {
    Columns c;
    c.n = from.small();
    c.n_numeric = from.small();
    c.feature = from.items<int32_t>();
    c.routing = from.items<uint8_t>();
    c.set_offsets = from.items<int64_t>();
    c.set_words = from.items<uint32_t>();
    const auto tables = from.array<CategoryTable>();
    c.n_tables = static_cast<int>(tables.n);
    c.tables = tables.data;
    c.row_of_code = from.items<int32_t>();
    c.rows = from.items<uint64_t>();
    return c;
}

inline Tuples read_tuples(Reader& from) {
    Tuples c;
    c.offsets = from.items<int64_t>();
    c.tree = from.items<int32_t>();
    c.mask = from.items<uint8_t>();
    return c;
}

inline TestLists read_lists(Reader& from) {
    TestLists c;
    c.tests = read_tuples(from);
    c.missing = read_tuples(from);
    c.threshold32 = from.items<float>();
    c.threshold64 = from.items<double>();
    return c;
}

// Builds an engine for an instruction set.
class Program {
public:
    explicit Program(Reader& from) : name(from.text()) {
        if (name == "quickscorer")
            read_quick_scorer(from);
        else if (name == "walk")
            read_walk(from);
        else if (name == "rankwalk")
            read_rankwalk(from);
        else if (name == "bitslice")
            read_bitslice(from);
        else
            throw std::runtime_error("no engine " + name);
        read_values(from);
    }

    const std::string name;

    std::unique_ptr<ExitLeaves> engine(const Kernels& kernels) const {
        if (name == "walk") return std::make_unique<Walk>(kernels, walk_, document_block_);
        if (name == "rankwalk") return std::make_unique<RankWalk>(kernels, rankwalk_, document_block_);
        if (name == "bitslice") return std::make_unique<Bitslice>(kernels, bitslice_, word_, together_, 1);
        return std::make_unique<QuickScorer>(kernels, quick_scorer_, together_, document_block_);
    }

    // Leaf values, with their byte tables if there are any and the instruction set uses them.
    LeafValues values(const Kernels& kernels) const {
        LeafValues values = values_;
        if (values.tables && kernels.table_part(values.table_leaves, 4) == 0) values.tables = nullptr;
        return values;
    }

private:
    void read_quick_scorer(Reader& from) {
        document_block_ = from.small();
        together_ = from.small();
        quick_scorer_.single = from.number();
        quick_scorer_.mask_bits = from.small();
        quick_scorer_.has_reversed = from.number();
        quick_scorer_.oblivious = from.number();
        quick_scorer_.columns = read_columns(from);
        const auto blocks = from.array<int32_t>();
        quick_scorer_.n_blocks = static_cast<int>(blocks.n) - 1;
        quick_scorer_.block_offsets = blocks.data;
        quick_scorer_.straight = read_lists(from);
        if (quick_scorer_.has_reversed) quick_scorer_.reversed = read_lists(from);
    }

    void read_walk(Reader& from) {
        document_block_ = from.small();
        walk_.single = from.number();
        walk_.wide = from.number();
        walk_.column_bits = from.small();
        walk_.columns = read_columns(from);
        const auto blocks = from.array<int32_t>();
        walk_.n_blocks = static_cast<int>(blocks.n) - 1;
        walk_.block_offsets = blocks.data;
        walk_.tree_offsets = from.items<int64_t>();
        walk_.item32 = from.items<Item<float>>();
        walk_.item64 = from.items<Item<double>>();
    }

    void read_rankwalk(Reader& from) {
        document_block_ = from.small();
        rankwalk_.single = from.number();
        rankwalk_.columns = read_columns(from);
        rankwalk_.offsets = from.items<int64_t>();
        rankwalk_.threshold32 = from.items<float>();
        rankwalk_.threshold64 = from.items<double>();
        rankwalk_.block = from.items<int64_t>();
        rankwalk_.sample_block = from.items<int64_t>();
        rankwalk_.blocks32.threshold = from.items<float>();
        rankwalk_.blocks32.sample = from.items<float>();
        rankwalk_.blocks64.threshold = from.items<double>();
        rankwalk_.blocks64.sample = from.items<double>();
        const auto entries = from.array<RankEntry>();
        rankwalk_.n_entries = static_cast<int>(entries.n);
        rankwalk_.entries = entries.data;
        const auto blocks = from.array<int32_t>();
        rankwalk_.n_blocks = static_cast<int>(blocks.n) - 1;
        rankwalk_.block_offsets = blocks.data;
        rankwalk_.tree = from.items<int32_t>();
        rankwalk_.root = from.items<uint32_t>();
        rankwalk_.steps = from.items<uint8_t>();
        rankwalk_.group_items = from.items<int64_t>();
        rankwalk_.items = from.items<uint32_t>();
        rankwalk_.node_offsets = from.items<int64_t>();
        rankwalk_.tests = from.items<RankTest>();
    }

    void read_bitslice(Reader& from) {
        RankTables& ranks = bitslice_.ranks;
        word_ = from.small();
        together_ = from.small();
        ranks.single = from.number();
        ranks.columns = read_columns(from);
        ranks.n_bits = from.items<uint8_t>();
        ranks.marks_missing = from.items<uint8_t>();
        ranks.plane_offsets = from.items<int32_t>();
        ranks.level_offsets = from.items<int64_t>();
        ranks.levels = from.items<float>();
        ranks.offsets = from.items<int64_t>();
        ranks.threshold = from.items<double>();
        const auto blocks = from.array<int32_t>();
        bitslice_.n_blocks = static_cast<int>(blocks.n) - 1;
        bitslice_.block_offsets = blocks.data;
        bitslice_.block_segments = from.items<int64_t>();
        bitslice_.segments = from.items<Segment>();
        bitslice_.low = from.items<uint8_t>();
        bitslice_.block_low = from.items<int64_t>();
        bitslice_.n_predicates = from.small();
        bitslice_.level_offsets = from.items<int64_t>();
        bitslice_.levels = from.items<uint16_t>();
        const auto tree_leaves = from.array<uint16_t>();
        bitslice_.tree_leaves = tree_leaves.data;
        bitslice_.leaf_bytes = 1;
        for (int64_t t = 0; t < tree_leaves.n; t++)
            if (tree_leaves.data[t] > 256) bitslice_.leaf_bytes = 2;
        bitslice_.nodes = nullptr;
        bitslice_.trees_merged = from.small();
        bitslice_.n_slots = from.small();
        bitslice_.group_runs = from.items<int64_t>();
        bitslice_.runs = from.items<Run>();
        bitslice_.group_treelets = from.items<int64_t>();
        bitslice_.treelets = from.items<Treelet>();
        bitslice_.tree_slot = from.items<uint16_t>();
    }

    void read_values(Reader& from) {
        const Reader::Any value = from.any();
        values_.kind = value.kind == 'i' ? ValueKind::fixed : value.item_bytes == 4 ? ValueKind::float32 : ValueKind::float64;
        values_.value = value.data;
        values_.offsets = from.items<int64_t>();
        const auto tree_output = from.array<int32_t>();
        values_.tree_output = tree_output.data;
        values_.first_tree = 0;
        values_.n_trees = static_cast<int>(tree_output.n);
        values_.before = from.items<int32_t>();
        values_.after = from.items<int32_t>();
        values_.leaf_id = from.items<int32_t>();
        values_.start = from.any().data;
        values_.width = from.small();
        values_.n_outputs = from.small();
        const auto tables = from.array<uint8_t>();
        values_.tables = tables.n ? tables.data : nullptr;
        values_.table_leaves = from.small();
    }

    int document_block_ = 0, together_ = 0, word_ = 0;
    QuickScorerLayout quick_scorer_ = {};
    WalkLayout walk_ = {};
    RankWalkLayout rankwalk_ = {};
    BitsliceLayout bitslice_ = {};
    LeafValues values_ = {};
};

}  // namespace gpuqs
