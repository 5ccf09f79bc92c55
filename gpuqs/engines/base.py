"""The interface behind which every engine stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafValues


@dataclass(frozen=True)
class Program:
    """A forest made ready for one engine; immutable, shared between threads.

    Parameters
    ----------
    values : LeafValues
        What the leaves add up to; `LeafValues.finish` turns sums into scores.
    """

    values: LeafValues


class Engine(ABC):
    """One way to find exit leaves and add their values up.

    Attributes
    ----------
    name : str
        As in ``Model.predict(engine=...)``.
    device : {"cpu", "cuda"}
    summary : str
        One line for people.
    """

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"
    summary: ClassVar[str]

    @abstractmethod
    def supports(self, forest: Forest) -> str | None:
        """None where the engine can run the forest, else the reason why not."""

    @abstractmethod
    def prepare(self, forest: Forest, precision: str) -> Program:
        """Lay the forest out; ``precision`` is "exact" or "fast"."""

    @abstractmethod
    def score(
        self, program: Program, documents: np.ndarray, sums: np.ndarray, n_threads: int, started: bool = False
    ) -> None:
        """Fill ``sums`` ([D, K], of `LeafValues.sum_dtype`, C order).

        ``documents`` is [D, n_features], float32 or float64, any strides. ``started``: the sums
        begin with what ``sums`` holds, not with `LeafValues.start`.
        """

    @abstractmethod
    def leaves(self, program: Program, documents: np.ndarray, out: np.ndarray, n_threads: int) -> None:
        """Fill ``out`` (int32 [D, T], C order) with the source library's exit leaf numbers."""
