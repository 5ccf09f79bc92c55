"""Rows made to find disagreements: values on a model's thresholds and one unit in the last place next to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import CATEGORICAL, SET_RIGHT, Forest

#: Values that are treated specially: missing, signed zeros, denormals, LightGBM's zero, huge ones.
SPECIAL: Final = (
    *(np.nan, 0.0, -0.0, 5e-324, -5e-324, 1e-45, 1e-40, -1e-40, 1e-35, -1e-35, 2e-35, -2e-35),
    *(float(np.float32(1e-35)), float(np.nextafter(1e-35, 1.0)), 1.0, -1.0, 3e38, -3e38),
)
INFINITE: Final = (np.inf, -np.inf, 1e300, -1e300)
#: Category codes that no training data holds.
ODD_CODES: Final = (*(-1.0, -0.5, -1e-9, -2.0, 0.5, 1.5, 0.999999, 16_777_217.0, 2147483647.0, 1e10), *SPECIAL)

#: Kinds of values with which rows reach a node, in turn: the last value that goes left, the first that goes
#: right, any value next to the threshold, and a missing or special one.
_TURNS: Final = 4
#: Bytes of values in one batch of rows, about.
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 1024
#: Widest rows that are made; a file may not make us allocate for more.
_MAX_FEATURES: Final = 1 << 20


class RowMaker:
    """Makes rows for a forest, the same ones for the same seed.

    In half of them every value is drawn independently: a threshold of its feature or a neighbour, a category
    code, a special value, any number. The others lead, one after another, to each node of the forest: the
    values tested above it are such that the row arrives, often on thresholds, and the value that the node
    tests is its threshold, a neighbour, missing or special.

    Parameters
    ----------
    forest : Forest
    infinite : bool
        Whether to make values that are infinite as float32, too.
    seed : int

    Raises
    ------
    UnsupportedModelError
        The rows would be too wide.
    """

    def __init__(self, forest: Forest, *, infinite: bool = True, seed: int = 0) -> None:
        if forest.n_features > _MAX_FEATURES:
            raise UnsupportedModelError(f"{forest.n_features:,} features: rows are made for at most {_MAX_FEATURES:,}")
        self._forest = forest
        self._infinite = infinite
        self._rng = np.random.default_rng(seed)
        self._special = np.array(SPECIAL + (INFINITE if infinite else ()))
        self._odd = np.array(ODD_CODES + (INFINITE if infinite else ()))
        self._parent = _parents(forest)
        self._categorical = (forest.routing & CATEGORICAL) != 0
        numeric = np.flatnonzero(~self._categorical)
        order = numeric[np.lexsort((forest.threshold[numeric], forest.feature[numeric]))]
        feature, threshold = forest.feature[order], forest.threshold[order]
        new = np.ones(len(order), bool)
        new[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
        #: Distinct thresholds, feature by feature, and where each feature's begin.
        self._thresholds = threshold[new]
        self._starts = np.searchsorted(feature[new], np.arange(forest.n_features + 1))
        self._n_codes = np.zeros(forest.n_features)
        words = np.diff(forest.category_offsets)[self._categorical]
        np.maximum.at(self._n_codes, forest.feature[self._categorical], 32.0 * words + 3)
        self._targets = self._rng.permutation(forest.n_nodes)
        self._first_turn = self._rng.integers(0, _TURNS, forest.n_nodes)
        self._visits = {np.dtype(np.float64): 0, np.dtype(np.float32): 0}

    def batches(self, n: int) -> Iterator[tuple[int, np.dtype]]:
        """How `n` rows are made in batches, float64 and float32 in turn: rows and dtype of each."""
        step = max(4, min(_BATCH_ROWS, _BATCH_BYTES // (8 * max(1, self._forest.n_features))))
        step = max(1, min(step, -(-n // 2)))
        types = (np.dtype(np.float64), np.dtype(np.float32))
        return ((min(step, n - start), types[number % 2]) for number, start in enumerate(range(0, n, step)))

    def make(self, n: int, dtype: np.dtype) -> np.ndarray:
        """The next ``n`` rows, [n, n_features] of ``dtype`` (float64 or float32)."""
        X = self._any_values(n, dtype)
        if self._forest.n_nodes:
            self._lead_to_nodes(X[: n // 2], dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            X = X.astype(dtype)
            if not self._infinite:
                X[np.isinf(X.astype(np.float32))] = 1.0
        return X

    def _any_values(self, n: int, dtype: np.dtype) -> npt.NDArray[np.float64]:
        rng, shape = self._rng, (n, self._forest.n_features)
        X = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)
        kind = rng.random(shape)
        count = np.diff(self._starts)
        near = (kind < 0.75) & (count > 0)
        row, feature = np.nonzero(near)
        t = self._thresholds[self._starts[feature] + (rng.random(len(row)) * count[feature]).astype(np.int64)]
        with np.errstate(over="ignore", invalid="ignore"):  # infinite thresholds
            farther = t + X[near] * 1e-3 * (1 + np.abs(t))
        X[near] = np.where(rng.random(len(t)) < 0.7, self._beside(t, dtype), farther)
        special = kind > 0.9
        X[special] = rng.choice(self._special, int(special.sum()))
        codes = (kind > 0.4) & (self._n_codes > 0) | (self._n_codes > 0) & (count == 0)
        row, feature = np.nonzero(codes)
        X[codes] = np.floor(rng.random(len(row)) * self._n_codes[feature])
        odd = codes & (rng.random(shape) < 0.15)
        X[odd] = rng.choice(self._odd, int(odd.sum()))
        return X

    def _lead_to_nodes(self, X: npt.NDArray[np.float64], dtype: np.dtype) -> None:
        """Change each row so that it reaches a node, with a value there that would reveal an error."""
        rng, forest = self._rng, self._forest
        visit = self._visits[dtype] + np.arange(len(X))
        self._visits[dtype] += len(X)
        targets = self._targets[visit % forest.n_nodes]
        turn = (self._first_turn[targets] + visit // forest.n_nodes) % _TURNS
        low, high = np.full(X.shape, -np.inf), np.full(X.shape, np.inf)
        node, rows = targets, np.arange(len(X))
        while len(rows):
            parent = self._parent[node]
            rows, node, parent = rows[parent >= 0], node[parent >= 0], parent[parent >= 0]
            goes_left = forest.left[parent] == node - forest.node_offsets[forest.node_tree[node]]
            for row, at, left in zip(*_of(self._categorical[parent], rows, parent, goes_left), strict=True):
                X[row, forest.feature[at]] = self._code(int(at), bool(left))
            row, at, left = _of(~self._categorical[parent], rows, parent, goes_left)
            cell = row, forest.feature[at]
            high[cell] = np.where(left, np.minimum(high[cell], forest.threshold[at]), high[cell])
            low[cell] = np.where(left, low[cell], np.maximum(low[cell], forest.threshold[at]))
            node = parent
        last, first = self._last_and_first(high, dtype)[0], self._last_and_first(low, dtype)[1]
        inside = np.greater(X, low) & np.less_equal(X, high)  # not so for NaN
        take_last = np.isfinite(high) & (~np.isfinite(low) | (rng.random(X.shape) < 0.5))
        bounded = np.isfinite(low) | np.isfinite(high)
        X[...] = np.where(bounded & ~inside, np.where(take_last, last, first), X)
        X[np.arange(len(X)), forest.feature[targets]] = self._telling(targets, turn, dtype)

    def _telling(
        self, targets: npt.NDArray[np.int64], turn: npt.NDArray[np.int64], dtype: np.dtype
    ) -> npt.NDArray[np.float64]:
        """A value of each target's feature that shows whether the node tests it correctly."""
        rng, t = self._rng, self._forest.threshold[targets]
        special = np.where(rng.random(len(t)) < 0.5, np.nan, rng.choice(self._special, len(t)))
        values = np.stack([*self._last_and_first(t, dtype), self._beside(t, dtype), special])[turn, np.arange(len(t))]
        for row in np.flatnonzero(self._categorical[targets]):
            if turn[row] < _TURNS - 1:
                values[row] = self._code(int(targets[row]), turn[row] == 0 or (turn[row] == 2 and rng.random() < 0.5))
            elif not np.isnan(values[row]):
                values[row] = rng.choice(self._odd)
        return values

    def _last_and_first(
        self, t: npt.NDArray[np.float64], dtype: np.dtype
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The last value that goes left at each threshold, and the first that goes right, in the type compared."""
        narrow = np.dtype(np.float32) in (dtype, np.dtype(self._forest.input_dtype))
        step = np.float32 if narrow else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            last: np.ndarray = t.astype(step)
            last = np.where(last > t, np.nextafter(last, step(-np.inf)), last)
            return last.astype(np.float64), np.nextafter(last, step(np.inf)).astype(np.float64)

    def _beside(self, t: npt.NDArray[np.float64], dtype: np.dtype) -> npt.NDArray[np.float64]:
        """Each threshold, or a value next to it: among all floats of ``dtype``, and among those of float32."""
        with np.errstate(over="ignore", invalid="ignore"):
            single = t.astype(np.float32)
            up, down = (np.nextafter(single, np.float32(to)).astype(np.float64) for to in (np.inf, -np.inf))
            ways = [single.astype(np.float64), up, down]
            if dtype == np.float64:
                # Half way to the next float32, where casts decide between the two.
                ways += [t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf)]
                half = t + (up - t) / 2
                ways += [t, half, np.nextafter(half, np.inf), np.nextafter(half, -np.inf)]
            values = np.stack(ways)[self._rng.integers(0, len(ways), len(t)), np.arange(len(t))]
        return np.where(np.isnan(values), t, values)

    def _code(self, node: int, left: bool) -> float:
        """A category code that goes left (or right) at a node; any code where there is none."""
        forest, rng = self._forest, self._rng
        words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
        inside = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").astype(bool)
        if left != bool(forest.routing[node] & SET_RIGHT):
            codes = np.flatnonzero(inside)
        else:
            codes = np.append(np.flatnonzero(~inside), len(inside) + np.arange(3))
        return float(rng.choice(codes)) if len(codes) else float(rng.choice(self._odd))


def _of(chosen: npt.NDArray[np.bool_], *arrays: np.ndarray) -> list[np.ndarray]:
    return [array[chosen] for array in arrays]


def _parents(forest: Forest) -> npt.NDArray[np.int64]:
    """Parent of each node among all nodes, -1 of roots; int64 [N]."""
    parent = np.full(forest.n_nodes, -1, np.int64)
    base = forest.node_offsets[forest.node_tree]
    for child in (forest.left, forest.right):
        inner = np.flatnonzero(child >= 0)
        parent[base[inner] + child[inner]] = inner
    return parent
