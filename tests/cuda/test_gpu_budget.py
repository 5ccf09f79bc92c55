"""What `bench/gpu_budget.py` counts of models and devices."""

from __future__ import annotations

import gpu_budget
import numpy as np
import pytest
import unit_counts
from forests import forest_of_stumps
from made_up import lambdamart_like

from gpuqs.layout.bitslice_gpu import build_rows
from gpuqs.layout.ranks import build_ranks


def test_conflicts_are_those_of_a_plain_count() -> None:
    words = np.random.default_rng(0).integers(0, 100, (50, 32))
    want = [max(len({w for w in access if w % 32 == bank}) for bank in range(32)) for access in words]
    assert gpu_budget.conflicts(words) == np.mean(want)
    assert gpu_budget.conflicts(np.zeros((3, 32), int)) == 1.0  # one word for all lanes


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(1024, 9)).astype(np.float32)


def test_a_model_is_counted_as_its_layout_has_it(documents: np.ndarray) -> None:
    forest = lambdamart_like(40, 20, documents)
    seen, ranks = gpu_budget.count_model(forest, documents), build_ranks(forest)
    layout = build_rows(forest, ranks)
    assert (seen["trees"], seen["nodes a tree"], seen["nodes of a program"], seen["planes a tree"]) == (40, 19, 24, 5)
    distinct = len(np.unique(np.stack([forest.feature, forest.threshold]), axis=1).T)
    assert seen["rows"] == seen["thresholds"] == distinct == layout.n_rows - 1
    assert seen["rows a segment"] * seen["segments"] == pytest.approx(distinct, rel=1e-3)
    assert seen["rank planes a column"] == seen["rank bits a column"] >= 4
    assert seen["wavefronts a look-up"] == 1  # 32 entries, each in its own bank
    slots = build_rows(forest, ranks, evaluation="slots").programs.n_slots
    shared = gpu_budget.shared_memory(forest, documents)
    assert shared["slots<2>"] == 4 * (slots + layout.n_planes) * 256
    assert shared["steps<2>"] == 4 * ((layout.programs.depth + 3) * 256 + 1024)


def test_steps_are_counted_one_by_one(documents: np.ndarray) -> None:
    """Trees of 19 and of 69 nodes: three and nine groups, and pages in which trees end."""
    for n_leaves in (20, 70):
        forest = lambdamart_like(40, n_leaves, documents)
        programs = build_rows(forest, build_ranks(forest)).programs
        groups, pushes, flagged = 0, 0, 0
        for tree in range(40):
            left = -(-(n_leaves - 1) // 8)
            for page in programs.pages[slice(*programs.tree_pages[tree : tree + 2])]:
                here = min(left, programs.n_groups)
                for word in page[8 * programs.n_groups :][: 2 * here].tolist():
                    of_steps = [word >> shift & 0xBF for shift in (0, 8, 16, 24)]
                    pushes += sum(flags & 0x3F for flags in of_steps)
                    flagged += sum(flags > 0 for flags in of_steps)
                left, groups = left - here, groups + here
            assert left == 0
        seen = gpu_budget.count_model(forest, documents)
        assert (seen["groups a tree"], seen["pages a tree"]) == (groups / 40, len(programs.pages) / 40)
        assert seen["pushes a step"] == pytest.approx(pushes / groups / 8, abs=1e-4)
        assert seen["steps with flags"] == pytest.approx(flagged / groups / 8, abs=1e-4)


def test_equal_documents_meet_no_conflicts(documents: np.ndarray) -> None:
    equal = np.repeat(documents[:1], 1024, axis=0)
    seen = gpu_budget.count_model(lambdamart_like(10, 20, documents), equal)
    wavefronts = [seen[name] for name in seen if name.startswith("wavefronts")]
    assert wavefronts == [1, 1]


def test_steps_of_a_search_ask_what_the_kernel_asks() -> None:
    """Entries of a level lie 32 apart, in one bank, if the answers differ only in bit 5, which is level 5's."""
    forest = forest_of_stumps(np.arange(127.0), np.random.default_rng(2))
    ranks = build_ranks(forest)
    for values, wavefronts in (((-1.0, 1.5), 6 + 2), ((-1.0, 0.5), 7), ((-1.0, 200.0), 7)):  # ranks 0 and 2, 1, 127
        two = np.tile(np.array(values, np.float32)[:, None], (512, 1))
        assert gpu_budget.search_wavefronts(ranks, two) == pytest.approx(wavefronts / 7)


def test_a_stage_takes_what_its_scarcest_resource_takes() -> None:
    device = gpu_budget.Device(multiprocessors=10, gigahertz=2.0, issues=4, l2_bytes=100.0, dram_bytes=50.0)
    stage = gpu_budget.Stage("", instructions=81920, wavefronts=20480, l2_bytes=400, dram_bytes=100)
    assert stage.nanoseconds(device) == {"issue": 1.0, "wavefronts": 1.0, "L2": 2.0, "DRAM": 1.0}


def test_totals_have_one_kind_of_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    count = unit_counts.UnitCount(10.0, {"LDS": 1.0}, 1.0, 32, 0)
    monkeypatch.setattr(unit_counts, "counted", lambda kernel, architecture: count)
    model, device = unit_counts.kept()["models"][unit_counts.SIZE], gpu_budget.Device()
    every = {name: max(stage.nanoseconds(device).values()) for name, stage in gpu_budget.stages(model).items()}
    fast = gpu_budget.total(model, device, "sum_fast")[0]
    assert fast == pytest.approx(sum(every.values()) - every["sum_exact"])
    assert every["steps<2>"] > 0 and "slots<2>" not in every
    table = gpu_budget.table({"one": model}, device)
    assert f"**{fast:.1f}**" in table and "`sum_exact`" in table
