// Writes machine code in hexadecimal, one line per input line, or "error: ..." if it cannot be generated:
//   ENCODING WORD_BYTES OPERATION ARGUMENTS...     one operation of the assembler; operands in memory are BASE WORD
//   ENCODING WORD_BYTES trees LEAF_BYTES ...       the programs of one tree block (see `write_trees`), which prefetch their code
//   ENCODING WORD_BYTES trees_read LEAF_BYTES ...  the same, without prefetches: the code is read before it runs
//   ENCODING WORD_BYTES trees_few LEAF_BYTES ...   the same, with few registers
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/assembler.hpp"
#include "jit/tree_programs.hpp"

using namespace gpuqs;

namespace {

constexpr int kFew = 6;

template <class Number> Number read(std::istream& in) {
    int64_t number;
    if (!(in >> number)) throw std::runtime_error("an argument is missing");
    return static_cast<Number>(number);
}

Operand read_operand(std::istream& in) {
    std::string base;
    in >> base;
    const uint32_t word = read<uint32_t>(in);
    return {base == "predicates" ? Base::predicates : Base::planes, word};
}

std::vector<uint8_t> write_operation(const std::string& operation, Encoding encoding, int word_bytes, std::istream& in) {
    Assembler to(encoding, word_bytes, CodeAhead::prefetched);
    const auto number = [&] { return read<int>(in); };
    if (operation == "load") {
        const int target = number();
        to.load(target, read_operand(in));
    } else if (operation == "store") {
        const Operand target = read_operand(in);
        to.store(target, number());
    } else if (operation == "move") {
        const int target = number();
        to.move(target, number());
    } else if (operation == "and_with" || operation == "or_with") {
        const int target = number(), a = number();
        const Operand b = read_operand(in);
        operation == "and_with" ? to.and_with(target, a, b) : to.or_with(target, a, b);
    } else if (operation == "exclusive_or" || operation == "exclusive_or3") {
        const int target = number(), a = number(), b = number();
        operation == "exclusive_or" ? to.exclusive_or(target, a, b) : to.exclusive_or3(target, a, b);
    } else if (operation == "exclusive_or_with") {
        const Operand target = read_operand(in);
        to.exclusive_or_with(target, number());
    } else if (operation == "or_and") {
        const int target = number(), a = number(), b = number();
        to.or_and(target, a, b, read_operand(in));
    } else if (operation == "function") {
        to.begin_function();
        to.end_function();
        to.begin_function();
    } else if (operation == "call_with_leaves") {
        const int function = number();
        to.call_with_leaves(function, read<int64_t>(in));
    } else if (operation == "prefetch_ahead") {
        // n_calls calls, which together are longer than a cache line.
        for (int n_calls = number(); n_calls > 0; n_calls--) to.call_with_leaves(0, 64);
        to.prefetch_ahead();
    } else {
        throw std::runtime_error("no operation " + operation);
    }
    const CodeBytes code = to.take_code();
    return {code.begin(), code.end()};
}

template <class Number> std::vector<Number> read_many(std::istream& in, size_t n) {
    std::vector<Number> numbers(n);
    for (Number& number : numbers) number = read<Number>(in);
    return numbers;
}

// Input: n_trees, then for each tree: leaves, levels, and the predicates of the levels or, without levels, predicate,
// left and right of each entry.
std::vector<uint8_t> write_trees(Encoding encoding, CodeAhead ahead, int word_bytes, int most_registers, std::istream& in) {
    BitsliceLayout layout{};
    layout.leaf_bytes = read<int>(in);
    const int n_trees = read<int>(in);
    layout.n_blocks = 1;
    const int32_t block_offsets[2] = {0, n_trees};
    std::vector<int64_t> level_offsets = {0}, node_offsets = {0};
    std::vector<uint16_t> levels, tree_leaves;
    std::vector<TreeNode> nodes;
    for (int t = 0; t < n_trees; t++) {
        tree_leaves.push_back(read<uint16_t>(in));
        for (const uint16_t level : read_many<uint16_t>(in, read<size_t>(in))) levels.push_back(level);
        level_offsets.push_back(static_cast<int64_t>(levels.size()));
        for (int j = 0; level_offsets[t] == level_offsets[t + 1] && j < tree_leaves[t]; j++) {
            const auto fields = read_many<uint32_t>(in, 3);
            nodes.push_back({fields[0], static_cast<uint16_t>(fields[1]), static_cast<uint16_t>(fields[2])});
        }
        node_offsets.push_back(static_cast<int64_t>(nodes.size()));
    }
    layout.block_offsets = block_offsets;
    layout.level_offsets = level_offsets.data();
    layout.levels = levels.data();
    layout.tree_leaves = tree_leaves.data();
    layout.node_offsets = node_offsets.data();
    layout.nodes = nodes.data();
    const CodeBytes code = write_programs(layout, encoding, ahead, word_bytes, 0, 1, most_registers).code;
    return {code.begin(), code.end()};
}

}  // namespace

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        std::string encoding_name, operation;
        in >> encoding_name;
        const Encoding encoding = encoding_name == "evex" ? Encoding::evex : encoding_name == "vex" ? Encoding::vex : Encoding::none;
        try {
            const int word_bytes = read<int>(in);
            in >> operation;
            const CodeAhead ahead = operation == "trees_read" ? CodeAhead::read : CodeAhead::prefetched;
            const int most_registers = operation == "trees_few" ? kFew : kAllRegisters;
            const auto code = operation.rfind("trees", 0) == 0 ? write_trees(encoding, ahead, word_bytes, most_registers, in)
                                                               : write_operation(operation, encoding, word_bytes, in);
            for (const uint8_t byte : code) std::printf("%02x", byte);
            std::printf("\n");
        } catch (const std::logic_error& error) {
            std::printf("error: %s\n", error.what());
        }
    }
}
