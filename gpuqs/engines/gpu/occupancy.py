"""How GPU-QuickScorer is cut for a device: paper 000, section 7.4, and NVIDIA's occupancy arithmetic.

    τ          the most trees whose tuples and leaf values fit the L2 cache, and with which the
               leafindexes of two thread blocks fit a multiprocessor's shared memory
    threads    the fewest per thread block with which the most threads fit a multiprocessor, given
               shared memory and registers
    together   documents per thread block: tuples are read once for all of them

Pure arithmetic on `DeviceAttributes`: it needs no device.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuqs.devices.base import DeviceAttributes
from gpuqs.layout.qs_gpu import WARP, interleaved_words

#: Bytes that a block reduction keeps for each warp and document.
SUM_BYTES = 8


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def blocks_by_shared(device: DeviceAttributes, shared: int) -> int:
    """β_τ: thread blocks of ``shared`` bytes each that fit one multiprocessor's shared memory."""
    if shared > device.shared_per_block:
        return 0
    need = _up(shared + device.shared_reserved, device.shared_granularity)
    return device.shared_per_multiprocessor // need if need else device.blocks_per_multiprocessor


def resident_blocks(device: DeviceAttributes, threads: int, registers: int, shared: int) -> int:
    """Thread blocks that run at once on one multiprocessor.

    Parameters
    ----------
    device : DeviceAttributes
    threads : int
        Threads per block.
    registers : int
        Registers per thread.
    shared : int
        Bytes of shared memory per block, static and dynamic.
    """
    if threads > 1024:
        return 0
    warps = -(-threads // WARP)
    registers_per_warp = _up(registers * WARP, 256)
    if registers_per_warp * _up(warps, 4) > device.registers_per_multiprocessor:
        return 0
    limits = [
        device.threads_per_multiprocessor // WARP // warps,
        device.blocks_per_multiprocessor,
        blocks_by_shared(device, shared),
    ]
    if registers:  # each of the four parts of a multiprocessor has a quarter of the registers
        limits.append(device.registers_per_multiprocessor // 4 // registers_per_warp * 4 // warps)
    return min(limits)


def largest_shared(device: DeviceAttributes, blocks: int) -> int:
    """Most bytes of shared memory per block with which ``blocks`` of them fit one multiprocessor."""
    granularity = device.shared_granularity
    share = device.shared_per_multiprocessor // blocks // granularity * granularity
    return max(0, min(share - device.shared_reserved, device.shared_per_block))


def threads_per_block(device: DeviceAttributes, shared: int, registers: int) -> int:
    """The paper's policy: the fewest threads with which two blocks or more fill a multiprocessor.

    If shared memory or registers keep blocks from filling it, the fewest that come closest; 1,024 if no two blocks fit.

    Parameters
    ----------
    shared : int
        Bytes of shared memory that a block takes (Σ_τ).
    registers : int
        Registers per thread.
    """

    def resident(threads: int) -> int:
        blocks = resident_blocks(device, threads, registers, shared)
        return threads * blocks if blocks > 1 else 0

    best = max(range(WARP, 1025, WARP), key=resident)  # of equal ones the first
    return best if resident(best) else 1024


@dataclass(frozen=True)
class Plan:
    """How a forest is cut for a device.

    Parameters
    ----------
    max_trees, max_slots : int
        Upper limits of trees (τ) and of words of leaves per tree block.
    documents_per_block : int
    """

    max_trees: int
    max_slots: int
    documents_per_block: int


def shared_bytes(slots: int, word_bytes: int, documents: int, threads: int) -> int:
    """Bytes of shared memory of one thread block: its leafindexes, then its warps' shares of rows, or its sums."""
    return interleaved_words(slots, documents) * word_bytes + (documents * threads // WARP + 1) * SUM_BYTES


@dataclass(frozen=True)
class BlockSize:
    """A thread block's threads and bytes of shared memory, and how many run at once on one multiprocessor."""

    threads: int
    shared: int
    resident: int


def choose_block_size(
    device: DeviceAttributes, *, slots: int, word_bytes: int, documents: int, registers: int, threads: int | None = None
) -> BlockSize:
    """Threads by the policy, unless they are given; a document has ``slots`` words of ``word_bytes`` bytes."""
    if threads is None:
        threads = threads_per_block(device, shared_bytes(slots, word_bytes, documents, 1024), registers)
    shared = shared_bytes(slots, word_bytes, documents, threads)
    return BlockSize(threads, shared, max(1, resident_blocks(device, threads, registers, shared)))


def _slots_in(shared: int, word_bytes: int, documents: int) -> int:
    """Words per document that a thread block of 1,024 threads has room for."""
    beside = shared_bytes(0, word_bytes, documents, 1024)
    return max(0, shared - beside) // word_bytes // documents // WARP * WARP


def together_for(device: DeviceAttributes, largest_tree: int, word_bytes: int, choices: tuple[int, ...]) -> int:
    """The most documents per thread block, of ``choices``, with which two blocks of the largest tree fit; else 1."""
    shared = largest_shared(device, 2)
    return max((n for n in choices if largest_tree <= _slots_in(shared, word_bytes, n)), default=1)


def choose_plan(
    device: DeviceAttributes,
    *,
    n_trees: int,
    n_slots: int,
    largest_tree: int,
    word_bytes: int,
    model_bytes: int,
    documents_per_block: int = 1,
) -> Plan | None:
    """τ by the paper's policy.

    Parameters
    ----------
    n_trees, n_slots : int
        Trees of the forest, and the words that their leaves take.
    largest_tree : int
        Words of the largest tree.
    word_bytes : {4, 8}
    model_bytes : int
        Tuples and leaf values of the whole forest.
    documents_per_block : int
        Documents that one thread block scores together.

    Returns
    -------
    Plan or None
        None: the largest tree does not fit the device's shared memory.
    """
    two_fit = _slots_in(largest_shared(device, 2), word_bytes, documents_per_block)
    if largest_tree > two_fit:
        if largest_tree > _slots_in(device.shared_per_block, word_bytes, documents_per_block):
            return None
        two_fit = largest_tree
    if n_trees == 0:
        return Plan(1, max(two_fit, 1), documents_per_block)
    by_l2 = max(1, device.l2_bytes * n_trees // max(model_bytes, 1))
    by_shared = max(1, two_fit * n_trees // max(n_slots, 1))
    trees = min(n_trees, by_l2, by_shared)
    n_blocks = -(-n_trees // trees)
    return Plan(-(-n_trees // n_blocks), two_fit, documents_per_block)
