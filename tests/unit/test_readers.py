from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuqs.cpu_fallback.ctrs import text_hashes
from gpuqs.errors import InputError
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.readers import Chunk, find_format, open_documents
from gpuqs.schema import Schema
from gpuqs.text_hashes import name_of_hash


def hashed_names(texts: Sequence[str]) -> list[str]:
    """Names of categories that are known only by the hashes of their strings."""
    return [*map(name_of_hash, text_hashes(texts).tolist())]


def forest(n_features: int = 3, *, feature: int = 0, **fields: object) -> Forest:
    """One test of one feature; readers use only the features, the types and the source."""
    fields = {"routing": np.zeros(1, np.uint8), **fields}
    return Forest(
        n_features=n_features,
        node_offsets=np.array([0, 1]),
        leaf_offsets=np.array([0, 2]),
        feature=np.array([feature], np.int32),
        threshold=np.zeros(1),
        left=np.array([-1], np.int32),
        right=np.array([-2], np.int32),
        leaf_value=np.array([[0.0], [1.0]]),
        **fields,  # type: ignore[arg-type]
    )


def write(folder: Path, content: str | bytes, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, model: Forest | None = None, **options: object) -> Chunk:
    """All documents of a file as one chunk."""
    chunks = list(open_documents(path, model or forest(), **options))  # type: ignore[arg-type]
    assert all(len(chunk.values) for chunk in chunks)
    parts = [[getattr(chunk, name) for chunk in chunks] for name in ("values", "labels", "queries")]
    return Chunk(*(None if part[0] is None else np.concatenate(part) for part in parts))


# -- svmlight ----------------------------------------------------------------------------------

LETOR = (
    "\ufeff# a comment, and a blank line\n\n"
    "2 qid:10 0:1.5 2:-3e-1 #docid = G21 0:7\r\n"
    "0 qid:10\t1:0 \n"
    "   \t\n"
    "1 qid:-11"
)


def test_letor_text(tmp_path: Path) -> None:
    documents = read(write(tmp_path, LETOR))
    assert documents.values.dtype == np.float64
    np.testing.assert_array_equal(documents.values, [[1.5, 0, -0.3], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(documents.labels, [2, 0, 1])
    np.testing.assert_array_equal(documents.queries, [10, 10, -11])


def test_absent_features_are_missing_for_xgboost(tmp_path: Path) -> None:
    model = forest(schema=Schema(absent=np.nan), input_dtype="float32")
    documents = read(write(tmp_path, LETOR), model)
    assert documents.values.dtype == np.float32
    nan = np.nan
    expected = np.array([[1.5, nan, -0.3], [nan, 0, nan], [nan, nan, nan]], np.float32)
    np.testing.assert_array_equal(documents.values, expected)


def test_lines_without_label(tmp_path: Path) -> None:
    documents = read(write(tmp_path, "0:3 2:1\nqid:4 1:2\n"))
    np.testing.assert_array_equal(documents.values, [[3, 0, 1], [0, 2, 0]])
    assert documents.labels is None
    np.testing.assert_array_equal(documents.queries, [0, 4])


def test_one_based(tmp_path: Path) -> None:
    path = write(tmp_path, "1 1:5 3:7\n")
    np.testing.assert_array_equal(read(path, first_id=1).values, [[5, 0, 7]])
    np.testing.assert_array_equal(read(path, forest(4)).values, [[0, 5, 0, 7]])


def test_ids_that_never_are_zero_give_a_warning(tmp_path: Path) -> None:
    def warnings(text: str, **fields: int) -> list[str]:
        reader = open_documents(write(tmp_path, text), forest(4, **fields))
        assert len(list(reader)) == 1
        return reader.warnings

    assert "use --one-based" in warnings("1 1:5 3:7\n")[0]
    assert warnings("1 1:5\n0 0:7\n") == []
    assert warnings("1 1:5 3:7\n", feature=2) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("abc 1:2", "'abc' is neither a label"),
        ("1,2 1:2", "'1,2' is neither a label"),
        ("1 2", "'2' is not a feature"),
        ("1 -1:2", "'-1:2' is not a feature"),
        ("1 1.5:2", r"'1\.5:2' is not a feature"),
        ("1 99999999999999999999:2", "is not a feature"),
        ("1 x:2", "'x:2' is not a feature"),
        ("1 1:2x", "the value of '1:2x' is not a number"),
        ("1 1:", "the value of '1:' is not a number"),
        ("1 1: 2", "the value of '1:' is not a number"),
        ("1 1:1e", "the value of '1:1e' is not a number"),
        ("1 1:0x10", "the value of '1:0x10' is not a number"),
        ("1 1:1_0", "the value of '1:1_0' is not a number"),
        ("1 1:2:3", "the value of '1:2:3' is not a number"),
        ("1 1:\u0663", "is not a number"),
        ("1 1:.", "is not a number"),
        ("1 0:1 0:1", "feature 0 has a second value: '0:1'"),
        ("1 qid:a 0:1", "'qid:a' is not a single query id"),
        ("1 qid: 0:1", "'qid:' is not a single query id"),
        ("1 qid:1.5 0:1", "is not a single query id"),
        ("1 qid:1 qid:2", "'qid:2' is not a single query id"),
        ("1 7:1", r"'7:1': the model has no feature 7 \(its 3 have ids 0 to 2\); was the model"),
        ("1 3:1", "no feature 3 .*; if the file's ids count from 1, use --one-based"),
        ("\0 1:1", "neither a label"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, f"1 0:1\n\n{line}\n1 0:1\n")
    with pytest.raises(InputError, match=rf"data\.txt, line 3: .*{message}"):
        read(path, format="svmlight")


def test_id_zero_when_ids_count_from_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1: .*no feature 0 .*ids 1 to 3.*leave --one-based out"):
        read(write(tmp_path, "1 0:1\n"), first_id=1)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("block", [1, 7, 50, 1000])
def test_blocks_and_threads_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, n_threads: int
) -> None:
    rng = np.random.default_rng(block)
    X = rng.normal(size=(200, 3)) * (rng.random((200, 3)) < 0.5)
    rows = [" ".join(f"{j}:{float(x)!r}" for j, x in enumerate(row) if x) for row in X]
    text = "".join(f"{i % 5} qid:{i // 9} {row}\n" + "\n" * (i % 3) for i, row in enumerate(rows))
    monkeypatch.setattr("gpuqs.readers.svmlight._BLOCK_BYTES", block)
    monkeypatch.setattr("gpuqs.readers.base.CHUNK_BYTES", 1)  # hence 64 rows a chunk
    path = write(tmp_path, text)
    reader = open_documents(path, forest(), n_threads=n_threads)
    chunks = list(reader)
    assert max(len(chunk.values) for chunk in chunks) <= 64
    assert reader.done == reader.size
    np.testing.assert_array_equal(np.concatenate([c.values for c in chunks]), X)
    np.testing.assert_array_equal(np.concatenate([c.queries for c in chunks]), np.arange(200) // 9)

    path.write_text(text + "1 0:x\n")
    n_lines = text.count("\n") + 1
    with pytest.raises(InputError, match=f"line {n_lines}: "):
        list(open_documents(path, forest(), n_threads=n_threads))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.readers.svmlight._LONGEST_LINE", 1000)
    monkeypatch.setattr("gpuqs.readers.svmlight._BLOCK_BYTES", 100)
    with pytest.raises(InputError, match="a line is longer than"):
        read(write(tmp_path, "1 0:1 " + " " * 5000))


# -- query sizes beside the file ------------------------------------------------------------


def test_query_sizes_beside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "1 0:1\n" * 5)
    write(tmp_path, "2\n0\n3\n", "data.txt.query")
    np.testing.assert_array_equal(read(path).queries, [0, 0, 2, 2, 2])


def test_query_sizes_that_do_not_fit_give_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "1 0:1\n" * 5)
    write(tmp_path, "2\n2\n", "data.txt.query")
    reader = open_documents(path, forest())
    assert [chunk.queries for chunk in reader] == [None]
    assert "gives query sizes for 4 documents" in reader.warnings[0] and reader.warnings[0].endswith("has 5")


