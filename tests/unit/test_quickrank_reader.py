"""QuickRank XML: the meaning of its elements; damaged or hostile files are refused by tree and field."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from forests import probing_documents
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data

import gpuqs
from gpuqs.errors import GpuqsError, ModelFormatError, UnsupportedModelError
from gpuqs.forest_checks import MAX_DEPTH
from gpuqs.formats import quickrank as reader
from gpuqs.formats.xml_trees import number

#: Two trees on columns 0 and 2; in the second, the right child comes first, and one leaf is deeper.
MODEL = """<?xml version="1.0"?>
<!-- made by <hand> -->
<ranker>
	<info>
		<type>LAMBDAMART</type>
		<trees>500</trees>
		<later><type>nothing</type></later>
	</info>
	<ensemble>
		<tree id="1" weight="0.5">
			<split>
				<feature>3</feature>
				<threshold>0.1</threshold>
				<split pos="left"><output>1.25</output></split>
				<split pos="right"><output> -2e0
				</output></split>
			</split>
		</tree>
		<tree id="2" weight="0.10000000149011612">
			<split>
				<feature>1</feature>
				<threshold>-1.5</threshold>
				<split pos="right"><output>7</output></split>
				<split pos="left">
					<comment><split pos="left"/></comment>
					<split pos="left"><output>.5</output></split>
					<feature>3</feature>
					<threshold>16777217</threshold>
					<split pos="right"><output>+3.</output></split>
				</split>
			</split>
		</tree>
	</ensemble>
	<appendix/>
</ranker>
"""


def read(text: str) -> gpuqs.Model:
    return gpuqs.load(text.encode())


def float32(x: float) -> float:
    """Round to C's float, with only the standard library."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return np.copysign(np.inf, x)


def walked(text: str, row: list[float]) -> float:
    """QuickRank's score of a document, computed directly from the file."""
    total = 0.0
    for tree in ET.fromstring(text).iterfind("ensemble/tree"):
        split = tree.find("split")
        while split.find("output") is None:
            x = float32(row[int(split.findtext("feature")) - 1])
            side = "left" if x <= float32(float(split.findtext("threshold"))) else "right"
            split = split.find(f"split[@pos='{side}']")
        total += float(split.findtext("output")) * float(tree.get("weight"))
    return total


def check(text: str, n: int = 300) -> None:
    model = read(text)
    rng = np.random.default_rng(3)
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            X = probing_documents(rng, model.forest, n, dtype)
        expected = np.array([walked(text, row) for row in X.tolist()])
        for engine in ("reference", "auto"):
            got = model.predict(X, engine=engine)
            assert got.dtype == np.float64
            np.testing.assert_array_equal(got.view(np.int64), expected.view(np.int64))


def test_by_hand() -> None:
    model = read(MODEL)
    assert (model.n_trees, model.n_features, model.forest.objective) == (2, 3, "LAMBDAMART")
    weight = 0.10000000149011612
    below, tenth, above = np.nextafter(np.float32(0.1), np.float32([0, 0, 1]), dtype=np.float32).tolist()
    tenth = float(np.float32(0.1))
    rows = [
        ([0, 9, 0], 1.25 * 0.5 + 7 * weight),
        ([0, 9, below], 1.25 * 0.5 + 7 * weight),
        ([0, 9, tenth], 1.25 * 0.5 + 7 * weight),
        ([0, 9, above], -2.0 * 0.5 + 7 * weight),
        ([0, 9, np.nan], -2.0 * 0.5 + 7 * weight),
        ([-1.5, 9, -np.inf], 1.25 * 0.5 + 0.5 * weight),
        ([np.nan, 9, 0], 1.25 * 0.5 + 7 * weight),
        # 16777217 is not a float32: the threshold and the document both become 16777216.
        ([-2, 9, 16777217], -2.0 * 0.5 + 0.5 * weight),
        ([-2, 9, 16777218], -2.0 * 0.5 + 3.0 * weight),
    ]
    X = np.array([row for row, _ in rows])
    np.testing.assert_array_equal(model.predict(X), [0.0 + score for _, score in rows])
    # Leaves are numbered in the order of the file.
    np.testing.assert_array_equal(model.predict(X, "leaf")[[0, 3, 5, 8]], [[0, 0], [1, 0], [0, 1], [1, 2]])


