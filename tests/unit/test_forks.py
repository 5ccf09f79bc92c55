"""Forked children score with threads, at the parent's bits, whatever the parent's threads were doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCENES = Path(__file__).parents[1] / "fork_scenes.py"

#: Children of each scene: more than a thousand in all.
CHILDREN = {
    "after_scoring": 350,
    "first_use": 250,
    "generations": 150,
    "amid_threads": 150,
    "other_library": 50,
    "pools": 80,
    "while_preparing": 5,
    "within_preparing": 3,
    "while_making_an_attribute": 5,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("scene", CHILDREN)
def test_children_score(scene: str) -> None:
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(SCENES), scene, str(CHILDREN[scene])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")
