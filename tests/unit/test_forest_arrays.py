"""The table of a Forest's arrays agrees with its fields, their types and its page."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields, replace
from typing import get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from forests import random_forest

from gpuqs.errors import ModelFormatError
from gpuqs.forest import Forest
from gpuqs.forest_arrays import ARRAYS, lengths, select_trees

HINTS = get_type_hints(Forest)
FIELDS = {field.name: field for field in fields(Forest)}
#: The letters of a Forest's docstring.
LETTERS = {"tree": "T", "node": "N", "leaf": "L", "output": "K", "iteration": "I"}
LETTERS |= dict.fromkeys(("category word", "linear term"), "...")


def test_fields_of_arrays_are_those_of_the_table() -> None:
    arrays = {name for name, hint in HINTS.items() if "array" in str(hint).lower()}
    assert arrays == ARRAYS.keys()


@pytest.mark.parametrize("name", ARRAYS)
def test_fields_have_the_tables_types(name: str) -> None:
    assert HINTS[name] == npt.NDArray[np.dtype(ARRAYS[name].dtype).type]


@pytest.mark.parametrize("name", ARRAYS)
def test_fields_may_be_left_out_where_the_table_has_a_default(name: str) -> None:
    assert (ARRAYS[name].default is not None) == (FIELDS[name].default_factory is not MISSING)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_docstring_says_the_same(name: str) -> None:
    line = re.search(rf"^(?:.*, )?{name}(?:, .*)? : (.*)$", inspect.getdoc(Forest) or "", re.M)
    assert line is not None, "it lacks the array"
    of = ARRAYS[name]
    item = LETTERS[of.axis] + (" + 1" if of.offsets_into and of.axis != "category word" else "")
    expected = f"{of.dtype} [{item}]" if of.n_dimensions == 1 else f"{of.dtype} [{item}, 1] or [{item}, K]"
    optional = ", optional" if of.default is not None else ""
    assert line[1] == expected + optional


def test_an_array_stands_below_those_that_it_needs() -> None:
    """Offsets come before the arrays that they divide, since ranges of trees are cut in the table's order."""
    seen = {"tree", "output", "iteration"}
    for name, of in ARRAYS.items():
        if of.offsets_into is not None:
            seen.add(of.offsets_into)
        assert of.axis in seen, name


@pytest.mark.parametrize("name", [name for name, of in ARRAYS.items() if of.axis != "iteration"])
def test_an_item_more_is_refused(name: str) -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=4, n_outputs=2, categorical=0.5, linear=0.5)
    arrays = {field: getattr(forest, field) for field in FIELDS}
    assert lengths(arrays, forest.n_outputs)[name] == len(arrays[name])
    arrays[name] = np.concatenate([arrays[name], arrays[name][-1:]])
    with pytest.raises(ValueError, match=r"Forest\.\w+ (has length|must rise)"):
        Forest(**arrays)


@pytest.mark.parametrize("name", ARRAYS)
def test_another_type_is_refused(name: str) -> None:
    forest = random_forest(np.random.default_rng(0), categorical=0.5, linear=0.5)
    arrays = {field: getattr(forest, field) for field in FIELDS}
    arrays[name] = arrays[name].astype(np.complex128)
    with pytest.raises(TypeError, match=rf"Forest\.{name} must be {ARRAYS[name].dtype}, not complex128"):
        Forest(**arrays)


def test_another_number_of_dimensions_is_refused() -> None:
    forest = random_forest(np.random.default_rng(0))
    arrays = {field: getattr(forest, field) for field in FIELDS}
    with pytest.raises(ValueError, match=r"Forest\.threshold has shape \(\d+, 1\), but must be 1-dimensional"):
        Forest(**{**arrays, "threshold": arrays["threshold"][:, None]})


def test_all_trees_selected_are_the_forest() -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=5, n_outputs=2, categorical=0.5, linear=0.5)
    part = select_trees(vars(forest), 0, forest.n_trees)
    assert part.keys() == ARRAYS.keys() - {"base_score"}
    for name, array in part.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, getattr(forest, name))


def test_a_forest_shares_no_memory_that_may_be_written() -> None:
    forest = random_forest(np.random.default_rng(3))
    room = np.concatenate([forest.leaf_value, forest.leaf_value])
    made = replace(forest, leaf_value=room[: len(forest.leaf_value)])
    room[:] = 9
    assert np.array_equal(made.leaf_value, forest.leaf_value)
    given = forest.leaf_value.copy()
    assert replace(forest, leaf_value=given).leaf_value is given and not given.flags.writeable
    assert np.shares_memory(forest.select(slice(0, 5)).threshold, forest.threshold)


@pytest.mark.parametrize("numbers", [[0, 0], [1, -1]])
def test_leaves_of_a_tree_are_told_apart(numbers: list[int]) -> None:
    forest = random_forest(np.random.default_rng(3), n_trees=3, max_leaves=2, shape="complete")
    leaf_id = np.array([0, 1, *numbers, 1, 0], np.int32)
    with pytest.raises(ModelFormatError, match=r"tree 1.*leaf_id.*negative or appears twice"):
        replace(forest, leaf_id=leaf_id)
