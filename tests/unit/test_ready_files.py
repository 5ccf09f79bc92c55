"""Files that keep ranks give the same scores without preparation, and none of their content is trusted."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import on_cpu
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cpu_fallback.file_bytes import crc32
from gpuqs.errors import ModelFormatError
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.formats import native
from gpuqs.layout import ranks
from gpuqs.layout.columns import find_columns

FOREST = random_forest(np.random.default_rng(3), n_trees=40, max_leaves=30, n_features=6, categorical=0.2)
X = probing_documents(np.random.default_rng(4), FOREST, 100)


def sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every forest whose thresholds are sorted."""
    done: list[int] = []
    sort = ranks._sorted
    monkeypatch.setattr(ranks, "_sorted", lambda columns: (done.append(len(columns)), sort(columns))[1])
    return done


@pytest.mark.parametrize("mapped", [False, True])
def test_every_engine_gives_the_same_without_sorting(
    mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpuqs.from_model(FOREST).save(tmp_path / "ready", ready=True)
    gpuqs.from_model(FOREST).save(tmp_path / "plain")
    done = sorts(monkeypatch)
    for engine in (name for name, reason in on_cpu(gpuqs.from_model(FOREST)).items() if reason is None):
        model = gpuqs.load(tmp_path / "ready", mmap=mapped)
        for trees in (None, slice(5, 20)):
            got = model.predict(X, "raw", engine=engine, trees=trees)
            np.testing.assert_array_equal(got, gpuqs.from_model(FOREST).predict(X, "raw", engine=engine, trees=trees))
    before = len(done)
    gpuqs.load(tmp_path / "ready").predict(X, engine="bitslice")
    assert len(done) == before
    gpuqs.load(tmp_path / "plain").predict(X, engine="bitslice")
    assert len(done) == before + 1


def test_tables_are_those_that_are_made_anew(tmp_path: Path) -> None:
    gpuqs.from_model(FOREST).save(tmp_path / "m", ready=True)
    kept, made = ranks.build_ranks(gpuqs.load(tmp_path / "m").forest), ranks.build_ranks(replace(FOREST))
    for name in ("offsets", "threshold", "n_bits", "marks_missing", "level_offsets", "levels", "of_node"):
        one, other = getattr(kept, name), getattr(made, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_being_told_of_categories_keeps_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(np.random.default_rng(5), n_trees=10, n_features=6, categorical=0.2)
    gpuqs.from_model(forest).save(tmp_path / "m", ready=True)
    column = int(forest.feature[np.flatnonzero(forest.routing & CATEGORICAL)[0]])
    done = sorts(monkeypatch)
    model = gpuqs.load(tmp_path / "m", categories={column: ["a", "b"]})
    for told in (model, gpuqs.from_model(gpuqs.load(tmp_path / "m"), categories={column: ["a", "b"]})):
        told.predict(X, engine="bitslice")
    assert not done


def test_a_model_saved_again_is_as_ready_as_it_is_told(tmp_path: Path) -> None:
    gpuqs.from_model(FOREST).save(tmp_path / "a", ready=True)
    loaded = gpuqs.load(tmp_path / "a")
    loaded.save(tmp_path / "b", ready=True)
    loaded.save(tmp_path / "c")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert (tmp_path / "c").stat().st_size < (tmp_path / "a").stat().st_size
    with pytest.raises(ValueError, match="ready must be True or False, not 'no'"):
        loaded.save(tmp_path / "d", ready="no")  # type: ignore[arg-type]
    assert not (tmp_path / "d").exists()


def damaged(arrays: dict[str, np.ndarray], how: str) -> dict[str, Any]:
    arrays = {name: array.copy() for name, array in arrays.items()}
    threshold, offsets, of_node = arrays.values()
    crowded = int(np.argmax(np.diff(offsets)))
    at = int(offsets[crowded])
    match how:
        case "thresholds out of order":
            threshold[at : at + 2] = threshold[at : at + 2][::-1].copy()
        case "a threshold twice":
            threshold[at + 1] = threshold[at]
        case "NaN":
            threshold[at] = np.nan
        case "another threshold":
            finite = at + int(np.argmax(np.isfinite(threshold[at:])))
            threshold[finite] = np.nextafter(threshold[finite], -np.inf)
        case "another rank":
            of_node[0] ^= 1
        case "a rank past the end":
            of_node[-1] = 65_535
        case "a threshold twice, and both met":
            columns = find_columns(FOREST)
            nodes = np.flatnonzero(columns.of_node == crowded)
            rank = int(np.argmax(np.bincount(of_node[nodes])))
            alike = nodes[of_node[nodes] == rank]
            assert len(alike) > 1
            of_node[nodes[of_node[nodes] > rank]] += 1
            of_node[alike[0]] += 1
            arrays["ranks.threshold"] = np.insert(threshold, at + rank, threshold[at + rank])
            offsets[crowded + 1 :] += 1
        case "a threshold that no node has":
            arrays["ranks.threshold"] = np.append(threshold, np.nextafter(threshold[-1], np.inf))
            offsets[-1] += 1
        case "offsets that fall":
            offsets[1] = 1 << 40
        case "negative offsets":
            offsets[1] = -(1 << 40)
        case "offsets that do not begin at 0":
            offsets[0] = 1
        case "offsets that end early":
            offsets[-1] -= 1
        case "a column less":
            arrays["ranks.offsets"] = offsets[:-1]
        case "no offsets":
            arrays["ranks.offsets"] = offsets[:0]
        case "a node less":
            arrays["ranks.of_node"] = of_node[:-1]
        case "no thresholds":
            arrays["ranks.threshold"] = threshold[:0]
        case "another type":
            arrays["ranks.of_node"] = of_node.astype(np.int64)
        case "one is not there":
            del arrays["ranks.of_node"]
        case "one more":
            arrays["ranks.later"] = threshold
    return arrays


HOW = (
    *("thresholds out of order", "a threshold twice", "NaN", "another threshold", "another rank"),
    *("a rank past the end", "a threshold that no node has", "offsets that fall", "negative offsets"),
    *("offsets that do not begin at 0", "a threshold twice, and both met"),
    *("offsets that end early", "a column less", "no offsets", "a node less", "no thresholds", "another type"),
    *("one is not there", "one more"),
)


@pytest.mark.parametrize("how", HOW)
def test_what_is_not_right_is_found_anew(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = ranks.to_keep(FOREST)
    native.write(FOREST, tmp_path / "m", kept=damaged(arrays, how))
    done = sorts(monkeypatch)
    model = gpuqs.load(tmp_path / "m")
    for engine in ("rankwalk", "bitslice"):
        got = model.predict(X, "raw", engine=engine)
        np.testing.assert_array_equal(got, gpuqs.from_model(replace(FOREST)).predict(X, "raw", engine="reference"))
    assert len(done) == (how != "one more")


def test_ranks_of_another_forest_are_not_taken(tmp_path: Path) -> None:
    other = random_forest(np.random.default_rng(9), n_trees=40, max_leaves=30, n_features=6, categorical=0.2)
    native.write(FOREST, tmp_path / "m", kept=ranks.to_keep(other))
    got = gpuqs.load(tmp_path / "m").predict(X, "raw", engine="bitslice")
    np.testing.assert_array_equal(got, gpuqs.from_model(replace(FOREST)).predict(X, "raw", engine="reference"))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [("offset", 1 << 40, "outside the file"), ("offset", 0, "overlaps"), ("shape", [1 << 60], "outside the file")],
)
def test_kept_arrays_lie_in_the_file_and_apart(field: str, value: Any, says: str, tmp_path: Path) -> None:
    native.write(FOREST, tmp_path / "m", kept=ranks.to_keep(FOREST))
    data = (tmp_path / "m").read_bytes()
    n_header = struct.unpack_from("<I", data, 12)[0]
    header, arrays = json.loads(data[32 : 32 + n_header]), data[-(-(32 + n_header) // 64) * 64 :]
    header["arrays"]["ranks.threshold"][field] = value
    text = json.dumps(header).encode()
    body = text + bytes(-(32 + len(text)) % 64) + arrays
    start = data[:12] + struct.pack("<IQ", len(text), 32 + len(body))
    crc = struct.pack("<I", zlib.crc32(start + bytes(4) + body))
    with pytest.raises(ModelFormatError, match=says):
        gpuqs.load(start + crc + bytes(4) + body)


def of_thresholds(n: int) -> Forest:
    """Stumps that test one feature, each with a different threshold."""
    return Forest(
        node_offsets=np.arange(n + 1),
        leaf_offsets=2 * np.arange(n + 1),
        feature=np.zeros(n, np.int32),
        threshold=np.arange(n) / 8,
        left=np.full(n, -1, np.int32),
        right=np.full(n, -2, np.int32),
        routing=np.zeros(n, np.uint8),
        leaf_value=np.ones((2 * n, 1)),
        n_features=1,
    )


def test_forests_that_are_not_ranked_or_test_nothing_can_be_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stump = random_forest(rng, n_trees=2, max_leaves=1)
    n_trees, n = 7, 10_000  # chains with more thresholds than ranks hold
    chain = Forest(
        node_offsets=np.arange(n_trees + 1) * n,
        leaf_offsets=np.arange(n_trees + 1) * (n + 1),
        feature=np.zeros(n_trees * n, np.int32),
        threshold=np.linspace(0, 1, n_trees * n),
        left=np.tile((-1 - np.arange(n)).astype(np.int32), n_trees),
        right=np.tile(np.append(np.arange(1, n), ~n).astype(np.int32), n_trees),
        routing=np.zeros(n_trees * n, np.uint8),
        leaf_value=np.arange(n_trees * (n + 1.0))[:, None],
        n_features=1,
    )
    assert ranks.to_keep(chain) == {}
    assert ranks.to_keep(of_thresholds(65_536)) == {}
    most = ranks.to_keep(of_thresholds(65_535))
    assert most["ranks.of_node"].max() == 65_534
    for forest in (stump, chain):
        gpuqs.from_model(forest).save(tmp_path / "m", ready=True)
        some = np.array([[0.25], [2.0]]) if forest is chain else np.zeros((2, forest.n_features))
        got = gpuqs.load(tmp_path / "m").predict(some, "raw")
        np.testing.assert_array_equal(got, gpuqs.from_model(forest).predict(some, "raw"))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 15, 64, 65, (1 << 20) - 1, 1 << 20, (2 << 20) - 1, 2 << 20, (9 << 20) + 77])
def test_checksums_by_threads_are_zlibs(n: int, n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
    data = np.random.default_rng(n).bytes(n)
    for before in (0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678):
        assert crc32(data, before) == zlib.crc32(data, before)


@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF, 0x12345678])
def test_checksums_are_zlibs(value: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 5_000).astype(np.uint8)
    for n in [*range(300), 1_000, 4_999, 5_000]:
        for start in (0, 1, 7):
            part = data[start:n]
            assert crc32(part, value) == zlib.crc32(part, value), (start, n)
    assert crc32(bytes(5_000), value) == zlib.crc32(bytes(5_000), value)
    assert crc32(memoryview(b"abc" * 100)) == zlib.crc32(b"abc" * 100)
