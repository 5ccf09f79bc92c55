"""Generated forests of every shape: each engine, on each instruction set, against `reference`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from agreement import on_cpu
from forests import forest_of_stumps, probing_documents, random_forest, threshold_documents
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import BATCHES, Drawn, forests

from gpuqs.engines import ENGINES
from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values, number_leaves
from gpuqs.model import Model

COMPILED = [name for name, engine in ENGINES.items() if name != "reference" and engine.device == "cpu"]


def bits(scores: np.ndarray) -> np.ndarray:
    """View scores as integers, which are equal only if the scores are equal bit for bit."""
    return scores.view(f"i{scores.itemsize}")


def engines_of(model: Model) -> list[str]:
    return [name for name in COMPILED if model.engines()[name] is None]


def assert_every_engine_agrees(model: Model, X: np.ndarray, **options: object) -> None:
    """Exit leaves and exact and fast raw scores equal those of `reference` bit for bit."""
    answers = [("leaf", "exact"), ("raw", "exact"), ("raw", "fast")]
    expected = [model.predict(X, output, precision=p, engine="reference") for output, p in answers]
    for engine in engines_of(model):
        for (output, precision), want in zip(answers, expected, strict=True):
            got = model.predict(X, output, precision=precision, engine=engine, **options)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=f"{engine} {output} {precision}")


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(forests(), st.sampled_from(BATCHES), st.sampled_from([np.float64, np.float32]), st.booleans())
def test_every_shape(isa: str, drawn: Drawn, n: int, dtype: type, all_equal: bool) -> None:
    forest = drawn.forest()
    X = drawn.documents(forest, n, dtype, all_equal=all_equal)
    assert_every_engine_agrees(Model(forest), X, n_threads=1 + drawn.seed % 3)


@cache
def fixed_model() -> Model:
    rng = np.random.default_rng(11)
    return Model(random_forest(rng, n_trees=70, max_leaves=40, n_features=9, n_thresholds=300))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", BATCHES)
def test_every_batch_size(isa: str, n: int, dtype: type) -> None:
    model = fixed_model()
    assert_every_engine_agrees(model, probing_documents(np.random.default_rng(n), model.forest, n, dtype))


@cache
def stumps(n: int) -> tuple[Model, np.ndarray]:
    """A feature with ``n`` thresholds, some closer together than float32 can distinguish."""
    rng = np.random.default_rng(n)
    thresholds = rng.normal(size=n)
    close = rng.random(n) < 0.5
    near = rng.choice(thresholds, n).astype(np.float32).astype(np.float64)
    thresholds[close] = near[close] * (1 + rng.integers(-3, 4, n)[close] * 1e-8)
    while len(distinct := np.unique(thresholds)) < n:
        thresholds = np.concatenate([distinct, rng.normal(size=n - len(distinct))])
    return Model(forest_of_stumps(rng.permutation(thresholds), rng)), thresholds


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 254, 255, 256, 257, 511, 512, 1025])
def test_every_number_of_thresholds_decides_on_each_and_beside_each(isa: str, n: int, dtype: type) -> None:
    model, thresholds = stumps(n)
    forest = model.forest
    with np.errstate(over="ignore"):
        t = thresholds.astype(dtype)
    x = np.concatenate([t, np.nextafter(t, dtype(np.inf)), np.nextafter(t, dtype(-np.inf))])
    x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45], dtype)])
    expected = x[:, None].astype(np.float64) > forest.threshold
    expected[np.isnan(x)] = (forest.routing & 1) == 0
    for engine in engines_of(model):
        got = model.predict(x[:, None], "leaf", engine=engine)
        np.testing.assert_array_equal(got, expected, err_msg=engine)


BIG = {
    # More distinct tests, leaves, trees, features or outputs than one word, block or group holds.
    "100,000 distinct tests": {"n_trees": 40, "max_leaves": 4000, "shape": "complete", "n_thresholds": 9000},
    "128 leaves": {"n_trees": 40, "max_leaves": 128, "n_thresholds": 3000, "shape": "complete"},
    "chains of 128 leaves": {"n_trees": 40, "max_leaves": 128, "shape": "chain"},
    "129 leaves": {"n_trees": 40, "max_leaves": 129, "n_thresholds": 3000, "shape": "complete"},
    # The most leaves that a one-byte leaf index allows, and one more.
    "256 leaves": {"n_trees": 20, "max_leaves": 256, "n_thresholds": 3000, "shape": "complete"},
    "chains of 256 leaves": {"n_trees": 20, "max_leaves": 256, "shape": "chain"},
    "257 leaves": {"n_trees": 20, "max_leaves": 257, "n_thresholds": 3000, "shape": "complete"},
    "1,023 leaves": {"n_trees": 9, "max_leaves": 1023, "n_thresholds": 3000, "shape": "complete"},
    "1,024 leaves": {"n_trees": 9, "max_leaves": 1024, "n_thresholds": 3000, "shape": "complete"},
    "4,094 leaves": {"n_trees": 2, "max_leaves": 4094, "n_thresholds": 3000, "shape": "complete"},
    "chains of 4,094 leaves": {"n_trees": 2, "max_leaves": 4094, "shape": "chain"},
    "zigzags of 4,094 leaves": {"n_trees": 2, "max_leaves": 4094, "shape": "zigzag", "n_features": 30},
    "4,095 leaves": {"n_trees": 2, "max_leaves": 4095, "n_thresholds": 3000, "shape": "complete"},
    "a chain of 5,000": {"n_trees": 2, "max_leaves": 5000, "shape": "chain"},
    "20,000 thresholds of one feature": {
        "n_trees": 40,
        "max_leaves": 900,
        "n_features": 1,
        "n_thresholds": 20_000,
        "shape": "complete",
    },
    "many small trees": {"n_trees": 1500, "max_leaves": 6, "n_thresholds": 60},
    "1,000 features": {"n_trees": 90, "max_leaves": 32, "n_features": 1000},
    "30 outputs": {"n_trees": 90, "max_leaves": 20, "n_outputs": 30},
    "30 outputs a leaf": {"n_trees": 9, "max_leaves": 300, "n_outputs": 30, "vector_leaves": True},
}


@cache
def big(name: str) -> tuple[Model, np.ndarray, np.ndarray]:
    """Model, documents and their exit leaves by `walk`, which smaller tests compare with `reference`."""
    rng = np.random.default_rng(5)
    model = Model(random_forest(rng, **BIG[name]))
    X = probing_documents(rng, model.forest, 130)
    return model, X, model.predict(X, "leaf", engine="walk")


@pytest.mark.parametrize("name", BIG)
def test_forests_beyond_every_small_size(isa: str, name: str) -> None:
    model, X, leaves = big(name)
    engines = engines_of(model)
    assert "walk" in engines
    assert ("rankwalk" in engines) == (model.n_leaves <= 128) and ("bitslice" in engines) == (model.n_leaves <= 4094)
    raw = {p: model.predict(X, "raw", engine="walk", precision=p) for p in ("exact", "fast")}
    for engine in engines:
        np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves, err_msg=engine)
        for precision, expected in raw.items():
            got = model.predict(X, "raw", engine=engine, precision=precision)
            np.testing.assert_array_equal(bits(got), bits(expected), err_msg=f"{engine} {precision}")


#: Functions that assign each of `n_trees` trees to one of `n` outputs.
ORDERS = {
    "in turn": lambda rng, n_trees, n: np.arange(n_trees) % n,
    "one after the other": lambda rng, n_trees, n: np.arange(n_trees) * n // n_trees,
    "some of each in turn": lambda rng, n_trees, n: np.arange(n_trees) // 3 % n,
    "any": lambda rng, n_trees, n: rng.integers(0, n, n_trees),
    "the last alone": lambda rng, n_trees, n: np.full(n_trees, n - 1),
    "in ever larger steps": lambda rng, n_trees, n: np.floor(np.sqrt(np.arange(n_trees))) % n,
}


@pytest.mark.parametrize("max_leaves", [9, 70])
@pytest.mark.parametrize("order", ORDERS)
def test_trees_add_to_their_outputs_in_any_order(isa: str, order: str, max_leaves: int) -> None:
    rng = np.random.default_rng(max_leaves)
    forest = random_forest(rng, n_trees=140, max_leaves=max_leaves, n_outputs=3)
    model = Model(replace(forest, tree_output=ORDERS[order](rng, 140, 3).astype(np.int32)))
    for n in (3, 70):
        assert_every_engine_agrees(model, probing_documents(rng, forest, n))


@pytest.mark.parametrize("n_outputs", [*range(2, 18), 33, 34])
def test_leaves_of_every_width(isa: str, n_outputs: int) -> None:
    rng = np.random.default_rng(n_outputs)
    wide = {"n_outputs": n_outputs, "vector_leaves": True, "sum_dtype": ["float64", "float32"][n_outputs % 2]}
    for max_leaves, shape in ((16, "random"), (64, "oblivious"), (70, "random")):
        forest = random_forest(rng, n_trees=30, max_leaves=max_leaves, shape=shape, **wide)
        assert_every_engine_agrees(Model(forest), probing_documents(rng, forest, 70))


@pytest.mark.parametrize(
    ("n_outputs", "max_leaves", "sum_dtype"),
    [(2, 1100, "float64"), (3, 1500, "float32"), (17, 250, "float64"), (50, 100, "float64")],
)
def test_leaves_that_share_vectors(isa: str, n_outputs: int, max_leaves: int, sum_dtype: str) -> None:
    """As in fully grown trees, where most leaves hold a single class."""
    rng = np.random.default_rng(n_outputs)
    fields = {"n_outputs": n_outputs, "vector_leaves": True, "sum_dtype": sum_dtype}
    forest = random_forest(rng, n_trees=40, max_leaves=max_leaves, shape="complete", n_thresholds=500, **fields)
    vectors = np.concatenate([np.eye(n_outputs), -np.eye(n_outputs), rng.normal(size=(3, n_outputs))])
    weights = rng.choice([0.5, 1.0], 40)
    forest = replace(forest, leaf_value=vectors[rng.integers(0, len(vectors), len(forest.leaf_value))])
    for shared in (forest, replace(forest, tree_weight=weights)):
        assert len(leaf_values(shared, number_leaves(shared).position, "exact", shared=True).row)
        for n in (1, 5, 600):  # more than are turned into rows at a time
            assert_every_engine_agrees(Model(shared), probing_documents(rng, shared, n), n_threads=1 + n % 2)


def make_superblocks_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"max_predicates": 300, "one_superblock": 0}
    parameters = [replace(p, default=small.get(p.name, p.default)) for p in ENGINES["bitslice"].parameters]
    monkeypatch.setattr("gpuqs.engines.bitslice.Bitslice.parameters", tuple(parameters))


@pytest.mark.parametrize("n", [511, 4096, 9000])
def test_documents_pass_superblocks_together(isa: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several document blocks and several superblocks; the last of each may be partial."""
    make_superblocks_small(monkeypatch)
    forest = random_forest(np.random.default_rng(4), n_trees=300, max_leaves=17, n_thresholds=400, n_outputs=2)
    model = Model(forest)
    X = probing_documents(np.random.default_rng(n), forest, n, np.float32)
    leaves, raw = (model.predict(X, output, engine="walk") for output in ("leaf", "raw"))
    coded = model.encode(X)
    for n_threads in (1, 2, 3):
        for documents in (X, coded):
            got = model.predict(documents, "leaf", engine="bitslice", n_threads=n_threads)
            np.testing.assert_array_equal(got, leaves, err_msg=f"{n_threads} threads")
            got = model.predict(documents, "raw", engine="bitslice", n_threads=n_threads)
            np.testing.assert_array_equal(bits(got), bits(raw), err_msg=f"{n_threads} threads")


