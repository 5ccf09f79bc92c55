#include "jit/tree_programs.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "jit/assembler.hpp"

namespace gpuqs {
namespace {

constexpr size_t kBytesOfNode = 20;  // an estimate, also for a tree's call of `spread`

// Leaves of a tree whose code, up to 2.5 KB, has as much prefetched at once, in its call of `spread`. Longer code does so in between.
constexpr int kMostInCall = 128;

constexpr int kInMemory = 32;  // numbers of S below this are registers, others are places in memory

// Writes the programs of trees; keeps track of which register holds which S, and how often each is still needed.
class TreeWriter {
public:
    TreeWriter(Assembler& assembler, Encoding encoding, int n_registers)
        : to_(assembler), n_registers_(n_registers), n_waiting_(encoding == Encoding::evex ? 4 : 0) {}

    // Returns how many planes there are.
    int write(const TreeNode* nodes, int n_leaves) {
        nodes_ = nodes;
        is_long_ = n_leaves > kMostInCall;
        n_planes_ = 0;
        while (1 << n_planes_ < n_leaves) n_planes_++;
        n_in_registers_ = n_planes_;  // until S need the registers
        std::fill(std::begin(uses_), std::end(uses_), 0);
        free_ = static_cast<uint32_t>((uint64_t{1} << n_registers_) - 1);
        std::fill(std::begin(planes_), std::end(planes_), Plane{});
        std::fill(std::begin(uses_in_memory_), std::end(uses_in_memory_), 0);
        if (const int root = nodes_[0].right) {
            count_registers(root, n_leaves);
            write_nodes(root);
        }
        for (int k = 0; k < n_in_registers_; k++) {
            if (planes_[k].waiting != kNone) add_one(planes_[k], planes_[k].waiting);
            to_.store(plane_at(k), planes_[k].sum);
        }
        return n_planes_;
    }

private:
    static constexpr int kNone = -1;
    // A plane's sum so far. One S may wait until the next comes, so that one instruction adds both.
    struct Plane {
        int sum = kNone, waiting = kNone;
        bool begun = false;  // in memory
    };

    // A subtree to write. Its S are numbers of registers or, from kInMemory on, of places in memory.
    struct Subtree { int j, first, end; };

    static Operand predicate(uint32_t word) { return {Base::predicates, word}; }
    static Operand plane_at(int k) { return {Base::planes, static_cast<uint32_t>(k)}; }
    static Operand slot_at(int s) { return plane_at(kPlanes + s - kInMemory); }

    int allocate() {
        if (__builtin_expect(!free_, 0)) spill();
        const int r = __builtin_ctz(free_);
        free_ &= free_ - 1;
        uses_[r] = 1;
        return r;
    }
    void retain(int r) { uses_[r]++; }
    void release(int r) {
        if (r != kNone && --uses_[r] == 0) free_ |= uint32_t{1} << r;
    }

    // Spills an S that only waiting subtrees need, one of the subtree that has waited longest.
    [[gnu::cold, gnu::noinline]] void spill() {
        for (const Subtree& waiting : to_do_)
            for (const int s : {waiting.first, waiting.end}) {
                if (s == kNone || s >= kInMemory) continue;
                std::vector<int*> needed;
                for (Subtree& by : to_do_)
                    for (int* const of : {&by.first, &by.end})
                        if (*of == s) needed.push_back(of);
                const int n = static_cast<int>(needed.size());
                if (uses_[s] != n) continue;
                const int place = static_cast<int>(std::find(uses_in_memory_, uses_in_memory_ + kSpills, 0) - uses_in_memory_);
                if (place == kSpills) throw std::logic_error("a tree program needs more memory than there is");  // no tree does
                to_.store(slot_at(kInMemory + place), s);
                for (int* const of : needed) *of = kInMemory + place;
                uses_in_memory_[place] = n;
                uses_[s] = 0;
                free_ |= uint32_t{1} << s;
                return;
            }
        throw std::logic_error("a tree program needs more registers than there are");  // no tree does
    }
    int reload(int s) {
        if (s < kInMemory) return s;
        evict_planes();
        const int r = allocate();
        to_.load(r, slot_at(s));
        uses_in_memory_[s - kInMemory]--;
        return r;
    }

    // Without recursion, as a chain is as deep as the tree has leaves; and without branches on the tree's shape, which no processor
    // predicts.
    void count_registers(int root, int n_leaves) {
        order_.resize(n_leaves + 1);  // nodes, parents first
        registers_needed_.resize(n_leaves);
        int *const order = order_.data(), *const needed = registers_needed_.data();
        int n = 1;
        order[0] = root;
        for (int i = 0; i < n; i++) {
            const TreeNode& node = nodes_[order[i]];
            order[n] = node.left;
            n += node.left != 0;
            order[n] = node.right;
            n += node.right != 0;
        }
        needed[0] = 0;  // of a leaf
        while (n-- > 0) {
            const TreeNode& node = nodes_[order[n]];
            const int left = needed[node.left], right = needed[node.right];
            needed[order[n]] = std::max(left, right) + (left == right);
        }
    }

    // Returns the register of node j's S. S_first without a register is all ones, S_end all zeros. An S that no child needs
    // any more is released.
    int combine(int j, int first, int end) {
        if (is_long_) to_.prefetch_ahead();
        const TreeNode& node = nodes_[j];
        const Operand word = predicate(node.predicate);
        int s = kNone;
        if (node.right == 0 && end != kNone && uses_[end] == 1)
            s = end;
        else if (node.left == 0 && first != kNone && uses_[first] == 1)
            s = first;
        if (s != kNone) {
            retain(s);
        } else {
            evict_planes();
            s = allocate();
        }
        if (first == kNone && end == kNone)
            to_.load(s, word);
        else if (first == kNone)
            to_.or_with(s, end, word);
        else if (end == kNone)
            to_.and_with(s, first, word);
        else
            to_.or_and(s, end, first, word);
        if (node.left == 0) release(first);
        if (node.right == 0) release(end);
        return s;
    }

