"""NumPy versions of what GPU engines need from `gpuqs.cpu_fallback`, for machines where it cannot be built."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any
from zlib import crc32  # noqa: F401

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def read_file(descriptor: int, start: int, to: memoryview) -> int:
    """Fill memory from a file; return how many bytes were read."""
    done = 0
    while done < len(to) and (read := os.preadv(descriptor, [to[done:]], start + done)):
        done += read
    return done


def check_trees(forest: Any) -> tuple[dict[str, int], npt.NDArray[np.int32]]:
    """The first node or leaf with each fault, and each node's depth."""
    nodes_of = np.diff(forest.node_offsets)
    tree = np.repeat(np.arange(len(nodes_of)), nodes_of)
    depth = np.zeros(len(tree), np.int32)
    outside = {
        name: (child >= nodes_of[tree]) | (child < -(nodes_of[tree] + 1)) | (child == 0)
        for name, child in (("left", forest.left), ("right", forest.right))
    }
    if found := _first(outside):
        return found, depth
    parent = np.full(len(tree), -1, np.int64)
    seen_nodes, seen_leaves = np.zeros(len(tree), np.int64), np.zeros(len(forest.leaf_value), np.int64)
    for child in (forest.left, forest.right):
        inner, outer = np.flatnonzero(child >= 0), np.flatnonzero(child < 0)
        target = forest.node_offsets[tree[inner]] + child[inner]
        parent[target] = inner
        seen_nodes += np.bincount(target, minlength=len(seen_nodes))
        leaves = forest.leaf_offsets[tree[outer]] + ~child[outer]
        seen_leaves += np.bincount(leaves, minlength=len(seen_leaves))
    seen_nodes[forest.node_offsets[:-1][nodes_of > 0]] += 1
    of_several = np.repeat(nodes_of > 0, np.diff(forest.leaf_offsets))
    if found := _first({"node": seen_nodes != 1, "leaf": of_several & (seen_leaves != 1)}):
        return found, depth
    # Pointer doubling: after k rounds `jump` is the 2^k-th ancestor, `depth` the steps taken.
    depth, jump = (parent >= 0).astype(np.int32), parent
    while (jump >= 0).any() and depth.max() <= 2 * len(tree):
        live = np.flatnonzero(jump >= 0)
        depth[live] += depth[jump[live]]
        jump[live] = jump[jump[live]]
    return _first({"cycle": jump >= 0}), depth


def _first(faults: dict[str, npt.NDArray[np.bool_]]) -> dict[str, int]:
    return {fault: int(np.argmax(at)) for fault, at in faults.items() if at.any()}


def unite_sets(words: npt.NDArray[np.uint32], offsets: Ints) -> npt.NDArray[np.uint32]:
    """The union of category sets, with as many words as the longest set."""
    held = np.zeros(int(np.diff(offsets).max(initial=0)), np.uint32)
    for start, end in pairwise(offsets.tolist()):
        held[: end - start] |= words[start:end]
    return held


