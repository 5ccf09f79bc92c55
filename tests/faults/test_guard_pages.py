"""Nothing, not even machine code, reads or writes outside documents, answers, layouts, codes and scratch.

guarded.py holds what is tried; guards.cpp sets up the guard pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.preload import preloaded, run_preloaded


def test_every_engine(isa: str, library: Callable[[str], Path]) -> None:
    told = json.loads(run_preloaded(library("guards.cpp"), "guarded.py"))
    print("guarded:", json.dumps(told))  # pytest -rP shows it
    assert told["calls"] > 5000 and told["blocks"] > told["calls"]


@pytest.mark.parametrize("where", ["before", "behind"])
def test_who_touches_a_byte_beside_memory_is_ended(where: str, library: Callable[[str], Path]) -> None:
    run = preloaded(library("guards.cpp"), "guarded.py", "touch", where)
    assert run.returncode < 0 and "string_at" in run.stderr