@pytest.mark.parametrize("sizes", ["two\n", "-1\n6\n", "", "1e3", f"{2**63}\n"])
def test_bad_query_sizes(tmp_path: Path, sizes: str) -> None:
    path = write(tmp_path, "1 0:1\n")
    write(tmp_path, sizes, "data.txt.query")
    with pytest.raises(InputError, match=r"data\.txt\.query: query sizes must be integers"):
        read(path)


# -- finding the format ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (b"1 qid:3 1:2\n", "svmlight"),
        (b"0\n0 1:2\n", "svmlight"),
        (b"0\t1:2\t3:4\n", "svmlight"),
        (b"# comment, with commas\n1 1:2\n", "svmlight"),
        (b"1:2 3:4", "svmlight"),
        (b"1,2,3\n", "csv"),
        (b"a\tb:1\tc\n", "csv"),
        (b"1\t2\n", "csv"),
        (b"12:30,5\n", "csv"),
        (b"x\n1\n2\n", "csv"),
        (b"\x93NUMPY\x01\x00", "npy"),
        (b"PAR1....", "parquet"),
    ],
)
def test_find_format(tmp_path: Path, content: bytes, format: str) -> None:
    assert find_format(write(tmp_path, content)) == format


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is empty"), (b"\n \n# x\n", "hold no document"), (b"\x1f\x8b\x08\x00", "unpack it")],
)
def test_no_format(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_format(write(tmp_path, content))


def test_tabs_between_times_of_day(tmp_path: Path) -> None:
    """Cells such as 12:30 look like features; the option `header` shows that they are not."""
    path = write(tmp_path, "0.5\t12:30\t2\n1.5\t13:45\t3\n")
    model = forest(schema=Schema(("a", "b", "c"), (None, ("12:30", "13:45"), None), library="LightGBM"))
    with pytest.raises(InputError, match=r"no feature 12 .*; if this is CSV with tabs, say --format csv"):
        read(path, model)
    for told in ({"header": False}, {"format": "csv", "header": False}):
        np.testing.assert_array_equal(read(path, model, **told).values, [[0.5, 0, 2], [1.5, 1, 3]])
    path.write_text("a\tb\tc\n" + path.read_text())
    np.testing.assert_array_equal(read(path, model, header=True).values, [[0.5, 0, 2], [1.5, 1, 3]])
    with pytest.raises(InputError, match="takes no option 'header'"):
        read(write(tmp_path, "1 0:1\n"), model, header=False)


def test_unknown_format_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be one of svmlight"):
        open_documents(write(tmp_path, "1"), forest(), format="xlsx")


# -- .npy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, ">f8"])
def test_npy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, dtype: object) -> None:
    monkeypatch.setattr("gpuqs.readers.base.CHUNK_BYTES", 1)
    X = np.arange(600).reshape(200, 3).astype(dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", X)
    documents = read(tmp_path / "x.npy")
    np.testing.assert_array_equal(documents.values, X)
    assert documents.values.dtype.itemsize == X.dtype.itemsize
    assert documents.labels is None and documents.queries is None


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\); the model takes \[documents, 3\]"),
        (np.zeros((2, 4)), r"shape \(2, 4\)"),
        (np.zeros((2, 3), complex), "dtype complex128"),
        (np.full((2, 3), "a"), "dtype <U1"),
        (np.full((2, 3), None), "not a readable .npy file"),
    ],
)
def test_bad_npy(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize("size", [7, 60, 130, 150])
def test_npy_cut_short(tmp_path: Path, size: int) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 3)))
    path = write(tmp_path, (tmp_path / "x.npy").read_bytes()[:size], "y.npy")
    with pytest.raises(InputError, match=r"y\.npy: not a readable \.npy file"):
        read(path)


