"""The names of the kernels' instantiations, by which the device code is compiled and found, and their registers.

Each function names one kernel of ``cuda/``, as C++ spells its template arguments. Types that they share:

- ``given``: type of the documents, as the caller holds them;
- ``value``: type in which documents are tested, float32 or float64;
- ``pivot``: type of `qs_gpu`'s counts of false tests, uint8, uint16 or uint32;
- ``leaf``: type of the leaf values, a key of `SUMS`, which gives the type of the sums;
- ``entry``: type of what is looked up for an exit leaf, its number (int32) or its values (as ``leaf``).

``form`` is one of `FORMS`, ``words`` are the words of 32 documents that a lane of the bit-sliced engine holds, one of
`WORDS`, and ``by_row`` says that neighbouring features lie closer in memory than neighbouring documents.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from gpuqs.links import CLASS_DECISIONS, KERNELS

#: A numeric type that is part of kernels' names.
DType: TypeAlias = str | np.dtype[Any]

#: The forms of tuples: type of a word, whether a tree may take several words, bits of a word.
FORMS = {"words": ("u32", "true", 32), "mask32": ("u32", "false", 32), "mask64": ("u64", "false", 64)}
#: Documents per thread block that shared memory is laid out for. (Two would need a half more bytes than four.)
DOCUMENTS_PER_BLOCK = (1, 4)
#: Type of the leaf values -> type of their sums in C++.
SUMS = {"float64": "double", "float32": "float", "int32": "i64"}
#: Words of 32 documents per lane of the bit-sliced engine.
WORDS = (1, 2)
#: Registers that a thread needs to avoid spills, if more than its share when threads fill a multiprocessor.
REGISTERS = {
    "transpose": 40,  # several loads in flight
    "rank_documents": 48,  # the same, and several documents are searched at once
    "decode_predicates": 64,
    "slots": 64,
    "steps": 64,  # the words of eight nodes in flight
    "sum_exact": 64,
    "sum_few": 96,  # values of several trees in flight; 640 threads, one thread block per multiprocessor
    "sum_fast": 128,  # the sums of 32 documents
    "walk_scores": 40,  # a walk, or the next values that are added
    "walk_leaves": 40,
    "apply_link": 64,  # logarithms of exponentials; too short to need many threads
}
#: The same for `update_scores` with several documents per thread block.
REGISTERS_OF_SEVERAL = 40


def strides(form: str) -> tuple[int, ...]:
    """Documents per thread block that a form may have."""
    return DOCUMENTS_PER_BLOCK if FORMS[form][2] == 32 else (1,)


def summed(leaf: DType, small: bool) -> tuple[int, ...]:
    """Documents whose sums a thread of `sum_exact` may keep, most first; ``small``: trees have up to 64 leaves."""
    return (4, 1) if small and np.dtype(leaf).kind == "f" else (1,)


_NAMES = {
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
#: Number by which walks recognize the type of the documents.
INPUTS = {np.dtype(name): np.int32(number) for number, name in enumerate(_NAMES)}
INPUTS[np.dtype(bool)] = INPUTS[np.dtype(np.uint8)]
_PIVOTS = ("uint8", "uint16", "uint32")


@cache
def _c(dtype: DType) -> str:
    return _NAMES[np.dtype(dtype).name]


@cache
def transpose(given: DType, value: DType, by_row: bool) -> str:
    """Documents to columns."""
    return f"transpose<{_c(given)}, {_c(value)}, {str(by_row).lower()}>"


@cache
def find_false_nodes(value: DType, pivot: DType) -> str:
    """Columns to pivots: how many of each column's tests are false."""
    return f"find_false_nodes<{_c(value)}, {_c(pivot)}>"


@cache
def update_scores(form: str, pivot: DType, leaf: DType, documents: int, stride: int) -> str:
    """Pivots to partial scores of one output; ``documents`` per thread block, shared memory laid out for ``stride``."""
    word, many, _ = FORMS[form]
    total = SUMS[np.dtype(leaf).name]
    return f"update_scores<{word}, {many}, {_c(pivot)}, {_c(leaf)}, {total}, {documents}, {stride}>"


@cache
def update_outputs(form: str, pivot: DType, leaf: DType) -> str:
    """Pivots to partial scores of several outputs, one document per thread block."""
    word, many, _ = FORMS[form]
    return f"update_outputs<{word}, {many}, {_c(pivot)}, {_c(leaf)}, {SUMS[np.dtype(leaf).name]}>"


@cache
def exit_leaves(form: str, pivot: DType, entry: DType, stride: int) -> str:
    """Pivots to entries of the exit leaves; shared memory is laid out for ``stride`` documents."""
    word, many, _ = FORMS[form]
    return f"exit_leaves<{word}, {many}, {_c(pivot)}, {_c(entry)}, {stride}>"


@cache
def add_tree_blocks(total: DType) -> str:
    """Partial sums of the tree blocks to sums, of the type ``total``."""
    return f"add_tree_blocks<{_c(total)}>"


@cache
def finish_scores(total: DType, real: DType, score: DType) -> str:
    """Sums of the type ``total`` to scores of the type ``score``, computed in the type ``real``."""
    return f"finish_scores<{_c(total)}, {_c(real)}, {_c(score)}>"


@cache
def rank_documents(given: DType, value: DType, by_row: bool) -> str:
    """Documents to planes of their ranks."""
    return f"rank_documents<{_c(given)}, {_c(value)}, {str(by_row).lower()}>"


@cache
def decode_predicates(words: int) -> str:
    """Planes of ranks to rows: a word of documents for each predicate."""
    return f"decode_predicates<{words}>"


