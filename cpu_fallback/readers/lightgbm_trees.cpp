#include "readers/lightgbm_trees.hpp"

#include <cstring>

#include "readers/decimal.hpp"

namespace gpuqs {
namespace {

constexpr int kMaxLines = 23;  // "Tree=", and the most lines that LightGBM reads
constexpr char kNextTree[] = "\nTree=";

bool begins_number(const char* p, const char* end) { return p < end && is_digit(p[*p == '-' && p + 1 < end]); }

// Returns where a number ends; null if it is not of its type, or written in a way that other parsers might read differently.
template <class Number> const char* read_one(const char* p, const char* end, Number* value) {
    return begins_number(p, end) ? parse_number(p, end, value) : nullptr;
}

// Reads exactly n numbers with one space between them or, if loose, with one or more spaces between and any number around them.
template <class Value> bool read_all(const char* p, const char* end, int64_t n, std::vector<Value>& values, bool loose = false) {
    const auto skip_spaces = [&] {
        while (loose && p < end && *p == ' ') p++;
    };
    skip_spaces();
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && (p == end || *p++ != ' ')) return false;
        skip_spaces();
        Value value;
        if (!(p = read_one(p, end, &value))) return false;
        values.push_back(value);
    }
    skip_spaces();
    return p == end;
}

struct Line {
    const char* begin = nullptr;  // just after "key="; null if there is no such line
    const char* end = nullptr;
    template <class Value> bool holds(int64_t n, std::vector<Value>& values, bool loose = false) const {
        return begin && read_all(begin, end, n, values, loose);
    }
    // An integer in its plainest form: no sign, no leading zeros, at most 9 digits.
    bool number(int64_t* value) const {
        if (!begin || begin == end || end - begin > 9 || !is_digit(*begin) || (*begin == '0' && end - begin > 1)) return false;
        return read_one(begin, end, value) == end;
    }
};

enum Key {
    kTree,
    kLeaves,
    kSets,
    kFeature,
    kThreshold,
    kDecision,
    kLeft,
    kRight,
    kValue,
    kBoundaries,
    kWords,
    kLinear,
    kConstants,
    kTerms,
    kTermFeatures,
    kCoefficients,
    kKeys
};
constexpr const char* kNames[kKeys] = {
    "Tree",       "num_leaves",     "num_cat",       "split_feature", "threshold",  "decision_type", "left_child",    "right_child",
    "leaf_value", "cat_boundaries", "cat_threshold", "is_linear",     "leaf_const", "num_features",  "leaf_features", "leaf_coeff"};

// Finds the lines of a tree by key; false if there are too many, one has no "=", or a key is there twice.
bool find_lines(const char* p, const char* end, Line (&lines)[kKeys]) {
    while (end > p && (end[-1] == '\n' || end[-1] == '\r')) end--;
    for (int n = 0; p < end; n++) {
        if (n >= kMaxLines) return false;
        const char* const line_end = static_cast<const char*>(std::memchr(p, '\n', end - p));
        const char* const stop = line_end ? line_end : end;
        if (!std::memchr(p, '=', stop - p)) return false;
        for (int key = 0; key < kKeys; key++) {
            const size_t size = std::strlen(kNames[key]);
            if (static_cast<size_t>(stop - p) <= size || std::memcmp(p, kNames[key], size) != 0) continue;
            if (p[size] != '=') continue;  // a longer key
            if (lines[key].begin) return false;
            lines[key] = {p + size + 1, stop};
        }
        p = stop + 1;
    }
    return true;
}

bool within(const std::vector<int32_t>& values) {
    bool is = true;
    for (const int32_t value : values) is &= value != INT32_MIN;
    return is;
}

// Reads category sets, one after another; kBoundaries is where each begins among the words.
bool read_sets(const Line (&lines)[kKeys], int64_t n_sets, PlainTrees& to) {
    std::vector<int64_t> boundaries;
    if (!lines[kBoundaries].holds(n_sets + 1, boundaries) || boundaries[0] != 0) return false;
    for (int64_t set = 0; set < n_sets; set++) {
        if (boundaries[set + 1] < boundaries[set]) return false;
        to.set_size.push_back(boundaries[set + 1] - boundaries[set]);
    }
    return lines[kWords].holds(boundaries[n_sets], to.words);
}