    void write_nodes(int root) {
        to_do_.clear();
        for (Subtree subtree = {root, kNone, kNone};;) {
            const int j = subtree.j, first = reload(subtree.first), end = reload(subtree.end);
            const TreeNode& node = nodes_[j];
            const int s = combine(j, first, end);
            add_to_plane(__builtin_ctz(j), s);
            const Subtree left = {node.left, first, s}, right = {node.right, s, end};
            if (node.left && node.right) {
                retain(s);
                const bool left_first = registers_needed_[node.left] <= registers_needed_[node.right];
                to_do_.push_back(left_first ? right : left);
                subtree = left_first ? left : right;
            } else if (node.left || node.right) {
                subtree = node.left ? left : right;
            } else {
                release(s);
                if (to_do_.empty()) return;
                subtree = to_do_.back();
                to_do_.pop_back();
            }
        }
    }

    // Frees a register if none is free: planes go to memory, the highest first, as the fewest S are added to those.
    void evict_planes() {
        if (__builtin_expect(!free_, 0)) evict_some();
    }
    [[gnu::noinline]] void evict_some() {
        while (!free_ && n_in_registers_) {
            Plane& plane = planes_[--n_in_registers_];
            for (const int s : {plane.sum, plane.waiting})
                if (s != kNone) add_in_memory(n_in_registers_, s);
            release(plane.sum);
            release(plane.waiting);
        }
    }
    void add_in_memory(int k, int s) {
        if (std::exchange(planes_[k].begun, true))
            to_.exclusive_or_with(plane_at(k), s);
        else
            to_.store(plane_at(k), s);
    }

    void add_to_plane(int k, int s) {
        if (k < n_in_registers_ && planes_[k].sum != kNone && uses_[planes_[k].sum] > 1) evict_planes();  // for a new sum
        if (k >= n_in_registers_) {
            add_in_memory(k, s);
            return;
        }
        Plane& plane = planes_[k];
        retain(s);
        if (plane.sum == kNone)
            plane.sum = s;
        else if (plane.waiting != kNone)
            add_two(plane, s);
        else if (k < n_waiting_)
            plane.waiting = s;
        else
            add_one(plane, s);
    }
    void add_one(Plane& plane, int s) {
        const int sum = uses_[plane.sum] == 1 ? plane.sum : allocate();
        to_.exclusive_or(sum, plane.sum, s);
        if (sum != plane.sum) release(plane.sum);
        release(s);
        plane = {sum, kNone};
    }
    void add_two(Plane& plane, int s) {
        // The result goes into one of the three registers, if nobody else needs it.
        int sum = plane.sum, a = plane.waiting, b = s;
        if (uses_[sum] > 1 && uses_[a] == 1) std::swap(sum, a);
        if (uses_[sum] > 1 && uses_[b] == 1) std::swap(sum, b);
        if (uses_[sum] > 1) {
            const int copy = allocate();
            to_.move(copy, sum);
            release(sum);
            sum = copy;
        }
        to_.exclusive_or3(sum, a, b);
        release(a);
        release(b);
        plane = {sum, kNone};
    }

    Assembler& to_;
    const int n_registers_, n_waiting_;
    const TreeNode* nodes_ = nullptr;
    std::vector<int> registers_needed_, order_;
    std::vector<Subtree> to_do_;
    int uses_[kInMemory];
    int uses_in_memory_[kSpills];
    uint32_t free_ = 0;  // a bit for each register that is not in use
    int n_planes_ = 0, n_in_registers_ = 0;
    bool is_long_ = false;
    Plane planes_[kPlanes];
};

}  // namespace

TreePrograms write_programs(const BitsliceLayout& layout, Encoding encoding, CodeAhead ahead, int word_bytes, int first, int end,
                            int most_registers) {
    TreePrograms programs;
    Assembler assembler(encoding, word_bytes, ahead);
    TreeWriter writer(assembler, encoding, std::min(assembler.n_registers(), most_registers));
    const int first_tree = layout.block_offsets[first], end_tree = layout.block_offsets[end];
    if (layout.nodes)
        assembler.reserve(kBytesOfNode * (layout.node_offsets[end_tree] - layout.node_offsets[first_tree] + end_tree - first_tree));
    for (int block = first; block < end; block++) {
        programs.starts.push_back(assembler.begin_function());
        for (int t = layout.block_offsets[block]; t < layout.block_offsets[block + 1]; t++) {
            int n_planes = static_cast<int>(layout.level_offsets[t + 1] - layout.level_offsets[t]);
            for (int k = 0; k < n_planes; k++) {
                assembler.load(0, {Base::predicates, layout.levels[layout.level_offsets[t] + k]});
                assembler.store({Base::planes, static_cast<uint32_t>(k)}, 0);
            }
            if (n_planes == 0) n_planes = writer.write(layout.nodes + layout.node_offsets[t], layout.tree_leaves[t]);
            assembler.call_with_leaves(n_planes, int64_t{8} * word_bytes * layout.leaf_bytes);
        }
        assembler.end_function();
    }
    assembler.fill_line();
    programs.code = assembler.take_code();
    return programs;
}

}  // namespace gpuqs
