"""CTRs: the forest's own documents against the definition, key by key; what is refused; and gpuqs's own files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_files import put_together, taken_apart

import gpuqs
from gpuqs import ctr_groups
from gpuqs.cpu_fallback import ctrs as ctr_hashes
from gpuqs.ctrs import Ctrs, Projection
from gpuqs.errors import ModelFormatError
from gpuqs.forest import NAN_LEFT, Forest

FACTOR = 0x4906BA494954CB65
MASK = (1 << 64) - 1


def joined(a: int, b: int) -> int:
    """CatBoost's hash of two hashes."""
    return FACTOR * (a + FACTOR * b & MASK) & MASK


def key_of(projection: Projection, row: np.ndarray) -> int:
    """The key of a document, part by part."""
    key = 0
    for column in projection.categories:
        key = joined(key, int(np.int32(np.uint32(row[column]))) & MASK)
    for column, border, nan_above in projection.above:
        with np.errstate(over="ignore"):
            number = np.float32(row[column])
        key = joined(key, int(nan_above if np.isnan(number) else number > np.float32(border)))
    for column, value in projection.equals:
        key = joined(key, int(row[column] == value))
    return key


def by_definition(ctrs: Ctrs, given: np.ndarray) -> np.ndarray:
    rows = []
    for row in given:
        with np.errstate(over="ignore"):
            out = list(row.astype(np.float32))
        for column, hashes in ctrs.codes.items():
            if hashes:
                out[column] = hashes.index(int(row[column])) if row[column] in hashes else np.nan
        for projection in ctrs.projections:
            at = {int(key): place for place, key in enumerate(projection.keys)}
            out += list(projection.values[at.get(key_of(projection, row), -1)])
        rows.append(out)
    return np.array(rows, np.float32).reshape(len(given), ctrs.n_columns)


def made(rng: np.random.Generator, n_projections: int, n: int, n_keys: int) -> tuple[Ctrs, np.ndarray]:
    """CTRs on columns 0 and 1 (categories), 2 and 3 (numbers), and documents, about half of them seen in training."""
    hashes = rng.integers(0, 1 << 32, 12)
    given = np.column_stack(
        [rng.choice(hashes, (n, 2)).astype(float), rng.choice([-1.5, 0.0, 0.25, 7.0, np.nan, np.inf, 1e300], (n, 2))]
    )
    projections = []
    for _ in range(n_projections):
        categories = tuple(rng.permutation(2)[: rng.integers(0, 3)].tolist())
        above = tuple(
            (int(rng.integers(2, 4)), float(np.float32(rng.choice([-1.5, 0.1, 7.0]))), bool(rng.integers(2)))
            for _ in range(rng.integers(0, 3))
        )
        equals = tuple((int(rng.integers(2)), int(rng.choice(hashes))) for _ in range(rng.integers(0, 2)))
        shape = Projection(categories, above, equals, np.zeros(0, np.uint64), np.zeros((1, 1), np.float32))
        met = {key_of(shape, row) for row in given[: n // 2]} | set(rng.integers(0, 1 << 63, n_keys).tolist())
        keys = np.array(sorted(met), np.uint64)
        values = rng.normal(size=(len(keys) + 1, rng.integers(1, 4))).astype(np.float32)
        projections.append(Projection(categories, above, equals, keys, values))
    codes = {0: tuple(hashes[:5].tolist()), 1: ()}
    return Ctrs(4, codes, tuple(projections)), given


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(0, 40), st.sampled_from([0, 1, 7, 500]))
def test_documents(seed: int, n_projections: int, n: int, n_keys: int) -> None:
    ctrs, rows = made(np.random.default_rng(seed), n_projections, n, n_keys)
    expected = by_definition(ctrs, rows)
    for given_rows in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2]):
        np.testing.assert_array_equal(ctrs.documents(given_rows), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ctrs)).documents(rows), expected)


