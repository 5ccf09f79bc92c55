"""The cache for peers that compile models, since compilation takes minutes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from models import CACHE


def kept(model: bytes, suffix: str) -> Path:
    """A file in the benches' cache, named by the model's content: another model finds another file."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE / f"compiled-{hashlib.sha256(model).hexdigest()[:16]}{suffix}"
