"""Papers that comments cite are in docs/references.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("gpuqs", "cpu_fallback", "cuda", "bench", "tests")


def test_every_paper_cited_is_listed() -> None:
    files = [
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".inl", ".hpp", ".cuh", ".cu")
    ]
    cited = {number for path in files for number in re.findall(r"paper (\d{3})\b", path.read_text())}
    listed = re.findall(r"^\| (\d{3}) \|", (ROOT / "docs" / "references.md").read_text(), re.MULTILINE)
    assert len(files) > 100 and cited
    assert cited <= set(listed)
    assert listed == sorted(set(listed))