@cache
def steps(words: int) -> str:
    """Rows to planes of the exit leaves' numbers, by programs of steps (`gpuqs.layout.steps`)."""
    return f"steps<{words}>"


@cache
def slots(words: int) -> str:
    """Rows to planes of the exit leaves' numbers, by programs over slots (`gpuqs.layout.slots`)."""
    return f"slots<{words}>"


@cache
def sum_exact(leaf: DType, small: bool, words: int, documents: int) -> str:
    """Planes of leaf numbers to sums in tree order; ``documents`` per thread, one of `summed`."""
    return f"sum_exact<{_c(leaf)}, {SUMS[np.dtype(leaf).name]}, {str(small).lower()}, {words}, {documents}>"


@cache
def sum_few(leaf: DType, words: int) -> str:
    """As `sum_exact`, for trees of up to 64 leaves and few documents."""
    return f"sum_few<{_c(leaf)}, {SUMS[np.dtype(leaf).name]}, {words}>"


@cache
def sum_fast(words: int) -> str:
    """Planes of leaf numbers to partial sums of integers, for trees of up to 64 leaves."""
    return f"sum_fast<{words}>"


@cache
def look_up_leaves(entry: DType) -> str:
    """Planes of leaf numbers to entries of the exit leaves."""
    return f"look_up_leaves<{_c(entry)}>"


@cache
def apply_link(real: DType, link: str) -> str:
    """Sums to values of the same type, by one of `gpuqs.links.KERNELS`."""
    return f"apply_link<{_c(real)}, {_c(real)}, links::{link}>"


@cache
def class_numbers(real: DType, rule: str) -> str:
    """Scores to class numbers, by one of `gpuqs.links.CLASS_DECISIONS`."""
    return f"apply_link<{_c(real)}, i64, classes::{rule}>"


@cache
def walk_scores(value: DType, leaf: DType) -> str:
    """Documents to sums, by walks."""
    return f"walk_scores<{_c(value)}, {_c(leaf)}, {SUMS[np.dtype(leaf).name]}>"


@cache
def walk_leaves(value: DType, entry: DType) -> str:
    """Documents to entries of the exit leaves, by walks."""
    return f"walk_leaves<{_c(value)}, {_c(entry)}>"


def registers(threads_per_multiprocessor: int, name: str) -> int:
    """Registers a thread may take: its share of a multiprocessor's 65,536, or more where it needs them."""
    filled = 65536 // threads_per_multiprocessor // 8 * 8
    kernel, _, arguments = name.partition("<")
    several = kernel == "update_scores" and arguments.split(", ")[-2] != "1"
    return max(filled, REGISTERS_OF_SEVERAL if several else REGISTERS.get(kernel, 0))


@cache
def every_kernel() -> dict[str, tuple[str, ...]]:
    """Every instantiation that the engines can ask for, by file."""
    integers = [name for name in _NAMES if not name.startswith("float")]
    reals = ("float32", "float64")
    casts = [("float32", "float32"), ("float64", "float64"), ("float64", "float32")]
    casts += list(product(integers, reals))
    inputs = tuple(product(casts, (True, False)))
    return {
        "transpose.cu": tuple(transpose(g, v, row) for (g, v), row in inputs),
        "find_false_nodes.cu": tuple(
            find_false_nodes(value, pivot) for value, pivot in product(reals, _PIVOTS)
        ),
        "update_scores.cu": tuple(
            update_scores(form, pivot, leaf, documents, stride)
            for form, pivot, leaf in product(FORMS, _PIVOTS, SUMS)
            for stride in strides(form)
            for documents in sorted({1, stride})
        ),
        "update_outputs.cu": tuple(
            update_outputs(form, pivot, leaf) for form, pivot, leaf in product(FORMS, _PIVOTS, SUMS)
        ),
        "exit_leaves.cu": tuple(
            exit_leaves(form, pivot, entry, stride)
            for form, pivot, entry in product(FORMS, _PIVOTS, SUMS)
            for stride in strides(form)
        ),
        "finish_scores.cu": (
            *(add_tree_blocks(total) for total in ("float64", "float32", "int64")),
            finish_scores("float64", "float64", "float64"),
            finish_scores("float32", "float32", "float32"),
            finish_scores("int64", "float64", "float64"),
            finish_scores("int64", "float64", "float32"),
        ),
        "rank_documents.cu": tuple(rank_documents(g, v, row) for (g, v), row in inputs),
        "decode_predicates.cu": tuple(decode_predicates(words) for words in WORDS),
        "steps.cu": tuple(steps(words) for words in WORDS),
        "slots.cu": tuple(slots(words) for words in WORDS),
        "sum_exact.cu": tuple(
            sum_exact(leaf, small, words, each)
            for leaf, small, words in product(SUMS, (True, False), WORDS)
            for each in summed(leaf, small)
        ),
        "sum_few.cu": tuple(sum_few(leaf, words) for leaf, words in product(reals, WORDS)),
        "sum_fast.cu": tuple(sum_fast(words) for words in WORDS),
        "look_up_leaves.cu": tuple(look_up_leaves(entry) for entry in SUMS),
        "walk_scores.cu": tuple(walk_scores(value, leaf) for value, leaf in product(reals, SUMS)),
        "walk_leaves.cu": tuple(walk_leaves(value, entry) for value, entry in product(reals, SUMS)),
        "apply_link.cu": (
            *(apply_link(real, link) for real, link in product(reals, KERNELS)),
            *(class_numbers(real, rule) for real, rule in product(reals, CLASS_DECISIONS)),
        ),
    }
