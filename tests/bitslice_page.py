"""Renders the drawings of docs/bitslice.md from the layout that the engine builds for its example tree.

`python tests/bitslice_page.py` prints all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from assembling import WIDTHS, assemble, build_assembler, disassemble, trees_line

from gpuqs import Model
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import BitsliceLayout, build_bitslice, gray_values
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.programs import NodePrograms, TreeletPrograms
from gpuqs.layout.ranks import build_ranks

COLUMNS = "abc"
#: Column, threshold, left, right of each node; leaves are ~0, ~1, ... from left to right.
NODES = [
    ("a", 5.0, 1, 2),
    ("b", 2.0, ~0, 3),
    ("c", 1.5, 4, 5),
    ("a", 3.0, ~1, ~2),
    ("b", 2.0, ~3, ~4),
    ("a", 8.0, ~5, 6),
    ("b", 7.0, ~6, ~7),
]
#: Documents; they occupy the first bits of each word.
DOCUMENTS = np.array(
    [
        [4.0, 1.0, 0.0],
        [2.5, 3.0, 9.0],
        [4.5, 9.0, 1.0],
        [6.0, 2.0, 1.0],
        [7.0, 5.0, 1.5],
        [8.0, 0.0, 2.0],
        [9.0, 7.0, 3.0],
        [9.0, 7.5, 2.0],
    ]
)


def make_forest() -> Forest:
    column, threshold, left, right = zip(*NODES, strict=True)
    return Forest(
        n_features=len(COLUMNS),
        node_offsets=np.array([0, len(NODES)]),
        leaf_offsets=np.array([0, len(NODES) + 1]),
        feature=np.array([COLUMNS.index(name) for name in column], np.int32),
        threshold=np.array(threshold),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        routing=np.zeros(len(NODES), np.uint8),
        leaf_value=np.arange(len(NODES) + 1)[:, None] * 10.0 + 10,
        sum_dtype="float64",
    )


FOREST = make_forest()
RANKS = build_ranks(FOREST)
LAYOUT = build_bitslice(FOREST, RANKS, 100, 100, compiled=True)
N_LEAVES = int(LAYOUT.tree_leaves[0])
N_PLANES = (N_LEAVES - 1).bit_length()


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """Format a table with aligned columns, two spaces apart."""
    cells = [head.split("|"), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def bits(word: np.ndarray) -> str:
    """A word's first bits, document 0 on the left."""
    return "".join(str(int(bit)) for bit in word)


def document_ranks() -> np.ndarray:
    """Rank of each document on each column: how many thresholds are below the value."""
    parts = np.split(RANKS.threshold, RANKS.offsets[1:-1])
    return np.stack([np.searchsorted(part, DOCUMENTS[:, c]) for c, part in enumerate(parts)], axis=1)


def place_labels(node: int, depth: int, labels: list[tuple[int, float, str]]) -> float:
    """Append (depth, middle, label) of a node and its descendants; return the node's middle."""
    if node < 0:
        labels.append((depth, 9.0 * ~node + 4, f"leaf {~node}"))
    else:
        column, threshold, left, right = NODES[node]
        middle = (place_labels(left, depth + 1, labels) + place_labels(right, depth + 1, labels)) / 2
        labels.append((depth, middle, f"{column} <= {threshold:g}"))
    return labels[-1][1]


def tree() -> str:
    labels: list[tuple[int, float, str]] = []
    place_labels(0, 0, labels)
    lines = []
    for level in range(max(depth for depth, _, _ in labels) + 1):
        line = ""
        for _, middle, label in sorted(one for one in labels if one[0] == level):
            line = line.ljust(int(middle - len(label) / 2)) + label
        lines.append(line)
    return "\n".join(lines)


def rank_tables() -> str:
    parts = np.split(RANKS.threshold, RANKS.offsets[1:-1])
    planes = RANKS.plane_offsets
    return table(
        "column|thresholds|bits of a rank|planes",
        (
            (
                COLUMNS[c],
                ", ".join(f"{t:g}" for t in part),
                RANKS.n_bits[c],
                ", ".join(map(str, range(*planes[c : c + 2]))),
            )
            for c, part in enumerate(parts)
        ),
    )


def documents() -> str:
    ranks = document_ranks()
    rows = ((d, *(f"{x:g}" for x in DOCUMENTS[d]), *ranks[d]) for d in range(len(DOCUMENTS)))
    return table("document|a|b|c|rank of a|of b|of c", rows)


def predicate_words() -> list[tuple[int, int, np.ndarray]]:
    """Each predicate's column, threshold index and word, decoded from the segments."""
    ranks, low, words = document_ranks(), iter(LAYOUT.low), []
    for segment in LAYOUT.segments:
        for _ in range(int(segment["last"]) + 1):
            place = int(segment["high"]) << 4 | int(next(low))
            words.append((int(segment["column"]), place, ranks[:, segment["column"]] > place))
    return words


def predicates() -> str:
    rows = []
    for number, (column, place, word) in enumerate(predicate_words()):
        threshold = RANKS.threshold[RANKS.offsets[column] + place]
        rows.append((number, f"{COLUMNS[column]} <= {threshold:g}", f"rank of {COLUMNS[column]} > {place}", bits(word)))
    return table("predicate|test|false where|word", rows)


