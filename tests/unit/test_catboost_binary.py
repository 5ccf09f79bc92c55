"""Hand-made CatBoost binary models: their meaning, damaged ones, and ones that refer to more than they hold."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flatbuffer_files import Buffer, Number, Shared

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.text_hashes import text_hashes

FACTOR = 0x4906BA494954CB65
INFO = '{"loss_function":{"type":"RMSE"}}'


def ints(*values: int) -> np.ndarray:
    return np.array(values, "<i4")


def feature(index: int, column: int, borders: Any, **more: Any) -> dict[int, Any]:
    return {1: Number("i", index), 2: Number("i", column), 3: borders} | {int(k[1:]): v for k, v in more.items()}


def trees(**fields: Any) -> dict[int, Any]:
    """One output, a number with borders 0.5 and 1.5, a tree that tests both; ``_N`` sets field N, None drops it."""
    table = {
        0: Number("i", 1),
        1: ints(1, 0),
        2: ints(2),
        3: ints(0),
        5: [feature(0, 0, np.array([0.5, 1.5], "<f4"))],
        8: np.array([1.0, 2.0, 3.0, 4.0], "<f8"),
    }
    table |= {int(name[1:]): part for name, part in fields.items()}
    return {field: part for field, part in table.items() if part is not None}


def model(table: dict[int, Any], tables: list[bytes] | None = None, info: Any = None) -> bytes:
    root: dict[int, Any] = {0: "FlabuffersModel_v1", 1: table, 2: [{0: "params", 1: INFO}] if info is None else info}
    behind = b""
    if tables is not None:
        root[3] = ["static_provider_v1"]
        behind = struct.pack("<I", len(tables)) + b"".join(struct.pack("<I", len(data)) + data for data in tables)
    core = Buffer(root).data
    return b"CBM1" + struct.pack("<I", len(core)) + core + behind


def score(data: bytes, X: Any) -> list[float]:
    return gpuqs.load(data).predict(X).tolist()


def test_symmetric_trees() -> None:
    assert score(model(trees()), [[0.0], [1.0], [2.0]]) == [1.0, 3.0, 4.0]
    scaled = trees(_14=Number("d", 2.0), _16=np.array([10.0], "<f8"))
    assert score(model(scaled), [[0.0], [2.0]]) == [12.0, 18.0]
    assert score(model(trees(_15=Number("d", -1.0))), [[0.0], [2.0]]) == [0.0, 3.0]  # before 1.0


def test_nested_trees() -> None:
    """Node 0: x > 0.5, left ends at its own leaf; node 1 ends on both sides."""
    steps = np.array([(0, 1), (0, 0)], "<u2")
    nested = trees(_1=ints(0, 1), _10=steps, _11=np.array([1, 0], "<u4"), _8=np.array([7.0, 9.0]))
    loaded = gpuqs.load(model(nested))
    assert loaded.predict([[0.0], [1.0]]).tolist() == [9.0, 7.0]
    assert loaded.predict([[0.0], [1.0]], "leaf").tolist() == [[1], [0]]


def test_trees_of_every_shape_stand_side_by_side() -> None:
    """A single leaf without a split; one node; and two nodes, of which the first continues on both sides."""
    steps = np.array([(0, 0), (0, 1), (0, 0), (1, 2), (0, 0), (0, 1), (0, 0)], "<u2")
    nested = trees(
        _1=ints(9, 0, 9, 1, 9, 0, 9), _2=ints(1, 2, 4), _3=ints(0, 1, 3), _10=steps,
        _11=np.array([0, 1, 2, 0, 3, 5, 4], "<u4"), _8=np.array([100.0, 10.0, 20.0, 1.0, 2.0, 3.0]),
    )  # fmt: skip
    loaded = gpuqs.load(model(nested))
    assert loaded.predict([[0.0], [1.0], [2.0]]).tolist() == [111.0, 121.0, 122.0]
    assert loaded.predict([[0.0], [1.0], [2.0]], "leaf").tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    mixed = trees(_1=ints(1, 0, 1), _2=ints(0, 2, 1), _3=ints(0, 0, 2), _8=np.arange(7.0))
    assert gpuqs.load(model(mixed)).predict([[0.0], [1.0], [2.0]]).tolist() == [6.0, 8.0, 10.0]


def combination(**fields: Any) -> dict[int, Any]:
    return {0: {0: ints(0)} | {int(name[1:]): part for name, part in fields.items()}, 1: Number("b", 4)}


def counted(kind: dict[int, Any], keys: list[tuple[int, int]], counts: Any, denominator: int = 10) -> bytes:
    buckets = np.array(keys, [("key", "<u8"), ("row", "<u4")]).view(np.uint8)
    blob = np.asarray(counts, "<i4").view(np.uint8)
    return Buffer({0: kind, 1: buckets, 2: blob, 3: Number("i", denominator)}).data


def with_counter(keys: list[tuple[int, int]], counts: list[int]) -> bytes:
    ctr = {0: {0: combination(), 3: Number("f", 1.0)}, 1: np.array([0.25], "<f4")}
    return model(
        trees(_1=ints(0), _2=ints(1), _5=[], _4=[{0: Number("i", 0), 1: Number("i", 0), 2: "kind"}], _7=[ctr],
              _8=np.array([5.0, 6.0])),
        [counted(combination(), keys, counts)],
    )  # fmt: skip


def key(text: str) -> int:
    (code,) = text_hashes([text]).view(np.int32).tolist()
    return FACTOR * FACTOR * code % (1 << 64)


def test_counters() -> None:
    data = with_counter([((1 << 64) - 1, 0), (key("red"), 1), (key("blue"), 0)], [1, 9])
    assert score(data, [["red"], ["blue"], ["green"]]) == [6.0, 5.0, 5.0]  # 9 of 11, 1 of 11, none of 11


DAMAGE: dict[str, tuple[Callable[[], bytes], str]] = {
    "cut behind the magic": (lambda: b"CBM1", "cut short, or damaged"),
    "cut": (lambda: model(trees())[:-40], "cut short, or damaged"),
    "no trees": (lambda: b"CBM1" + struct.pack("<I", len(Buffer({}).data)) + Buffer({}).data, "'trees': is missing"),
    "no outputs": (lambda: model(trees(_0=None)), "'ApproxDimension': is 0"),
    "offsets": (lambda: model(trees(_3=ints(1))), "'TreeStartOffsets'"),
    "sizes": (lambda: model(trees(_2=ints(3))), "'TreeSplits'"),
    "negative sizes": (lambda: model(trees(_2=ints(-1), _3=ints(0))), "'TreeStartOffsets'"),
    "no such split": (lambda: model(trees(_1=ints(0, 9))), "tree 0, field 'TreeSplits': names split 9 of only 2"),
    "few values": (lambda: model(trees(_8=np.zeros(3))), "tree 0, field 'LeafValues': too few values"),
    "many values": (lambda: model(trees(_8=np.zeros(5))), "'LeafValues': holds 5 values, but the trees need 4"),
    "bias": (lambda: model(trees(_0=Number("i", 2), _8=np.zeros(8), _15=Number("d", 1.0))), "'Bias': one bias for 2"),
    "biases": (lambda: model(trees(_16=np.zeros(2))), "'MultiBias': 2 biases for 1 outputs"),
    "outputs of a bias": (
        lambda: model(trees(_0=Number("i", 2), _8=np.zeros(8), _16=np.zeros(1))),
        "'MultiBias': 1 biases for 2 outputs",
    ),
    "treatment": (lambda: model(trees(_5=[feature(0, 0, np.zeros(0, "<f4"), _5=Number("b", 3))])), "NanValueTreatment"),
    "values of no feature": (lambda: model(trees(_6=[{0: Number("i", 4), 1: ints(1)}])), "'OneHotFeatures'"),
    "step": (
        lambda: model(trees(_1=ints(0, 1), _10=np.array([(0, 2), (0, 0)], "<u2"), _11=np.array([1, 0], "<u4"))),
        "tree 0, field 'NonSymmetricStepNodes': node 0 leads to no node",
    ),
    "a node that nothing leads to": (
        lambda: model(trees(_1=ints(0, 1), _10=np.zeros(2, [("left", "<u2"), ("right", "<u2")]), _11=ints(0, 1))),
        "tree 0, field 'NonSymmetricStepNodes': node 1: no node leads to it",
    ),
    "a node that two lead to": (
        lambda: model(trees(_1=ints(0, 1), _10=np.array([(1, 1), (0, 0)], "<u2"), _11=np.array([0, 0], "<u4"))),
        "tree 0, field 'NonSymmetricStepNodes': node 1: several nodes lead to it",
    ),
    "a step into the next tree": (
        lambda: model(
            trees(_1=ints(0, 0), _2=ints(1, 1), _3=ints(0, 1), _10=np.array([(0, 1), (0, 0)], "<u2"), _11=ints(0, 1))
        ),
        "tree 0, field 'NonSymmetricStepNodes': node 0 leads to no node",
    ),
    "a leaf twice": (
        lambda: model(trees(_1=ints(0, 1), _10=np.array([(0, 1), (0, 0)], "<u2"), _11=np.array([1, 1], "<u4"))),
        "tree 0, field 'leaf_id': is negative or appears twice",
    ),
    "too deep": (
        lambda: model(trees(_1=np.zeros(31, "<i4"), _2=ints(31))),
        "tree 0, field 'LeafValues': too few values for its 31 splits",
    ),
    "leaf": (
        lambda: model(trees(_1=ints(0, 1), _10=np.array([(0, 1), (0, 0)], "<u2"), _11=np.array([9, 0], "<u4"))),
        "'NonSymmetricNodeIdToLeafId': node 0 leads to value 9",
    ),
    "leaves that share": (
        lambda: model(trees(_1=ints(0, 1), _10=np.array([(0, 1)] * 2, "<u2"), _11=np.zeros(2, "<u4"), _8=np.zeros(1))),
        "'LeafValues': 1 values for 2 leaves",
    ),
    "a row of counts that is not there": (lambda: with_counter([(key("red"), 1)], [1]), "'IndexHashRaw'"),
    "keys that share counts": (lambda: with_counter([(key("red"), 0), (key("blue"), 0)], [1]), "'IndexHashRaw'"),
    "a key twice": (lambda: with_counter([(5, 0), (5, 1)], [1, 2]), "ascending"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_models_are_refused(name: str, tmp_path: Any) -> None:
    make, message = DAMAGE[name]
    (tmp_path / "model.cbm").write_bytes(make())
    with pytest.raises(ModelFormatError, match=message) as caught:
        gpuqs.load(tmp_path / "model.cbm")
    assert "model.cbm" in str(caught.value)


@pytest.mark.parametrize("field", ["_12", "_13", "_18"])
def test_texts_and_embeddings_are_refused_by_name(field: str) -> None:
    with pytest.raises(UnsupportedModelError, match="text and embedding features are not evaluated"):
        gpuqs.load(model(trees(**{field: [{0: Number("i", 0)}]})))


N = 4_000
HOSTILE: dict[str, Callable[[], bytes]] = {
    "borders": lambda: model(trees(_5=_many(feature, Shared(np.zeros(N, "<f4"))))),
    "values": lambda: model(trees(_6=[{0: Number("i", n), 1: part} for n, part in _shared(ints(*range(N)))])),
    "names": lambda: model(trees(_4=[{0: Number("i", n), 1: Number("i", n), 2: part} for n, part in _shared("x" * N)])),
    "information": lambda: model(trees(), info=[{0: str(n), 1: part} for n, part in _shared("x" * N)]),
    "features": lambda: model(trees(_5=[Shared(feature(0, 0, np.zeros(N, "<f4")))] * N)),
}


def _shared(part: Any) -> list[tuple[int, Shared]]:
    return [*enumerate([Shared(part)] * N)]


def _many(make: Callable[..., dict[int, Any]], part: Shared) -> list[dict[int, Any]]:
    return [make(n, n, part) for n in range(N)]


@pytest.mark.parametrize("name", HOSTILE)
def test_parts_that_stand_for_many_take_no_memory(name: str) -> None:
    """Each file is smaller than a megabyte, but would need many if each shared part were copied at every reference."""
    data = HOSTILE[name]()
    assert len(data) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError, match=r"too many of its parts share|appears twice"):
            gpuqs.load(data)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
