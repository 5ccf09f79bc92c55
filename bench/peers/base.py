"""The bench's interface to another library: what it needs, which models it can load, how it is called."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gpuqs
from gpuqs.forest import CATEGORICAL, Forest

_distributions = functools.cache(importlib.metadata.packages_distributions)


@dataclass(frozen=True)
class Source:
    """A trained model in every form that a peer may start from."""

    name: str
    library: str  #: the peer that trained it
    live: Any  #: its Booster or estimator
    path: Path | None  #: its file, if the library writes one that others read
    X: np.ndarray  #: float32 rows
    model: gpuqs.Model  #: the same model in gpuqs


@dataclass(frozen=True)
class Contender:
    """A built model's call: what is timed, and how rows are prepared beforehand."""

    score: Callable[[Any], np.ndarray]
    prepare: Callable[[np.ndarray], Any] = np.ascontiguousarray
    most: int | None = None  #: maximum number of documents per call


#: Maps a number of threads to a peer's contenders by name.
OfThreads = Callable[[int], dict[str, Contender]]


@dataclass(frozen=True)
class Peer:
    """A library: how to get it, which models it cannot load, and how to build its model from a source."""

    name: str
    package: str  #: what is imported
    distribution: str  #: what is installed
    rows: str  #: how rows are handed over
    threads: str  #: how the number of threads is set
    refuses: Callable[[Source], str | None]  #: the reason why it cannot load a model
    build: Callable[[Source], OfThreads]  #: its model, callable with any number of threads

    def absent(self) -> str | None:
        """Why it cannot be used here."""
        try:
            importlib.import_module(self.package)
        except Exception as problem:  # a broken installation must not end the run either
            return f"`{self.package}` cannot be imported ({type(problem).__name__}: {problem})"
        return None

    def version(self) -> str:
        """The installed version, perhaps of another distribution of the package (xgboost for xgboost-cpu)."""
        return importlib.metadata.version(_distributions()[self.package.partition(".")[0]][0])


def own_models_only(library: str) -> Callable[[Source], str | None]:
    """For a peer that scores only models that it trained itself."""
    return lambda source: None if source.library == library else "scores its own models alone"


def of_libraries(*libraries: str) -> Callable[[Source], str | None]:
    """For a peer that converts models of some libraries."""

    def refuses(source: Source) -> str | None:
        return None if source.library in libraries else f"does not convert models of {source.library}"

    return refuses


def larger_than(forest: Forest, n_nodes: int, what: str) -> str | None:
    """A reason if a forest has more nodes than the peer should convert."""
    if forest.n_nodes <= n_nodes:
        return None
    return f"not tried beyond {n_nodes:,} nodes: {what} (this forest has {forest.n_nodes:,})"


def has_categories(forest: Forest) -> bool:
    return bool((forest.routing & CATEGORICAL).any())
