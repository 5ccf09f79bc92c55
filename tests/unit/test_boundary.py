"""Definitions that exist in both Python and C++ agree: structs of layouts, constants, instruction sets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from forests import random_forest

from gpuqs import cpu_fallback, forest
from gpuqs.cpu_fallback import scorer
from gpuqs.engines import ENGINES
from gpuqs.layout import bitslice, category_tables, programs, rankwalk, walk

SOURCES = Path(__file__).parents[2] / "cpu_fallback"
#: The C++ struct of each structured dtype, by where Python defines it.
STATED = {
    "Item<float>": (walk, "ITEM32"),
    "Item<double>": (walk, "ITEM64"),
    "RankEntry": (rankwalk, "RANK_ENTRY"),
    "RankTest": (rankwalk, "RANK_TEST"),
    "JumpWord": (rankwalk, "JUMP_WORD"),
    "CategoryTable": (category_tables, "CATEGORY_TABLE"),
    "Segment": (bitslice, "SEGMENT"),
    "Treelet": (programs, "TREELET"),
    "Run": (programs, "RUN"),
    "TreeNode": (programs, "TREE_NODE"),
}
FOREST = random_forest(np.random.default_rng(3), n_trees=5, max_leaves=9, categorical=0.3)


def changed(dtype: np.dtype) -> dict[str, np.dtype]:
    """Dtypes that differ from another in one respect: a name, a kind, the order, the size."""
    assert dtype.names is not None and dtype.fields is not None
    *names, last = dtype.names
    formats = [dtype.fields[name][0] for name in dtype.names]
    other = {"f": "u", "u": "i", "i": "u"}[formats[0].base.kind]
    first = np.dtype((f"{other}{formats[0].base.itemsize}", formats[0].shape))
    return {
        "a name": np.dtype([*((n, f) for n, f in zip(names, formats, strict=False)), (last + "_", formats[-1])]),
        "a kind": np.dtype(list(zip(dtype.names, [first, *formats[1:]], strict=True))),
        "the order": np.dtype(list(zip(dtype.names, formats, strict=True))[::-1]),
        "the size": np.dtype([*zip(dtype.names, formats, strict=True), ("more", "u8")]),
    }


def test_every_struct_is_as_the_compiler_has_it() -> None:
    assert {name: getattr(*where) for name, where in STATED.items()} == scorer.STRUCTS


def test_numbers_are_the_same_in_both_languages() -> None:
    assert {
        "kZeroMissing": forest.ZERO_MISSING,
        "kCategorical": forest.CATEGORICAL,
        "kSetRight": forest.SET_RIGHT,
        "kNegativeFractionIsZero": forest.NEGATIVE_FRACTION_IS_ZERO,
        "kWholeCodes": forest.WHOLE_CODES,
        "kZeroThreshold": forest.ZERO_THRESHOLD,
        "kWalkLeaves": walk.MAX_SHORT_LEAVES,
        "kWideLeaves": walk.MAX_LEAVES,
        "kRankWalks": rankwalk.WALKS,
        "kRankLeaves": rankwalk.MAX_LEAVES,
        "kEntryMask": rankwalk.MAX_ENTRIES - 1,
        "kEntryThresholds": rankwalk.ENTRY_THRESHOLDS,
        "kPositionShift": rankwalk.POSITION_SHIFT,
        "kDistanceShift": rankwalk.DISTANCE_SHIFT,
        "kSigned": rankwalk.SIGNED,
        "kWalking": rankwalk.WALKING,
        "kWalkingNarrow": rankwalk.WALKING_NARROW,
        "kJumping": rankwalk.JUMPING,
        "kMaxRankLanes": rankwalk.MAX_LANES,
        "kRegistersTogether": rankwalk.REGISTERS_TOGETHER,
        "kJumpPlaces": rankwalk.JUMP_PLACES,
        "kJumpEntries": rankwalk.JUMP_ENTRIES,
        "kBlockThresholds": rankwalk.BLOCK_THRESHOLDS,
        "kLeafOnRight": rankwalk.LEAF_ON_RIGHT,
        "kNarrowestWord": programs.NARROWEST_WORD,
        "kPlanes": (programs.MAX_LEAVES - 1).bit_length(),
    } == scorer.CONSTANTS


@pytest.mark.parametrize("change", ["a name", "a kind", "the order", "the size"])
@pytest.mark.parametrize("struct", STATED)
def test_a_changed_struct_is_refused(struct: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = {"Item": "walk", "Rank": "rankwalk", "Jump": "rankwalk"}.get(struct[:4], "bitslice")
    if struct == "JumpWord" and not cpu_fallback.instruction_set().has_jumps:
        pytest.skip("no document jumps here")
    monkeypatch.setenv("GPUQS_MACHINE_CODE", "0" if struct in ("Treelet", "Run") else "1")
    if struct == "TreeNode" and not cpu_fallback.compiles_programs():
        pytest.skip("no tree program becomes machine code here")
    module, name = STATED[struct]
    ENGINES[engine].prepare(FOREST, "exact")
    monkeypatch.setitem(scorer.STRUCTS, struct, changed(getattr(module, name))[change])
    with pytest.raises(TypeError, match=f"the layout has {re.escape(struct)} as .* kernels read"):
        ENGINES[engine].prepare(FOREST, "exact")


def test_the_instruction_set_in_use_is_one_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for isa in cpu_fallback.available_isas():
        monkeypatch.setenv("GPUQS_ISA", isa)
        used = cpu_fallback.instruction_set()
        assert (used.name, used.is_here) == (isa, True)
        assert cpu_fallback.compiles_programs() <= used.has_encoder


def test_an_instruction_set_named_in_bytes_that_are_no_text() -> None:
    code = "from gpuqs import cpu_fallback\ncpu_fallback.isa()"
    environment = {**os.environb, b"GPUQS_ISA": b"avx\xff"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "DeviceError: GPUQS_ISA=avx\\xff is not one that this processor has: " in run.stderr
    assert cpu_fallback.available_isas()[0] in run.stderr


def test_instruction_sets_are_listed_best_first() -> None:
    known = cpu_fallback.INSTRUCTION_SETS
    assert [isa.name for isa in known if isa.is_here] == cpu_fallback.available_isas()
    assert (known[-1].name, known[-1].is_here, known[-1].has_encoder) == ("portable", True, False)
    assert all(a.widest_word >= b.widest_word and a.lanes >= b.lanes for a, b in pairwise(known))


def test_every_instruction_set_has_a_folder_with_the_same_files() -> None:
    folders = {folder.name: {file.name for file in folder.iterdir()} for folder in (SOURCES / "isa").iterdir()}
    assert {isa.name.replace(".", "") for isa in cpu_fallback.INSTRUCTION_SETS} <= folders.keys()
    own = {"avx2": {"transposed_tiles.inl"}, "avx512": {"paired_tables.inl"}}  # what wider sets include from these
    for name, files in folders.items():
        assert files - own.get(name, set()) == folders["portable"], name