# -- CSV ------------------------------------------------------------------------------------

NAMED = {"schema": Schema(("a", "b_c", "d"), library="LightGBM")}


def test_csv_columns_by_name(tmp_path: Path) -> None:
    text = "d,qid,a,junk,b c,label\n3,q1,1,x,2,0\n6,q1,,y,NA,1\n"
    documents = read(write(tmp_path, text), forest(**NAMED))
    np.testing.assert_array_equal(documents.values, [[1, 2, 3], [np.nan, np.nan, 6]])
    np.testing.assert_array_equal(documents.labels, [0, 1])
    assert documents.queries.tolist() == ["q1", "q1"]


def test_csv_label_and_query_under_other_names(tmp_path: Path) -> None:
    path = write(tmp_path, "grade,topic,x,y,z\n4,7,1,2,3\n")
    documents = read(path, label="grade", query="topic")
    assert (documents.labels.tolist(), documents.queries.tolist()) == ([4.0], ["7"])
    with pytest.raises(InputError, match="no column 'rel'; it has 'grade', 'topic', 'x'"):
        read(path, label="rel")


def test_a_feature_named_label_is_a_feature(tmp_path: Path) -> None:
    documents = read(write(tmp_path, "label,x\n1,2\n"), forest(2, schema=Schema(("x", "label"))))
    np.testing.assert_array_equal(documents.values, [[2, 1]])
    assert documents.labels is None


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_csv_without_header(tmp_path: Path, delimiter: str) -> None:
    features = read(write(tmp_path, delimiter.join("123") + "\n"))
    np.testing.assert_array_equal(features.values, [[1, 2, 3]])
    assert features.labels is None
    # As in LightGBM: with one more column, the first is the label.
    labelled = read(write(tmp_path, delimiter.join("9123") + "\r\n" + delimiter.join("8456")))
    np.testing.assert_array_equal(labelled.values, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(labelled.labels, [9, 8])
    (told,) = open_documents(write(tmp_path, delimiter.join("9123") + "\n"), forest()).warnings
    assert re.search("no header, and 4 columns .* begins with '9', was read as the label, as LightGBM does", told)
    assert open_documents(write(tmp_path, delimiter.join("123") + "\n"), forest()).warnings == []


def test_csv_headers_of_spreadsheets(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeff"a","b c","d"\n7,8,9\n')
    np.testing.assert_array_equal(read(path, forest(**NAMED)).values, [[7, 8, 9]])


def test_csv_values_are_correctly_rounded(tmp_path: Path) -> None:
    tokens = ["0.1", "1e-310", "123456789012345678901234567890"]
    documents = read(write(tmp_path, ",".join(tokens) + "\n"))
    assert documents.values[0].tolist() == [float(token) for token in tokens]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b_c\n1,2\n", "lacks 1 of the model's 3 features: 'd'"),
        ("a,b_c,d,a\n1,2,3,4\n", "several columns are named 'a'"),
        ("a,b_c,d\n1,x,3\n", "line 2, column 'b_c': invalid value 'x'"),
        ("a,b_c,d\n1,2\n", "line 2: Expected 3 columns, got 2"),
        ("1,2\n", "2 columns and no header; the model takes 3 features"),
    ],
)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_bad_csv(tmp_path: Path, text: str, message: str, n_threads: int) -> None:
    with pytest.raises(InputError, match=rf"data\.txt.*{message}"):
        read(write(tmp_path, text), forest(**NAMED), n_threads=n_threads)