def test_against_a_walk() -> None:
    check(MODEL)


@pytest.mark.parametrize("name", ["quickrank.model.xml", "quickrank.model.v2.xml"])
def test_real_models(name: str) -> None:
    path = real_data("model_formats", name)
    model = gpuqs.load(path)
    assert (model.n_trees, model.n_leaves, model.n_features) == (2, 3, 115)
    assert sorted(set(model.forest.feature.tolist())) == [7, 105, 107, 114]
    check(path.read_text())


@st.composite
def models(draw: st.DrawFn) -> str:
    """Files with trees of every shape and numbers as C and Java write them."""
    numbers = st.one_of(
        st.floats(-(2.0**130), 2.0**130, allow_nan=False).map(repr),
        st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: f"{x:.9g}"),
        st.sampled_from(["0", "-0.0", "1e-46", "3.4028235677973366e38", "1E5", "inf"]),
    )
    outputs = st.floats(-1e6, 1e6).map(repr)

    def split(leaves: int, pos: str) -> str:
        at = f' pos="{pos}"' if pos else ""
        if leaves == 1:
            return f"<split{at}><output>{draw(outputs)}</output></split>"
        left = draw(st.integers(1, leaves - 1))
        sides = [split(left, "left"), split(leaves - left, "right")]
        test = f"<feature>{draw(st.integers(1, 5))}</feature><threshold>{draw(numbers)}</threshold>"
        return f"<split{at}>{test}{''.join(draw(st.permutations(sides)))}</split>"

    trees = [
        f'<tree weight="{draw(st.floats(-10, 10))!r}">{split(draw(st.integers(1, 8)), "")}</tree>'
        for _ in range(draw(st.integers(1, 4)))
    ]
    return f"<ranker><info><type>DART</type></info><ensemble>{''.join(trees)}</ensemble></ranker>"


@given(models())
@settings(max_examples=40, deadline=None)
def test_generated_models(text: str) -> None:
    check(text, 40)


def test_where_it_begins() -> None:
    for prefix in ("", "\n\t ", "\ufeff", "<!-- <Ensemble> -->", '<?xml version="1.0" encoding="UTF-8"?>\n'):
        text = prefix + MODEL.partition("-->")[2].lstrip()
        assert read(text).n_trees == 2
    assert gpuqs.load(memoryview(MODEL.encode())).n_trees == 2
    assert not reader.recognises(b"<Ensemble>")
    assert not reader.recognises(b"{<ranker>")
    assert not reader.recognises(b"<rankers>")


def test_no_trees() -> None:
    model = read("<ranker>\n<ensemble></ensemble></ranker>")
    assert (model.n_trees, model.n_features) == (0, 0)


