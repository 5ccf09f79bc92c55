"""Every system against gpuqs's reference, bit for bit, on forests and documents that probe its edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from forests import probing_documents, random_forest, threshold_documents  # of the tests

import gpuqs
from baselines.program import Program
from baselines.registry import System
from gpuqs.forest import Forest

#: Block sizes: not a divisor of the batch or forest, larger than both, and one.
BLOCKS = {"d": (7, 1, 1000), "s": (3, 1000, 1)}
SETTINGS = {"v": (1, 2, 4, 8, 16, 32), "tau": (5, 1, 1000)}
#: Types of documents and sums: as in LightGBM for float32 and float64 rows, and as in XGBoost.
TYPES = ((np.float32, "float64"), (np.float64, "float64"), (np.float32, "float32"))


@dataclass(frozen=True)
class Case:
    """A forest, documents, and their scores by gpuqs's reference."""

    name: str
    forest: Forest
    X: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class Verdict:
    """What a check covered, how many scores differed in any bit, and the first that did."""

    forests: int
    rows: int
    differ: int
    example: str = ""


def case(name: str, forest: Forest, X: np.ndarray) -> Case:
    return Case(name, forest, X, gpuqs.from_model(forest).predict(X, "raw", engine="reference"))


def cases(oblivious: bool, few: bool) -> Iterator[Case]:
    """Forests with documents on thresholds, one ulp to either side, missing, infinite, zero and denormal.

    ``few`` is for systems that run a compiler for each forest.
    """
    rng = np.random.default_rng(4)
    shapes = ["oblivious"] if oblivious else ["random", "chain", "complete"]
    for at, (shape, (dtype, total)) in enumerate(product(shapes, TYPES)):
        if few and at % 4:
            continue
        for leaves in (16,) if few else (8, 13, 32, 64):
            kind = {"max_leaves": leaves, "sum_dtype": total, "base_first": at % 3 > 0}
            forest = random_forest(rng, shape=shape, n_trees=13, **kind)
            yield case(f"{shape}, {leaves} leaves", forest, probing_documents(rng, forest, 101, dtype))
    shape = shapes[0]
    forest = random_forest(rng, shape=shape, n_trees=5, input_dtype="float32", sum_dtype="float32")
    yield case("float32 throughout, each threshold and its neighbours", forest, threshold_documents(rng, forest))
    yield case("one document", forest, threshold_documents(rng, forest)[:1])
    yield case("no documents", forest, threshold_documents(rng, forest)[:0])
    forest = random_forest(rng, shape=shape, max_leaves=1, n_trees=3)
    yield case("single leaves", forest, probing_documents(rng, forest, 9))
    forest = random_forest(rng, shape=shape, n_trees=0)
    yield case("no trees", forest, probing_documents(rng, forest, 9))
    if not few:
        forest = random_forest(rng, shape=shape, max_leaves=256 if oblivious else 150, n_trees=4)
        yield case("more than 64 leaves", forest, probing_documents(rng, forest, 60))


def check(system: System, cases: Iterable[Case]) -> Verdict:
    """Compare a system's scores with the cases', for all its parameters."""
    forests = rows = differ = 0
    example = ""
    settings = {name: values for name, values in SETTINGS.items() if name in system.parameters}
    blocks = {name: values for name, values in BLOCKS.items() if name in system.parameters}
    for each in cases:
        forests, rows = forests + 1, rows + len(each.X)
        for setting in product(*settings.values()):
            chosen = dict(zip(settings, setting, strict=True))
            program = Program(system, each.forest, each.X.dtype, **chosen)
            for block in product(*blocks.values()):
                among = dict(zip(blocks, block, strict=True))
                wrong = differing(program.score(each.X, **among), each.expected)
                differ += wrong
                if wrong and not example:
                    example = f"{each.name}, {chosen | among}: {wrong} of {len(each.X)} scores differ"
    return Verdict(forests, rows, differ, example)


def check_engine(engine: str, cases: Iterable[Case]) -> Verdict:
    """Compare an engine of gpuqs with the reference on the forests that it can run."""
    forests = rows = differ = 0
    example = ""
    for each in cases:
        model = gpuqs.from_model(each.forest)
        if model.engines()[engine] is not None:
            continue
        wrong = differing(model.predict(each.X, "raw", engine=engine), each.expected)
        forests, rows, differ = forests + 1, rows + len(each.X), differ + wrong
        example = example or (f"{each.name}: {wrong} of {len(each.X)} scores differ" if wrong else "")
    return Verdict(forests, rows, differ, example)


def differing(scores: np.ndarray, expected: np.ndarray) -> int:
    """How many scores differ in any bit."""
    if scores.dtype != expected.dtype or scores.shape != expected.shape:
        return max(len(expected), 1)
    bits = f"i{expected.itemsize}"
    return int((scores.view(bits) != np.ascontiguousarray(expected).view(bits)).sum())
