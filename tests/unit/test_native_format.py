"""gpuqs's own format: everything comes back bit for bit; damaged and hostile files are refused."""

from __future__ import annotations

import errno
import io
import mmap
import os
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import on_cpu
from forests import linear_models, random_forest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_files import put_together, taken_apart
from strategies import Drawn, forests

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forest_checks import CLASS_RULES, LINKS
from gpuqs.formats import native, read_model
from gpuqs.schema import Schema
from gpuqs.streams import Input

VALUES = st.one_of(
    st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.sampled_from(["\ud800", -0.0, 5e-324])
)


def assert_equal(got: Forest, expected: Forest) -> None:
    for name in (f.name for f in fields(Forest)):
        mine, other = getattr(got, name), getattr(expected, name)
        if isinstance(other, np.ndarray):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape), name
            assert mine.tobytes() == other.tobytes(), name
        else:
            # repr tells 1, 1.0 and True apart, and 0.0 from -0.0.
            if isinstance(other, Schema):  # its repr shows only the first names
                mine, other = ([getattr(schema, f.name) for f in fields(Schema)] for schema in (mine, other))
            assert repr(mine) == repr(other), name


def small() -> Forest:
    rng = np.random.default_rng(5)
    forest = random_forest(rng, n_trees=3, max_leaves=5, n_features=4, categorical=0.5)
    return replace(
        forest,
        schema=Schema(("größe", "b", "", "d"), (None, ("x", 1, 1.0, True), (), None), np.nan, library="XGBoost"),
        classes=("no", "yes"),
        link="sigmoid",
        link_scale=0.1,
        average=True,
        average_raw=True,
        leaf_id=forest.leaf_id * 2,
        iteration_starts=np.array([0, 2, 3]),
        best_iteration=1,
        iterations_left_out=4,
        source="LightGBM 4",
        objective="binary",
    )


def written(forest: Forest, folder: Path) -> bytes:
    path = folder / "model.gpuqs"
    native.write(forest, path)
    assert os.listdir(folder) == [path.name]
    return path.read_bytes()


@given(
    drawn=forests(max_nodes=600),
    link=st.sampled_from(LINKS),
    rule=st.sampled_from(CLASS_RULES),
    scale=st.floats(allow_nan=False, allow_infinity=False),
    flags=st.tuples(st.booleans(), st.booleans()),
    labels=st.lists(VALUES, min_size=10, max_size=10),
    names=st.text(),
)
@settings(max_examples=60, deadline=None)
def test_everything_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: Drawn,
    link: str,
    rule: str,
    scale: float,
    flags: tuple[bool, bool],
    labels: list[Any],
    names: str,
) -> None:
    forest = drawn.forest()
    n = forest.n_features
    forest = replace(
        forest,
        link=link,
        link_scale=scale,
        class_rule=rule,
        average=flags[0],
        integer_dtype="float32" if flags[1] else "float64",
        tree_weight=np.linspace(-2, 3, forest.n_trees),
        leaf_id=np.arange(len(forest.leaf_value), dtype=np.int32)[::-1],
        schema=Schema(
            tuple(f"{names}{i}" for i in range(n)),
            tuple(None if i % 3 else tuple(labels[: i % 7]) for i in range(n)),
        ),
        classes=tuple(labels[: max(forest.n_outputs, 2)]),
        source=names,
        objective=names[::-1],
    )
    path = tmp_path_factory.mktemp("native") / "model"
    native.write(forest, path)
    assert_equal(read_model(path), forest)
    assert_equal(read_model(path.read_bytes()), forest)


def test_no_field_of_a_forest_is_forgotten(tmp_path: Path) -> None:
    forest = small()
    linear = linear_models(np.random.default_rng(1), len(forest.leaf_value), 4, 0.5)
    header, _ = taken_apart(written(replace(forest, **linear), tmp_path))
    schema = {"feature_names", "categories", "absent", "categories_in_order", "library"}
    schema |= {"categories_stated", "categories_lost", "objects_as_float64", "missing"}
    optional = {"schema", "ctrs"}  # CTRs: tests/unit/test_ctrs.py
    assert {*header["arrays"], *header["fields"]} - schema == {f.name for f in fields(Forest)} - optional


