"""bench/tables.py: its descriptions are complete, its results correct, and a wrong score ends the run."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from forests import random_forest

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import datasets  # noqa: E402
import models  # noqa: E402
from baselines import compiler  # noqa: E402
from baselines.counts import visited_by_reversing  # noqa: E402
from baselines.program import Program  # noqa: E402
from lab import blocking, counting, page, papers, plan, selection, tables, timing  # noqa: E402

import gpuqs  # noqa: E402
from gpuqs.engines import ENGINES  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.tuning.blocking import SURVIVING  # noqa: E402
from gpuqs.tuning.machine import Hierarchy  # noqa: E402

NAMES = [
    "000-3", "000-4", "000-5", "000-7", "000-F2", "001-1", "002-III", "002-IV", "002-V", "002-VI", "002-F12", "003-1",
    "003-F3", "004-4", "004-5", "004-6", "004-7", "004-F5", "004-F6", "004-F7", "004-F8",
]  # fmt: skip
TABLES = {table.name: table for table in tables.TABLES}


def rows_and_points(table: plan.Table) -> tuple[list[plan.Row], list[plan.Point]]:
    counted = table.counted
    return (
        [*table.rows, *(counted.rows if counted else ())],
        [*table.points, *(counted.points if counted else ())],
    )


# -- the descriptions and the papers' numbers -----------------------------------------------------


def test_every_table_is_described_once_with_our_engine_in_it() -> None:
    assert [table.name for table in tables.TABLES] == NAMES
    for table in tables.TABLES:
        rows, points = rows_and_points(table)
        assert points and papers.paper_of(table.name)["processor"]
        assert table.selects or any(row.systems == ("bitslice",) for row in rows), table.name


@pytest.mark.parametrize("name", ["000-3", "000-4", "000-7", "001-1", "002-III", "002-IV", "002-VI", "004-4"])
def test_the_papers_numbers_are_at_the_places_of_ours(name: str) -> None:
    table, values = TABLES[name], papers.paper_of(name)["values"]
    told = {(panel, label, x) for panel, rows in values.items() for label, row in rows.items() for x in row}
    ours = {(p.panel, row.label, str(p.x)) for p in table.points for row in table.rows if not row.ours}
    elsewhere = {place for place in told if place[2].startswith("MQ2007")}  # no shape here has its 46 features
    assert ours == told - elsewhere


def test_the_papers_counts_are_at_the_places_of_ours() -> None:
    for name in ("000-5", "002-V"):
        counted, values = TABLES[name].counted, papers.paper_of(name)["values"]
        assert counted is not None and set(values) == set(counted.counters)
        for rows in values.values():
            assert set(rows) == {row.label for row in counted.rows if not row.ours}
            assert all(list(row) == [str(point.x) for point in counted.points] for row in rows.values())


@pytest.mark.parametrize(
    ("name", "panel", "label", "x", "value", "printed"),
    [
        ("000-3", "Yahoo, Λ = 32", "vQS-256", "1000", 3.9, 3.2),
        ("000-7", "MSN, Λ = 64", "QS-GPU", "20000", 4.67, 100.8),
        ("000-4", "Istella, Λ = 64", "vQS MT", "5000", 3.7, 12.5),
        ("001-1", "Istella, Λ = 64", "vQS (SSE4.2)", "10000", 132.2, 1.2),
        ("002-III", "MSN, Λ = 32", "IF-THEN-ELSE", "10000", 1453.0, 1 / 24.4),
        ("002-III", "Yahoo, Λ = 32", "VPRED", "5000", 161.6, 1 / 4.7),
        ("002-III", "Istella, Λ = 64", "STRUCT+", "20000", 7586.4, 1 / 26.2),
        ("002-IV", "Istella, Λ = 32", "OBLIVIOUS", "20000", 205.0, 1 / 3.6),
        ("002-VI", "Istella, 20,000 trees", "VPRED", "64", 1413.1, 1 / 6.5),
        ("003-1", "Yahoo, 150 leaves", "DOT", "8051", 377.6, 1 / 4.61),
        ("004-4", "ns a document and tree", "DSD2", "MSN, 50 leaves", 31.49, 6.57),
    ],
)
def test_ratios_are_those_that_the_papers_print(
    name: str, panel: str, label: str, x: str, value: float, printed: float
) -> None:
    values = papers.paper_of(name)["values"]
    assert values[panel][label][x] == value
    assert papers.ratio(values, panel, label, x, TABLES[name].base) == pytest.approx(printed, rel=0.03)


def test_ratios_of_what_is_missing_are_none() -> None:
    values = {"a panel": {"base": {"1": 10.0, "2": None}, "row": {"1": 4.0, "2": 1.0}}}
    assert papers.ratio(values, "a panel", "row", "1", "base") == 2.5
    assert papers.ratio(values, "a panel", "row", "1", "base", more_is_better=True) == 0.4
    assert papers.ratio(values, "a panel", "row", "2", "base") is None
    assert papers.ratio(values, "no panel", "row", "1", "base") is None


def test_units_are_of_the_time_that_was_measured() -> None:
    point = plan.Point("", 1, plan.Spec("MSN", 2_000, 8), 10)
    assert plan.MICROSECONDS.of(5.0, point) == 5.0
    assert plan.NANOSECONDS.of(5.0, point) == 2.5
    assert plan.QUERIES.of(5.0, point) == 20_000.0  # a query has ten documents of 5 us each


def test_a_quick_run_keeps_the_ends_of_every_panel() -> None:
    points = TABLES["002-III"].points
    small = plan.QUICK.reduced(points)
    assert {p.panel for p in small} == {p.panel for p in points}
    assert [p.x for p in small][:2] == [1_000, 20_000]
    assert [p.model.trees for p in small][:2] == [10, 200]
    assert plan.Scale().reduced(points) == points


# -- measuring ------------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> plan.Table:
    try:
        compiler.compiler()
    except compiler.NoCompiler as problem:
        pytest.skip(str(problem))
    rng = np.random.default_rng(0)
    forest = random_forest(rng, shape="complete", n_features=6, n_trees=4)
    X = rng.normal(size=(40, 6)).astype(np.float32)
    monkeypatch.setattr(timing, "forest_of", lambda spec, data: forest)
    monkeypatch.setattr(selection, "forest_of", lambda spec, data: forest)
    monkeypatch.setattr(datasets, "documents", lambda shape, n, data: X[:n])
    spec = plan.Spec("MSN", 4, 8)
    points = (
        *(plan.Point("sizes", n, spec, n) for n in (10, 40)),
        *(plan.Point("d", d, spec, 40, (("d", d),)) for d in (2, 5)),
    )
    rows = (
        *tables.same("STRUCT+", "DSD", "OBLIVIOUS"),
        plan.Row("best", tables.BLOCKED),
        tables.engine("QS", "qs"),
        tables.engine("future", "vqs", isa="a set of next year"),
        *tables.ours("bitslice", "auto"),
    )
    return plan.Table("001-1", "a table", points, rows, "QS")


def test_every_row_has_a_value_or_a_reason_at_every_point(table: plan.Table) -> None:
    cells, told = timing.measure(table, plan.QUICK)
    assert list(cells) == ["sizes", "d"]
    assert all(list(rows) == [row.label for row in table.rows] for rows in cells.values())
    for panel, xs in (("sizes", ["10", "40"]), ("d", ["2", "5"])):
        for label, row in cells[panel].items():
            assert list(row) == xs
            for cell in row.values():
                assert (cell.value is None) == (label in ("OBLIVIOUS", "future")) == bool(cell.reason)
    assert cells["sizes"]["OBLIVIOUS"]["10"].reason == "a tree is not oblivious"
    assert "next year" in cells["sizes"]["future"]["10"].reason
    assert [cells["d"]["DSD"][x].parameters["d"] for x in ("2", "5")] == [2, 5]
    assert cells["sizes"]["best"]["40"].parameters["system"] in tables.BLOCKED
    assert told[0]["on the longest"] == told[0]["nodes on a walk"] == 4


def test_block_sizes_are_those_that_the_engine_states() -> None:
    stated = {parameter.name: parameter.default for parameter in ENGINES["bwqs"].parameters}
    assert timing.constants("bwqs") == {"tau": stated["tree_block"], "delta": stated["document_block"]}
    assert min(timing.constants("bwqs").values()) > 1
    assert timing.constants("bitslice") == {}


@pytest.mark.parametrize("measure", [timing.measure, selection.measure])
def test_a_wrong_score_ends_the_run(table: plan.Table, measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    score = Program.score
    monkeypatch.setattr(Program, "score", lambda self, X, **blocks: score(self, X, **blocks) + 1e-9)
    with pytest.raises(timing.Differs, match=r"scores differ from walk's"):
        measure(table, plan.QUICK)


def test_selection_compares_what_proposition_1_leaves_with_a_whole_grid(table: plan.Table) -> None:
    cells, _ = selection.measure(dataclasses.replace(table, points=table.points[:1]), plan.QUICK)
    rows = {label: row["10"] for label, row in cells["sizes"].items()}
    assert set(rows) == {"seconds of the guided sampling", "seconds of the exhaustive search", "error, %"}
    assert rows["error, %"].value >= 0
    assert rows["error, %"].parameters["best"].startswith(SURVIVING)


def test_cases_fill_half_of_the_level_that_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Hierarchy((32 << 10, 512 << 10, 32 << 20), (4.0, 10.0, 50.0))
    monkeypatch.setattr(blocking, "hierarchy", lambda: machine)
    point = plan.Point("", 0, plan.Spec("MSN", 5_000, 64), 4_000)
    document, tree = 136 * 4, 127 * 32
    assert len(blocking.CASES) == len(set(blocking.CASES)) == 28
    assert set(SURVIVING) <= set(blocking.CASES)
    assert blocking.choices("DSD2", point, (1.0,)) == ({"d": (256 << 10) // document},)
    # A block that uses only half of its bytes is made twice as large: 0.5 L / (µ F), paper 004, section 4.2.
    assert blocking.choices("DSD2S1", point, (0.5,)) == ({"d": (512 << 10) // document, "s": (32 << 10) // tree},)
    assert blocking.choices("SDS4D1", point, (1.0,)) == ({"s": 5_000, "d": (16 << 10) // document},)
    assert blocking.choices("SDS4", point) == ({"s": 5_000},)
    assert [blocking.order_of(name) for name in ("SDS3", "DSD4S4")] == ["SDS", "DSDS"]


# -- counting -------------------------------------------------------------------------------------


def test_counts_are_read_as_the_tools_write_them() -> None:
    dump = "version: 1\nevents: Ir I1mr D1mr ILmr Bc Bcm\nfn=(1)\n0 5 1 1 0 2 1\n\ntotals: 600 2 10 3 40 8\n"
    events = counting.read_callgrind(dump)
    assert events == {
        "instructions": 600,
        "branches": 40,
        "branch mispredictions": 8,
        "L3 references": 12,
        "L3 misses": 3,
    }
    shares = counting.shares(events, 4)
    assert (shares["instructions"], shares["L3 misses, % of references"]) == (150, 25)
    with pytest.raises(RuntimeError, match="no totals"):
        counting.read_callgrind("events: Ir\n")
    told = "# started\n\n4000,,instructions:u,1,100.00,,\n<not counted>,,cache-misses,0,0.00,,\n"
    assert counting.read_perf(told) == {"instructions": 4000 / counting.REPEATS}


@pytest.mark.parametrize(("kib", "ways"), [(32, 8), (48, 12), (64, 8), (80, 10), (192, 12)])
def test_simulated_caches_have_a_power_of_two_of_sets(kib: int, ways: int) -> None:
    assert counting.ways_of(kib << 10) == ways
    sets = (kib << 10) // (64 * ways)
    assert sets & (sets - 1) == 0


def test_a_count_that_is_there_needs_no_reason() -> None:
    cells: timing.Cells = {}
    point = plan.Point("a panel", 1_000, plan.Spec("MSN", 1_000, 8), 10)
    counted = plan.Counted(("instructions", "visited nodes"), (point,), ())
    counting.fill(cells, counted, "IF-THEN-ELSE", point, {"visited nodes": 3.5}, "too large to compile", {})
    counting.fill(cells, counted, "VPRED", point, {"instructions": 9.0}, "", {"v": 16})
    told = {panel: rows["IF-THEN-ELSE"]["1000"] for panel, rows in cells.items()}
    assert (told["instructions"].value, told["instructions"].reason) == (None, "too large to compile")
    assert (told["visited nodes"].value, told["visited nodes"].reason) == (3.5, "")
    assert cells["instructions"]["VPRED"]["1000"] == timing.Cell(9.0, {"v": 16})


def test_reversing_a_chain_of_false_tests_leaves_none() -> None:
    n = 10
    chain = Forest(
        n_features=1,
        node_offsets=np.array([0, n]),
        leaf_offsets=np.array([0, n + 1]),
        feature=np.zeros(n, np.int32),
        threshold=np.arange(n) - 100.0,
        left=~np.arange(n, dtype=np.int32),
        right=np.array([*range(1, n), ~n], np.int32),
        routing=np.zeros(n, np.uint8),
        leaf_value=np.zeros((n + 1, 1)),
    )
    X = np.zeros((3, 1), np.float32)
    visits = visited_by_reversing(chain, sample=X, X=X)
    assert (visits["none reversed"], visits["as a sample says"]) == (n, 0)
    other_way = visited_by_reversing(chain, sample=X - 200, X=X)
    assert other_way["as a sample says"] == n


# -- pages ----------------------------------------------------------------------------------------


@pytest.fixture
def report() -> dict[str, Any]:
    def cell(value: float | None = None, **told: Any) -> dict[str, Any]:
        return {"value": value, "parameters": {}, "reason": "", **told}

    cells = {
        "MSN, Λ = 64": {
            "QS": {"1000": cell(20.0), "10000": cell(300.0)},
            "vQS (AVX2)": {"1000": cell(8.0, parameters={"isa": "avx2"}), "10000": cell(reason="no such set")},
            "bitslice (ours)": {"1000": cell(2.0), "10000": cell(1234.5)},
        },
        "counted": {"QS": {str(x): cell(float(x)) for x in range(1, 9)}},
    }
    about = {"name": "001-1", "title": "a title", "base": "QS", "unit": "us a document", "x_name": "trees"}
    about |= {"processor": "a processor", "versions": "versions", "load": "load 0.1", "data": "made-up"}
    return {
        **about,
        "more_is_better": False,
        "counted": ["counted"],
        "quick": False,
        "notes": ["A note."],
        "models": [{"model": "a model", "depth": 12.3456}],
        "cells": cells,
        "paper": papers.paper_of("001-1"),
    }


def test_a_page_has_both_numbers_and_both_ratios(report: dict[str, Any]) -> None:
    text = page.markdown(report)
    assert "| trees | 1,000, here | 1,000, paper | 10,000, here | 10,000, paper |" in text
    assert "| vQS (AVX2) | 8 (2.50x) | 7.9 (1.51x) | NA | 138.2 (1.33x) |" in text
    assert "| bitslice (ours) | 2 (10.00x) |  | 1,234 (0.24x) |  |" in text
    assert "| trees | QS |" in text and "| 8 | 8 |" in text  # many x are listed as rows
    assert "- vQS (AVX2): NA, no such set (MSN, Λ = 64 at 10,000)" in text
    assert "- vQS (AVX2): isa = avx2 (MSN, Λ = 64 at 1,000)" in text
    assert "- Model: a model; depth 12.35" in text
    assert "Models are trained on, and score, made-up." in text
    assert "Numbers are us a document; what was counted, as its heading says." in text
    told = page.markdown(report | {"unit": "queries a second", "more_is_better": True, "counted": []})
    assert "Numbers are queries a second, the more the better." in told
    assert "a call scored" not in text.lower()  # old reports do not hold this number
    assert "quick" not in text and "quick run" in page.markdown(report | {"quick": True})


def test_a_page_says_how_many_documents_were_scored(report: dict[str, Any]) -> None:
    def told(**documents: dict[str, int]) -> str:
        return page.scored(report | {"documents": documents})

    assert told(a={"1": 500}, b={"1": 500, "2": 500}) == "A call scored 500 documents."
    by_trees = told(a={"1000": 2_000, "5000": 500}, b={"5000": 500, "9": 500})
    assert by_trees == "Documents that a call scored, by trees: 2,000 at 1,000; 500 at 5,000, 9."
    assert told(a={"1": 10}, b={"1": 500}) == "Documents that a call scored: 10 (a at 1); 500 (b at 1)."
    assert page.scored(report | {"documents": {"a": {"7": 7}}, "x_name": "documents"}) == told() == ""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_tables", BENCH / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_is_written_as_a_page_json_and_a_chart(
    report: dict[str, Any], tmp_path: Path, script: ModuleType
) -> None:
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    for name in ("001-1", "004-5"):  # lines, and bars
        made = script.write(report | {"name": name, "paper": papers.paper_of(name)}, tmp_path / "new")
        assert made.read_text().startswith(f"# {name}: a title")
        assert f'"name": "{name}"' in made.with_suffix(".json").read_text()
        assert made.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


# -- documents and models -------------------------------------------------------------------------


@pytest.mark.parametrize("shape", datasets.SHAPES.values(), ids=lambda shape: shape.name)
def test_documents_have_their_shape_and_are_the_same_every_time(shape: datasets.Shape) -> None:
    X = datasets.documents(shape, 150)
    assert X.shape == (150, shape.n_features) and X.dtype == np.float32 and np.isfinite(X).all()
    assert np.array_equal(X, datasets.documents(shape, 150))
    assert 0.1 < (X == 0).mean() < 0.7
    assert shape.name != "Yahoo" or (X.min(), X.max()) == (0, 1)
    part, y, sizes = datasets.training(shape, 0, n=300)
    assert len(part) == len(y) == sizes.sum() and not np.array_equal(part[:9], X[:9])


def test_real_files_take_the_place_of_made_up_documents(tmp_path: Path) -> None:
    folder = tmp_path / "somewhere" / "Fold1"
    folder.mkdir(parents=True)
    lines = [f"{d % 3} qid:{d // 4} 1:{d} 136:0.5" for d in range(12)]
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text("\n".join(lines) + "\n")
    X = datasets.documents(datasets.MSN, 10, tmp_path)
    assert X.shape == (10, 136) and X[:8, 0].tolist() == [*range(8)] and (X[:, 135] == 0.5).all()
    part, y, sizes = datasets.training(datasets.MSN, 0, tmp_path, n=5)
    assert len(part) == len(y) == sizes.sum() and set(sizes) == {4}
    with pytest.raises(gpuqs.errors.InputError, match=r"no set1.train.txt, which Yahoo needs"):
        datasets.training(datasets.YAHOO, 0, tmp_path)


@pytest.mark.parametrize("below", ["", "full"])
def test_istella_lies_as_it_was_packed_or_right_below(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "istella-letor" / below
    folder.mkdir(parents=True)
    (folder / "test.txt").write_text("0 qid:1 1:0.5 220:2\n1 qid:1 1:0.25\n")
    assert datasets.documents(datasets.ISTELLA, 2, tmp_path)[:, [0, 219]].tolist() == [[0.5, 2], [0.25, 0]]


def real_msn(folder: Path, last: str) -> Path:
    (folder / "Fold1").mkdir(parents=True)
    for name in ("train.txt", "test.txt"):
        (folder / "Fold1" / name).write_text(f"0 qid:1 1:0.5\n{last} qid:1 1:0.5\n")
    return folder


def test_models_of_other_real_files_have_other_places(tmp_path: Path) -> None:
    one, same, other = (real_msn(tmp_path / name, last) for name, last in (("a", "1"), ("b", "1"), ("c", "2")))
    keys = [datasets.key(datasets.MSN, folder) for folder in (one, same, other)]
    assert keys[0] == keys[1] != keys[2] and all(key.startswith("msn-real-") for key in keys)
    assert datasets.key(datasets.MSN) == "msn"


def test_models_of_real_files_are_found_where_their_data_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "CACHE", tmp_path)
    one, other = (real_msn(tmp_path / name, last) for name, last in (("a", "1"), ("b", "2")))
    made = tmp_path / f"{datasets.key(datasets.MSN, one)}-4" / "5.txt"
    made.parent.mkdir()
    made.touch()
    assert models.ranker(datasets.MSN, 5, 4, one) == made
    monkeypatch.setattr(models, "training", lambda *_: pytest.fail("trained anew"))
    with pytest.raises(pytest.fail.Exception, match="trained anew"):
        models.ranker(datasets.MSN, 5, 4, other)


def test_models_are_kept_in_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = models.mslr_like
    monkeypatch.setattr(models, "CACHE", tmp_path / "not" / "there")
    monkeypatch.setattr(models, "mslr_like", lambda n, seed: full(3, seed))
    assert models.lambdamart(2, 4).is_file()


def test_pages_name_real_documents_and_keep_apart(script: ModuleType) -> None:
    spec = plan.Spec("MSN", 1_000, 64)
    assert spec.called(True).startswith("MSN, real,") and spec.called(False).startswith("MSN-like,")
    for quick in (True, False):
        made_up, real = (script.usual_folder(quick, real) for real in (False, True))
        assert real.parent == made_up.parent and real.name == f"{made_up.name}-real"
    assert "real" in script.REAL and "made-up" in script.MADE_UP


@pytest.mark.parametrize(
    ("make", "table", "told"),
    [
        (lambda folder: folder / "nowhere", "001-1", "nowhere: no such folder"),
        (lambda folder: real_msn(folder, "1"), "001-1", "no set1.train.txt, which Yahoo needs"),
        (lambda folder: real_msn(folder, "1"), "002-V", r"no \*stella\*/\*\*/train.txt, which Istella"),
    ],
)
def test_what_real_data_lacks_is_told_in_one_line_before_anything_is_measured(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, table: str, told: str
) -> None:
    monkeypatch.setattr(script, "report_of", lambda *_: pytest.fail("measured before the folder was looked at"))
    with pytest.raises(SystemExit, match=told) as ended:
        script.main([table, "--data", str(make(tmp_path))])
    assert "\n" not in str(ended.value)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = datasets.training
    monkeypatch.setattr(models, "CACHE", tmp_path)
    monkeypatch.setattr(models, "PART", 3)
    monkeypatch.setattr(models, "training", lambda shape, part, data, n=300: full(shape, part, data, 300))


@pytest.mark.usefixtures("small_parts")
def test_a_smaller_ranker_is_the_start_of_a_larger_one_and_training_goes_on(tmp_path: Path) -> None:
    large = gpuqs.load(models.ranker(datasets.MSN, 8, 4)).forest
    small = gpuqs.load(models.ranker(datasets.MSN, 5, 4)).forest
    assert (large.n_trees, small.n_trees, large.n_leaves) == (8, 5, 4)
    for name in ("threshold", "feature", "leaf_value", "left"):
        part = getattr(small, name)
        assert np.array_equal(getattr(large, name)[: len(part)], part)
    folder = tmp_path / "msn-4"
    for lost in ("part-002.txt", "8.txt"):  # as if interrupted while the last part was trained
        (folder / lost).unlink()
    again = gpuqs.load(models.ranker(datasets.MSN, 8, 4)).forest
    assert np.array_equal(again.threshold, large.threshold) and np.array_equal(again.leaf_value, large.leaf_value)


@pytest.mark.usefixtures("small_parts")
def test_a_smaller_oblivious_model_is_the_start_of_a_larger_one() -> None:
    pytest.importorskip("catboost", reason="oblivious models are CatBoost's")
    small = models.oblivious(datasets.MSN, 2, 8)
    larger = models.oblivious(datasets.MSN, 5, 8)
    assert (small.n_trees, larger.n_trees) == (2, 5)
    assert np.array_equal(small.threshold, larger.threshold[: len(small.threshold)])
    assert np.array_equal(models.oblivious(datasets.MSN, 3, 8).threshold, larger.threshold[: 3 * 7])
