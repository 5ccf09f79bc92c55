"""All figures in README and bench/README.md come from the files in bench/results/."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

from pages.figures import speeds  # noqa: E402
from pages.front import BENCHES, page  # noqa: E402
from pages.markers import Block, blocks_in, outside, rendered  # noqa: E402
from pages.peers import peer_rows, peers  # noqa: E402
from pages.plots import digest, drawn_from, points_of, to_draw  # noqa: E402
from pages.readme_blocks import BLOCKS  # noqa: E402
from pages.results import HEADLINE, Results, is_ours, of_headline  # noqa: E402

README = ROOT.joinpath("README.md").read_text(encoding="utf-8")
RESULTS = Results.read()
NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?")
AGAIN = "run `python bench/readme.py`"


def test_readme_is_what_the_results_say() -> None:
    assert rendered(README, BLOCKS, RESULTS) == README, AGAIN


def test_the_page_of_benches_is_what_the_results_say() -> None:
    assert page(RESULTS) == BENCH.joinpath("README.md").read_text(encoding="utf-8"), AGAIN


@pytest.mark.parametrize(("kind", "processor"), to_draw(RESULTS))
def test_plots_are_drawn_from_the_results(kind: str, processor: str) -> None:
    assert drawn_from(BENCH / "results" / f"{kind}-{processor}.png") == digest(RESULTS.reports[kind, processor]), AGAIN


def test_a_line_breaks_where_scores_were_others() -> None:
    times: list[dict[str, float]] = [{"A": 3.0, "B": 1.0}, {"B": 1.0}, {"A": 2.0}]
    differ: list[dict[str, float]] = [{}, {"A": 0.1}, {}]
    cells = [
        {"documents": n, "us_per_document": us, "differ": apart}
        for n, us, apart in zip((1, 10, 100), times, differ, strict=True)
    ]
    assert str(points_of(cells, "A")) == "[(1, 3.0), (10, nan), (100, 2.0)]"
    assert points_of(cells, "B") == [(1, 1.0), (10, 1.0)]  # it took no more
    assert points_of(cells[1:2], "A") == points_of(cells, "C") == []


def test_readme_tells_no_speed_outside_its_blocks() -> None:
    assert speeds(outside(README)) == [], "figures of speed belong in a block that bench/pages/ renders"


@pytest.mark.parametrize(
    "planted",
    ["It takes 0.3 s.", "20 times LightGBM", "12x faster", "some 3.5 µs each", "in 250 ms", "40 % less", "5 minutes",
     "two hundred times as fast", "twice as fast", "2,000,000 documents a second", "| gpuqs | 0.49 |\n",
     "| gpuqs | 1.05 (107) |\n", "a 10-fold gain", "at 2.6 GHz", "faster by a factor of 228", "a factor of 20",
     "a speed-up of 228", "a speedup of twenty", "a twenty-fold gain", "a tenth of LightGBM's time", "2 million rows/s",
     "2 million documents per second", "2M docs/sec", "many rows/second", "5 sec", "30 microsec", "0.49 microsecs",
     "a third as long", "twice the speed"],
)  # fmt: skip
def test_a_planted_figure_is_seen(planted: str) -> None:
    assert speeds(outside(README.replace("## Install\n", f"## Install\n\n{planted}\n")))


def test_what_is_no_speed_is_none() -> None:
    text = (
        "1,000 trees x 64 leaves, 20,000 x 64, 512 documents at once, LightGBM 4.7, rows of 1e-35, sm_75, 80 and 86, "
        "the second of five rows, a million columns, a factor of each engine, documents per call, one of a hundred, "
        "a third library, half of the leaves, at most 128 minima, 100 documents a call, a second run"
    )
    assert speeds(f"{text}\n| documents | 100 |\n|---|---|\n| 1,000 | `walk` |\n") == []


def test_a_number_changed_in_a_block_is_seen() -> None:
    for name, text in blocks_in(README).items():
        for number in set(re.findall(r"\d[\d.,]*\d", text)):
            wrong = README.replace(text, text.replace(number, "7" + number, 1))
            assert rendered(wrong, BLOCKS, RESULTS) == README != wrong, name


def test_every_block_has_its_place_once() -> None:
    with pytest.raises(SystemExit, match="the page has blocks"):
        rendered(README.replace("<!-- figures: calls -->", "<!-- figures: callers -->"), BLOCKS, RESULTS)


# -- no number is typed by hand ---------------------------------------------------------------------


def other(value: Any, rng: random.Random) -> Any:
    """A report with every measured number changed."""
    if isinstance(value, dict):
        return {key: other(part, rng) for key, part in value.items()}
    if isinstance(value, list):
        return [other(part, rng) for part in value]
    return value * rng.uniform(1.5, 2.5) if isinstance(value, float) else value


def numbers_told(value: Any) -> set[str]:
    """The numbers of a report that are not measurements: in names, versions and counts."""
    if isinstance(value, dict):
        return set().union(*(numbers_told(part) for part in (*value, *value.values())))
    if isinstance(value, list | tuple):
        return set().union(*(numbers_told(part) for part in value))
    told = "" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    return set(NUMBER.findall(told))


def typed_by_hand(blocks: Mapping[str, Block], results: Results) -> list[str]:
    """Speed figures that do not change when the results do, and numbers that no result contains."""
    # Five sets: with three, a figure once stayed the same by chance.
    changed = [Results(other(results.reports, random.Random(seed))) for seed in range(5)]
    known, typed = numbers_told(results.reports), []
    for block in blocks.values():
        text, *others = ("\n".join(block(each)) for each in (results, *changed))
        for find, allowed in ((speeds, set()), (NUMBER.findall, known)):
            stay = zip(find(text), *(find(each) for each in others), strict=True)
            typed += [figure for figure, *new in stay if {figure} == set(new) and figure not in allowed]
    return typed


def test_no_figure_is_typed_by_hand() -> None:
    of_names_or_ratios = ("machines", "default-forests")
    assert all(speeds(text) for name, text in blocks_in(README).items() if name not in of_names_or_ratios)
    rendered_blocks = BLOCKS | {"peers": peers}
    assert typed_by_hand(rendered_blocks, RESULTS) == []
    assert typed_by_hand(rendered_blocks, with_libraries()) == []


@pytest.mark.parametrize("figure", ["20 times", "0.49 us", "34, 122 and 126 us"])
def test_a_figure_that_is_typed_is_seen(figure: str) -> None:
    typed: Block = lambda results: [f"gpuqs takes {figure}."]  # noqa: E731
    assert figure in typed_by_hand(BLOCKS | {"typed": typed}, RESULTS)


def test_a_number_that_no_result_has_is_seen() -> None:
    typed: Block = lambda results: ["One run of 12,345 documents."]  # noqa: E731
    assert typed_by_hand(BLOCKS | {"typed": typed}, RESULTS) == ["12,345"]


# -- what pages say about a run ---------------------------------------------------------------------


def with_libraries() -> Results:
    """The results plus a run of bench/libraries.py on another processor, which covers every case of a page."""

    def cell(documents: int, threads: int, **us: float) -> dict[str, Any]:
        return {"documents": documents, "threads": threads, "us_per_document": us, "minimum_us": us,
                "fewer_documents": {"LightGBM": 500} if documents > 500 else {}, "uj_per_document": us}  # fmt: skip

    contenders = {"LightGBM": 101.5, "YDF": 11.25, "gpuqs": 1.125}
    agrees = {"same_bits": False, "largest_difference": 2e-7, "agrees": True}
    result = {
        "model": "LightGBM made up", "library": "LightGBM", "not_held": {"XGBoost": "scores its own models alone"},
        "agreement": {"YDF": agrees, "oneDAL": agrees | {"agrees": False, "largest_difference": 0.5}},
        "cells": [cell(n, t, **contenders) for t in (1, 2) for n in (1, 100, 10_000)],
    }  # fmt: skip
    peers = {
        "YDF": {"version": "0.16.1", "absent": None, "rows": "columns", "threads": "num_threads"},
        "lleaves": {"version": None, "absent": "`lleaves` cannot be imported", "rows": "rows", "threads": "n_jobs"},
    }
    report = {"processor": "Some Processor", "versions": "gpuqs 0.1.0", "load": "0.1 on 2 processors",
              "no_energy": "there are no counters", "peers": peers, "results": [result]}  # fmt: skip
    call = {"gpuqs": {"median": 2.5, "p99": 4.25, "p99.9": None},
            "LightGBM": {"median": 10.0, "p99": 11.5, "p99.9": 99.0}}  # fmt: skip
    small = {"processor": "Some Processor", "versions": "gpuqs 0.1.0", "load": "0.1 on 2 processors", "models": [
        {"model": "LightGBM made up", "not_held": {"YDF": "not here"}, "cells": [
            {"documents": 10, "engine": "qs", "calls": {kind: {"1": call, "2": call} for kind in ("warm", "cold")},
             "two_threads": {"gpuqs": 1.94, "LightGBM": 1.5, "SHA-256, as long": 1.75},
             "engines": {"warm": {"qs": 2.0, "vqs": 1.0}, "cold": {"qs": 2.0, "vqs": 3.0}}}]}]}  # fmt: skip
    return Results(deepcopy(RESULTS.reports) | {("libraries", "some"): report, ("small", "some"): small})


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_names_its_processor(name: str) -> None:
    results = with_libraries()
    text = " ".join(BLOCKS[name](results))
    gpus = [report["gpu"]["name"] for report in results.gpus().values()]
    assert any(name in text for name in [*map(results.name, results.processors()), *gpus])


def test_the_headline_is_of_the_first_table_and_stands_below_the_first_code() -> None:
    text = " ".join(blocks_in(README)["headline"].split())
    told = r"LightGBM takes (\S+) µs per row and gpuqs (\S+) µs\. gpuqs is (\S+) times"
    ((theirs, ours, ratio),) = re.findall(told, text)
    column = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", blocks_in(README)["engines"], re.M))
    assert column["LightGBM 4.7"] == theirs and column["gpuqs `bitslice` (AVX-512)"] == f"{ours} ({ratio})"
    assert re.search(r"\A# gpuqs\n[^`]*```python\n[^`]*```\n\n<!-- figures: headline -->", README)
    agrees = [result["agreement"]["gpuqs"]["same_bits"] for result in of_headline(RESULTS, "libraries")["results"]]
    assert agrees and all(agrees)


def test_readme_names_every_machine_that_was_measured() -> None:
    text = " ".join("\n".join(BLOCKS["machines"](with_libraries())).split())
    names = [*map(RESULTS.name, RESULTS.processors()), *(gpu["gpu"]["name"] for gpu in RESULTS.gpus().values())]
    assert all(name in text for name in [*names, "Some Processor"])


def test_each_library_stands_once_beside_each_model() -> None:
    rows = peer_rows(of_headline(RESULTS, "libraries"))
    pairs = [(library, model) for library, model, *_ in rows]
    assert len(pairs) == len(set(pairs)) and ("XGBoost 3.2", "XGBoost rank:ndcg 1,000 x 64") in pairs
    assert all(f"| {' | '.join(row)} |" in page(RESULTS) for row in rows)


def test_the_page_shows_every_library_by_batch_and_names_the_processor() -> None:
    text = page(with_libraries()).partition("## Some Processor")[2]
    assert "| YDF | 11.2 | 11.2 | 11.2 |" in text and "**LightGBM made up**, 2 threads, by documents per call:" in text


def test_the_page_tells_what_was_not_measured_and_why() -> None:
    text = page(with_libraries()).partition("## Some Processor")[2]
    for told in (
        "- scores its own models alone: XGBoost", "not timed because scores differ by up to 0.5: oneDAL",
        "- lleaves: `lleaves` cannot be imported", "- energy: there are no counters", "102 (of 500)", "µJ, 10,000",
        "no run of `growth.py` is stored", "2e-07", "| 10 | cold | 2 | 2.50 (4.25) | 10.0 (11.5, 99.0) | 4.0 |",
        "| 10 | 1.9 | 1.5 | 1.8 |",
        "| 10 | warm | 2.00 | 1.00 | qs | 100 % |", "| 10 | cold | 2.00 | 3.00 | qs | 0 % |",
        "YDF: not here",
    ):  # fmt: skip
        assert told in text


@pytest.mark.parametrize("processor", RESULTS.processors())
def test_each_processor_has_a_part_and_every_run_a_section(processor: str) -> None:
    text = page(RESULTS)
    assert text.count(f"\n## {RESULTS.name(processor)}\n") == 1
    part = text.partition(f"\n## {RESULTS.name(processor)}\n")[2].partition("\n## ")[0]
    for kind in BENCHES:
        told = f"no run of `{BENCHES[kind][0]}` is stored"
        assert (told in part) == (RESULTS.get(kind, processor) is None)


def test_the_page_of_platforms_tells_what_was_measured_where() -> None:
    kinds: dict[str, list[str]] = {}
    for (kind, machine), report in sorted(RESULTS.reports.items()):
        kinds.setdefault(report["gpu"]["name"] if kind == "gpu" else RESULTS.name(machine), []).append(kind)
    text = ROOT.joinpath("docs", "platforms.md").read_text(encoding="utf-8").partition("\n## Machines\n")[2]
    told = dict(re.findall(r"^\| ([^|]+) \| [^|]*\| ([^|]+) \|$", text.partition("\n## ")[0], re.M))
    assert told.pop("machine") and told == {machine: ", ".join(names) for machine, names in kinds.items()}


def test_papers_tables_and_later_benches_are_linked(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / "tables" / HEADLINE).mkdir(parents=True)
    (folder / "tables" / HEADLINE / "002-III.md").touch()
    (folder / "tables" / f"{HEADLINE}-real").mkdir()
    (folder / "tables" / f"{HEADLINE}-real" / "002-III.md").touch()
    results = Results(RESULTS.reports | {("tuning", HEADLINE): {"processor": RESULTS.name(HEADLINE)}})
    text = page(results, folder)
    assert f"[002-III](results/tables/{HEADLINE}/002-III.md)" in text
    assert f"[002-III, real data](results/tables/{HEADLINE}-real/002-III.md)" in text
    assert f"[tuning](results/tuning-{HEADLINE}.json)" in text


def test_the_benches_that_the_page_names_are_there() -> None:
    named = re.findall(r"^\| `python bench/(\w+\.py)", page(RESULTS), re.MULTILINE)
    assert {"tables.py", "tuning.py", "readme.py"} < set(named)
    assert [name for name in named if not (BENCH / name).is_file()] == []


def test_headlines_are_of_the_processor_they_name() -> None:
    for kind in ("engines", "libraries"):
        assert "Intel" in RESULTS.reports[kind, HEADLINE]["processor"]
    assert [label for label in ("gpuqs", "gpuqs, encoded", "YDF") if is_ours(label)] == ["gpuqs", "gpuqs, encoded"]