# -- damage -------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, str, str, int | None, str | None]] = {
    "feature 0": ("<feature>1<", "<feature>0<", "not an integer", 1, "feature"),
    "feature of text": ("<feature>3<", "<feature>bm25<", "'bm25'", 0, "feature"),
    "feature of a fraction": ("<feature>3<", "<feature>3.0<", "not an integer", 0, "feature"),
    "huge feature": ("<feature>3<", "<feature>99999999999<", "not an integer", 0, "feature"),
    "feature of many digits": ("<feature>3<", f"<feature>{'9' * 5000}<", "not an integer", 0, "feature"),
    "empty feature": ("<feature>3<", "<feature><", "not an integer", 0, "feature"),
    "feature in full width": ("<feature>3<", "<feature>\uff13<", "not an integer", 0, "feature"),
    "no feature": ("<feature>3</feature>", "", "no feature", 0, "feature"),
    "two features": ("<feature>1<", "<feature>1</feature><feature>1<", "twice", 1, "feature"),
    "no threshold": ("<threshold>0.1</threshold>", "", "no threshold", 0, "threshold"),
    "threshold NaN": (">0.1<", ">nan<", "not a number", 0, "threshold"),
    "threshold of text": (">0.1<", ">0.1f<", "not a number", 0, "threshold"),
    "threshold in C's hexadecimal": (">0.1<", ">0x1p-3<", "not a number", 0, "threshold"),
    "threshold in Python's underscores": (">0.1<", ">1_0<", "not a number", 0, "threshold"),
    "threshold of two": (">0.1<", ">0.1 0.2<", "not a number", 0, "threshold"),
    "threshold of elements": (">0.1<", "><b>0.1</b><", "holds an element 'b'", 0, "threshold"),
    "output NaN": (">1.25<", ">NaN<", "not a number", 0, "output"),
    "output infinite": (">1.25<", ">inf<", "not finite", 0, "leaf_value"),
    "two outputs": (">1.25<", ">1.25</output><output>1.25<", "twice", 0, "output"),
    "empty split": ("<output>1.25</output>", "", "neither a test nor an output", 0, "output"),
    "no left child": ('<split pos="left"><output>1.25</output></split>', "", "no left child", 0, "left"),
    "no right child": ('<split pos="right"><output>7</output></split>', "", "no right child", 1, "right"),
    "two left children": ('pos="right"', 'pos="left"', "two left children", 0, "pos"),
    "no pos": (' pos="right"', "", "neither 'left' nor 'right'", 0, "pos"),
    "another pos": ('pos="right"', 'pos="node"', "neither 'left' nor 'right'", 0, "pos"),
    "a test and an output": ("<feature>3<", "<output>1</output><feature>3<", "a test and an output", 0, "output"),
    "no weight": (' weight="0.5"', "", "is missing", 0, "weight"),
    "weight NaN": ('weight="0.5"', 'weight="NaN"', "not a number", 0, "weight"),
    "weight infinite": ('weight="0.5"', 'weight="-inf"', "not finite", 0, "tree_weight"),
    "no root": ("<tree ", '<tree weight="1"></tree><tree ', "0 root splits", 0, "split"),
    "two roots": ("</tree>", "<split><output>1</output></split></tree>", "2 root splits", 0, "split"),
    "no ensemble": ("ensemble>", "assembly>", "0 ensembles", None, "ensemble"),
    "two ensembles": ("<ensemble>", "<ensemble/><ensemble>", "2 ensembles", None, "ensemble"),
    "another root": ("ranker>", "rankers>", "outermost element is 'rankers'", None, "ranker"),
    "an ampersand": (">0.1<", ">&amp;<", "not a number", 0, "threshold"),
    "an unknown entity": (">0.1<", ">&a;<", "well-formed", None, None),
    "a character of no meaning": (">0.1<", ">&#0;<", "well-formed", None, None),
    "cut": ("</ranker>", "", "no element found", None, None),
    "two documents": ("</ranker>", "</ranker><ranker/>", "junk", None, None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str) -> None:
    old, new, problem, tree, field = DAMAGE[name]
    assert old in MODEL
    times = 2 if name in ("no ensemble", "another root") else 1
    with pytest.raises(ModelFormatError, match=problem) as caught:
        reader.read(MODEL.replace(old, new, times).encode(), "model.xml")
    assert (caught.value.tree, caught.value.field) == (tree, field)