def test_csv_without_header_has_no_named_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no header, so no column 'rel'"):
        read(write(tmp_path, "1,2,3\n"), label="rel")


def test_csv_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", 256)
    X = np.random.default_rng(0).normal(size=(100, 3))
    path = write(tmp_path, "".join(",".join(map(repr, row)) + "\n" for row in X.tolist()))
    assert len(list(open_documents(path, forest()))) > 5
    np.testing.assert_array_equal(read(path, n_threads=2).values, X)


#: Rows of two numbers with a string between them that holds quotes, line ends and doubled quotes.
ODD_ROWS = [
    "1,x,2",
    '3,"a,b",4',
    '5,"a\nb",6',
    '7,"""\n""",8',
    '9,5",10',
    '11,"",12',
    '"13",a"b,"14"',
    '15,"c"d,16\r',
    "",
    '17,"\r\n1,2,3\r\n",18',
    "19,',20",
    '21,";",22\r',
    '23,;"z,24',
]


@pytest.mark.parametrize("block", [*range(1, 30), 64, 1000])
@pytest.mark.parametrize("stray", [True, False])
def test_csv_quotes_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stray: bool, block: int) -> None:
    rows = [row for row in ODD_ROWS if stray or row.count('"') % 2 == 0]
    last = [23, 24] if stray else [21, 22]
    path = write(tmp_path, "a,text,d\n" + "\n".join(rows * 3))
    whole = read(path, forest(2, schema=Schema(("a", "d")))).values
    assert len(whole) == 3 * (len(rows) - 1) and whole[-1].tolist() == last
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", block)
    np.testing.assert_array_equal(read(path, forest(2, schema=Schema(("a", "d")))).values, whole)


@pytest.mark.parametrize("block", [1, 8, 1000])
@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (["1,2,3", "1,,x"], "line 3, column 'd': invalid value 'x'"),
        (["", "1,2,3", "", "\r", "1,x,3"], "line 6, column 'b_c': invalid value 'x'"),
        (['1,2,3,"\n\n1,x,1,1\n"', '"x",1,1,2'], "line 6, column 'a': invalid value 'x'"),
        (["1,2,3", "1,2"], "line 3: Expected . columns, got 2"),
        (['1,2,3,5"', "1,2,3,4,5"], "line 3: Expected 4 columns, got 5"),
        (['"1', "2,3,4", "5,6,7"], "line 2: Expected 3 columns"),
    ],
)
def test_csv_errors_say_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[str], where: str, block: int
) -> None:
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", block)
    header = "a,b_c,d,text" if rows[0].startswith("1,2,3,") else "a,b_c,d"
    path = write(tmp_path, "\n".join([header, *rows]))
    with pytest.raises(InputError, match=rf"data\.txt, {where}"):
        read(path, forest(**NAMED))


def test_csv_with_an_endless_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.readers.csv_blocks._LONGEST_ROW", 1000)
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", 100)
    path = write(tmp_path, 'a,b_c,d\n1,2,3\n"1,2,3\n' + "1,2,3\n" * 1000)
    with pytest.raises(InputError, match=r"data\.txt, line 3: a row is longer than .* every quote is closed"):
        read(path, forest(**NAMED))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("text", ["1,2,3\n" * 50_000, "1,2,3\n" * 50_000 + "1,x,3\n", "1,red,3\n" * 50_000])
