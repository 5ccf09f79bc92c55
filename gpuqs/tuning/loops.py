"""How each engine's loops map to the cost model, and the candidates in the order of predicted cost.

The driver's loop (`cpu_fallback/driver/scorer.hpp`) is DSD: δ documents pass a scorer, a block of τ trees, before the
next scorer. In `bitslice`, vectors are words of documents, and scorers are superblocks of trees; the words of a group
pass one superblock before the next. `qs` keeps all trees in one scorer: DS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.engines.parameters import Changed, changed, settings
from gpuqs.engines.walk import walks_nodes_alone
from gpuqs.forest import Forest
from gpuqs.layout.rankwalk import WALKS
from gpuqs.tuning.blocking import HALF, SHARES, Work, case_of, cost, sample, vectors_beside
from gpuqs.tuning.machine import Hierarchy
from gpuqs.tuning.plan import Candidate

#: Microseconds until a helper thread has started.
_HELPER = 15.0
#: Bytes of a node as `bitslice` runs it: machine code, and its share of the leaf values.
_PROGRAM_NODE = 40
#: Bytes of a node and a leaf as `walk` reads them (False), or of a node, if it reads only nodes (True).
_WALK_NODE = {False: 2 * 8, True: 8}
#: Bytes of a node as `rankwalk` reads it.
_RANKWALK_NODE = 2 * 4
#: Other work for each access to a vector, in accesses to L1. Hardware prefetches streams, and independent accesses
#: overlap, but in the model each access waits; so data weigh less here than in the paper's trees.
_ARITHMETIC = 40.0
#: The share of tests that QuickScorer looks at, because thresholds are in order.
_LOOKED_AT = 0.3
#: Work of QuickScorer's kernel for each column of a block, however many tests that has, in units of tests.
_COLUMN = 8.0
#: Accesses to a scorer for each access to a vector (paper 004, section 5.1), if scorers are QuickScorer's blocks.
_ETA_OF_BLOCKS = 4.0
#: The same, if scorers are trees.
_ETA_OF_TREES = 1.0
#: Other parameters are tried only for the default engine, and for engines predicted to take at most this many times as
#: long as the best.
_WORTH_VARIANTS = 2.5
#: Upper limit of the parameter settings that are tried for one engine, the cheapest by prediction.
_MAX_VARIANTS = 6
#: Upper limit of candidates of all engines, likewise.
_MAX_CANDIDATES = 48


@dataclass(frozen=True)
class Loop:
    """An engine's loop over a forest.

    Parameters
    ----------
    trees, documents : str or None
        Names of the parameters for the trees of a scorer, and for the vectors of a block.
    vector_bytes : callable
        Bytes of a document's row, and of its data for the given number of trees.
    tree_bytes : float
    eta : float
    scorer : int or None
        Trees of a scorer, if the block of trees only says how often values are added up.
    """

    trees: str | None
    documents: str | None
    vector_bytes: Callable[[int], float]
    tree_bytes: float
    eta: float
    scorer: int | None = None


def loop_of(engine: str, forest: Forest) -> Loop:
    """The loop of an engine with block parameters, other than `bitslice`."""
    nodes = forest.n_nodes / max(forest.n_trees, 1)
    row = 4.0 * len(forest.tested)
    if engine == "walk":
        of_trees, bytes_of = "tree_block", nodes * _WALK_NODE[walks_nodes_alone(forest, cpu_fallback.machine())]
        return Loop(of_trees, "document_block", lambda trees: row + 4 * trees, bytes_of, _ETA_OF_TREES, 1)
    if engine == "rankwalk":
        of_trees, bytes_of = "tree_block", nodes * _RANKWALK_NODE
        return Loop(of_trees, "document_block", lambda trees: row + trees, bytes_of, _ETA_OF_TREES, WALKS)
    mask = 1 if engine == "qs_oblivious" else max(-(-forest.n_leaves // 8), 1)
    tests = forest.n_leaves.bit_length() - 1 if engine == "qs_oblivious" else nodes
    blocks = None if engine == "qs" else "tree_block"
    return Loop(blocks, "document_block", lambda trees: row + trees, tests * (8 + mask) + mask, _ETA_OF_BLOCKS)


def candidates(
    forest: Forest,
    n_documents: int,
    max_threads: int,
    memory: Hierarchy,
    predict: Callable[[str, int], float | None],
    default: Candidate,
    engines: list[str],
) -> list[Candidate]:
    """The candidates to measure, the cheapest by prediction first; ``default`` is among them.

    Parameters
    ----------
    forest : Forest
    n_documents : int
    max_threads : int
    memory : Hierarchy
    predict : callable
        Microseconds that an engine with its defaults takes for a number of documents; None if unknown.
    default : Candidate
        The candidate that scores such batches without a plan.
    engines : list of str
        The engines that can run the forest.
    """
    costs = {name: us for name in engines if (us := predict(name, n_documents)) is not None}
    best = min(costs.values(), default=0.0)
    found = {default.way: default}
    threads = sorted({1, max_threads, max(max_threads // 2, 1), default.n_threads})
    for name, alone in costs.items():
        variants: dict[Changed, float] = {(): 1.0}
        if alone <= _WORTH_VARIANTS * best or name == default.engine:
            variants |= dict(_variants(name, forest, n_documents, memory))
        if name == default.engine:
            variants.setdefault(default.params, 1.0)
        for n_threads in threads:
            each = -(-n_documents // n_threads)
            us = predict(name, each) if n_threads > 1 else alone
            if us is None or (n_threads > 1 and n_documents < 2):
                continue
            for params, ratio in variants.items():
                predicted = us * ratio + _HELPER * (n_threads > 1)
                candidate = Candidate(name, params, n_threads, predicted)
                found[candidate.way] = candidate
    by_cost = sorted(found.values(), key=lambda c: float("inf") if c.predicted is None else c.predicted)
    as_they_are, others = ([c for c in by_cost if (c.params == ()) is plain] for plain in (True, False))
    kept = {id(c) for c in (found[default.way], *as_they_are, *others[: max(_MAX_CANDIDATES - len(as_they_are), 0)])}
    return [c for c in by_cost if id(c) in kept]


def _variants(
    engine: str, forest: Forest, n_documents: int, memory: Hierarchy
) -> Iterator[tuple[Changed, float]]:
    """Parameters to try, and their predicted cost relative to the defaults'."""
    if engine == "bitslice":
        yield from _of_bitslice(forest, n_documents, memory)
    elif ENGINES[engine].parameters:
        yield from _of_blocks(engine, forest, n_documents, memory)


