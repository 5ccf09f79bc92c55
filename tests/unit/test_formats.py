"""Finding a model's format by its content."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuqs.errors import ModelFormatError
from gpuqs.formats import FORMATS, read_model, readers

LIGHTGBM_TEXT = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=a b
feature_infos=none none

Tree=0
num_leaves=2
num_cat=0
split_feature=1
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=1.5 -2.5
is_linear=0
shrinkage=1


end of trees

parameters:
end of parameters
"""


def test_lightgbm_text_is_found_in_every_kind_of_argument(tmp_path: Path) -> None:
    path = tmp_path / "model.json"  # the name misleads on purpose
    path.write_text(LIGHTGBM_TEXT)
    data = LIGHTGBM_TEXT.encode()
    for model in (path, str(path), LIGHTGBM_TEXT, data, bytearray(data), memoryview(data)):
        forest = read_model(model)
        assert forest.leaf_value[:, 0].tolist() == [1.5, -2.5]
        assert forest.feature_names == ("a", "b")


def test_xgboost_files_are_found_by_content(tmp_path: Path) -> None:
    xgb = pytest.importorskip("xgboost")
    booster = xgb.train({"max_depth": 2}, xgb.DMatrix([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 0.0, 1.0]), 2)
    for written_as in ("model.json", "model.ubj"):
        path = tmp_path / written_as
        booster.save_model(path)
        disguised = path.rename(tmp_path / "model.txt")
        assert read_model(disguised).n_trees == 2
        assert read_model(disguised.read_bytes()).n_trees == 2
    assert read_model(booster).n_trees == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"tre",
        b"trees\n",
        b"hello world\n",
        b"\x00\x01\x02",
        b"<xml/>",
        b"PK\x03\x04",
        b"\x80\x04pickle",
    ],
)
def test_unknown_content_says_what_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.txt"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"LightGBM.*XGBoost.*save the model again") as caught:
        read_model(path)
    assert caught.value.source == str(path)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_text(LIGHTGBM_TEXT[:200])
    with pytest.raises(ModelFormatError, match=r"cut\.txt.*cut short"):
        read_model(path)


def test_missing_files_are_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt"):
        read_model(tmp_path / "nothing.txt")


@pytest.mark.parametrize("model", [None, 3, object(), [1, 2]])
def test_other_objects_are_refused(model: object) -> None:
    with pytest.raises(ModelFormatError, match=rf"{type(model).__name__} object: not a model.*LightGBM"):
        read_model(model)


def test_other_ways_to_name_a_file_are_told_what_to_pass(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(LIGHTGBM_TEXT)
    with pytest.raises(ModelFormatError, match="model bytes: are the path of a file; pass it as a str"):
        read_model(os.fsencode(path))
    with path.open("rb") as file, pytest.raises(ModelFormatError, match="is an open file; pass its path"):
        read_model(file)
    with pytest.raises(ModelFormatError, match="BytesIO object: is an open file"):
        read_model(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (gzip.compress(b"tree\n", mtime=0), "is compressed; unpack it first"),
        (bz2.compress(b"tree\n"), "is compressed"),
        (lzma.compress(b"tree\n"), "is compressed"),
        (b'{"name": "tree", "version": "v4"}', "dump of LightGBM's"),
        (b"booster[0]:\n0:[f0<1] yes=1,no=2,missing=2\n", "dump of XGBoost's"),
        (b'[\n  { "nodeid": 0, "depth": 0}]', "dump of XGBoost's"),
    ],
    ids=["gzip", "bzip2", "xz", "LightGBM's JSON", "XGBoost's text", "XGBoost's JSON"],
)
def test_what_is_nearly_a_model_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(ModelFormatError, match=rf"model bytes: .*{problem}.*, or pass the live model itself"):
        read_model(data)


def test_objects_that_only_share_a_name_are_not_taken_for_models() -> None:
    class Booster:
        pass

    with pytest.raises(ModelFormatError, match="Booster object: not a model"):
        read_model(Booster())


def test_every_reader_offers_the_same_names() -> None:
    found = list(readers())
    assert len(found) == len(FORMATS)
    for reader in found:
        assert reader.NAME
        assert reader.recognises(b"no model at all") is False
        assert reader.from_object(object()) is None
        assert callable(reader.read)


def test_readers_do_not_import_the_libraries_whose_models_they_read() -> None:
    code = (
        "import sys; from gpuqs.formats import readers, read_model; list(readers());"
        f"read_model({LIGHTGBM_TEXT!r});"
        "print(sorted({'lightgbm', 'xgboost', 'sklearn', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_first_score_imports_nothing_that_it_does_without() -> None:
    code = (
        "import sys, numpy as np; before = set(sys.modules); import gpuqs;"
        f"gpuqs.load({LIGHTGBM_TEXT.encode()!r}).predict(np.zeros((1, 2), np.float32));"
        "new = set(sys.modules) - before;"
        "print(sorted({'numpy.ma', 'decimal', 'secrets'} & new), [name for name in new if name.endswith('_placed')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_a_file_that_is_not_there_is_named_as_by_open(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", str(tmp_path / "none.txt")):
        with pytest.raises(FileNotFoundError) as missing:
            read_model(path)
        assert missing.value.filename == str(path) and "Path(" not in str(missing.value)