def test_pyarrow_has_no_python_file_to_read_csv_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, n_threads: int
) -> None:
    """Its threads would wait for the interpreter, and crash if the process ends before them."""
    readers: set[threading.Thread] = set()

    class Watched(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            readers.add(threading.current_thread())
            return super().readinto(buffer)

    path = write(tmp_path, "a,b_c,d\n" + text)
    monkeypatch.setattr("gpuqs.readers.source.DocumentSource.open", lambda _: io.BufferedReader(Watched(path), 1 << 16))
    schema = Schema(("a", "b_c", "d"), (None, ("red",), None), library="CatBoost") if "red" in text else NAMED["schema"]
    try:
        read(path, forest(schema=schema), n_threads=n_threads)
    except InputError as error:
        assert "line 50002" in str(error)
    assert readers == {threading.main_thread()}


@pytest.mark.parametrize("format", [None, "csv"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b_c,d\n1,2,3\n".encode("utf-16"), "text in UTF-16"),
        ("a,b_c,d\n1,2,3\n".encode("utf-16-be"), "text in UTF-16"),
        (b"a,b_c,d\n1,\0002,3\n", "holds NUL bytes"),
        (b"a,b_c,d\r1,2,3\r", "lines end with only a carriage return"),
        (b"1,2,3\r4,5,6\r", "lines end with only a carriage return"),
        (b"a b_c d\n1 2 3\n", "'a b_c d', holds one column, .* separate columns by commas, tabs or semicolons$"),
        (b"1 2 3\n1 2 3\n", "'1 2 3', holds one column, but the model takes 3 features"),
        (b"# made by me\n1,2,3\n", "'# made by me', holds one column, .*comments are not allowed"),
        (b"# made, by me\n1,2,3\n", "starts with '#'; CSV has no comments"),
        (b"# a,b_c,d\n1,2,3\n", "starts with '#'; CSV has no comments"),
        (b"1,5;2,5;3,5\n", "holds '1,5' between ';', a decimal comma; write decimal points"),
        (b'"1,5";;-2,5e3\n', "a decimal comma; write decimal points"),
        (b"1\t,5\tNA\n", r"holds ',5' between '\\t', a decimal comma"),
        (b"a;b_c;d\n1,5;2,5;3,5\n", "invalid value '1,5'; write decimal points"),
        (b"1\t2\t3\n1\t2\t-3,5\n", "invalid value '-3,5'; write decimal points"),
    ],
)
def test_what_is_no_csv_is_called_by_its_name(tmp_path: Path, content: bytes, message: str, format: str | None) -> None:
    with pytest.raises(InputError, match=rf"data\.txt.*: .*{message}"):
        read(write(tmp_path, content), forest(**NAMED), format=format)


def test_commas_beside_other_delimiters_are_no_decimal_commas(tmp_path: Path) -> None:
    documents = read(write(tmp_path, 'd,a,"x;1,5;z",b c\n1,2,3,4\n'), forest(**NAMED))
    np.testing.assert_array_equal(documents.values, [[2, 4, 1]])


@pytest.mark.parametrize("text", ["", "NA", "nan", "null", "None", "<NA>"])
@pytest.mark.parametrize("kind", ["placed", "hashes", "in order"])
def test_csv_categories_that_look_missing_are_refused(tmp_path: Path, text: str, kind: str) -> None:
    import pyarrow

    values = ("red", text)
    if kind == "in order":
        schema = Schema(("a", "b_c", "d"), in_order=(values,))
    else:
        hashed = tuple(hashed_names(values))
        schema = Schema(("a", "b_c", "d"), (None, hashed if kind == "hashes" else values, None), library="CatBoost")
    path = write(tmp_path, "a,b_c,d\n1,red,3\n")
    with pytest.raises(InputError, match=rf"data\.txt: .* category '{text}' in column 'b_c', but .* means .*Parquet"):
        read(path, forest(schema=schema))
    plain = replace(schema, **{"in_order" if kind == "in order" else "categories": ()})
    with pytest.raises(InputError, match=r"not a number|invalid value"):
        read(path, forest(schema=plain))
    category = pyarrow.array([text]).dictionary_encode()
    read(parquet(tmp_path, a=[1.0], b_c=category, d=[3.0]), forest(schema=schema))


def catboost(*texts: str, hashed: bool) -> Forest:
    """A forest whose column b_c holds these categories, as strings from a file or as hashes."""
    whole = [int(text) for text in texts if re.fullmatch("-?[1-9][0-9]*|0", text)]
    known = tuple(hashed_names(texts)) if hashed else (*texts, *whole)
    return forest(schema=Schema(("a", "b_c", "d"), (None, known, None), library="CatBoost"))


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize(
    ("known", "codes"),
    [
        (("True", "False"), [0, 1]),
        (("TRUE", "FALSE"), [None, None]),
        (("False", "x"), [None, 0]),
        (("x", "1", "0"), [1, 2]),  # as CatBoost writes booleans
        (("1",), [0, None]),
        (("x", "y"), [None, None]),
    ],
)
def test_csv_truth_values_are_the_texts_that_the_model_knows(
    tmp_path: Path, known: tuple[str, ...], codes: list[Any], hashed: bool
) -> None:
    got = read(write(tmp_path, "a,b_c,d\n1,True,3\n1,False,3\n"), catboost(*known, hashed=hashed))
    np.testing.assert_array_equal(got.values[:, 1], np.array(codes, np.float64))


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("text", ["True", "False", "TRUE", "FALSE", "true", "false"])
def test_csv_truth_values_of_every_spelling(tmp_path: Path, text: str, hashed: bool) -> None:
    path = write(tmp_path, f"a,b_c,d\n1,{text},3\n")
    got = read(path, catboost("x", text, hashed=hashed))
    np.testing.assert_array_equal(got.values, [[1, 1, 3]])
    with pytest.raises(InputError, match=rf"both '{text}' and '0' among .*write the documents as Parquet"):
        read(path, catboost("0", text, hashed=hashed))


#: Other spellings of the integer 7 in a CSV file.
SPELLINGS = ["07", "+7", " 7", "7 ", "7.0", "7.", "7e0", "70E-1"]


@pytest.mark.parametrize("cell", ["7", '"7"', *SPELLINGS])
@pytest.mark.parametrize("kind", ["whole numbers", "texts", "hashes"])
def test_csv_spellings_of_whole_numbers(tmp_path: Path, cell: str, kind: str) -> None:
    """None of them may silently become a category that the model has not seen."""
    known = ("-5", "7") if kind == "whole numbers" else ("-5", "7", "red")
    path = write(tmp_path, f"a,b_c,d\n1,-5,3\n1,-5,3\n1,{cell},3\n")
    model = catboost(*known, hashed=kind == "hashes")
    if "7" in cell.strip(' "').split() or (kind == "whole numbers" and cell in ("07", "+7")):
        np.testing.assert_array_equal(read(path, model).values[:, 1], [0, 0, 1])
    else:
        with pytest.raises(InputError, match=rf"line 4, column 'b_c': '{re.escape(cell)}' is not one .*, but '7' is"):
            read(path, model)


def test_csv_texts_that_look_like_whole_numbers(tmp_path: Path) -> None:
    """Strings that the model knows, or whose plain spelling it does not know either, are kept as they are."""
    known = ("01", "+1", "1.0", " 1", "red", "8")
    for hashed in (True, False):
        cells = [*known, "007", "1_0", "+", "2.5", "-0", "1e999", "9" * 5000]
        path = write(tmp_path, "a,b_c,d\n" + "".join(f"1,{cell},3\n" for cell in cells))
        codes = read(path, catboost(*known, hashed=hashed)).values[:, 1]
        np.testing.assert_array_equal(codes, [*range(6), *[np.nan] * 7])


#: A node that tests column b_c as a category, for a model whose file does not say which columns hold strings.
UNTOLD = {
    "feature": 1,
    "routing": np.array([CATEGORICAL], np.uint8),
    "category_offsets": np.array([0, 1]),
    "category_words": np.array([1], np.uint32),
    "schema": Schema(("a", "b_c", "d"), in_order=(("red", "blue"),), library="LightGBM"),
}
PLACED = {"schema": Schema(("a", "b_c", "d"), (None, ("red", "blue"), None), library="LightGBM")}
BLANK = "1,,\n" * 300


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", 100)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(
    ("model", "rows", "codes"),
    [
        (UNTOLD, ["1,blue,2", "1,,3", "1,green,3", "1,red,NA"], [[1, 1, 2], [1, None, 3], [1, None, 3], [1, 0, None]]),
        (PLACED, ["1,blue,2", "1,7,3"], [[1, 1, 2], [1, None, 3]]),
        (PLACED, ["1,,true", "1,red,false"], [[1, None, 1], [1, 0, 0]]),
        ({}, ["1,5,NA", "1,6,7"], [[1, 5, None], [1, 6, 7]]),
    ],
)
def test_csv_columns_that_begin_blank(
    tmp_path: Path, model: dict[str, Any], rows: list[str], codes: list[list[float | None]], n_threads: int
) -> None:
    """A column's type is decided at its first non-empty cell, however far down."""
    path = write(tmp_path, "a,b_c,d\n" + BLANK + "".join(f"{row}\n" for row in rows * 50))
    got = read(path, forest(**{"schema": Schema(("a", "b_c", "d")), **model}), n_threads=n_threads)
    np.testing.assert_array_equal(got.values, np.array([[1, None, None]] * 300 + codes * 50, np.float64))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,7,", "line 302, column 'b_c': '7', the column's first value, is not a string, .*categories="),
        ("1,true,", "line 302, column 'b_c': 'true', the column's first value, is not a string, .*categories="),
        ("1,,?", "line 302, column 'd': '\\?', the column's first value, is not a number, .*categories="),
        ("?,,", r"line 302, column 'a': invalid value '\?'; say which .*categories="),
        ("1,,", "column 'b_c' is empty, .*categories="),
    ],
)
def test_csv_columns_that_begin_blank_and_go_on_wrongly(
    tmp_path: Path, row: str, message: str, n_threads: int
) -> None:
    path = write(tmp_path, "a,b_c,d\n" + BLANK + f"{row}\n")
    with pytest.raises(InputError, match=rf"data\.txt.*{message}"):
        read(path, forest(**UNTOLD), n_threads=n_threads)