def test_messages_name_file_tree_field_and_line(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text(MODEL.replace(">-1.5<", ">much<"))
    with pytest.raises(ModelFormatError) as caught:
        gpuqs.load(path)
    assert str(caught.value) == f"{path}, tree 1, field 'threshold': line 22: is 'much', not a number"


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = MODEL.rstrip().encode()
    for length in range(len(data)):
        with pytest.raises(ModelFormatError) as caught:
            reader.read(data[:length], "model.xml")
        assert str(caught.value).startswith("model.xml: is not well-formed XML")


def nested(depth: int) -> str:
    """A chain of nested nodes."""
    node = '<feature>1</feature><threshold>0</threshold><split pos="right"><output>1</output></split><split pos="left">'
    leaf = "<output>0</output>"
    return (
        f'<ranker><ensemble><tree weight="1"><split>{node * depth}{leaf}{"</split>" * depth}</split></tree>'
        "</ensemble></ranker>"
    )


def test_depth() -> None:
    # The deepest node has depth MAX_DEPTH, as roots have depth 0.
    assert reader.read(nested(MAX_DEPTH + 1).encode(), "m").n_nodes == MAX_DEPTH + 1
    for depth in (MAX_DEPTH + 2, 100_000):
        with pytest.raises(ModelFormatError, match=f"deeper than {MAX_DEPTH}") as caught:
            read(nested(depth))
        assert caught.value.tree == 0


LAUGHS = '<!DOCTYPE ranker [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "prolog",
    [
        LAUGHS + "]>",
        "<!DOCTYPE ranker>",
        '<!DOCTYPE ranker SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE ranker [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE ranker [<!ENTITY % x SYSTEM "http://localhost/x.dtd"> %x;]>',
    ],
)
def test_document_types_are_refused(prolog: str) -> None:
    entity = "i" if prolog.startswith(LAUGHS) else "x"
    text = prolog + MODEL.partition("-->")[2].replace(">0.1<", f">&{entity};<")
    assert reader.recognises(text.encode())
    with pytest.raises(ModelFormatError, match="document type declaration"):
        read(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<ranker>" + "<a>" * 200_000, "nested deeper"),
        (f'<ranker a="{"x" * 3_000_000}"/>', "longer than"),
        (f"<ranker><!--{'x>' * 3_000_000}--></ranker>", "longer than"),
        (f"<ranker><ensemble>{'<x/>' * 100_000}</ensemble></ranker>", "'x' elements"),
        (MODEL.replace(">0.1<", f">{'1' * 1_000_000}<"), "not a number"),
    ],
)
def test_hostile_sizes(text: str, problem: str) -> None:
    with pytest.raises(GpuqsError, match=problem):
        read(text + "\n")


def test_other_encodings_are_refused() -> None:
    for encoding in ("utf-16", "utf-16-le"):
        with pytest.raises(ModelFormatError, match="in no format"):
            gpuqs.load(MODEL.encode(encoding))
        with pytest.raises(ModelFormatError, match="zero bytes"):
            reader.read(MODEL.encode(encoding), "m")
    with pytest.raises(ModelFormatError, match="well-formed"):
        latin = MODEL.replace('"1.0"', '"1.0" encoding="ISO-8859-1"').replace("hand", "h\u00e4nd")
        reader.read(latin.encode("latin-1"), "m")


@pytest.mark.parametrize(
    ("kind", "element"), [("RANKBOOST", "weakranker"), ("COORDASC", "couple"), ("LINESEARCH", "couple")]
)
def test_rankers_without_trees(kind: str, element: str) -> None:
    text = f"<ranker>\n<info><type>{kind}</type></info><ensemble><{element}/></ensemble></ranker>"
    with pytest.raises(UnsupportedModelError, match=f"model bytes: .*{kind} ranker .*'{element}'"):
        read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-1.", -1.0),
        (".5", 0.5),
        (" 1e-3\n", 1e-3),
        ("1E+300", 1e300),
        ("1e400", np.inf),
        ("-Infinity", -np.inf),
        ("INF", np.inf),
        ("0." + "0" * 323 + "5", 5e-324),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert number(text, "threshold") == value


@pytest.mark.parametrize(
    "text", ["", ".", "e5", "1e", "+-1", "1.2.3", "infinit", "nan", "1_0", "0x1", "\u0661", "1e5.5"]
)
def test_no_numbers(text: str) -> None:
    with pytest.raises(ModelFormatError, match="not a number"):
        number(text, "threshold")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(MODEL.encode())
    tokens = st.one_of(
        st.binary(max_size=3),
        st.sampled_from([b"<split>", b"</split>", b"<output>1</output>", b"<tree>", b"9", b"-", b"nan", b"<!--", b"&"]),
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        text[start : start + data.draw(st.integers(0, 40))] = data.draw(tokens)
    try:
        forest = reader.read(bytes(text), "m")
    except (ModelFormatError, UnsupportedModelError) as error:
        assert str(error).startswith("m")
    else:
        assert forest.n_trees <= len(text)
