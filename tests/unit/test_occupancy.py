"""The tuning policy of paper 000, section 7.4, and NVIDIA's occupancy arithmetic."""

from __future__ import annotations

import pytest

from gpuqs.devices.base import DeviceAttributes
from gpuqs.engines.gpu.occupancy import (
    blocks_by_shared,
    choose_block_size,
    choose_plan,
    largest_shared,
    resident_blocks,
    shared_bytes,
    threads_per_block,
    together_for,
)

KIB, MIB = 1 << 10, 1 << 20


def device(name, capability, sms, threads, blocks, shared, shared_block, reserved, l2) -> DeviceAttributes:
    return DeviceAttributes(
        name, capability, sms, threads, blocks, shared * KIB, shared_block * KIB, reserved, l2 * MIB
    )


T4 = device("T4", (7, 5), 40, 1024, 16, 64, 64, 0, 4)
A100 = device("A100", (8, 0), 108, 2048, 32, 164, 163, 1024, 40)
RTX3090 = device("RTX 3090", (8, 6), 82, 1536, 16, 100, 99, 1024, 6)
L4 = device("L4", (8, 9), 58, 1536, 24, 100, 99, 1024, 48)
H100 = device("H100", (9, 0), 132, 2048, 32, 228, 227, 1024, 50)
B200 = device("B200", (10, 0), 148, 2048, 32, 228, 227, 1024, 126)
GTX1080 = device("GTX 1080", (6, 1), 20, 2048, 32, 96, 48, 0, 2)
DEVICES = [T4, A100, RTX3090, L4, H100, B200, GTX1080]


