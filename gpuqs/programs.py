"""A forest's programs: one for each engine, precision, range of trees and device, made at first use."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import HOST, Device
from gpuqs.engines import ENGINES, LEFT_OUT, Program
from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.kept import Kept
from gpuqs.layout.ranks import RankTables, build_ranks

#: Programs of tree ranges that are kept on each device, for staged prediction: so many, or more, to so many, as long as
#: these hold no more numbers than that together. The one unused for longest goes first.
PARTS_KEPT, MOST_PARTS, PARTS_NUMBERS = 16, 256, 1 << 21


class Programs:
    """The programs of one forest; shared between threads.

    Parameters
    ----------
    forest : Forest

    Attributes
    ----------
    reasons : dict of str to (str or None)
        Every engine's name, with None where it can run the forest, else the reason why not.
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.reasons = {name: engine.supports(forest) for name, engine in ENGINES.items()}
        self._made: dict[tuple[Any, ...], Program] = {}
        self._ranks: dict[bool, RankTables] = {}
        self._part = Kept(1)
        self._lock = Lock()

    def get(
        self,
        name: str,
        precision: str,
        trees: slice | None,
        narrow: bool = False,
        device: Device = HOST,
        on: Machine | None = None,
        params: tuple[tuple[str, int], ...] = (),
    ) -> Program:
        """The program of an engine on a device, for what `gpuqs.cpu_fallback.machine` gives where that is not ``on``.

        ``narrow``: for documents of the columns `Forest.tested` alone. ``params``: the engine's, as
        `gpuqs.engines.parameters.changed` gives them.

        Raises
        ------
        ValueError
            There is no such engine.
        UnsupportedModelError
            It cannot run the forest.
        """
        bounds = None if trees is None else (trees.start, trees.stop, trees.step)
        narrow = narrow and self.forest.narrowed is not self.forest
        here = on or cpu_fallback.machine()
        key = (name, precision, here, narrow, params, device.key, bounds)
        program = self._made.get(key)
        if program is not None and bounds is None:
            return program
        if name not in ENGINES:
            why = LEFT_OUT.get(name, "")
            raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, not {name!r}{why}")
        reason = self.reasons[name]
        if reason is not None:
            raise UnsupportedModelError(f"engine {name!r} cannot run this model: {reason}; use engine='auto'")
        with self._lock.held():
            program = self._made.get(key)
            if program is None:
                # Meanwhile a signal's handler in this thread may have made this one or others.
                program = self._prepare(name, precision, trees, narrow, device, params, here)
                program = self._made.setdefault(key, program)
                self._give_back(device)
            elif bounds is not None:
                self._made[key] = self._made.pop(key, program)  # the part used last comes last
            return program

    def part(self, trees: slice | None, narrow: bool = False) -> Forest:
        """The forest of a range of trees; that of the last range is kept."""
        forest = self.forest.narrowed if narrow else self.forest
        if trees is None:
            return forest
        key = trees.start, trees.stop, trees.step, forest is self.forest
        part: Forest | None = self._part.find(key)
        if part is None:
            self._part.keep(key, part := forest.select(trees))
        return part

    def _give_back(self, device: Device) -> None:
        parts = [key for key in list(self._made) if key[-1] is not None and key[-2] == device.key]
        held = np.cumsum([self._numbers(*key[-1]) for key in reversed(parts)])
        kept = _within_bounds(int(np.searchsorted(held, PARTS_NUMBERS, "right")))
        for old in parts[:-kept]:
            self._made.pop(old, None)

    @lazy
    def parts_kept(self) -> int:
        """So many ranges of trees may be kept if they have half of all trees on average."""
        return _within_bounds(int(2 * PARTS_NUMBERS / max(self._numbers(None), 1)))

    def _numbers(self, *bounds: int | None) -> float:
        """About so many numbers has a range of trees: nodes, values and sets of categories, and something a feature."""
        forest = self.forest
        share = len(range(*slice(*bounds).indices(forest.n_trees))) / max(forest.n_trees, 1)
        of_all = forest.n_nodes + forest.leaf_value.size + len(forest.category_words) + len(forest.linear_coefficient)
        return forest.n_features + share * of_all

    def trial(
        self, name: str, params: tuple[tuple[str, int], ...], narrow: bool, device: Device, on: Machine
    ) -> Program:
        """A program of the whole forest, as `get` would give it, that is not kept, unless it is one that is there."""
        narrow = narrow and self.forest.narrowed is not self.forest
        made = self._made.get(_of_whole(name, params, narrow, device, on))
        return made or self._prepare(name, "exact", None, narrow, device, params, on)

    def keep(
        self,
        name: str,
        params: tuple[tuple[str, int], ...],
        narrow: bool,
        device: Device,
        on: Machine,
        program: Program,
    ) -> None:
        """Keep what `trial` gave."""
        narrow = narrow and self.forest.narrowed is not self.forest
        self._made.setdefault(_of_whole(name, params, narrow, device, on), program)

    def _prepare(
        self,
        name: str,
        precision: str,
        trees: slice | None,
        narrow: bool,
        device: Device,
        params: tuple[tuple[str, int], ...],
        on: Machine,
    ) -> Program:
        def ranks() -> RankTables:
            # Parts rank documents as the whole does, so that what `encode` made serves them too.
            start, stop, _ = (trees or slice(None)).indices(self.forest.n_trees)
            nodes = slice(*(int(self.forest.node_offsets[t]) for t in (start, max(start, stop))))
            if narrow not in self._ranks:
                self._ranks[narrow] = build_ranks(self.part(None, narrow))
            return self._ranks[narrow].part(nodes)

        part = self.part(trees, narrow)
        return ENGINES[name].prepare(part, precision, ranks=ranks, device=device, machine=on, params=dict(params))


def _within_bounds(n_parts: int) -> int:
    """So many ranges of trees, but no fewer and no more than are kept in any case."""
    return min(max(PARTS_KEPT, n_parts), MOST_PARTS)


def _of_whole(
    name: str, params: tuple[tuple[str, int], ...], narrow: bool, device: Device, on: Machine
) -> tuple[Any, ...]:
    """The key of an exact program of the whole forest."""
    return name, "exact", on, narrow, params, device.key, None
