#include "machine_code.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "assembler.hpp"

namespace gpuqs {
namespace {

// One tree: which register holds which S, and how many still need it.
class TreeProgram {
public:
    TreeProgram(Assembler& assembler, Encoding encoding, const TreeNode* nodes, int n_leaves)
        : to_(assembler), nodes_(nodes), registers_needed_(n_leaves), uses_(assembler.n_registers()),
          n_in_registers_(encoding == Encoding::evex ? 8 : 3), n_waiting_(encoding == Encoding::evex ? 4 : 0) {
        while (1 << n_planes_ < n_leaves) n_planes_++;
    }

    int write() {
        if (const int root = nodes_[0].right) {
            count_registers(root);
            write_node(root, kNone, kNone);
        }
        for (int k = 0; k < n_planes_ && k < n_in_registers_; k++) {
            if (planes_[k].waiting != kNone) add_one(planes_[k], planes_[k].waiting);
            to_.store(plane_at(k), planes_[k].sum);
        }
        return n_planes_;
    }

private:
    static constexpr int kNone = -1;
    // A plane so far; the S that waits is added with the next, by one instruction.
    struct Plane {
        int sum = kNone, waiting = kNone;
        bool begun = false;  // in memory
    };

    static Operand predicate(uint32_t word) { return {Base::predicates, word}; }
    static Operand plane_at(int k) { return {Base::planes, static_cast<uint32_t>(k)}; }

    int take() {
        for (size_t r = 0; r < uses_.size(); r++)
            if (uses_[r] == 0) {
                uses_[r] = 1;
                return static_cast<int>(r);
            }
        throw std::logic_error("a tree program needs more registers than there are");  // not up to 256 leaves
    }
    void keep(int r) { uses_[r]++; }
    void drop(int r) {
        if (r != kNone) uses_[r]--;
    }

    int count_registers(int j) {
        if (j == 0) return 0;
        const int left = count_registers(nodes_[j].left), right = count_registers(nodes_[j].right);
        return registers_needed_[j] = left == right ? left + 1 : std::max(left, right);
    }

    // S of node j, in a register. S_first is ones and S_end zeros where they have none; what no child needs is dropped.
    int combine(int j, int first, int end) {
        const TreeNode& node = nodes_[j];
        const Operand word = predicate(node.predicate);
        int s = kNone;
        if (node.right == 0 && end != kNone && uses_[end] == 1)
            s = end;
        else if (node.left == 0 && first != kNone && uses_[first] == 1)
            s = first;
        if (s != kNone)
            keep(s);
        else
            s = take();
        if (first == kNone && end == kNone)
            to_.load(s, word);
        else if (first == kNone)
            to_.or_with(s, end, word);
        else if (end == kNone)
            to_.and_with(s, first, word);
        else
            to_.or_and(s, end, first, word);
        if (node.left == 0) drop(first);
        if (node.right == 0) drop(end);
        return s;
    }

    void write_node(int j, int first, int end) {
        const TreeNode& node = nodes_[j];
        const int s = combine(j, first, end);
        add_to_plane(__builtin_ctz(j), s);
        if (node.left && node.right) keep(s);
        const bool left_first = registers_needed_[node.left] <= registers_needed_[node.right];
        if (node.left && left_first) write_node(node.left, first, s);
        if (node.right) write_node(node.right, s, end);
        if (node.left && !left_first) write_node(node.left, first, s);
        if (!node.left && !node.right) drop(s);
    }

    void add_to_plane(int k, int s) {
        Plane& plane = planes_[k];
        if (k >= n_in_registers_) {
            if (plane.begun)
                to_.exclusive_or_with(plane_at(k), s);
            else
                to_.store(plane_at(k), s);
            plane.begun = true;
            return;
        }
        keep(s);
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
        const int sum = uses_[plane.sum] == 1 ? plane.sum : take();
        to_.exclusive_or(sum, plane.sum, s);
        if (sum != plane.sum) drop(plane.sum);
        drop(s);
        plane = {sum, kNone};
    }
    void add_two(Plane& plane, int s) {
        // Into whichever of the three nobody else needs.
        int sum = plane.sum, a = plane.waiting, b = s;
        if (uses_[sum] > 1 && uses_[a] == 1) std::swap(sum, a);
        if (uses_[sum] > 1 && uses_[b] == 1) std::swap(sum, b);
        if (uses_[sum] > 1) {
            const int copy = take();
            to_.move(copy, sum);
            drop(sum);
            sum = copy;
        }
        to_.exclusive_or3(sum, a, b);
        drop(a);
        drop(b);
        plane = {sum, kNone};
    }

    Assembler& to_;
    const TreeNode* const nodes_;
    std::vector<int> registers_needed_;
    std::vector<int> uses_;
    const int n_in_registers_, n_waiting_;
    int n_planes_ = 0;
    Plane planes_[MachineCode::kPlanes];
};

}  // namespace

bool compiles_programs(const Kernels& kernels) { return kernels.widths[0].encoding != Encoding::none && Executable::allowed(); }

MachineCode::MachineCode(const BitsliceModel& model, const BitsliceKernels& kernels) : kernels_(kernels) {
    Assembler assembler(kernels.encoding, kernels.word_bytes);
    for (int batch = 0; batch < model.n_batches; batch++) {
        starts_.push_back(assembler.begin_function());
        for (int t = model.batch_offsets[batch]; t < model.batch_offsets[batch + 1]; t++) {
            int n_planes = static_cast<int>(model.level_offsets[t + 1] - model.level_offsets[t]);
            for (int k = 0; k < n_planes; k++) {
                assembler.load(0, {Base::predicates, model.levels[model.level_offsets[t] + k]});
                assembler.store({Base::planes, static_cast<uint32_t>(k)}, 0);
            }
            if (n_planes == 0)
                n_planes = TreeProgram(assembler, kernels.encoding, model.nodes + model.node_offsets[t], model.tree_leaves[t]).write();
            assembler.call_with_leaves(n_planes, 8 * kernels.word_bytes);
        }
        assembler.end_function();
    }
    code_ = std::make_unique<Executable>(assembler.code());
}

void MachineCode::run(int batch, const void* words, void* planes, void* leaf) const {
    using Function = void (*)(const void* words, void* planes, void* leaf, const Spread* spread);
    reinterpret_cast<Function>(code_->at(starts_[batch]))(words, planes, leaf, kernels_.spread);
}

}  // namespace gpuqs