@pytest.mark.parametrize(
    ("gpu", "trees32"), [(T4, 2044), (A100, 2364), (L4, 1852), (RTX3090, 1852), (H100, 3388), (B200, 3388)]
)
def test_tree_blocks_at_full_occupancy(gpu: DeviceAttributes, trees32: int) -> None:
    static = 16  # of the kernel that these figures were found with
    shared = largest_shared(gpu, gpu.threads_per_multiprocessor // 128) - static
    assert (shared // 4, shared // 8) == (trees32, trees32 // 2)
    full = gpu.threads_per_multiprocessor // 128
    assert resident_blocks(gpu, 128, 32, shared + static) == full
    assert resident_blocks(gpu, 128, 32, shared + static + gpu.shared_granularity) < full


# Table 7 of the paper: τ, Λ and the threads that its policy chose on a GTX 1080.
@pytest.mark.parametrize(
    ("trees", "leaves", "threads"),
    [(1000, 32, 128), (1000, 64, 256), (5000, 32, 512), (4000, 32, 512), (1500, 64, 256), (3000, 64, 512),
     (2000, 64, 512)],
)  # fmt: skip
def test_threads_as_in_the_paper(trees: int, leaves: int, threads: int) -> None:
    assert threads_per_block(GTX1080, trees * leaves // 8, 32) == threads


def test_threads_of_a_multiprocessor_that_holds_1536() -> None:
    # Shared memory lets two, three, ... blocks fit; with two, no power of two fills the multiprocessor.
    assert threads_per_block(RTX3090, largest_shared(RTX3090, 2), 40) == 768
    assert threads_per_block(RTX3090, largest_shared(RTX3090, 3), 40) == 512
    assert threads_per_block(RTX3090, largest_shared(RTX3090, 16), 40) == 96
    assert threads_per_block(RTX3090, 99 * KIB, 40) == 1024


@pytest.mark.parametrize(("registers", "resident"), [(32, 2048), (40, 1536), (48, 1280), (64, 1024)])
@pytest.mark.parametrize("blocks", [2, 3, 7, 16])
def test_threads_by_registers(registers: int, resident: int, blocks: int) -> None:
    """Registers limit the resident threads, whatever shared memory allows; the smallest such block is used."""
    shared = largest_shared(H100, blocks)
    threads = threads_per_block(H100, shared, registers)
    assert threads * resident_blocks(H100, threads, registers, shared) == resident
    fewer = range(32, threads, 32)
    assert all(n * resident_blocks(H100, n, registers, shared) < resident for n in fewer)


@pytest.mark.parametrize(("largest_tree", "together"), [(1, 4), (7136, 4), (7137, 1), (20_000, 1), (50_000, 1)])
def test_four_documents_where_two_thread_blocks_fit(largest_tree: int, together: int) -> None:
    assert together_for(H100, largest_tree, 4, (1, 4)) == together
    assert together_for(H100, largest_tree, 4, (1,)) == 1


def test_a_block_size_holds_what_its_kernels_write() -> None:
    size = choose_block_size(RTX3090, slots=33, word_bytes=4, documents=4, registers=40, threads=64)
    # 33 words need two rows of 32, for four documents; then sums for two warps and four documents, and one more.
    assert (size.threads, size.shared) == (64, 2 * 32 * 4 * 4 + 2 * 4 * 8 + 8)
    assert size.resident == resident_blocks(RTX3090, 64, 40, size.shared)


def test_the_papers_example() -> None:
    assert blocks_by_shared(GTX1080, 4000 * 32 // 8) == 6
    assert blocks_by_shared(GTX1080, 48 * KIB + 1) == 0


@pytest.mark.parametrize("gpu", DEVICES, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize(("trees", "leaves"), [(1, 2), (100, 31), (1000, 64), (20000, 64), (20000, 300)])
def test_plans_fit_their_device(gpu: DeviceAttributes, trees: int, leaves: int) -> None:
    words = -(-leaves // 32)
    bytes_per_tree = 6 * leaves + 8 * leaves
    plan = choose_plan(
        gpu,
        n_trees=trees,
        n_slots=trees * words,
        largest_tree=words,
        word_bytes=4,
        model_bytes=trees * bytes_per_tree,
    )
    assert plan is not None
    slots = min(plan.max_trees * words, plan.max_slots)
    threads = threads_per_block(gpu, shared_bytes(slots, 4, 1, 1024), 32)
    assert blocks_by_shared(gpu, shared_bytes(slots, 4, 1, 1024)) >= 2
    blocks = gpu.threads_per_multiprocessor // threads
    assert gpu.threads_per_multiprocessor % threads == 0
    assert 2 <= blocks <= blocks_by_shared(gpu, shared_bytes(slots, 4, 1, threads))
    assert plan.max_trees * bytes_per_tree <= gpu.l2_bytes
    n_blocks = -(-trees // plan.max_trees)
    assert n_blocks == 1 or (n_blocks - 1) * plan.max_trees < trees


def test_l2_bounds_tree_blocks_as_in_the_paper() -> None:
    # (Λ/8 + 2)(Λ - 1) + 8Λ bytes per tree: 20,000 trees with 2 MiB of L2.
    for leaves, most in ((32, 5000), (64, 2000)):
        per_tree = (leaves // 8 + 2) * (leaves - 1) + 8 * leaves
        plan = choose_plan(
            GTX1080, n_trees=20000, n_slots=20000, largest_tree=1, word_bytes=leaves // 8,
            model_bytes=20000 * per_tree,
        )  # fmt: skip
        assert plan is not None
        assert most * 0.7 < plan.max_trees < most * 1.1


def test_a_tree_that_fills_shared_memory() -> None:
    def plan(slots: int):
        return choose_plan(
            T4, n_trees=3, n_slots=3 * slots, largest_tree=slots, word_bytes=4, model_bytes=1 << 20
        )

    alone = plan(12000)
    assert alone is not None
    assert (alone.max_trees, alone.max_slots) == (1, 12000)
    assert plan(17000) is None


def test_limits() -> None:
    assert resident_blocks(H100, 1025, 32, 0) == 0
    assert resident_blocks(H100, 1024, 128, 0) == 0
    assert resident_blocks(H100, 32, 0, 0) == 32
    assert resident_blocks(H100, 1024, 64, 0) == 1
    assert choose_plan(H100, n_trees=0, n_slots=0, largest_tree=0, word_bytes=4, model_bytes=0) is not None
