"""The bit-sliced kernels' machine code is within the budget of instructions per unit of work, and counted correctly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gpu_budget
import nvrtc_build
import pytest
import unit_counts
from machine_code import Code, Skip, read_listings
from pages.markers import blocks_in

from gpuqs.devices import nvrtc, sources
from gpuqs.engines.gpu.bitslice_placed import WAVEFRONTS
from gpuqs.engines.gpu.kernels import every_kernel

needs_nvrtc = pytest.mark.skipif(nvrtc_build.why_not() is not None, reason=str(nvrtc_build.why_not()))
#: Files of `qs_gpu` and `walk_gpu`, and of kernels that are no stage of scoring.
NOT_COUNTED = ("transpose.cu", "find_false_nodes.cu", "update_scores.cu", "update_outputs.cu", "exit_leaves.cu",
               "finish_scores.cu", "look_up_leaves.cu", "apply_link.cu", "walk_scores.cu",
               "walk_leaves.cu")  # fmt: skip
KERNELS = list(unit_counts.kept()["budget"])

LISTING = """
.text._Z4work:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E R1, [R2] ;
        /*0020*/               @P1 BRA `(.L_x_4) ;
        /*0030*/                   FADD R1, R1, R1 ;
        /*0040*/                   FADD R1, R1, R1 ;
.L_x_4:
        /*0050*/                   IMAD R3, R1, R1, R1 ;
.L_x_2:
        /*0060*/                   LDS R4, [R3] ;
        /*0070*/              @!P0 BRA `(.L_x_2) ;
        /*0080*/                   VOTE.ANY R3, PT, P0 ;
        /*0090*/              @!P0 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_1) ;
