"""Real inputs that are no part of the repository: models and documents of other libraries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Where they are; tests that need them are skipped where they are not.
FOLDER = Path(os.environ.get("GPUQS_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(*names: str) -> Path:
    """A file or folder of them, or the test that asks is skipped."""
    path = FOLDER.joinpath(*names)
    if not path.exists():
        pytest.skip(f"no real data at {path} (GPUQS_TEST_DATA)")
    return path