def test_a_short_csv_file_whose_texts_are_missing_is_refused_at_once(tmp_path: Path) -> None:
    chunks = iter(open_documents(write(tmp_path, "a,b_c,d\n" + BLANK), forest(**UNTOLD)))
    with pytest.raises(InputError, match="trained on a frame with 1 category column"):
        next(chunks)


# -- Parquet --------------------------------------------------------------------------------


def parquet(folder: Path, **columns: object) -> Path:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), folder / "x.parquet")
    return folder / "x.parquet"


def test_a_parquet_file_with_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    path = parquet(tmp_path, abcdefgh=[1.0], y=[2.0], z=[3.0])
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abcd\xe8fgh"))
    with pytest.raises(InputError, match=r"x\.parquet: not a readable Parquet file: .*can't decode"):
        read(path)


@pytest.mark.parametrize("format", ["csv", "svmlight"])
@pytest.mark.parametrize("stdin", [False, True])
def test_a_text_that_is_cut_while_it_is_read(tmp_path: Path, format: str, stdin: bool) -> None:
    """Also when cut at the end of a row, where nothing else reveals it."""
    row = "1,2,3\n" if format == "csv" else "1 0:1 1:2 2:3\n"
    path = write(tmp_path, row * 1_500_000)
    cut = len(row) * 1_400_000
    kept = os.dup(0)
    try:
        if stdin:
            with open(path, "rb") as file:
                os.dup2(file.fileno(), 0)
        chunks = iter(open_documents("-" if stdin else path, forest(), format=format))
        next(chunks)
        os.truncate(path, cut)
        name = "standard input" if stdin else r"data\.txt"
        with pytest.raises(InputError, match=f"{name}: it was cut short while it was read, to less than its"):
            list(chunks)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_parquet_columns_by_name(tmp_path: Path) -> None:
    from decimal import Decimal

    path = parquet(
        tmp_path, qid=[5, 6], d=[Decimal("0.5"), Decimal("2.5")], b_c=[1, None], a=[True, None], label=[1, 0]
    )
    documents = read(path, forest(**NAMED))
    np.testing.assert_array_equal(documents.values, [[1, 1, 0.5], [np.nan, np.nan, 2.5]])
    np.testing.assert_array_equal(documents.labels, [1, 0])
    np.testing.assert_array_equal(documents.queries, [5, 6])


