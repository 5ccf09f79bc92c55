"""Write bench/README.md, its plots, and README's figures, from the JSON files in bench/results/.

    python bench/readme.py

The benches' results are only in those files: this page and README's blocks are rendered from them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages.front import page
from pages.markers import rendered
from pages.plots import draw, to_draw
from pages.readme_blocks import BLOCKS
from pages.results import FOLDER, Results

README = Path(__file__).parents[1] / "README.md"
FRONT = Path(__file__).with_name("README.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    results = Results.read()
    for kind, processor in to_draw(results):
        draw(results, kind, processor, FOLDER)
    README.write_text(rendered(README.read_text(encoding="utf-8"), BLOCKS, results), encoding="utf-8")
    FRONT.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
