"""Categories that a model knows only by the hashes of their strings, as CatBoost's do.

CatBoost compares the low 32 bits of CityHash64 (version 1.0) of a category's UTF-8 string. Where a model
holds no strings, its categories are named after their hashes, and tables are coded by hashing what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Any, Final

from gpuqs.cpu_fallback.ctrs import text_hashes

_NAME: Final = re.compile(r"CatBoost hash [0-9a-f]{8}")


def name_of_hash(code: int) -> str:
    """The name of a category of which only the hash is known."""
    return f"CatBoost hash {code:08x}"


def are_hashes(categories: Sequence[Any]) -> bool:
    """Whether categories are named after their hashes."""
    return bool(categories) and all(isinstance(c, str) and _NAME.fullmatch(c) is not None for c in categories)


def hash_of_name(name: str) -> int:
    """The hash that `name_of_hash` was given."""
    return int(name.rpartition(" ")[2], 16)


def holds(known: Set[Any], text: str) -> bool:
    """Whether a string is among categories, which are strings or named after their hashes."""
    return text in known or name_of_hash(int(text_hashes([text])[0])) in known
