"""Jforests XML: the meaning of its elements; damaged or hostile files are refused by tree and field."""

from __future__ import annotations

import re

import numpy as np
import pytest
from forests import probing_documents
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats import jforests as reader

#: Two trees on columns 0, 2 and 4, and one that is a single leaf.
MODEL = """<Ensemble>
	<Tree leaves="3" weight="0.5">
		<SplitFeatures>2 0</SplitFeatures>
		<LeftChildren>1 -1</LeftChildren>
		<RightChildren>-2 -3</RightChildren>
		<Thresholds>14884 7</Thresholds>
		<OriginalThresholds>0.1 -1.5E-5</OriginalThresholds>
		<LeafOutputs>1.25 -2.0 7</LeafOutputs>
	</Tree>
	<Tree leaves="2" weight="0.1">
		<SplitFeatures>4</SplitFeatures>
		<LeftChildren>-2</LeftChildren>
		<RightChildren>-1</RightChildren>
		<Thresholds>0</Thresholds>
		<OriginalThresholds>0.0</OriginalThresholds>
		<LeafOutputs>3.0 0.3</LeafOutputs>
	</Tree>
	<Tree leaves="1" weight="1.0">
		<SplitFeatures></SplitFeatures>
		<LeftChildren/>
		<RightChildren/>
		<OriginalThresholds/>
		<Later><SplitFeatures>9</SplitFeatures></Later>
		<LeafOutputs>0.125</LeafOutputs>
	</Tree>
</Ensemble>
"""


def walked(text: str, row: list[float]) -> float:
    """Jforests' score of a feature vector, computed directly from the file."""
    total = 0.0
    for tree in re.findall(r"<Tree.*?</Tree>", re.sub("<Later>.*</Later>", "", text), re.DOTALL):
        lists = {name: words.split() for name, words in re.findall(r"<(\w+)>([^<]*)</", tree)}
        weight = float(re.search('weight="(.*?)"', tree)[1])
        node = 0 if lists["SplitFeatures"] else -1
        while node >= 0:
            left = row[int(lists["SplitFeatures"][node])] <= float(lists["OriginalThresholds"][node])
            node = int(lists["LeftChildren" if left else "RightChildren"][node])
        total += weight * float(lists["LeafOutputs"][-node - 1])
    return total