def mark_rows(
    words: npt.NDArray[np.uint32], offsets: Ints, row_of_code: npt.NDArray[np.int32], rows: npt.NDArray[np.uint64]
) -> None:
    """Set bit s of the row of each code that set s holds."""
    for number, (start, end) in enumerate(pairwise(offsets.tolist())):
        codes = np.flatnonzero(np.unpackbits(words[start:end].view(np.uint8), bitorder="little"))
        rows[row_of_code[codes], number // 64] |= np.uint64(1 << number % 64)


def distinct(
    keys: np.ndarray, groups: npt.NDArray[np.int32] | None = None
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """First index of each distinct key, in ascending order of (group, key), and each key's number in that order."""
    of = np.zeros(len(keys), np.int32) if groups is None else groups
    order = np.lexsort((keys, of))
    new = np.ones(len(keys), bool)
    new[1:] = (keys[order][1:] != keys[order][:-1]) | (of[order][1:] != of[order][:-1])
    number = np.empty(len(keys), np.int32)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def counts(numbers: npt.NDArray[np.int32], n: int) -> Ints:
    """How often each of ``range(n)`` occurs in the numbers."""
    return np.bincount(numbers, minlength=n)


def flagged(
    numbers: npt.NDArray[np.int32], flags: npt.NDArray[np.uint8], bit: int, n: int
) -> npt.NDArray[np.bool_]:
    """Which of ``range(n)`` occur in ``numbers`` at an index where the flags have the bit."""
    return np.bincount(numbers[(flags & bit) != 0], minlength=n) > 0


def stored_positions(leaf_offsets: Ints) -> npt.NDArray[np.int32]:
    """The position of each leaf in its tree, as leaves are stored."""
    starts = np.repeat(leaf_offsets[:-1], np.diff(leaf_offsets))
    return (np.arange(leaf_offsets[-1]) - starts).astype(np.int32)


def number_leaves(forest: Any) -> list[npt.NDArray[np.int32]]:
    """The arrays of `gpuqs.layout.leaves.LeafRanges`."""
    from gpuqs.layout.traversal import split_by_depth  # importable only after this module replaces the compiled one

    node_base, leaf_base = forest.node_offsets[forest.node_tree], forest.leaf_offsets[forest.node_tree]
    levels = split_by_depth(forest)
    is_node = {"left": forest.left >= 0, "right": forest.right >= 0}
    node = {"left": node_base + forest.left, "right": node_base + forest.right}
    leaf = {"left": leaf_base + ~forest.left, "right": leaf_base + ~forest.right}
    under = {side: np.ones(forest.n_nodes, np.int32) for side in node}
    for level in reversed(levels):
        for side in node:
            inner = level[is_node[side][level]]
            under[side][inner] = sum(under[other][node[side][inner]] for other in node)
    first, position = np.zeros(forest.n_nodes, np.int32), np.zeros(len(forest.leaf_value), np.int32)
    for level in levels:
        for side, start in (("left", first[level]), ("right", first[level] + under["left"][level])):
            below = is_node[side][level]
            first[node[side][level[below]]] = start[below]
            position[leaf[side][level[~below]]] = start[~below]
    return [first, first + under["left"], first + under["left"] + under["right"], position]


def put_in_order(
    leaf_offsets: Ints, position: npt.NDArray[np.int32], given: np.ndarray, ordered: np.ndarray
) -> None:
    """Put each leaf's item at its position in its tree."""
    ordered[np.repeat(leaf_offsets[:-1], np.diff(leaf_offsets)) + position] = given


def number_predicates(
    predicate: npt.NDArray[np.int32], n_predicates: int, first_node: Ints, max_predicates: int, max_nodes: int
) -> tuple[Ints, Ints, Ints, npt.NDArray[np.int32]]:
    """Superblocks' ends, their distinct predicates with counts, and each node's predicate within its superblock."""
    ends, found, number = [0], [], np.empty(len(predicate), np.int32)
    while (block := ends[-1]) < len(first_node) - 1:
        end, inside = block, np.zeros(0, np.int32)
        while end < len(first_node) - 1:
            grown = np.union1d(inside, predicate[first_node[end] : first_node[end + 1]])
            too_many = len(grown) > max_predicates or first_node[end + 1] - first_node[block] > max_nodes
            if end > block and too_many:
                break
            inside, end = grown, end + 1
        nodes = slice(first_node[block], first_node[end])
        number[nodes] = np.searchsorted(inside, predicate[nodes])
        ends.append(end)
        found.append(inside.astype(np.int64))
    sizes = np.array([len(one) for one in found], np.int64)
    return np.array(ends[1:], np.int64), np.concatenate([*found, np.zeros(0, np.int64)]), sizes, number


def put_in_gray_code(
    leaf_offsets: Ints, oblivious: npt.NDArray[np.bool_], start: Ints, given: np.ndarray, ordered: np.ndarray
) -> None:
    """Put leaf e of tree t at ``start[t] + (e ^ e >> 1)``, or at ``start[t] + e`` if the tree is oblivious."""
    of_tree, leaf = np.repeat(np.arange(len(oblivious)), np.diff(leaf_offsets)), stored_positions(leaf_offsets)
    ordered[start[of_tree] + np.where(oblivious[of_tree], leaf, leaf ^ leaf >> 1)] = given