def test_parquet_by_position_keeps_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.readers.base.CHUNK_BYTES", 1)
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    path = parquet(tmp_path, x=X[:, 0], y=X[:, 1], z=X[:, 2], __index_level_0__=np.arange(300))
    reader = open_documents(path, forest())
    chunks = list(reader)
    assert len(chunks) == 5 and reader.done == reader.size == 300
    values = np.concatenate([chunk.values for chunk in chunks])
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, X)


def test_parquet_with_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'd' has type string, not a number"):
        read(parquet(tmp_path, a=[1.0], b_c=[1.0], d=["x"]), forest(**NAMED))


def test_parquet_lacks_a_feature(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.parquet lacks 2 of the model's 3 features: 'b_c', 'd'"):
        read(parquet(tmp_path, a=[1.0]), forest(**NAMED))


def test_parquet_cut_short(tmp_path: Path) -> None:
    whole = parquet(tmp_path, x=[1.0], y=[1.0], z=[1.0]).read_bytes()
    path = write(tmp_path, whole[: len(whole) // 2], "y.parquet")
    with pytest.raises(InputError, match=r"y\.parquet: not a readable Parquet file"):
        read(path)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"need pyarrow: pip install 'gpuqs\[cli\]'"):
        read(write(tmp_path, "1,2,3\n"))


# -- header or document -----------------------------------------------------------------------

MADE_UP = Schema(("Column_0", "Column_1", "Column_2"), library="LightGBM")
#: Three columns of categories; "7" is the first of each.
TEXTS = Schema(categories=(("7", "red"), ("7", "big"), ("7", "new")))


@pytest.mark.parametrize(
    "first",
    [
        *("1,x,3", "1,,red", "1e3,0x1F,3", "4,1,x,3", "12:30,2,3", "NA,x,3"),
        *("x,NA,nan", "0,1,2", "a,b,2019", "nan,x,"),
    ],
)
def test_a_first_line_that_may_be_a_document_is_never_lost(tmp_path: Path, first: str) -> None:
    cells = first.split(",")
    path = write(tmp_path, f"{first}\n" + ",".join("7" * len(cells)) + "\n")
    with pytest.raises(InputError, match=r"data\.txt: the first line.*--header or --no-header"):
        read(path)
    if len(cells) == 3:
        np.testing.assert_array_equal(read(path, header=True).values, [[7, 7, 7]])


def test_a_header_that_pandas_writes_over_an_index_is_no_document(tmp_path: Path) -> None:
    columns = np.arange(6.0).reshape(2, 3)
    path = tmp_path / "data.csv"
    path.write_text(pytest.importorskip("pandas").DataFrame(columns).to_csv())
    with pytest.raises(InputError, match=r"data\.csv: the first line, '', 0, 1.*to_csv\(index=False.*--no-header"):
        read(path)
    np.testing.assert_array_equal(read(write(tmp_path, ",0,1\n3,4,5\n")).values, [[np.nan, 0, 1], [3, 4, 5]])


@pytest.mark.parametrize("first", ["2,1,0", "1,0,1,2", "1,1,1"])
def test_columns_that_are_called_by_their_numbers_are_not_told_from_a_document(tmp_path: Path, first: str) -> None:
    path, model = write(tmp_path, f"{first}\n{first}\n"), forest(schema=Schema(("0", "1", "2")))
    with pytest.raises(InputError, match=r"may be a document, or the column numbers.*--header or --no-header"):
        read(path, model)
    years = write(tmp_path, "2020,2019,2021\n1,2,3\n")
    np.testing.assert_array_equal(read(years, forest(schema=Schema(("2019", "2020", "2021")))).values, [[2, 1, 3]])


@pytest.mark.parametrize("first", ["-", "?", ".", "abc", "1.5abc", "a,a,b", "-,?,.", "a,1.5abc,c", "12:30,12:31,12:32"])
def test_texts_that_no_model_knows_are_not_lost(tmp_path: Path, first: str) -> None:
    cells = first.split(",")
    path = write(tmp_path, f"{first}\n" + ",".join("7" * len(cells)) + "\n")
    for schema in (Schema(), Schema(tuple(f"Column_{at}" for at in range(len(cells))), library="LightGBM")):
        with pytest.raises(InputError, match=r"the first line, .*--header or --no-header"):
            read(path, forest(len(cells), schema=schema))


@pytest.mark.parametrize("first", ["red,big,new", "a,b_c,d", "Column_0,red,x", "red,1.5,x", "label,red,2,x", "qid,a,3"])
@pytest.mark.parametrize("names", [(), ("Column_0", "Column_1", "Column_2"), ("colour", "size", "age")])
def test_categories_are_never_lost_as_a_header(tmp_path: Path, first: str, names: tuple[str, ...]) -> None:
    known = (("red", "a", "Column_0", "label", "qid"), ("big", "b_c", "red"), ("new", "d", "x"))
    hashed = tuple(tuple(hashed_names(values)) for values in known)
    path = write(tmp_path, f"{first}\n{first}\n")
    for fields in ({"categories": known}, {"in_order": known}, {"categories": hashed, "library": "CatBoost"}):
        model = forest(schema=Schema(names, **fields))  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"the first line, .*--header or --no-header"):
            read(path, model)
    if first in ("red,big,new", "a,b_c,d") and not names:
        model = forest(schema=Schema(names, known))
        assert [len(read(path, model, header=header).values) for header in (True, False)] == [1, 2]


def test_the_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the first line has 'x' where a document has a number, but also 2 cells"):
        read(write(tmp_path, "1,x,3\n4,5,6\n"))


@pytest.mark.parametrize(
    ("first", "model"),
    [
        ("p,q,r", forest()),
        (",p,q,r", forest(4)),
        ("größe,_b.1,c-2", forest()),
        ('"p","q r","s"', forest()),
        ("Column_0,Column_1,Column_2", forest(schema=MADE_UP)),
        ("label,p,q,r", forest(schema=MADE_UP)),
        ("f0,f1,f2", forest(schema=replace(TEXTS, names=("f0", "f1", "f2")))),
        ("label,x,y,z", forest(schema=TEXTS)),
        ("a,b_c,d", forest(schema=replace(TEXTS, names=("a", "b_c", "d")))),
        ("a,b c,d", forest(**NAMED)),
        ("d,2019,a,b_c", forest(**NAMED)),
        ("label,1,2,3", forest()),
        ("1,2,3,qid", forest()),
        ("10,20,30", forest(schema=Schema(("10", "20", "30")))),
        ("0,1,2", forest(schema=Schema(("0", "1", "2")))),
    ],
)
def test_a_header_is_found(tmp_path: Path, first: str, model: Forest) -> None:
    n = first.count(",") + 1
    reader = open_documents(write(tmp_path, f"\n\r\n{first}\n" + ",".join("7" * n) + "\n"), model)
    (chunk,) = reader
    np.testing.assert_array_equal(chunk.values, np.full((1, model.n_features), 0 if model.schema.has_categories else 7))
    known = {"label", "qid", *model.feature_names, *(name.replace("_", " ") for name in model.feature_names)}
    doubts = ["the model's feature names"] * first.replace(",", "").isdecimal()
    doubts += ["a header"] * (known.isdisjoint(first.split(",")) or (first[:5] == "label" and model.schema == TEXTS))
    assert [re.search(" read as (.*);", warning)[1] for warning in reader.warnings] == doubts  # type: ignore[index]


@pytest.mark.parametrize("line", ["1,2,3,", "1\t2\t3\t", "1;2;3; ", '1,2,3,""', ",,,"])
@pytest.mark.parametrize("header", [None, False])
def test_a_trailing_delimiter_shifts_no_features(tmp_path: Path, line: str, header: bool | None) -> None:
    with pytest.raises(InputError, match=r"data\.txt: the first line ends with .*delete trailing delimiters"):
        read(write(tmp_path, f"{line}\n{line}\n"), header=header)
    documents = read(write(tmp_path, "9,1,2,NA\n8,1,2,\n"), header=header)
    np.testing.assert_array_equal(documents.values, [[1, 2, np.nan]] * 2)


@pytest.mark.parametrize("first", ["1,2,3", "NA,,3", ",,", "nan,inf,-1e-5", "1,0,2", "0,1,2.0"])
def test_a_document_is_found(tmp_path: Path, first: str) -> None:
    assert len(read(write(tmp_path, f"\n{first}\n7,7,7\n")).values) == 2


def test_what_the_caller_says_of_the_header_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "0,1,2\n7,8,9\n")
    np.testing.assert_array_equal(read(path, header=True).values, [[7, 8, 9]])
    np.testing.assert_array_equal(read(path, header=False).values, [[0, 1, 2], [7, 8, 9]])
    with pytest.raises(InputError, match="invalid value 'a'"):
        read(write(tmp_path, "a,b_c,d\n1,2,3\n"), forest(**NAMED), header=False)


def test_a_first_line_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    names = [f"a rather long name, of column {at:05}" for at in range(5000)]
    path = write(tmp_path, ",".join(f'"{name}"' for name in names) + "\n" + ",".join("7" * 5000) + "\n")
    assert read(path, forest(5000, schema=Schema(tuple(names)))).values.sum() == 35_000