def _of_blocks(
    engine: str, forest: Forest, n_documents: int, memory: Hierarchy
) -> Iterator[tuple[Changed, float]]:
    loop, parameters = loop_of(engine, forest), ENGINES[engine].parameters
    known = {parameter.name: parameter for parameter in parameters}
    defaults = settings(engine, parameters, {})

    def within(name: str, value: float) -> int:
        parameter = known[name]
        rounded = int(value) // 8 * 8 if value >= 16 else int(value)  # whole registers
        return min(max(rounded, 1, parameter.lowest), parameter.highest)

    def ratio_of(trees: int, documents: int) -> float:
        trees, documents = min(trees, max(forest.n_trees, 1)), min(documents, n_documents)
        work = _work(loop, forest, trees, n_documents)
        case = case_of("DSD", documents, 1, work, memory)
        of_columns = 0.0 if loop.scorer else work.m * len(forest.tested) * _COLUMN
        done = 1 + _LOOKED_AT * forest.n_nodes + of_columns
        return done * (_ARITHMETIC + cost(case, documents, 1, work, memory))

    default_trees = defaults[loop.trees] or 64 if loop.trees else max(forest.n_trees, 1)  # 0: walk's own choice
    default_documents = defaults["document_block"] or 256
    unit = ratio_of(default_trees, default_documents)
    blocks = {default_trees}
    if loop.scorer:
        blocks |= {within("tree_block", default_trees / 4), within("tree_block", 4 * default_trees)}
    elif loop.trees:
        # As many trees as fit each cache, for each share of their bytes that documents may touch.
        sizes = {HALF * size / (share * max(loop.tree_bytes, 1)) for size in memory.sizes for share in SHARES}
        blocks |= {within(loop.trees, size) for size in sizes}
    tried: dict[tuple[int, int], float] = {}
    for trees in {min(trees, max(forest.n_trees, 1)) for trees in blocks}:
        work = _work(loop, forest, trees, n_documents)
        sizes_of = [point.d for point in sample(work, memory, names=("DSD1", "DSD2", "DSD3", "DSD4"))]
        sizes_of += [vectors_beside(work.scorer_bytes, work.vector_bytes, size) for size in memory.sizes]
        for size in sizes_of:
            if size < 1:
                continue
            documents = within("document_block", max(min(size, n_documents), 8))  # the narrowest register
            tried[trees, documents] = ratio_of(trees, documents)
    seen = set()
    for (trees, documents), ratio in sorted(tried.items(), key=lambda item: item[1]):
        # Blocks that hold all documents, or all trees, become the default if that holds all of them, too.
        documents = defaults["document_block"] if default_documents >= n_documents <= documents else documents
        if loop.trees and default_trees >= forest.n_trees <= trees:
            trees = defaults[loop.trees]
        asked = {"document_block": documents} | ({loop.trees: trees} if loop.trees else {})
        params = changed(engine, parameters, asked)
        if params and params not in seen:
            seen.add(params)
            yield params, ratio / unit
        if len(seen) >= _MAX_VARIANTS:
            return


