// Walks over items that are only nodes: sixteen per register, whose nodes and values are gathered.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "generic/walked_items.inl"
#include "layout/walk.hpp"

namespace gpuqs {
namespace {

constexpr int kSixteen = 16;
constexpr int kRegisters = 4;    // of walks side by side: with two, walks waited longer; eight were spilled to memory
constexpr int kStepsInARow = 4;  // before others replace the walks that have ended
constexpr int kListed = 1024;    // upper limit of walks in a list
constexpr int kNodesTouched = 64;  // of a tree, per document: about as many as a walk reads

inline __m512i zero_to_fifteen() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }

// Sixteen walks.
struct Walking {
    __m512i at;      // node, counted from the first one
    __m512i row;     // index of its document's first value
    __m512i out;     // where its leaf goes
    __m512i passed;  // leaves to the left of the path so far
    __mmask16 taken, live;  // lanes that hold a walk, and lanes whose walk is not at a leaf yet
};

struct SixteenDoubles { __m512d at[2]; };

// Thresholds and links of sixteen nodes.
inline void nodes_at(const Item<float>* first, __m512i at, __mmask16 where, __m512& threshold, __m512i& link) {
    static_assert(sizeof(Item<float>) == 8 && offsetof(Item<float>, link) == 4, "a gather reads both");
    const __m512i none = _mm512_setzero_si512(), even = _mm512_slli_epi32(zero_to_fifteen(), 1);
    const __m512i low = _mm512_mask_i32gather_epi64(none, static_cast<__mmask8>(where), _mm512_castsi512_si256(at), first, 8);
    const __m512i high =
        _mm512_mask_i32gather_epi64(none, static_cast<__mmask8>(where >> 8), _mm512_extracti64x4_epi64(at, 1), first, 8);
    threshold = _mm512_castsi512_ps(_mm512_permutex2var_epi32(low, even, high));
    link = _mm512_permutex2var_epi32(low, _mm512_or_si512(even, _mm512_set1_epi32(1)), high);
}
inline void nodes_at(const Item<double>* first, __m512i at, __mmask16 where, SixteenDoubles& threshold, __m512i& link) {
    static_assert(sizeof(Item<double>) == 16 && offsetof(Item<double>, link) == 8, "as the scales say");
    const __m512d none = _mm512_setzero_pd();
    const __m512i twice = _mm512_slli_epi32(at, 1);
    threshold.at[0] = _mm512_mask_i32gather_pd(none, static_cast<__mmask8>(where), _mm512_castsi512_si256(twice), first, 8);
    threshold.at[1] = _mm512_mask_i32gather_pd(none, static_cast<__mmask8>(where >> 8), _mm512_extracti64x4_epi64(twice, 1), first, 8);
    link = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), where, twice, &first->link, 8);
}

inline __m512 values_at(const float* x, __m512i at, __mmask16 where) {
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), where, at, x, 4);
}
inline SixteenDoubles values_at(const double* x, __m512i at, __mmask16 where) {
    const __m512d none = _mm512_setzero_pd();
    return {{_mm512_mask_i32gather_pd(none, static_cast<__mmask8>(where), _mm512_castsi512_si256(at), x, 8),
             _mm512_mask_i32gather_pd(none, static_cast<__mmask8>(where >> 8), _mm512_extracti64x4_epi64(at, 1), x, 8)}};
}

template <int comparison> __mmask16 compare(__mmask16 where, __m512 a, __m512 b) {
    return _mm512_mask_cmp_ps_mask(where, a, b, comparison);
}
template <int comparison> __mmask16 compare(__mmask16 where, const SixteenDoubles& a, const SixteenDoubles& b) {
    const __mmask8 low = _mm512_mask_cmp_pd_mask(static_cast<__mmask8>(where), a.at[0], b.at[0], comparison);
    const __mmask8 high = _mm512_mask_cmp_pd_mask(static_cast<__mmask8>(where >> 8), a.at[1], b.at[1], comparison);
    return static_cast<__mmask16>(low | high << 8);
}

template <class Value> struct SixteenOf { using Type = __m512; };
template <> struct SixteenOf<double> { using Type = SixteenDoubles; };