@pytest.mark.parametrize("value", ["1", 1.5, True])
def test_a_best_iteration_is_a_number(tmp_path: Path, value: Any) -> None:
    header, arrays = taken_apart(written(small(), tmp_path))
    header["fields"]["best_iteration"] = value
    with pytest.raises(ModelFormatError, match="field 'best_iteration'"):
        native.read(put_together(header, arrays), "file")


@pytest.mark.parametrize("value", ["nan", "1_0", " 5.0 ", "5", "٣", "9" * 5000, 5.0, None, ["5.0"]])
def test_what_stands_for_missing_values_is_a_number(tmp_path: Path, value: Any) -> None:
    header, arrays = taken_apart(written(replace(small(), schema=Schema(missing=5.0)), tmp_path))
    assert native.read(put_together(header, arrays, 2), "file").schema.missing == 5
    header["fields"]["missing"] = value
    with pytest.raises(ModelFormatError, match="field 'missing'"):
        native.read(put_together(header, arrays, 2), "file")


def test_a_forest_is_itself_a_live_model() -> None:
    forest = small()
    assert read_model(forest) is forest
    assert native.from_object({"forest": forest}) is None


def memory_of(values: np.ndarray) -> object:
    """The object whose memory holds an array's numbers."""
    owner: Any = values
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def arrays_of(forest: Forest) -> dict[str, np.ndarray]:
    return {name: value for name, value in vars(forest).items() if isinstance(value, np.ndarray)}


