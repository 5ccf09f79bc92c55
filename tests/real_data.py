"""Real inputs that are not part of the repository: models and documents of other libraries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Their folder; tests that need them are skipped if they are missing.
FOLDER = Path(os.environ.get("GPUQS_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(*names: str) -> Path:
    """Return a file or folder of real data, or skip the calling test."""
    path = FOLDER.joinpath(*names)
    if not path.exists():
        pytest.skip(f"no real data at {path} (GPUQS_TEST_DATA)")
    return path