def _work(loop: Loop, forest: Forest, trees: int, n_documents: int) -> Work:
    of_scorer = loop.scorer or trees
    asked = loop.tree_bytes if loop.scorer else _LOOKED_AT * loop.tree_bytes
    m = -(-max(forest.n_trees, 1) // of_scorer)
    return Work(max(loop.vector_bytes(trees), 1.0), max(asked * of_scorer, 1.0), n_documents, m, loop.eta)


def _of_bitslice(
    forest: Forest, n_documents: int, memory: Hierarchy
) -> Iterator[tuple[Changed, float]]:
    engine = ENGINES["bitslice"]
    values, isa = settings(engine.name, engine.parameters, {}), cpu_fallback.instruction_set()
    word = isa.widest_word
    words = -(-n_documents // word)

    def params(**asked: int) -> Changed:
        return changed(engine.name, engine.parameters, asked)

    def ratio_of(nodes: float, documents: int) -> float:
        """Relative cost for superblocks of ``nodes`` and words of ``documents``; half as many predicates as nodes."""
        nodes = min(nodes, forest.n_nodes)
        m = max(-(-forest.n_nodes // max(int(nodes), 1)), 1)
        vector = max(forest.n_nodes / m / 2, 1) * documents / 8
        work = Work(vector, max(nodes * _PROGRAM_NODE, 1.0), words, m)
        d = min(values["together"], words) if m > 1 else 1
        case = case_of("DSD", d, 1, work, memory)
        return (_ARITHMETIC + cost(case, d, 1, work, memory)) * math.sqrt(word / documents)

    unit = ratio_of(values["max_nodes"], word)
    if forest.n_nodes > 4096 and n_documents > 16:
        points = {HALF * size / (share * _PROGRAM_NODE) for size in memory.sizes[1:] for share in (1.0, 0.5, 0.25)}
        for nodes in sorted({int(point) // 1024 * 1024 for point in points}):
            if 4096 <= nodes < forest.n_nodes and nodes != values["max_nodes"]:
                yield params(max_nodes=nodes), ratio_of(nodes, word) / unit
        if forest.n_nodes > values["max_nodes"]:
            yield params(max_nodes=1 << 30), ratio_of(1 << 30, word) / unit
        for size in memory.sizes[1:]:
            predicates = int(HALF * size / (word / 8)) // 64 * 64
            if 0 < predicates < min(forest.n_nodes, engine.parameters[0].highest):
                yield params(max_predicates=predicates, one_superblock=0), ratio_of(2 * predicates, word) / unit
    if n_documents > word and forest.n_nodes > values["max_nodes"]:
        for together in (4, 128):
            yield params(together=together), 1.0
    for narrower in (256, 128):
        if narrower < word and n_documents > narrower:
            yield params(word=narrower), ratio_of(values["max_nodes"], narrower) / unit
    if cpu_fallback.compiles_programs():
        yield params(compiled=0), 1.35  # from `Bitslice.word_costs` of interpreted programs