// Masks and shifts for the parts of links.
struct Links {
    explicit Links(const WalkLayout& layout)
        : column(_mm512_set1_epi32((1 << layout.column_bits) - 1)), nan_left(_mm512_set1_epi32(1 << layout.column_bits)),
          right_is_leaf(_mm512_set1_epi32(2 << layout.column_bits)), shift(_mm_cvtsi32_si128(layout.column_bits + 2)) {}
    __m512i column, nan_left, right_is_leaf;
    __m128i shift;  // to the number of leaves on the left
};

template <bool has_missing, class Value> void step(const Links& links, const Item<Value>* first, const Value* x, Walking& walks) {
    typename SixteenOf<Value>::Type threshold;
    __m512i link;
    nodes_at(first, walks.at, walks.live, threshold, link);
    const auto value = values_at(x, _mm512_add_epi32(walks.row, _mm512_and_si512(link, links.column)), walks.live);
    __mmask16 right = compare<_CMP_GT_OQ>(walks.live, value, threshold);
    if (has_missing) right |= _mm512_mask_testn_epi32_mask(compare<_CMP_UNORD_Q>(walks.live, value, value), link, links.nan_left);
    const __m512i one = _mm512_set1_epi32(1), left = _mm512_srl_epi32(link, links.shift);
    walks.at = _mm512_add_epi32(walks.at, _mm512_mask_mov_epi32(one, right, left));
    walks.passed = _mm512_mask_add_epi32(walks.passed, right, walks.passed, left);
    walks.live &= ~(_mm512_mask_test_epi32_mask(right, link, links.right_is_leaf) |
                    _mm512_mask_cmpeq_epi32_mask(static_cast<__mmask16>(~right), left, one));
}

// Walks to begin: all those of a few documents through trees [tree, end), at most kListed.
class Listed {
public:
    Listed(const WalkLayout& layout, int tree, int end, int n, int stride, int32_t* leaf) {
        const int64_t* offset = layout.tree_offsets + tree;
        for (int64_t out = 0, first = *offset; tree < end; tree++, offset++, out += stride)
            for (int d = 0; d < n; d++) {
                if (offset[0] == offset[1]) {  // one leaf
                    leaf[out + d] = 0;
                    continue;
                }
                at_[n_] = static_cast<int>(*offset - first);
                row_[n_] = d * layout.columns.n;
                out_[n_++] = static_cast<int>(out + d);
            }
    }
    int rest() const { return n_ - next_; }
    // Begins the next walks in the lanes `where`.
    void begin(__mmask16 where, Walking& walks) {
        walks.at = _mm512_mask_expand_epi32(walks.at, where, _mm512_loadu_si512(at_ + next_));
        walks.row = _mm512_mask_expand_epi32(walks.row, where, _mm512_loadu_si512(row_ + next_));
        walks.out = _mm512_mask_expand_epi32(walks.out, where, _mm512_loadu_si512(out_ + next_));
        next_ += __builtin_popcount(where);
    }

private:
    int n_ = 0, next_ = 0;
    int at_[kListed + kSixteen], row_[kListed + kSixteen], out_[kListed + kSixteen];  // padded: registers are loaded from any index on
};

