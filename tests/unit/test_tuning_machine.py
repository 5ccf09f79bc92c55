"""Facts about a machine: cache sizes from the system and latency ratios from a pointer chase, whatever their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuqs.cpu_fallback import latency
from gpuqs.tuning.machine import COMMON, Hierarchy, hierarchy, measured_ratios, processor, read_sizes


def told(folder: Path, *caches: tuple[str, str, str]) -> Path:
    for number, cache in enumerate(caches):
        index = folder / f"index{number}"
        index.mkdir(parents=True)
        for name, text in zip(("level", "type", "size"), cache, strict=True):
            (index / name).write_text(text + "\n")
    return folder


def test_sizes_are_those_that_the_system_tells(tmp_path: Path) -> None:
    caches = [("1", "Instruction", "64K"), ("1", "Data", "48K"), ("2", "Unified", "2048K"), ("3", "Unified", "36M")]
    assert read_sizes(told(tmp_path, *caches)) == (48 << 10, 2 << 20, 36 << 20)


@pytest.mark.parametrize(
    "caches",
    [(), (("1", "Data", "?"),), (("9", "Data", "64K"),), (("2", "Unified", "0K"),), (("", "Data", "9" * 30 + "K"),)],
    ids=str,
)
def test_what_the_system_does_not_tell_is_common(tmp_path: Path, caches: tuple[tuple[str, str, str], ...]) -> None:
    assert read_sizes(told(tmp_path, *caches)) == COMMON
    assert read_sizes(tmp_path / "nowhere") == COMMON


def test_no_cache_is_smaller_than_the_one_before_it(tmp_path: Path) -> None:
    assert read_sizes(told(tmp_path, ("1", "Data", "1M"), ("3", "Unified", "64K"))) == (1 << 20, 1 << 20, 1 << 20)


def test_ratios_ascend() -> None:
    readings = iter([2.0, 8.0, 6.0, 160.0])
    assert measured_ratios((1 << 15, 1 << 20, 1 << 23), lambda size, steps: next(readings)) == (4.0, 4.0, 80.0)
    assert max(measured_ratios((1, 2, 3), lambda size, steps: 0.0 if size == 0 else 1e9)) == 1000.0


def test_levels() -> None:
    memory = Hierarchy((100, 1000, 10_000), (3.0, 9.0, 81.0))
    assert [memory.level(size) for size in (1, 100, 101, 1000, 10_000, 10_001)] == [1, 1, 2, 2, 3, 4]
    assert memory.level(60, 0.5) == 2
    assert [memory[level] for level in (1, 2, 3, 4)] == [1.0, 3.0, 9.0, 81.0]


def test_this_machine_has_a_name_and_a_hierarchy() -> None:
    assert processor() and processor().isprintable()
    memory = hierarchy()
    assert 1.0 <= memory.ratios[0] <= memory.ratios[1] <= memory.ratios[2] <= 1000.0
    assert list(memory.sizes) == sorted(memory.sizes)


@pytest.mark.parametrize(("n_bytes", "steps"), [(0, 0), (-5, 1), (64, 1000), (1 << 16, 10)])
def test_a_chase_goes_through_any_memory(n_bytes: int, steps: int) -> None:
    assert latency(n_bytes, steps) >= 0.0