@pytest.mark.parametrize("n", [0, 1, 64, 65, 600, 4096, 4097, 9000])
def test_many_documents(n: int) -> None:
    """Every element is filled, by any number of threads."""
    ctrs, rows = made(np.random.default_rng(n), 3, max(n, 1), 100)
    rows = np.asfortranarray(rows[:n])
    expected = by_definition(ctrs, rows)
    np.testing.assert_array_equal(ctrs.documents(rows), expected)
    for n_threads in (0, 1, 2, 3, 50):
        out = np.full((n, ctrs.n_columns), np.nan, np.float32, order="F")
        with np.errstate(over="ignore"):
            out[:, :4] = rows
        ctrs._table.fill(rows, out, n_threads)
        np.testing.assert_array_equal(out[:, 4:], expected[:, 4:])


def test_keys_with_the_same_upper_bits() -> None:
    """Hundreds of such keys, though a few are compared at once; documents' keys are first, last and in between."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.integers(0, 1 << 32, 200).astype(float)])
    none = np.zeros((1, 1), np.float32)
    shape = Projection((0,), (), (), np.zeros(0, np.uint64), none)
    met = [key_of(shape, row) for row in rows[:100]]
    crowd = {(key & ~0xFFFF | low) for key in met[:5] for low in rng.integers(0, 1 << 16, 300).tolist()}
    keys = np.array(sorted({*met, *crowd, 0, 1, MASK - 1}), np.uint64)
    values = np.arange(len(keys) + 1, dtype=np.float32)[:, None]
    ctrs = Ctrs(1, {}, (Projection((0,), (), (), keys, values),))
    np.testing.assert_array_equal(ctrs.documents(rows), by_definition(ctrs, rows))


def test_what_tables_tell_of_categories() -> None:
    """Only tables of a single column have single hashes as keys; the keys of all others combine several parts."""
    hashes = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    none = np.zeros((1, 1), np.float32)
    shapes = [((0,), (), ()), ((1,), (), ()), ((0, 1), (), ()), ((0,), ((2, 0.0, False),), ())]
    projections = []
    for categories, above, equals in shapes:
        shape = Projection(categories, above, equals, np.zeros(0, np.uint64), none)
        rows = np.array([[float(code), 5.0, 0.0, 0.0] for code in hashes])
        keys = np.array(sorted({key_of(shape, row) for row in rows}), np.uint64)
        projections.append(Projection(categories, above, equals, keys, np.zeros((len(keys) + 1, 1), np.float32)))
    ctrs = Ctrs(4, {0: (7,), 3: (9,)}, tuple(projections))
    assert [ctrs.met(column) for column in range(4)] == [sorted([*hashes, 7]), [5], [], [9]]


KEYS = np.array([3, 9], np.uint64)
VALUES = np.zeros((3, 1), np.float32)
@pytest.mark.parametrize(("most", "in_all"), [(0, 1 << 20), (400, 1 << 20), (1 << 20, 600)])
def test_groups_take_bounded_memory(monkeypatch: pytest.MonkeyPatch, most: int, in_all: int) -> None:
    """Projections that do not fit a group are looked up separately."""
    monkeypatch.setattr(ctr_groups, "MAX_BYTES", most)
    monkeypatch.setattr(ctr_groups, "MAX_IN_ALL", in_all)
    sizes = []
    for seed in range(30):
        ctrs, rows = made(np.random.default_rng(seed), 6, 20, 3)
        np.testing.assert_array_equal(ctrs.documents(rows), by_definition(ctrs, rows))
        tables = [group.values.nbytes for group in ctr_groups.grouped(ctrs.projections)]
        assert max(tables, default=0) <= most and sum(tables) <= in_all
        sizes += tables
    assert (max(sizes) > 0) == (most > 0)


def test_many_tests() -> None:
    """A projection with more tests than a group allows, and all outcomes of one with exactly the limit."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.choice([5.0, 4e9, 2.0**31], 400), rng.normal(size=(400, 3))])
    none = np.zeros((1, 1), np.float32)
    projections = []
    for n_tests in (ctr_groups.MAX_TESTS, ctr_groups.MAX_TESTS + 1):
        above = tuple((1 + test % 3, float(np.float32(0.2 * test - 0.4)), test % 2 == 0) for test in range(n_tests))
        shape = Projection((0,), above, (), np.zeros(0, np.uint64), none)
        keys = np.array(sorted({key_of(shape, row) for row in rows[:200]}), np.uint64)
        values = rng.normal(size=(len(keys) + 1, 2)).astype(np.float32)
        projections.append(Projection((0,), above, (), keys, values))
    ctrs = Ctrs(4, {}, tuple(projections))
    assert [number for group in ctr_groups.grouped(projections) for number, _ in group.members] == [0]
    np.testing.assert_array_equal(ctrs.documents(rows), by_definition(ctrs, rows))