// Walks to begin: all those of at least sixteen documents, through trees [tree, end) one after another.
template <class Value> class InOrder {
public:
    InOrder(const WalkLayout& layout, int tree, int end, int n, int stride, int32_t* leaf)
        : layout_(layout), first_(tree), end_(end), n_(n), stride_(stride), leaf_(leaf) {
        next_ = with_nodes(tree);
        go_to_next();
    }
    // How many walks are left; before the last tree, some number that is at least sixteen.
    int rest() const { return tree_ == end_ ? 0 : next_ == end_ ? n_ - document_ : n_; }
    void begin(__mmask16 where, Walking& walks) {
        const __m512i n = _mm512_set1_epi32(n_), all = _mm512_add_epi32(zero_to_fifteen(), _mm512_set1_epi32(document_));
        const __mmask16 in_next = _mm512_cmpge_epi32_mask(all, n);
        const __m512i document = _mm512_mask_sub_epi32(all, in_next, all, n);
        const auto of_tree = [&](int here, int there) { return _mm512_mask_set1_epi32(_mm512_set1_epi32(here), in_next, there); };
        const __m512i row = _mm512_mullo_epi32(document, _mm512_set1_epi32(layout_.columns.n));
        const __m512i out = _mm512_add_epi32(document, of_tree(stride_ * (tree_ - first_), stride_ * (next_ - first_)));
        walks.at = _mm512_mask_expand_epi32(walks.at, where, of_tree(root(tree_), root(next_)));
        walks.row = _mm512_mask_expand_epi32(walks.row, where, row);
        walks.out = _mm512_mask_expand_epi32(walks.out, where, out);
        document_ += __builtin_popcount(where);
        if (document_ < n_) return;
        document_ -= n_;
        go_to_next();
    }

private:
    int root(int tree) const { return static_cast<int>(layout_.tree_offsets[tree] - layout_.tree_offsets[first_]); }
    void go_to_next() {
        tree_ = next_;
        if (tree_ == end_) return;
        touch_tree<Value>(layout_, tree_, n_, kNodesTouched);
        next_ = with_nodes(tree_ + 1);
    }
    // The first tree from `tree` on that has nodes. Writes the leaves of the trees before it, which have only one.
    int with_nodes(int tree) const {
        for (; tree < end_ && layout_.tree_offsets[tree] == layout_.tree_offsets[tree + 1]; tree++)
            std::fill_n(leaf_ + static_cast<int64_t>(tree - first_) * stride_, n_, 0);
        return tree;
    }

    const WalkLayout& layout_;
    const int first_, end_, n_, stride_;
    int32_t* const leaf_;
    int tree_, next_, document_ = 0;
};

// Writes the leaves of walks that have ended, and begins others in their lanes.
template <class ToTake> void go_on(ToTake& to_take, Walking& walks, int32_t* leaf) {
    const __mmask16 ended = walks.taken & static_cast<__mmask16>(~walks.live);
    if (ended) _mm512_mask_i32scatter_epi32(leaf, ended, walks.out, walks.passed, 4);
    __mmask16 where = static_cast<__mmask16>(~walks.live);
    if (const int rest = to_take.rest(); rest < __builtin_popcount(where))
        where = static_cast<__mmask16>(_pdep_u32((1u << rest) - 1, where));
    if (where) to_take.begin(where, walks);
    walks.passed = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~where), walks.passed);
    walks.live |= where;
    walks.taken = walks.live;
}

template <bool has_missing, int n_registers, class Value, class ToTake>
void walk_all(const WalkLayout& layout, const Item<Value>* first, const Value* x, ToTake& to_take, int32_t* leaf) {
    const Links links(layout);
    Walking walks[n_registers] = {};
    for (int taken = 1; taken;) {
        taken = 0;
        for (int r = 0; r < n_registers; r++) {
            go_on(to_take, walks[r], leaf);
            taken |= walks[r].taken;
        }
        for (int s = 0; s < kStepsInARow; s++)
#pragma GCC unroll 4
            for (int r = 0; r < n_registers; r++) step<has_missing>(links, first, x, walks[r]);
    }
}

struct Gathers {
    static constexpr bool available = true;

    template <bool has_missing, class Value>
    static void walk_block(const WalkLayout& layout, int block, const Value* x, int n, int stride, int32_t* leaf) {
        const Item<Value>* nodes = items_of<Value>(layout);
        int tree = layout.block_offsets[block];
        const int end = layout.block_offsets[block + 1];
        if (n >= kSixteen) {
            InOrder<Value> walks(layout, tree, end, n, stride, leaf);
            walk_all<has_missing, kRegisters>(layout, nodes + layout.tree_offsets[tree], x, walks, leaf);
            return;
        }
        for (int next; tree < end; leaf += static_cast<int64_t>(next - tree) * stride, tree = next) {
            next = std::min(end, tree + kListed / n);
            Listed walks(layout, tree, next, n, stride, leaf);
            const auto walk_listed =
                walks.rest() > kSixteen ? walk_all<has_missing, kRegisters, Value, Listed> : walk_all<has_missing, 1, Value, Listed>;
            walk_listed(layout, nodes + layout.tree_offsets[tree], x, walks, leaf);
        }
    }
};

}  // namespace
}  // namespace gpuqs
