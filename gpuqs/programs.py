"""A forest's programs: one for each engine, precision, range of trees and device, made at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import HOST, Device
from gpuqs.engines import ENGINES, LEFT_OUT, Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.engines.parameters import Changed
from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.kept import Kept
from gpuqs.layout.ranks import RankTables, build_ranks

#: Programs of tree ranges that are kept on each device, for staged prediction: PARTS_KEPT, and more, up to MAX_PARTS,
#: as long as all hold at most PARTS_NUMBERS numbers together. The least recently used is dropped first.
PARTS_KEPT, MAX_PARTS, PARTS_NUMBERS = 16, 256, 1 << 21
#: The first CALLS_BY_WHOLE calls with a range use the program for all trees, where every DOCUMENTS_OF_CALL documents
#: count as another call. Then the range gets its own program, which takes a millisecond or more to make, and scores up
#: to twice as fast. If that is dropped, twice as many calls use the other before it is made again.
CALLS_BY_WHOLE, DOCUMENTS_OF_CALL = 16, 1024
#: The first few ranges get their own at once if there is no program for all trees, which may not pay off for them.
FIRST_RANGES = 2
#: Ranges whose calls are counted; beyond this, all counts start again.
RANGES_COUNTED = 4096


class Key(NamedTuple):
    """What a program is made for; ``trees``: the first and the end of a range, None for all."""

    engine: str
    precision: str
    machine: Machine
    narrow: bool
    params: Changed
    device: Any
    trees: tuple[int, int] | None


class Reasons(Mapping[str, str | None]):
    """For every engine's name, None if it can run a forest, else the reason why not; found on first access."""

    def __init__(self, forest: Forest) -> None:
        self._forest, self._found = forest, dict[str, str | None]()

    def __getitem__(self, name: str) -> str | None:
        if name not in self._found:
            self._found[name] = ENGINES[name].why_not(self._forest)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENGINES)

    def __len__(self) -> int:
        return len(ENGINES)