"""


def test_runs_are_those_of_loops_and_branches() -> None:
    code = Code(read_listings(LISTING)["_Z4work"])
    assert code.loops == [(1, 10), (6, 8)]  # what follows the last EXIT is not one
    main = code.outermost("VOTE")
    runs = code.runs(main, {"LDS": 5.0}, (Skip("FADD", "LDS", 0.25),))
    assert [n for _, n in runs] == [1, 1, 0.25, 0.25, 1, 5, 5, 1, 1]
    assert [opcode for opcode, _ in runs][1:3] == ["BRA", "FADD"]
    work = unit_counts.Work("row", ("VOTE",), 2, {"LDS": 5.0}, mark=("LDS", 2.5))
    assert unit_counts.count(code, work) == (17 / 2, {"LDS": 2.5}, 1.0)


def test_branches_on_uniform_predicates_are_conditional() -> None:
    listing = LISTING.replace("@P1 BRA `", "   BRA.U !UP1, `")
    assert "@P BRA.U .L_x_4" in read_listings(listing)["_Z4work"]
    code = Code(read_listings(listing)["_Z4work"])
    runs = code.runs(code.outermost("VOTE"), {"LDS": 5.0}, (Skip("FADD", "LDS", 0.25),))
    assert [n for _, n in runs] == [1, 1, 0.25, 0.25, 1, 5, 5, 1, 1]


def test_regions_with_loops_are_others() -> None:
    """A tree ends inside the loop of its nodes; a conditional EXIT ends no code, and endless waiting is no loop."""
    code = Code(
        [".a:", "VOTE", "@P BRA .c", ".b:", "STG", "@P BRA .b", "@P EXIT", ".c:", "BRA .a", "RET", ".d:", "BRA .d"]
    )
    assert code.loops == [(0, 6), (2, 4)]
    for loops, share in ((True, 0.5), (False, 1.0)):
        runs = code.runs((0, 6), {"STG": 3.0}, (Skip("STG", "VOTE", 0.5, loops),))
        assert [n for _, n in runs] == [1, 1, 3 * share, 3 * share, share, 1]


def test_loops_that_overlap_are_one() -> None:
    """As for sm_75, where some lanes may have gone on before a vote."""
    code = Code([".a:", "VOTE", ".b:", "YIELD", "@P BRA .a", "BRA .b", "EXIT"])
    assert code.loops == [(0, 4)]


def test_a_loop_that_nobody_knows_is_refused() -> None:
    code = Code(read_listings(LISTING)["_Z4work"])
    with pytest.raises(ValueError, match="a loop is not known: LDS BRA"):
        code.runs(code.outermost("VOTE"), {"STG": 1.0})
    with pytest.raises(ValueError, match="0 loops have ATOMS, not one"):
        code.outermost("ATOMS")


def test_every_kernel_of_the_engine_has_a_budget() -> None:
    names = {name for file, names in every_kernel().items() if file not in NOT_COUNTED for name in names}
    others = {name for name in names if name.startswith(("rank_documents", "sum_exact", "sum_few"))}  # other types
    assert set(KERNELS) == set(unit_counts.works(unit_counts.kept()["models"][unit_counts.SIZE]))
    assert names - others <= set(KERNELS) <= names


@needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc_build.ARCHITECTURES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_within_the_budget(kernel: str, architecture: int) -> None:
    assert unit_counts.over_budget(kernel, architecture) is None
    assert 0.99 < unit_counts.counted(kernel, architecture).mark < 1.1, "loops are weighted wrongly"


@needs_nvrtc
@pytest.mark.parametrize(("each", "wavefronts"), WAVEFRONTS.items())
def test_the_engine_chooses_sums_by_what_is_counted(each: int, wavefronts: int) -> None:
    """A read of numbers or a store takes one wavefront of shared memory, a look-up as many as in the model."""
    shared, numbers = unit_counts.counted(f"sum_exact<double, double, true, 2, {each}>", 90).shared, 32 / each
    look_up = unit_counts.kept()["models"][unit_counts.SIZE]["wavefronts a look-up"]
    assert wavefronts == round(numbers + (shared["LDS"] - numbers) * look_up + shared["STS"])


#: Kernel, a string of its file, and a replacement with an instruction or two more per node, push, row, tree, or step.
REGRESSIONS = [
    ("steps<1>", "end.of[w] | (first.of[w] & row.of[w])", "__brev(end.of[w] | (first.of[w] & row.of[w]))"),
    ("steps<2>", "end.of[w] | (first.of[w] & row.of[w])", "__brev(end.of[w] | (first.of[w] & row.of[w]))"),
    ("steps<2>", "pushing = row(next_pushing)", "pushing = row(__popc(__brev(next_pushing)))"),
    ("slots<1>", "(s_first.of[w] & word[i].of[w])", "__brev(s_first.of[w] & word[i].of[w])"),
    ("slots<2>", "(s_first.of[w] & word[i].of[w])", "__brev(s_first.of[w] & word[i].of[w])"),
    ("decode_predicates<2>", "is_above(x, b))) ^ flip", "is_above(x, b))) * 3 ^ flip"),
    ("rank_documents<float, float, true>", "threshold[i] >= x.of[i]", "threshold[i] * 3 >= x.of[i]"),
    ("sum_exact<double, double, true, 2, 1>", "to_bytes(low);\n#pragma", "to_bytes(low);\n to_bytes(low);\n#pragma"),
    ("sum_exact<double, double, true, 2, 4>", "sum[d] += found.whole", "sum[d] += found.whole + found.whole"),
    ("sum_few<double, double, 2>", "to_bytes(loaded_planes);", "to_bytes(loaded_planes);\n to_bytes(loaded_planes);"),
    ("sum_fast<2>", "to_bytes(x);\n        to_bytes(y)", "to_bytes(x);\n        to_bytes(x);\n        to_bytes(y)"),
]  # fmt: skip


@pytest.fixture
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    forget = unit_counts.counted.cache_clear
    forget()
    yield monkeypatch
    forget()


@needs_nvrtc
@pytest.mark.parametrize("architecture", [75, 90])
@pytest.mark.parametrize(("kernel", "old", "new"), REGRESSIONS, ids=lambda text: text[:20])
def test_a_planted_regression_fails(
    kernel: str, old: str, new: str, architecture: int, counted_anew: pytest.MonkeyPatch
) -> None:
    """What the added instructions do to the planes does not matter: nothing runs here."""
    text = sources.source(unit_counts.works(unit_counts.kept()["models"][unit_counts.SIZE])[kernel][0])
    assert old in text
    counted_anew.setattr(sources, "source", lambda file: text.replace(old, new, 1))
    assert "are in the budget" in str(unit_counts.over_budget(kernel, architecture))


def test_spills_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = unit_counts.UnitCount(0.0, {}, 1.0, 64, spills=1)
    monkeypatch.setattr(unit_counts, "counted", lambda kernel, architecture: seen)
    assert "1 spills" in str(unit_counts.over_budget("sum_fast<2>", 90))


@needs_nvrtc
def test_the_page_has_what_is_counted() -> None:
    """`python bench/gpu_budget.py` rewrites it."""
    kept = unit_counts.kept()["nvrtc"]
    if list(nvrtc.version()) != kept:
        pytest.skip(f"the page is of NVRTC {kept}")
    page = blocks_in(Path(gpu_budget.PAGE).read_text(encoding="utf-8"))
    for name, block in gpu_budget.blocks().items():
        assert page[name] == "".join(f"{line}\n" for line in block(None)), name
