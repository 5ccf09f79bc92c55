"""The libraries preloaded into test processes, built once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from faults.preload import compile_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``library(source)``: the library built from a source file in this folder."""
    return cache(lambda source: compile_library(source, tmp_path_factory.mktemp("libraries")))
