#include "readers/lightgbm_trees.hpp"

#include <charconv>
#include <cstring>

namespace gpuqs {
namespace {

constexpr int kMostLines = 1000;
constexpr char kNextTree[] = "\nTree=";

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
bool begins_number(const char* p, const char* end) { return p < end && is_digit(p[*p == '-' && p + 1 < end]); }

// These give where a number ends; null where it is none of its type, or written in a way that others might read otherwise.
const char* read_one(const char* p, const char* end, double* value) {
#ifdef __cpp_lib_to_chars
    if (!begins_number(p, end)) return nullptr;
    const auto [last, error] = std::from_chars(p, end, *value);
    return error == std::errc() ? last : nullptr;
#else
    return nullptr;
#endif
}
template <class Whole> const char* read_one(const char* p, const char* end, Whole* value) {
    if (!begins_number(p, end)) return nullptr;
    const auto [last, error] = std::from_chars(p, end, *value);
    return error == std::errc() ? last : nullptr;
}

// Exactly n numbers with one space between them.
template <class Value> bool read_all(const char* p, const char* end, int64_t n, std::vector<Value>& values) {
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && (p == end || *p++ != ' ')) return false;
        Value value;
        if (!(p = read_one(p, end, &value))) return false;
        values.push_back(value);
    }
    return p == end;
}

struct Line {
    const char* begin = nullptr;  // behind "key="; null: there is no such line
    const char* end = nullptr;
    template <class Value> bool holds(int64_t n, std::vector<Value>& values) const { return begin && read_all(begin, end, n, values); }
    // As it is written without need: no sign, no zero in front.
    bool number(int64_t* value) const {
        if (!begin || begin == end || end - begin > 9 || !is_digit(*begin) || (*begin == '0' && end - begin > 1)) return false;
        return read_one(begin, end, value) == end;
    }
};

enum Key { kTree, kLeaves, kSets, kFeature, kThreshold, kDecision, kLeft, kRight, kValue, kLinear, kKeys };
constexpr const char* kNames[kKeys] = {"Tree",          "num_leaves", "num_cat",     "split_feature", "threshold",
                                       "decision_type", "left_child", "right_child", "leaf_value",    "is_linear"};

// The lines of a tree by key; false where there are too many, or a key is there twice.
bool find_lines(const char* p, const char* end, Line (&lines)[kKeys]) {
    for (int n = 0; p < end; n++) {
        if (n >= kMostLines) return false;
        const char* const line_end = static_cast<const char*>(std::memchr(p, '\n', end - p));
        const char* const stop = line_end ? line_end : end;
        for (int key = 0; key < kKeys; key++) {
            const size_t size = std::strlen(kNames[key]);
            if (static_cast<size_t>(stop - p) < size || std::memcmp(p, kNames[key], size) != 0) continue;
            const bool has_value = p + size < stop && p[size] == '=';
            if (!has_value && p + size < stop) continue;  // a longer key
            if (!has_value || lines[key].begin) return false;
            lines[key] = {p + size + 1, stop};
        }
        p = stop + 1;
    }
    return true;
}

bool within(const std::vector<int32_t>& values, size_t from) {
    bool is = true;
    for (size_t i = from; i < values.size(); i++) is &= values[i] != INT32_MIN;
    return is;
}

// Whether a tree was read; what was read of another is to be taken back.
bool read_tree(const char* p, const char* end, int64_t tree, int largest_decision, PlainTrees& to) {
    Line lines[kKeys];
    int64_t number, n_leaves, n_sets, linear = 0;
    if (!find_lines(p, end, lines)) return false;
    if (!lines[kTree].number(&number) || number != tree) return false;
    if (!lines[kLeaves].number(&n_leaves) || n_leaves < 2) return false;
    if (!lines[kSets].number(&n_sets) || n_sets != 0) return false;
    if (lines[kLinear].begin && (!lines[kLinear].number(&linear) || linear != 0)) return false;
    const int64_t n = n_leaves - 1;
    const size_t nodes = to.feature.size();
    if (!lines[kFeature].holds(n, to.feature) || !lines[kThreshold].holds(n, to.threshold) || !lines[kLeft].holds(n, to.left) ||
        !lines[kRight].holds(n, to.right) || !lines[kValue].holds(n_leaves, to.leaf_value) || !lines[kDecision].holds(n, to.decision))
        return false;
    if (!within(to.feature, nodes) || !within(to.left, nodes) || !within(to.right, nodes)) return false;
    for (size_t i = nodes; i < to.decision.size(); i++)
        if (to.decision[i] > largest_decision) return false;
    to.n_leaves.push_back(n_leaves);
    return true;
}

int64_t next_tree(const char* text, int64_t from, int64_t end) {
    const size_t size = sizeof kNextTree - 1;
    for (const char* p = text + from; (p = static_cast<const char*>(std::memchr(p, '\n', text + end - p))); p++)
        if (static_cast<size_t>(text + end - p) >= size && std::memcmp(p, kNextTree, size) == 0) return p - text;
    return -1;
}

}  // namespace

PlainTrees read_plain_trees(const char* text, int64_t at, int64_t end, int64_t tree, int64_t bytes, int largest_decision) {
    PlainTrees trees;
    const int64_t first = at;
    while (at != -1 && at - first < bytes) {
        const int64_t next = next_tree(text, at + 1, end), stop = next != -1 ? next : end;
        const size_t nodes = trees.feature.size(), leaves = trees.leaf_value.size();
        if (!read_tree(text + at + 1, text + stop, tree, largest_decision, trees)) {
            for (std::vector<int32_t>* of : {&trees.feature, &trees.left, &trees.right}) of->resize(nodes);
            trees.threshold.resize(nodes);
            trees.decision.resize(nodes);
            trees.leaf_value.resize(leaves);
            break;
        }
        trees.starts.push_back(at);
        tree++;
        at = next;
    }
    trees.next = at;
    return trees;
}

}  // namespace gpuqs