BAD: dict[str, tuple[Projection, str]] = {
    "column": (Projection((4,), (), (), KEYS, VALUES), "names a column that is not one of 4"),
    "column of a border": (Projection((), ((-1, 0.0, False),), (), KEYS, VALUES), "names a column"),
    "column of a category": (Projection((), (), ((9, 1),), KEYS, VALUES), "names a column"),
    "hash": (Projection((), (), ((0, 1 << 32),), KEYS, VALUES), "hash of more than 32 bits"),
    "values": (Projection((0,), (), (), KEYS, VALUES[:2]), "2 values for 2 keys"),
    "order": (Projection((0,), (), (), KEYS[::-1], VALUES), "ascending"),
    "twice": (Projection((0,), (), (), KEYS[[0, 0]], VALUES), "ascending"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_computed_is_refused(name: str) -> None:
    projection, message = BAD[name]
    with pytest.raises(ModelFormatError, match=f"'ctrs': .*{message}"):
        Ctrs(4, {}, (projection,))
    with pytest.raises(ModelFormatError, match="names a column that is not one of 4"):
        Ctrs(4, {4: (1,)}, ())


def stumps(ctrs: Ctrs) -> Forest:
    """A stump on each column, at 0."""
    n = ctrs.n_columns
    return Forest(
        n_features=n,
        node_offsets=np.arange(n + 1),
        leaf_offsets=np.arange(0, 2 * n + 2, 2),
        feature=np.arange(n, dtype=np.int32),
        threshold=np.zeros(n),
        left=np.full(n, -1, np.int32),
        right=np.full(n, -2, np.int32),
        routing=np.full(n, NAN_LEFT, np.uint8),
        leaf_value=np.arange(2.0 * n).reshape(-1, 1),
        input_dtype="float32",
        ctrs=ctrs,
    )


def test_a_forest_has_the_columns_of_its_ctrs() -> None:
    ctrs, _ = made(np.random.default_rng(2), 3, 10, 5)
    forest = stumps(ctrs)
    assert forest.given.n_features == 4 and forest.given.n_trees == 0 and forest.given.schema.hashed
    assert forest.given.ctrs is None and forest.given.given is forest.given
    assert gpuqs.from_model(forest).n_features == 4
    with pytest.raises(ModelFormatError, match=f"make {ctrs.n_columns} columns, not 3"):
        stumps(Ctrs(2, {}, ())).__class__(**{**_fields(stumps(Ctrs(3, {}, ()))), "ctrs": ctrs})


def _fields(forest: Forest) -> dict[str, Any]:
    return {name: value for name, value in vars(forest).items() if name in Forest.__dataclass_fields__}


TEXTS = ["", "a", "Düsseldorf", "x" * 100, "7", "-12", "\U0001f600"]


def test_hashes_of_objects() -> None:
    plain = ctr_hashes.text_hashes(TEXTS)
    mixed = np.array([*TEXTS[:4], 7, -12, TEXTS[6]], object)
    np.testing.assert_array_equal(ctr_hashes.object_hashes(mixed), plain)
    np.testing.assert_array_equal(ctr_hashes.object_hashes(np.array([*mixed, 0], object)[:-1]), plain)
    big = np.array([10**30, -(2**70)], object)
    np.testing.assert_array_equal(ctr_hashes.object_hashes(big), ctr_hashes.text_hashes([str(n) for n in big]))
    for other in (None, 1.5, np.nan, True, np.int64(7), b"a", ["a"]):  # these are examined one by one
        assert ctr_hashes.object_hashes(np.array(["a", other], object)) is None
    assert len(ctr_hashes.object_hashes(np.zeros(0, object))) == 0


@pytest.mark.parametrize("kind", ["?", *"bhilqBHILQ", ">i4"])
def test_hashes_of_whole_numbers(kind: str) -> None:
    ends = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
    values = np.array([*ends, 0, 1, 9, 10, 99, 100, 101, 127], kind)[::-1]
    want = ctr_hashes.text_hashes([str(int(value)) for value in values])
    np.testing.assert_array_equal(ctr_hashes.integer_hashes(values), want)
    np.testing.assert_array_equal(ctr_hashes.integer_hashes(np.array([values, values]).T[:, 1]), want)
    assert len(ctr_hashes.integer_hashes(values[:0])) == 0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_hashes_of_buffers(kind: type) -> None:
    encoded = [text.encode() for text in TEXTS]
    data = np.frombuffer(b"ab" + b"".join(encoded), np.uint8)
    offsets = np.cumsum([2, *map(len, encoded)]).astype(kind)
    np.testing.assert_array_equal(ctr_hashes.buffer_hashes(offsets, data), ctr_hashes.text_hashes(TEXTS))
    assert len(ctr_hashes.buffer_hashes(offsets[:1], data)) == len(ctr_hashes.buffer_hashes(offsets[:0], data)) == 0
    assert ctr_hashes.buffer_hashes(np.zeros(2, kind), data[:0]).tolist() == ctr_hashes.text_hashes([""]).tolist()
    for bad in ([0, 2, 1], [-1, 2], [0, len(data) + 1]):
        with pytest.raises(ValueError, match="offsets do not rise within the text"):
            ctr_hashes.buffer_hashes(np.array(bad, kind), data)


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("mmap", [False, True])
def test_files(tmp_path: Path, ready: bool, mmap: bool) -> None:
    ctrs, rows = made(np.random.default_rng(3), 5, 30, 50)
    model = gpuqs.from_model(stumps(ctrs))
    model.save(tmp_path / "model.gpuqs", ready=ready)
    forest = gpuqs.load(tmp_path / "model.gpuqs", mmap=mmap).forest
    assert forest.ctrs is not None and forest.ctrs.codes == ctrs.codes
    for mine, theirs in zip(forest.ctrs.projections, ctrs.projections, strict=True):
        assert (mine.categories, mine.above, mine.equals) == (theirs.categories, theirs.above, theirs.equals)
        np.testing.assert_array_equal(mine.keys, theirs.keys)
        np.testing.assert_array_equal(mine.values.view(np.uint32), theirs.values.view(np.uint32))
    np.testing.assert_array_equal(forest.ctrs.documents(rows), ctrs.documents(rows))


NATIVE_BAD: dict[str, tuple[Any, str]] = {
    "no arrays": (lambda header: header["arrays"].pop("ctrs.keys"), "'ctrs': lacks its arrays"),
    "projection is a number": (lambda header: header["fields"]["ctrs"].update(projections=[1]), "'n_keys'"),
    "too many keys": (
        lambda header: header["fields"]["ctrs"]["projections"][0].update(n_keys=10**6),
        "needs more keys",
    ),
    "too few keys": (lambda header: header["fields"]["ctrs"]["projections"].pop(), "uses fewer keys"),
    "no CTRs": (lambda header: header["fields"]["ctrs"]["projections"][0].update(n_ctrs=0), "'n_ctrs'"),
    "a text": (
        lambda header: header["fields"]["ctrs"]["projections"][0].update(categories=["0"]),
        "unsigned 32-bit integers",
    ),
    "pairs": (lambda header: header["fields"]["ctrs"]["projections"][0].update(equals=[[1]]), "arrays of 2"),
    "hashes": (lambda header: header["fields"]["ctrs"].update(codes=[[0, 5]]), "'codes'"),
    "columns": (lambda header: header["fields"]["ctrs"].update(n_given=3), "'ctrs'"),
}


@pytest.mark.parametrize("name", NATIVE_BAD)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    ctrs, _ = made(np.random.default_rng(3), 5, 30, 50)
    gpuqs.from_model(stumps(ctrs)).save(tmp_path / "model.gpuqs")
    header, arrays = taken_apart((tmp_path / "model.gpuqs").read_bytes())
    edit, message = NATIVE_BAD[name]
    edit(header)
    (tmp_path / "model.gpuqs").write_bytes(put_together(header, arrays))
    with pytest.raises(ModelFormatError, match=message):
        gpuqs.load(tmp_path / "model.gpuqs")