class Programs:
    """The programs of one forest; shared between threads.

    Ranges of trees are as `gpuqs.keywords.output_and_trees` gives them: slices whose stop is not below start, and None
    for all trees. ``narrow``: for documents with only the columns `Forest.tested`.

    Parameters
    ----------
    forest : Forest
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.reasons = Reasons(forest)
        self._made: dict[Key, Program] = {}
        self._ranks: dict[bool, RankTables] = {}
        self._part = Kept(1)
        self._calls: dict[tuple[int, int], tuple[int, int]] = {}  # by range: calls so far, and how many are enough
        self.has_whole = False
        self._lock = Lock()

    def get(
        self,
        name: str,
        precision: str,
        trees: slice | None,
        narrow: bool = False,
        device: Device = HOST,
        machine: Machine | None = None,
        params: Changed = (),
        n_documents: int | None = None,
    ) -> Program:
        """The program of an engine on a device; ``machine`` is by default what `gpuqs.cpu_fallback.machine` gives.

        ``n_documents``: of the call that needs it; if given, a range of trees may be served by the program for all.

        Raises
        ------
        ValueError
            There is no such engine.
        UnsupportedModelError
            It cannot run the forest.
        """
        key = self._key(name, precision, trees, narrow, device, machine or cpu_fallback.machine(), params)
        program = self._made.get(key)
        if program is not None and trees is None:
            return program
        if name not in ENGINES:
            why = LEFT_OUT.get(name, "")
            raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, not {name!r}{why}")
        reason = self.reasons[name]
        if reason is not None:
            raise UnsupportedModelError(f"engine {name!r} cannot run this model: {reason}; use engine='auto'")
        shares = program is None and device is HOST and precision == "exact" and n_documents is not None
        if shares and trees is not None and self.goes_by_whole(trees, n_documents or 0):
            whole = self.get(name, precision, None, narrow, device, machine, params)
            if isinstance(whole, CpuProgram):
                return whole.of_trees(trees, self.forest.base_of(trees.start))
        with self._lock.held():
            program = self._made.get(key)
            if program is None:
                # Meanwhile a signal handler in this thread may have made this program or others.
                program = self._made.setdefault(key, self._prepare(key, device))
                self.has_whole |= trees is None
                self._give_back(device)
            elif trees is not None:
                self._made[key] = self._made.pop(key, program)  # the most recently used part comes last
            return program

    def goes_by_whole(self, trees: slice, n_documents: int) -> bool:
        """Count a call with a range of trees that has no program; return whether the program for all serves it."""
        bounds = trees.start, trees.stop
        if len(self._calls) >= RANGES_COUNTED:
            self._calls.clear()
        calls, enough = self._calls.get(bounds, (0, CALLS_BY_WHOLE))
        calls += 1 + n_documents // DOCUMENTS_OF_CALL
        many = calls > enough
        self._calls[bounds] = (0, 2 * enough) if many else (calls, enough)
        return not many and (self.has_whole or len(self._calls) > FIRST_RANGES)

    def expect(self, trees: slice | None) -> None:
        """Have the next call with a range of trees make a program of its own, as many will follow."""
        if trees is not None:
            bounds = trees.start, trees.stop
            _, enough = self._calls.get(bounds, (0, CALLS_BY_WHOLE))
            self._calls[bounds] = enough, enough

    def _key(
        self,
        name: str,
        precision: str,
        trees: slice | None,
        narrow: bool,
        device: Device,
        machine: Machine,
        params: Changed,
    ) -> Key:
        narrow = narrow and self.forest.narrowed is not self.forest
        bounds = None if trees is None else (trees.start, trees.stop)
        return Key(name, precision, machine, narrow, params, device.key, bounds)

    def part(self, trees: slice | None, narrow: bool = False) -> Forest:
        """The forest of a range of trees; that of the last range is kept."""
        forest = self.forest.narrowed if narrow else self.forest
        if trees is None:
            return forest
        key = trees.start, trees.stop, forest is self.forest
        part: Forest | None = self._part.find(key)
        if part is None:
            self._part.keep(key, part := forest.select(trees))
        return part

    def _give_back(self, device: Device) -> None:
        parts = [key for key in list(self._made) if key.trees is not None and key.device == device.key]
        held = np.cumsum([self._numbers(end - first) for first, end in (key.trees for key in reversed(parts))])
        kept = _within_bounds(int(np.searchsorted(held, PARTS_NUMBERS, "right")))
        for old in parts[:-kept]:
            self._made.pop(old, None)

    @lazy
    def parts_kept(self) -> int:
        """How many ranges of trees may be kept if they have half of all trees on average."""
        return _within_bounds(int(2 * PARTS_NUMBERS / max(self._numbers(self.forest.n_trees), 1)))

    def _numbers(self, n_trees: int) -> float:
        """About how many numbers ``n_trees`` trees hold: nodes, leaf values, category sets, and one per feature."""
        forest = self.forest
        of_all = forest.n_nodes + forest.leaf_value.size + len(forest.category_words) + len(forest.linear_coefficient)
        return forest.n_features + n_trees / max(forest.n_trees, 1) * of_all

    def trial(self, name: str, params: Changed, narrow: bool, device: Device, machine: Machine) -> Program:
        """A program of the whole forest, as `get` would give it; if it does not exist yet, it is made but not kept."""
        key = self._key(name, "exact", None, narrow, device, machine, params)
        return self._made.get(key) or self._prepare(key, device)

    def keep(
        self, program: Program, name: str, params: Changed, narrow: bool, device: Device, machine: Machine
    ) -> None:
        """Keep what `trial` gave."""
        self._made.setdefault(self._key(name, "exact", None, narrow, device, machine, params), program)

    def _prepare(self, key: Key, device: Device) -> Program:
        trees = None if key.trees is None else slice(*key.trees)

        def ranks() -> RankTables:
            # Parts rank documents as the whole forest does, so that encoded documents serve them, too.
            first, end = key.trees or (0, self.forest.n_trees)
            nodes = slice(int(self.forest.node_offsets[first]), int(self.forest.node_offsets[end]))
            if key.narrow not in self._ranks:
                self._ranks[key.narrow] = build_ranks(self.part(None, key.narrow))
            return self._ranks[key.narrow].part(nodes)

        part, params = self.part(trees, key.narrow), dict(key.params)
        return ENGINES[key.engine].prepare(
            part, key.precision, ranks=ranks, device=device, machine=key.machine, params=params
        )


def _within_bounds(n_parts: int) -> int:
    """``n_parts``, limited to PARTS_KEPT to MAX_PARTS."""
    return min(max(PARTS_KEPT, n_parts), MAX_PARTS)