def s_words() -> tuple[list[int], dict[int, np.ndarray]]:
    """The nodes j, parents first, and their words S_j, including S_0 (ones) and S_L (zeros)."""
    assert isinstance(LAYOUT.programs, NodePrograms)
    nodes, order = LAYOUT.programs.nodes, []
    words = [word for _, _, word in predicate_words()]
    s = {0: np.ones(len(DOCUMENTS), bool), N_LEAVES: np.zeros(len(DOCUMENTS), bool)}
    stack = [(int(nodes[0]["right"]), 0, N_LEAVES)]
    while stack:
        j, first, end = stack.pop()
        order.append((j, first, end))
        s[j] = s[end] | (s[first] & words[nodes[j]["predicate"]])
        for child, a, b in ((int(nodes[j]["right"]), j, end), (int(nodes[j]["left"]), first, j)):
            if child:
                stack.append((child, a, b))
    return order, s


def program() -> str:
    assert isinstance(LAYOUT.programs, NodePrograms)
    order, s = s_words()
    nodes, rows = LAYOUT.programs.nodes, []
    for j, first, end in order:
        number = nodes[j]["predicate"]
        operation = {
            (True, True): f"P{number}",
            (True, False): f"S{end} | P{number}",
            (False, True): f"S{first} & P{number}",
            (False, False): f"S{end} | (S{first} & P{number})",
        }[first == 0, end == N_LEAVES]
        rows.append((j, f"{first} ... {end - 1}", operation, bits(s[j])))
    return table("j|leaves|S_j|word", rows)


def planes() -> list[np.ndarray]:
    s = s_words()[1]
    return [np.bitwise_xor.reduce([s[j] for j in range(1 << k, N_LEAVES, 2 << k)]) for k in range(N_PLANES)]


def gray_planes() -> str:
    rows = []
    for k, plane in enumerate(planes()):
        rows.append((k, " ^ ".join(f"S{j}" for j in range(1 << k, N_LEAVES, 2 << k)), bits(plane)))
    return table("plane|of|word", rows)


def leaf_numbers() -> np.ndarray:
    """Each document's number, read from the bits of the planes: the exit leaf in Gray code."""
    return np.sum([plane.astype(int) << k for k, plane in enumerate(planes())], axis=0)


def leaves() -> str:
    exits = Model(FOREST).predict(DOCUMENTS, "leaf", engine="reference").ravel()
    rows = []
    for d, gray in enumerate(leaf_numbers()):
        rows.append((d, "".join(str(int(plane[d])) for plane in planes()[::-1]), gray, exits[d]))
    return table("document|planes 2 1 0|number|exit leaf", rows)


def values() -> str:
    of_leaves = leaf_values(FOREST, LAYOUT.position, "exact")
    gray = gray_values(of_leaves, np.diff(FOREST.leaf_offsets), LAYOUT.oblivious)
    return table(
        "number|leaf|value", ((place, gray.leaf_id[place], f"{gray.value[place, 0]:g}") for place in range(N_LEAVES))
    ) + (f"\n{N_LEAVES} ... {len(gray.value) - 1}  none")


def treelets() -> str:
    layout: BitsliceLayout = build_bitslice(FOREST, RANKS, 100, 100, compiled=False)
    programs = layout.programs
    assert isinstance(programs, TreeletPrograms)
    rows, at = [], 0
    for run in programs.runs:
        for treelet in programs.treelets[at : at + run["count"]]:
            kind = int(run["kind"])
            used = [0, *(side for side in (1, 2) if kind & side)]
            rows.append(
                (
                    ("root alone", "root and left", "root and right", "root and both")[kind],
                    ", ".join(f"P{treelet['predicate'][i] // 16}" for i in used),
                    ", ".join(f"S{(treelet['slot'][i] - programs.tree_slot[0] * 16) // 16}" for i in used),
                )
            )
        at += run["count"]
    return table("treelet|predicates|writes", rows)


@cache
def tree_code() -> dict[tuple[str, int], bytes]:
    """The tree's machine code, by encoding and word size in bytes."""
    lines = [f"{encoding} {word_bytes} trees {trees_line(LAYOUT)}" for encoding, word_bytes in WIDTHS]
    with TemporaryDirectory() as folder:
        return dict(zip(WIDTHS, map(bytes, assemble(build_assembler(Path(folder)), lines)), strict=True))


def machine_code(encoding: str, word_bytes: int) -> str:
    instructions = disassemble(tree_code()[encoding, word_bytes])
    begin, end = instructions.index("mov r15, rcx") + 1, instructions.index("mov rdi, rbp")
    return "\n".join(one for one in instructions[begin:end] if not one.startswith("prefetch"))


def code_avx2() -> str:
    return machine_code("vex", 32)


def code_avx512() -> str:
    return machine_code("evex", 64)


#: Everything that the page shows, in page order.
DRAWINGS = (
    tree,
    rank_tables,
    documents,
    predicates,
    program,
    gray_planes,
    leaves,
    values,
    code_avx2,
    code_avx512,
    treelets,
)


if __name__ == "__main__":
    for drawing in DRAWINGS:
        print(f"{drawing.__name__}:\n{drawing()}\n")