def test_arrays_are_private_and_immutable_and_leaf_values_mapped_where_asked(tmp_path: Path) -> None:
    forest = small()
    data = written(forest, tmp_path)
    path = tmp_path / "model.gpuqs"
    for mapped in (False, True):
        got = gpuqs.load(path, mmap=mapped).forest
        assert_equal(got, forest)
        in_file = {name for name, values in arrays_of(got).items() if isinstance(memory_of(values), mmap.mmap)}
        assert in_file == ({"leaf_value"} if mapped else set())
        for name in ("threshold", "left", "leaf_value"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(got, name)[0] = 1
    # Find the arrays as any other program would, by the header only.
    header, _ = taken_apart(data)
    at = -(-(32 + struct.unpack_from("<I", data, 12)[0]) // 64) * 64
    entry = header["arrays"]["leaf_value"]
    leaves = np.memmap(path, entry["dtype"], "r", at + entry["offset"], tuple(entry["shape"]))
    np.testing.assert_array_equal(leaves, forest.leaf_value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    native.write(small(), tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    try:
        assert_equal(read_model(pipe), small())
    finally:
        writer.join()


def test_scores_are_the_same(tmp_path: Path) -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=30, n_outputs=3, average=True, link="softmax")
    native.write(forest, tmp_path / "m")
    X = np.random.default_rng(2).normal(size=(300, forest.n_features))
    for output in ("raw", "value", "leaf"):
        expected = gpuqs.from_model(forest).predict(X, output)
        np.testing.assert_array_equal(gpuqs.load(tmp_path / "m").predict(X, output), expected)


def test_a_file_is_replaced_under_a_model_that_has_it_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model"
    first, second = small(), random_forest(np.random.default_rng(8), n_trees=50)
    native.write(first, path)
    loaded = read_model(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    native.write(second, link)
    assert link.is_symlink()
    assert_equal(loaded, first)
    assert_equal(read_model(path), second)


@pytest.mark.parametrize("path", [b"model.gpuqs", io.BytesIO(), 3, None])
def test_a_model_is_saved_under_a_name(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"path must be a str or os.PathLike, not {type(path).__name__}"):
        gpuqs.from_model(small()).save(path)
    assert not list(tmp_path.iterdir())


def test_a_model_is_not_saved_over_what_is_no_model_of_gpuqs(tmp_path: Path) -> None:
    """`gpuqs.load("m.txt").save("m.txt")` would lose the only copy of a library's model."""
    model, path = gpuqs.from_model(small()), tmp_path / "m.txt"
    path.write_text("tree\nversion=v4\n")
    for target in (path, str(path)):
        with pytest.raises(FileExistsError, match="save under another name, or remove it first") as caught:
            model.save(target)
        assert caught.value.filename == str(path) and path.read_text() == "tree\nversion=v4\n"
    path.write_bytes(b"")  # as tempfile makes one
    for _ in range(2):
        model.save(path)
        assert_equal(read_model(path), model.forest)
    path.write_bytes(path.read_bytes()[:100])  # what is left of one
    model.save(path)
    assert_equal(read_model(path), model.forest)
    model.save(os.devnull)


def rewritten(path: Path, how: str) -> None:
    """Change a file in place, as ``cp`` onto it or an interrupted copy does."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        if how == "cut":
            file.truncate(0)
        else:
            file.write(b"\xff" * size if how == "ones" else np.random.default_rng(3).bytes(size))


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("how", ["noise", "ones", "cut"])
def test_a_file_may_change_in_place_under_a_loaded_model(tmp_path: Path, how: str, used_before: bool) -> None:
    rng = np.random.default_rng(4)
    forest = random_forest(rng, n_trees=40, max_leaves=30, n_features=5, categorical=0.3)
    X = rng.normal(size=(200, 5)) * 3
    path = tmp_path / "model"
    for engine in (name for name, reason in on_cpu(gpuqs.from_model(forest)).items() if reason is None):
        native.write(forest, path)
        other = gpuqs.from_model(forest)
        expected = [other.predict(X, "raw", engine=engine, trees=trees) for trees in (None, slice(3, 20))]
        model = gpuqs.load(path)
        if used_before:
            model.predict(X, engine=engine)
        rewritten(path, how)
        for trees, scores in zip((None, slice(3, 20)), expected, strict=True):
            np.testing.assert_array_equal(model.predict(X, "raw", engine=engine, trees=trees), scores)
        assert_equal(model.forest, forest)


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("how", ["noise", "ones"])
def test_a_mapped_file_that_changes_in_place_gives_other_scores_at_most(
    tmp_path: Path, how: str, used_before: bool
) -> None:
    rng = np.random.default_rng(4)
    forest = random_forest(rng, n_trees=40, max_leaves=30, n_features=5, categorical=0.3)
    X = rng.normal(size=(200, 5)) * 3
    path = tmp_path / "model"
    for engine in (name for name, reason in on_cpu(gpuqs.from_model(forest)).items() if reason is None):
        native.write(forest, path)
        model = gpuqs.load(path, mmap=True)
        leaves = gpuqs.from_model(forest).predict(X, "leaf")
        if used_before:
            before = model.predict(X, "raw", engine=engine)
        rewritten(path, how)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves)
            after = model.predict(X, "raw", engine=engine)
            model.predict(X, "raw", engine=engine, precision="fast")
        assert not used_before or np.array_equal(after, before)
        for name, values in arrays_of(model.forest).items():
            assert name == "leaf_value" or np.array_equal(values, getattr(forest, name)), name


def test_a_mapped_file_may_be_cut_once_its_leaf_values_were_read(tmp_path: Path) -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=30)
    X = np.random.default_rng(2).normal(size=(300, forest.n_features))
    native.write(forest, tmp_path / "m")
    model = gpuqs.load(tmp_path / "m", mmap=True)
    expected = model.predict(X)
    rewritten(tmp_path / "m", "cut")
    np.testing.assert_array_equal(model.predict(X), expected)


def test_a_mapped_file_is_replaced_but_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    native.write(small(), path)
    model, shorter = gpuqs.load(path, mmap=True), random_forest(np.random.default_rng(1), n_trees=1)
    native.write(shorter, path)  # replaced: the model keeps the old file
    assert_equal(model.forest, small())
    model = gpuqs.load(path, mmap=True)
    real = os.open

    def refused(path: str, flags: int, *more: int, **options: int) -> int:
        if flags & os.O_EXCL and str(path).endswith(".part"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)  # as in a folder that is read-only
    with pytest.raises(OSError, match=r"maps it \(mmap=True\).*save under another name.*/m'"):
        gpuqs.from_model(small()).save(path)
    assert_equal(model.forest, shorter)
    del model
    gpuqs.from_model(small()).save(path)
    assert_equal(read_model(path), small())


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_mapped_file_is_not_overwritten_by_a_descriptor(tmp_path: Path, name: str) -> None:
    if not Path(name.format("")).is_dir():
        pytest.skip("this system has no such names")
    path, rng = tmp_path / "m", np.random.default_rng(0)
    gpuqs.from_model(random_forest(rng, n_trees=30)).save(path)
    before, model = path.read_bytes(), gpuqs.load(path, mmap=True)
    with open(path, "r+b") as file, pytest.raises(OSError, match=r"maps it \(mmap=True\).*save under another name"):
        gpuqs.from_model(random_forest(rng, n_trees=3)).save(name.format(file.fileno()))
    assert path.read_bytes() == before and model.n_trees == 30


def test_what_cannot_be_mapped_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for data in (b"tree\nversion=v4\n", b"", b"{}"):
        path.write_bytes(data)
        with pytest.raises(ModelFormatError, match="load it without mmap=True") as caught:
            gpuqs.load(path, mmap=True)
        assert str(caught.value).startswith(str(path))
    native.write(small(), path)
    with pytest.raises(ModelFormatError, match="pass its path"):
        gpuqs.load(path.read_bytes(), mmap=True)
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ModelFormatError, match="cut short"):
        gpuqs.load(path, mmap=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(small(), tmp_path)
    path = tmp_path / "model.gpuqs"

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            native.write(random_forest(np.random.default_rng(0)), path)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == data


@pytest.mark.skipif(os.name == "nt", reason="no such permissions")
def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "model"
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    native.write(small(), path)
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    native.write(small(), path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_numpy_labels_become_plain(tmp_path: Path) -> None:
    labels = (np.int64(3), np.float32(0.1), np.str_("a"), np.bool_(True))
    forest = replace(small(), schema=Schema(categories=(labels, None, None, None)))
    native.write(forest, tmp_path / "m")
    assert repr(read_model(tmp_path / "m").schema.categories[0]) == repr((3, float(np.float32(0.1)), "a", True))


@pytest.mark.parametrize("value", [None, (1, 2), b"x", np.datetime64("2020-01-01"), np.timedelta64(1, "ns"), 1j])
def test_other_labels_are_refused(tmp_path: Path, value: Any) -> None:
    for part in ({"schema": Schema(categories=((value,), None, None, None))}, {"classes": ("a", value)}):
        with pytest.raises(UnsupportedModelError, match="only strings, numbers and booleans"):
            native.write(replace(small(), **part), tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_what_says_no_more_than_a_default_is_left_out(tmp_path: Path) -> None:
    plain = random_forest(np.random.default_rng(1), n_trees=5, categorical=0.0)
    header, _ = taken_apart(written(plain, tmp_path))
    assert not {"category_offsets", "category_words", "leaf_id"} & set(header["arrays"])
    assert_equal(read_model(tmp_path / "model.gpuqs"), plain)
    stump = replace(plain.select(slice(0, 1)), leaf_id=plain.leaf_id[: plain.leaf_offsets[1]][::-1].copy())
    header, _ = taken_apart(written(stump, tmp_path))
    assert "leaf_id" in header["arrays"]
    assert_equal(read_model(tmp_path / "model.gpuqs"), stump)


def test_left_out_arrays_do_not_take_memory_that_the_file_has_not(tmp_path: Path) -> None:
    header, arrays = taken_apart(written(replace(small(), leaf_id=small().leaf_id // 2), tmp_path))
    header["arrays"]["leaf_value"]["shape"] = [HUGE, 0]
    offsets = header["arrays"]["leaf_offsets"]
    changed = bytearray(arrays)
    np.frombuffer(changed, "<i8", offsets["shape"][0], offsets["offset"])[-1] = HUGE
    with pytest.raises(ModelFormatError, match="an invalid shape or offset"):
        native.read(put_together(header, bytes(changed)), "file")


def test_lists_without_places_are_kept(tmp_path: Path) -> None:
    schema = Schema(in_order=((1, 2.0, True), ("a",)), library="LightGBM")
    assert repr(read_model(written(replace(small(), schema=schema), tmp_path)).schema) == repr(schema)


# -- damage -------------------------------------------------------------------------------


def test_every_byte_counts(tmp_path: Path) -> None:
    data = written(small(), tmp_path)
    rng = np.random.default_rng(0)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(ModelFormatError, match=r"damaged|cut short|in no format|upgrade gpuqs"):
            read_model(bytes(damaged))


@pytest.mark.parametrize(
    ("more", "problem"), [(-1, "damaged: 3,221,225,472 bytes, not 3,221,225,471"), (1, "cut short")]
)
def test_a_file_of_another_size_than_it_states_is_not_read_whole(
    more: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holes take no space on disk, but they do in memory."""
    path, size = tmp_path / "model.gpuqs", 3 << 30
    native.write(random_forest(np.random.default_rng(0)), path)
    with open(path, "r+b") as file:
        file.seek(16)
        file.write(struct.pack("<Q", size + more))
        file.truncate(size)
    monkeypatch.setattr(Input, "read_pages", lambda _: pytest.fail("it is read"))
    with pytest.raises(ModelFormatError, match=problem) as refused:
        gpuqs.load(path)
    assert refused.value.source == str(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = written(small(), tmp_path)
    path = tmp_path / "cut"
    for length in [*range(64), *range(64, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelFormatError, match=r"cut short|in no format|is empty") as caught:
            read_model(path)
        assert str(caught.value).startswith(str(path))
    with pytest.raises(ModelFormatError, match=f"damaged: {len(data) + 1:,} bytes, not {len(data):,}"):
        read_model(data + b"\0")


@pytest.mark.parametrize("version", [0, native.VERSION + 1, 2**32 - 1])
def test_other_versions(version: int) -> None:
    with pytest.raises(ModelFormatError, match=f"version {version} .*upgrade gpuqs"):
        read_model(put_together({"of": "another kind"}, b"", version))


def test_unknown_fields_and_arrays_are_passed_over(tmp_path: Path) -> None:
    forest = small()
    header, arrays = taken_apart(written(forest, tmp_path))
    header["fields"]["later"] = {"deep": [None, 1.5]}
    header["arrays"]["later"] = {"dtype": "<c16", "shape": [1, 2, 3], "offset": len(arrays), "codec": "x"}
    header["arrays"]["latest"] = True
    header["plan"] = {"engine": "bitslice"}
    assert_equal(read_model(put_together(header, arrays + bytes(96))), forest)


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(header: dict[str, Any]) -> None:
        for key in keys:
            header = header[key]
        if value is KeyError:
            del header[last]
        else:
            header[last] = value

    return change


HUGE = 1 << 40
NEVER_LEFT_OUT = (
    *("node_offsets", "leaf_offsets", "feature", "threshold", "right", "routing", "leaf_value"),
    *("tree_output", "tree_weight", "base_score"),
)
HOSTILE = {
    "no arrays": (_set("arrays", KeyError), "arrays"),
    "arrays are a list": (_set("arrays", []), "arrays"),
    "an array less": (_set("arrays", "left", KeyError), "left"),
    "an array of null": (_set("arrays", "left", None), "left"),
    "huge": (_set("arrays", "threshold", "shape", [HUGE]), "threshold"),
    "huge beyond 64 bits": (_set("arrays", "threshold", "shape", [1 << 80]), "threshold"),
    "huge but empty": (_set("arrays", "leaf_value", "shape", [HUGE, 0]), "leaf_value"),
    "huge and empty": (_set("arrays", "leaf_value", "shape", [0, 1 << 70]), None),
    "negative": (_set("arrays", "threshold", "shape", [-1]), "threshold"),
    "fractional": (_set("arrays", "threshold", "shape", [1.0]), "threshold"),
    "true for 1": (_set("arrays", "base_score", "shape", [True]), "base_score"),
    "too few dimensions": (_set("arrays", "leaf_value", "shape", [3]), "leaf_value"),
    "too many dimensions": (_set("arrays", "threshold", "shape", [1] * 100), "threshold"),
    "no offset": (_set("arrays", "threshold", "offset", KeyError), "threshold"),
    "offset behind the end": (_set("arrays", "threshold", "offset", HUGE), "threshold"),
    "offset beyond 64 bits": (_set("arrays", "threshold", "offset", 1 << 100), "threshold"),
    "negative offset": (_set("arrays", "threshold", "offset", -64), "threshold"),
    "not aligned": (_set("arrays", "threshold", "offset", 4), "threshold"),
    "overlapping": (_set("arrays", "left", "offset", 0), "left|node_offsets"),
    "another dtype": (_set("arrays", "threshold", "dtype", "<i8"), "threshold"),
    "objects": (_set("arrays", "threshold", "dtype", "|O"), "threshold"),
    "the other byte order": (_set("arrays", "threshold", "dtype", ">f8"), "threshold"),
    **{f"no {name}": (_set("arrays", name, KeyError), name) for name in NEVER_LEFT_OUT},
    "no dtype": (_set("arrays", "threshold", "dtype", None), "threshold"),
    "empty offsets": (_set("arrays", "node_offsets", "shape", [0]), "leaf_offsets"),
    "leaf numbers left out": (_set("arrays", "leaf_id", "shape", [0]), "leaf_id"),
    "no fields": (_set("fields", KeyError), "fields"),
    "a field less": (_set("fields", "link", KeyError), "link"),
    "a number for a text": (_set("fields", "source", 4), "source"),
    "a text for a number": (_set("fields", "n_features", "4"), "n_features"),
    "a truth value for a number": (_set("fields", "n_features", True), "n_features"),
    "NaN": (_set("fields", "link_scale", float("nan")), "link_scale"),
    "infinity": (_set("fields", "link_scale", float("inf")), "link_scale"),
    "a number of many digits": (_set("fields", "best_iteration", 10**400), "best_iteration"),
    "an unknown class rule": (_set("fields", "class_rule", "best"), None),
    "an unknown link": (_set("fields", "link", "eval"), None),
    "negative features": (_set("fields", "n_features", -1), "n_features"),
    "huge features": (_set("fields", "n_features", HUGE), "n_features"),
    "huge outputs": (_set("fields", "n_outputs", HUGE), "n_outputs"),
    "outputs by the million": (_set("fields", "n_outputs", 1 << 30), "base_score"),
    "no outputs": (_set("fields", "n_outputs", 0), "base_score"),
    "names of numbers": (_set("fields", "feature_names", [1, 2, 3, 4]), "feature_names"),
    "a name less": (_set("fields", "feature_names", ["a"]), "feature_names"),
    "categories of lists": (_set("fields", "categories", [[["a"]], None, None, None]), "categories"),
    "categories of null": (_set("fields", "categories", [[None], None, None, None]), "categories"),
    "a category list less": (_set("fields", "categories", [None]), None),
    "lists of null": (_set("fields", "categories_in_order", [[None]]), "categories_in_order"),
    "places and no places": (_set("fields", "categories_in_order", [["a"]]), None),
    "another library": (_set("fields", "library", "astrology"), "library"),
    "no library": (_set("fields", "library", KeyError), "library"),
    "classes are an object": (_set("fields", "classes", {"a": 1}), "classes"),
    "a class more": (_set("fields", "classes", ["a", "b", "c"]), "classes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(tmp_path: Path, name: str) -> None:
    header, arrays = taken_apart(written(small(), tmp_path))
    change, field = HOSTILE[name]
    change(header)
    data = put_together(header, arrays)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError) as caught:
            native.read(data, "model.gpuqs")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith("model.gpuqs")
    if field is not None:
        assert caught.value.field in field.split("|")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"arrays":' * 50_000,
        b"\xff\xfe{}",
        b'{"fields": 1, "fields": 2}',
        b'{"fields": ' + b"9" * 5000 + b"}",
    ],
)
def test_headers_that_are_none(header: bytes) -> None:
    with pytest.raises(ModelFormatError):
        read_model(put_together(header, b""))


def test_a_header_longer_than_the_file(tmp_path: Path) -> None:
    data = bytearray(written(small(), tmp_path))
    struct.pack_into("<I", data, 12, 2**32 - 1)
    struct.pack_into("<I", data, 24, zlib.crc32(data[28:], zlib.crc32(data[:24])))
    with pytest.raises(ModelFormatError, match="header is longer"):
        read_model(bytes(data))


@pytest.mark.parametrize(
    ("name", "at", "value", "field"),
    [
        ("node_offsets", 1, HUGE, None),
        ("leaf_offsets", 1, -1, None),
        ("category_offsets", 1, HUGE, None),
        ("feature", 0, 4, "feature"),
        ("threshold", 0, np.nan, "threshold"),
        ("left", 0, 1_000_000, "left"),
        ("left", 0, 0, "left"),
        ("routing", 0, 255, "routing"),
        ("leaf_value", 0, np.inf, "leaf_value"),
        ("tree_output", 0, 1, "tree_output"),
        ("tree_weight", 0, np.nan, "tree_weight"),
        ("base_score", 0, np.nan, "base_score"),
        ("leaf_id", 0, -1, "leaf_id"),
        ("leaf_id", 0, 2, "leaf_id"),
    ],
)
def test_arrays_are_validated(tmp_path: Path, name: str, at: int, value: float, field: str | None) -> None:
    header, arrays = taken_apart(written(small(), tmp_path))
    entry = header["arrays"][name]
    changed = bytearray(arrays)
    np.frombuffer(changed, entry["dtype"], offset=entry["offset"])[at : at + 1] = value
    with pytest.raises(ModelFormatError) as caught:
        read_model(put_together(header, bytes(changed)))
    assert caught.value.field == field