def check(text: str, n: int = 300) -> None:
    model = gpuqs.load(text.encode())
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
    model = gpuqs.load(MODEL.encode())
    assert (model.n_trees, model.n_features, model.n_leaves) == (3, 5, 3)
    above = np.nextafter(0.1, 1)
    rows = [
        ([0, 9, 0.1, 9, 0], 0.5 * 7 + 0.1 * 0.3 + 0.125),
        ([0, 9, above, 9, 0], 0.5 * -2 + 0.1 * 0.3 + 0.125),
        ([-1.5e-5, 9, 0, 9, 1], 0.5 * 1.25 + 0.1 * 3 + 0.125),
        ([-np.inf, 9, -np.inf, 9, -0.0], 0.5 * 1.25 + 0.1 * 0.3 + 0.125),
        ([np.nan, 9, 0, 9, 5e-324], 0.5 * 7 + 0.1 * 3 + 0.125),
        ([0, 9, np.nan, 9, np.nan], 0.5 * -2 + 0.1 * 3 + 0.125),
    ]
    X = np.array([row for row, _ in rows])
    np.testing.assert_array_equal(model.predict(X), [score for _, score in rows])
    leaves = [[2, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0], [2, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(model.predict(X, "leaf"), leaves)


def test_against_a_walk() -> None:
    check(MODEL)


def test_real_model() -> None:
    path = real_data("model_formats", "Jforests.model.xml")
    model = gpuqs.load(path)
    assert (model.n_trees, model.n_leaves, model.n_features) == (2, 7, 134)
    check(path.read_text())


@st.composite
def models(draw: st.DrawFn) -> str:
    """Files with trees grown by splitting leaf after leaf, as Jforests does."""
    numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.just(5e-324)).map(repr)
    trees = []
    for _ in range(draw(st.integers(1, 4))):
        n_leaves = draw(st.integers(1, 8))
        left: list[int] = []
        right: list[int] = []
        for node in range(n_leaves - 1):
            leaf = draw(st.integers(0, node))
            for children in (left, right):
                children[:] = [node if child == ~leaf else child for child in children]
            left.append(~leaf)
            right.append(~(node + 1))
        values = {
            "SplitFeatures": [draw(st.integers(0, 5)) for _ in left],
            "LeftChildren": left,
            "RightChildren": right,
            "OriginalThresholds": [draw(numbers) for _ in left],
            "LeafOutputs": [draw(st.floats(-1e6, 1e6)) for _ in range(n_leaves)],
        }
        lists = "".join(f"<{name}>{' '.join(map(str, words))}</{name}>" for name, words in values.items())
        trees.append(f'<Tree leaves="{n_leaves}" weight="{draw(st.floats(-10, 10))!r}">{lists}</Tree>')
    return f"<Ensemble>{''.join(trees)}</Ensemble>"


@given(models())
@settings(max_examples=40, deadline=None)
def test_generated_models(text: str) -> None:
    check(text, 40)


def test_recognised() -> None:
    assert reader.recognises(b'<?xml version="1.0"?>\n<Ensemble>')
    assert not reader.recognises(b"<ranker>")
    assert not reader.recognises(b"<ensemble>")
    assert gpuqs.load(b"<Ensemble></Ensemble>").n_trees == 0


# -- damage -------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, str, str, int | None, str | None]] = {
    "no leaves": (' leaves="3"', "", "is missing", 0, "leaves"),
    "leaves 0": ('leaves="3"', 'leaves="0"', "not an integer", 0, "leaves"),
    "huge leaves": ('leaves="3"', 'leaves="2000000000"', "holds 2 values, not 1999999999", 0, "SplitFeatures"),
    "a leaf more": ('leaves="3"', 'leaves="4"', "holds 2 values, not 3", 0, "SplitFeatures"),
    "no weight": (' weight="0.1"', "", "is missing", 1, "weight"),
    "weight of text": ('weight="0.1"', 'weight="half"', "'half', not a number", 1, "weight"),
    "weight NaN": ('weight="0.1"', 'weight="NaN"', "not a number", 1, "weight"),
    "weight infinite": ('weight="0.1"', 'weight="Infinity"', "not finite", 1, "tree_weight"),
    "negative feature": (">2 0<", ">2 -1<", "not an integer", 0, "SplitFeatures"),
    "feature of text": (">2 0<", ">2 url<", "'url'", 0, "SplitFeatures"),
    "feature of a fraction": (">2 0<", ">2 0.0<", "'0.0'", 0, "SplitFeatures"),
    "huge feature": (">2 0<", ">2 2147483647<", "not an integer", 0, "SplitFeatures"),
    "no features": ("<SplitFeatures>2 0</SplitFeatures>", "", "is missing", 0, "SplitFeatures"),
    "two lists": (">4<", ">4</SplitFeatures><SplitFeatures>4<", "appears twice", 1, "SplitFeatures"),
    "missing child": (">1 -1<", ">1<", "holds 1 values, not 2", 0, "LeftChildren"),
    "child outside": (">1 -1<", ">1 -4<", "outside its tree", 0, "left"),
    "child beyond int32": (">1 -1<", ">1 -99999999999<", "not an integer", 0, "LeftChildren"),
    "child of text": (">1 -1<", ">1 a<", "'a'", 0, "LeftChildren"),
    "a leaf twice": (">1 -1<", ">1 -3<", "leaf 0 has no parent or several", 0, "left/right"),
    "a cycle": (">1 -1<", ">-1 1<", "node 1: nodes form a cycle", 0, "left/right"),
    "threshold NaN": (">0.1 ", ">NaN ", "'NaN', not a number", 0, "OriginalThresholds"),
    "threshold of text": (">0.1 ", ">0,1 ", "'0,1', not a number", 0, "OriginalThresholds"),
    "no thresholds": ("OriginalThresholds>", "Others>", "is missing", 0, "OriginalThresholds"),
    "thresholds of elements": (">0.1 ", "><b/>0.1 ", "holds an element 'b'", 0, "OriginalThresholds"),
    "an output less": (">1.25 ", "> ", "holds 2 values, not 3", 0, "LeafOutputs"),
    "an output more": (">3.0 0.3<", ">3.0 0.3 1<", "holds 3 values, not 2", 1, "LeafOutputs"),
    "output infinite": (">1.25 ", ">Infinity ", "not finite", 0, "leaf_value"),
    "output NaN": (">1.25 ", ">NaN ", "not a number", 0, "LeafOutputs"),
    "another root": ("Ensemble>", "Ensembles>", "outermost element is 'Ensembles'", None, "Ensemble"),
    "cut": ("</Ensemble>", "", "no element found", None, None),
    "an unknown entity": (">0.1 ", ">&lol; ", "well-formed", None, None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str) -> None:
    old, new, problem, tree, field = DAMAGE[name]
    assert old in MODEL
    times = 2 if old.endswith(">") else 1
    with pytest.raises(ModelFormatError, match=problem) as caught:
        reader.read(MODEL.replace(old, new, times).encode(), "model.xml")
    assert str(caught.value).startswith("model.xml")
    assert (caught.value.tree, caught.value.field) == (tree, field)


def test_every_truncation_is_refused() -> None:
    data = MODEL.rstrip().encode()
    for length in range(len(data)):
        with pytest.raises(ModelFormatError, match="is not well-formed XML"):
            reader.read(data[:length], "model.xml")


@pytest.mark.parametrize("inside", ["", ' [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]', ' SYSTEM "file:///etc/passwd"'])
def test_document_types_are_refused(inside: str) -> None:
    with pytest.raises(ModelFormatError, match="document type declaration"):
        gpuqs.load(f"<!DOCTYPE Ensemble{inside}>{MODEL}".encode())


def test_classification_trees_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="model bytes: tree 1 is a classification tree"):
        gpuqs.load(MODEL.replace("<LeafOutputs>3", "<LeafTargetDistributions/><LeafOutputs>3").encode())


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(MODEL.encode())
    tokens = st.one_of(
        st.binary(max_size=3), st.sampled_from([b"<Tree>", b"</Tree>", b" 9", b"-", b"NaN", b"<!--", b"&", b" 0 "])
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