// LightGBM ends each leaf's list with two spaces, so that leaves without terms have only these.
bool read_linear(const Line (&lines)[kKeys], int64_t n_leaves, PlainTrees& to) {
    std::vector<double> constants, coefficients;
    std::vector<int64_t> sizes;
    std::vector<int32_t> features;
    if (!lines[kConstants].holds(n_leaves, constants) || !lines[kTerms].holds(n_leaves, sizes)) return false;
    int64_t n = 0;
    for (const int64_t size : sizes) {
        if (size < 0 || size > lines[kTermFeatures].end - lines[kTermFeatures].begin - n) return false;
        n += size;
    }
    if (!lines[kTermFeatures].holds(n, features, true) || !lines[kCoefficients].holds(n, coefficients, true)) return false;
    int64_t term = 0;
    for (int64_t leaf = 0; leaf < n_leaves; leaf++) {
        to.n_terms.push_back(sizes[leaf] + 1);
        to.term_feature.push_back(-1);
        to.coefficient.push_back(constants[leaf]);
        for (const int64_t end = term + sizes[leaf]; term < end; term++) {
            if (features[term] < 0) return false;
            to.term_feature.push_back(features[term]);
            to.coefficient.push_back(coefficients[term]);
        }
    }
    return true;
}

// Reads a tree into `to`, which is empty; returns whether it could.
bool read_tree(const char* p, const char* end, int64_t tree, int largest_decision, PlainTrees& to) {
    Line lines[kKeys];
    int64_t number, n_leaves, n_sets, linear = 0;
    if (!find_lines(p, end, lines)) return false;
    if (!lines[kTree].number(&number) || number != tree) return false;
    if (!lines[kLeaves].number(&n_leaves) || n_leaves < 1) return false;
    const int64_t n = n_leaves - 1;
    if (!lines[kSets].number(&n_sets) || n_sets > n) return false;
    if (lines[kLinear].begin && !lines[kLinear].number(&linear)) return false;
    if (!lines[kFeature].holds(n, to.feature) || !lines[kThreshold].holds(n, to.threshold) || !lines[kLeft].holds(n, to.left) ||
        !lines[kRight].holds(n, to.right) || !lines[kValue].holds(n_leaves, to.leaf_value) || !lines[kDecision].holds(n, to.decision))
        return false;
    if (!within(to.feature) || !within(to.left) || !within(to.right)) return false;
    for (const uint8_t decision : to.decision)
        if (decision > largest_decision) return false;
    if (n_sets && !read_sets(lines, n_sets, to)) return false;
    if (linear && !read_linear(lines, n_leaves, to)) return false;
    if (linear) to.linear.push_back(tree);
    to.n_leaves.push_back(n_leaves);
    to.n_sets.push_back(n_sets);
    return true;
}

// Appends a tree to the others, and empties it.
void move_behind(PlainTrees& one, PlainTrees& to) {
    const auto move = [&](auto member) {
        (to.*member).insert((to.*member).end(), (one.*member).begin(), (one.*member).end());
        (one.*member).clear();
    };
    for (const auto member :
         {&PlainTrees::n_leaves, &PlainTrees::n_sets, &PlainTrees::set_size, &PlainTrees::linear, &PlainTrees::n_terms})
        move(member);
    for (const auto member : {&PlainTrees::feature, &PlainTrees::left, &PlainTrees::right, &PlainTrees::term_feature}) move(member);
    for (const auto member : {&PlainTrees::threshold, &PlainTrees::leaf_value, &PlainTrees::coefficient}) move(member);
    move(&PlainTrees::decision);
    move(&PlainTrees::words);
}

int64_t next_tree(const char* text, int64_t from, int64_t end) {
    const size_t size = sizeof kNextTree - 1;
    for (const char* p = text + from; (p = static_cast<const char*>(std::memchr(p, '\n', text + end - p))); p++)
        if (static_cast<size_t>(text + end - p) >= size && std::memcmp(p, kNextTree, size) == 0) return p - text;
    return -1;
}

}  // namespace

PlainTrees read_plain_trees(const char* text, int64_t at, int64_t end, int64_t tree, int64_t bytes, int largest_decision) {
    PlainTrees trees, one;
    const int64_t first = at;
    while (at != -1 && at - first < bytes) {
        const int64_t next = next_tree(text, at + 1, end), stop = next != -1 ? next : end;
        if (next != -1 && text[stop - 1] != '\n') break;  // no blank line
        if (!read_tree(text + at + 1, text + stop, tree, largest_decision, one)) break;
        move_behind(one, trees);
        trees.starts.push_back(at);
        tree++;
        at = next;
    }
    trees.next = at;
    return trees;
}

}  // namespace gpuqs