@pytest.mark.parametrize("fields", [{"n_outputs": 9, "vector_leaves": True}, {"n_outputs": 2, "linear": 0.5}], ids=str)
def test_blocks_of_documents_pass_superblocks_of_all_leaves(
    isa: str, fields: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums stored document by document, and values of documents after the first block."""
    make_superblocks_small(monkeypatch)
    rng = np.random.default_rng(6)
    forest = random_forest(rng, n_trees=200, max_leaves=17, n_thresholds=400, **fields)
    model, X = Model(forest), rng.normal(size=(5000, forest.n_features)).astype(np.float32)
    raw = model.predict(X, "raw", engine="walk")
    np.testing.assert_array_equal(bits(model.predict(X[-40:], "raw", engine="reference")), bits(raw[-40:]))
    for n_threads in (1, 3):
        got = model.predict(X, "raw", engine="bitslice", n_threads=n_threads)
        np.testing.assert_array_equal(bits(got), bits(raw), err_msg=f"{n_threads} threads")


def test_more_tested_features_than_16_bits_count() -> None:
    """More than 65,536 tested features do not make any engine confuse two columns."""
    rng = np.random.default_rng(5)
    forest = random_forest(rng, n_trees=70, max_leaves=1000, shape="complete")
    forest = replace(forest, n_features=forest.n_nodes, feature=np.arange(forest.n_nodes, dtype=np.int32))
    assert forest.n_features > 1 << 16
    model = Model(forest)
    X = rng.normal(size=(5, forest.n_features))
    leaves = model.predict(X, "leaf", engine="walk")
    for engine in ("auto", *engines_of(model)):
        np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves, err_msg=engine)


def test_auto_hands_what_the_others_cannot_hold_to_one_that_can() -> None:
    for name in BIG:
        model, X, leaves = big(name)
        np.testing.assert_array_equal(model.predict(X, "leaf"), leaves, err_msg=name)
        for engine, reason in on_cpu(model).items():
            if reason is not None:
                with pytest.raises(UnsupportedModelError, match="use engine='auto'"):
                    model.predict(X, engine=engine)


def of_one_row(forest: Forest, X: np.ndarray) -> np.ndarray:
    return np.concatenate([Model(forest).predict(x[None], "raw") for x in X])


@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
def test_fast_gives_the_same_bits_however_the_work_is_split(isa: str, sum_dtype: str) -> None:
    forest = replace(fixed_model().forest, sum_dtype=sum_dtype)
    model = Model(forest)
    X = probing_documents(np.random.default_rng(3), forest, 700)
    expected = bits(model.predict(X, "raw", engine="reference", precision="fast"))
    for engine in engines_of(model):
        for n_threads in (1, 2, 5):
            got = model.predict(X, "raw", engine=engine, precision="fast", n_threads=n_threads)
            np.testing.assert_array_equal(bits(got), expected, err_msg=f"{engine}, {n_threads} threads")
        for size in (1, 3, 64, 513):
            parts = [
                model.predict(X[at : at + size], "raw", engine=engine, precision="fast")
                for at in range(0, 64 if size == 1 else len(X), size)
            ]
            got = bits(np.concatenate(parts))
            np.testing.assert_array_equal(got, expected[: len(got)], err_msg=f"{engine}, batches of {size}")


@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
def test_fast_is_as_near_to_exact_as_the_grid_promises(sum_dtype: str) -> None:
    forest = replace(fixed_model().forest, sum_dtype=sum_dtype)
    model = Model(forest)
    X = probing_documents(np.random.default_rng(3), forest, 700)
    largest = np.abs(forest.leaf_value).max()
    half_step = 2.0 ** np.ceil(np.log2(largest)) / 2**23 / 2
    exact, fast = (model.predict(X, "raw", precision=p).astype(np.float64) for p in ("exact", "fast"))
    # Rounding error of the sum type: n_trees roundings, each of at most the largest partial sum.
    rounding = forest.n_trees * np.finfo(sum_dtype).eps * (forest.n_trees * largest + np.abs(forest.base_score).max())
    error = np.abs(fast - exact).max()
    assert 0 < error <= forest.n_trees * half_step + rounding


def test_exact_gives_the_same_bits_however_the_work_is_split(isa: str) -> None:
    model = fixed_model()
    X = threshold_documents(np.random.default_rng(3), model.forest)[:600]
    expected = bits(model.predict(X, "raw", engine="reference"))
    for engine in engines_of(model):
        for n_threads in (1, 2, 5):
            got = model.predict(X, "raw", engine=engine, n_threads=n_threads)
            np.testing.assert_array_equal(bits(got), expected, err_msg=f"{engine}, {n_threads} threads")
    np.testing.assert_array_equal(bits(of_one_row(model.forest, X[:40])), expected[:40])


@pytest.mark.parametrize("max_leaves", [9, 40])
def test_threads_share_trees_of_several_outputs(isa: str, max_leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of all trees are then added at once: more per output than 32-bit sums can hold."""
    make_superblocks_small(monkeypatch)
    rng = np.random.default_rng(max_leaves)
    model = Model(random_forest(rng, n_trees=300, max_leaves=max_leaves, n_thresholds=400, n_outputs=2))
    assert_every_engine_agrees(model, probing_documents(rng, model.forest, 40), n_threads=3)
