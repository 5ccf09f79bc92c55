"""Tree programs in machine code, disassembled and executed in Python, find every document's exit leaf.

AVX-512 programs are thus tested on machines that cannot run them.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from assembling import WIDTHS, assemble, build_assembler, disassemble, prefetches, trees_line
from forests import random_forest

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.bitslice import BitsliceLayout, build_bitslice
from gpuqs.layout.ranks import build_ranks

N_DOCUMENTS = 64
ONES = (1 << N_DOCUMENTS) - 1
#: `kPlanes + kSpills`: words that a program may write.
MAX_IN_MEMORY = 12 + 24
FORESTS = {
    "random": dict(n_trees=40, max_leaves=64, shape="random"),
    "complete": dict(n_trees=6, max_leaves=256, shape="complete"),
    "chains": dict(n_trees=6, max_leaves=200, shape="chain"),
    "oblivious": dict(n_trees=20, max_leaves=256, shape="oblivious"),
    "twelve planes": dict(n_trees=1, max_leaves=4000, shape="complete"),
    "more planes than registers": dict(n_trees=2, max_leaves=3000, shape="random"),
    "more S than registers": dict(n_trees=1, max_leaves=4094, shape="zigzag"),
}


@pytest.fixture(scope="module")
def assembler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_assembler(tmp_path_factory.mktemp("assembler"))


def lay_out(forest: Forest) -> BitsliceLayout:
    return build_bitslice(forest, build_ranks(forest), 1 << 20, 1 << 20, compiled=True)


class Processor:
    """Executes tree programs' instructions on words with one bit per document; records the planes at each call."""

    ORDINARY = re.compile(r"endbr64|prefetcht1 .*|int3|(push|pop) r\w+|mov r\w+, r\w+|add r14, \w+")
    LINES = re.compile(r"mov ecx, (\w+)|xor ecx, ecx")  # that a call prefetches, from rdx on

    def __init__(self, word_bytes: int, predicates: list[int]) -> None:
        self.word_bytes, self.predicates = word_bytes, predicates
        self.registers: dict[str, int] = {}
        self.planes: dict[int, int] = {}
        self.calls: list[list[int]] = []
        self.has_code, self.lines = False, -1

    def place(self, operand: str) -> tuple[str, int]:
        base, displacement = re.fullmatch(r".* ptr \[(\w+)(?: \+ (\w+))?\]", operand).groups("0")  # type: ignore[union-attr]
        word, rest = divmod(int(displacement, 0), self.word_bytes)
        assert rest == 0 and (base == "rbx" or word < MAX_IN_MEMORY)
        return base, word

    def value(self, operand: str) -> int:
        if "[" not in operand:
            return self.registers[operand]
        base, word = self.place(operand)
        return self.predicates[word] if base == "rbx" else self.planes[word]

    def run(self, instructions: list[str]) -> None:
        for instruction in instructions:
            mnemonic, _, rest = instruction.partition(" ")
            operands = rest.split(", ")
            if mnemonic == "call":
                base, word = re.fullmatch(r"qword ptr \[(\w+)(?: \+ (\w+))?\]", rest).groups("0")  # type: ignore[union-attr]
                assert base == "r15" and self.lines >= 0 and self.lines % 16 == 0 and (self.has_code or not self.lines)
                self.has_code, self.lines = False, -1
                self.calls.append([self.planes[k] for k in range(int(word, 0) // 8)])
                self.registers, self.planes = {}, {}  # the called function may overwrite all of them
            elif mnemonic == "ret":
                return
            elif lines := self.LINES.fullmatch(instruction):
                self.lines = int(lines[1] or "0", 0)
            elif re.fullmatch(r"lea rdx, \[rip \+ \w+\]", instruction):
                self.has_code = True
            elif mnemonic.startswith("vmovdqa"):
                if "[" in operands[0]:
                    base, word = self.place(operands[0])
                    assert base == "rbp"
                    self.planes[word] = self.value(operands[1])
                else:
                    self.registers[operands[0]] = self.value(operands[1])
            elif mnemonic.startswith("vp"):
                self.registers[operands[0]] = self.combine(mnemonic, operands)
            else:
                assert self.ORDINARY.fullmatch(instruction), instruction
        raise AssertionError("the function has no end")

    def combine(self, mnemonic: str, operands: list[str]) -> int:
        if mnemonic == "vpternlogq":
            bits = [self.value(operand) for operand in operands[:3]]
            table, result = int(operands[3], 0), 0
            for i in range(8):
                if table >> i & 1:
                    chosen = [word if i >> (2 - at) & 1 else word ^ ONES for at, word in enumerate(bits)]
                    result |= chosen[0] & chosen[1] & chosen[2]
            return result
        a, b = self.value(operands[1]), self.value(operands[2])
        return {"vpand": a & b, "vpor": a | b, "vpxor": a ^ b}[mnemonic.removesuffix("q")]


def words_of_nodes(layout: BitsliceLayout, forest: Forest) -> np.ndarray:
    """Each node's predicate, from its test only: the index of (column, missing goes left, threshold) among all."""
    ranks = layout.ranks
    tests = np.stack([ranks.columns.of_node, (forest.routing & NAN_LEFT) != 0, ranks.of_node])
    return np.unique(tests, axis=1, return_inverse=True)[1].ravel()


def exit_leaves(forest: Forest, word: np.ndarray, predicates: list[int]) -> np.ndarray:
    """Exit leaves [trees, documents] by walks that go right if the predicate's bit is set; numbered left to right."""
    leaves = np.zeros((forest.n_trees, N_DOCUMENTS), np.int64)
    for t in range(forest.n_trees):
        first = forest.node_offsets[t]
        if first == forest.node_offsets[t + 1]:
            continue
        number: dict[int, int] = {}
        stack = [0]
        while stack:
            node = stack.pop()
            if node < 0:
                number[node] = len(number)
            else:
                stack += [int(forest.right[first + node]), int(forest.left[first + node])]
        for d in range(N_DOCUMENTS):
            node = 0
            while node >= 0:
                side = forest.right if predicates[word[first + node]] >> d & 1 else forest.left
                node = int(side[first + node])
            leaves[t, d] = number[node]
    return leaves


@pytest.mark.parametrize("registers", ["trees", "trees_few"])
@pytest.mark.parametrize("shape", FORESTS)
def test_programs_find_exit_leaves(assembler: Path, shape: str, registers: str) -> None:
    rng = np.random.default_rng(11)
    forest = random_forest(rng, **FORESTS[shape])
    layout = lay_out(forest)
    # Mostly one direction, different for each document: fully random bits would leave deep nodes unvisited.
    predicates = [
        sum(int(bit) << d for d, bit in enumerate(rng.random(N_DOCUMENTS) < rng.choice([0.05, 0.5, 0.95])))
        for _ in range(layout.n_predicates)
    ]
    leaves = exit_leaves(forest, words_of_nodes(layout, forest), predicates)
    codes = assemble(assembler, (f"{e} {w} {registers} {trees_line(layout)}" for e, w in WIDTHS))
    for (_, word_bytes), code in zip(WIDTHS, codes, strict=True):
        assert isinstance(code, bytes), code
        processor = Processor(word_bytes, predicates)
        processor.run(disassemble(code))
        assert len(processor.calls) == forest.n_trees
        for t, planes in enumerate(processor.calls):
            gray = leaves[t] if layout.oblivious[t] else leaves[t] ^ (leaves[t] >> 1)
            found = [sum((plane >> d & 1) << k for k, plane in enumerate(planes)) for d in range(N_DOCUMENTS)]
            np.testing.assert_array_equal(found, gray)


@pytest.mark.parametrize(("shape", "delay"), [("random", 3072), ("oblivious", 3072), ("chains", 256)])
def test_programs_prefetch_each_line_of_code(assembler: Path, shape: str, delay: int) -> None:
    """Each line is prefetched once, in order, 8 KiB before it runs, delayed at most by the code of a tree or two, or,
    if that is long, by the code between two nodes."""
    layout = lay_out(random_forest(np.random.default_rng(5), **(FORESTS[shape] | {"n_trees": 300})))
    for code in assemble(assembler, (f"{e} {w} trees {trees_line(layout)}" for e, w in WIDTHS)):
        assert isinstance(code, bytes)
        assert len(code) > 2 * 8192
        ends, targets = zip(*prefetches(code), strict=True)
        assert targets == tuple(range(8192, 8192 + 64 * len(targets), 64))
        assert targets[-1] + 1536 > len(code) + 8192
        assert all(8192 - delay < target - end <= 8192 for end, target in zip(ends, targets, strict=True))


@pytest.mark.parametrize("shape", ["random", "oblivious"])
def test_programs_that_are_read_prefetch_nothing(assembler: Path, shape: str) -> None:
    layout = lay_out(random_forest(np.random.default_rng(5), **FORESTS[shape]))
    lines = (f"{e} {w} {ahead} {trees_line(layout)}" for e, w in WIDTHS for ahead in ("trees", "trees_read"))
    asks = ("prefetch", "int3", "lea rdx", "mov ecx", "xor ecx")
    codes = assemble(assembler, lines)
    for prefetching, read in zip(codes[::2], codes[1::2], strict=True):
        assert isinstance(prefetching, bytes) and isinstance(read, bytes)
        assert prefetches(prefetching) and not prefetches(read)
        without = [[one for one in disassemble(code) if not one.startswith(asks)] for code in (prefetching, read)]
        assert without[0] == without[1]
