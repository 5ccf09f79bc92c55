"""bench/systems.py checks, tunes and times the systems that fit a forest, says why others do not, and lists all."""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import random_forest

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import systems  # noqa: E402
from baselines import compiler, tuned  # noqa: E402
from baselines.check import cases  # noqa: E402
from baselines.counts import visited_nodes  # noqa: E402
from baselines.oblivious_forest import oblivious_like  # noqa: E402
from baselines.orderings import ORDERINGS, Ordering  # noqa: E402
from baselines.program import Program  # noqa: E402
from baselines.registry import SYSTEMS  # noqa: E402
from baselines.report import markdown, nanoseconds_a_node, systems_page  # noqa: E402
from baselines.tuned import Job, candidates  # noqa: E402
from made_up import chained  # noqa: E402

from gpuqs.forest import Forest  # noqa: E402


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    try:
        compiler.compiler()
    except compiler.NoCompiler as problem:
        pytest.skip(str(problem))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 6)).astype(np.float32)
    return systems.measure(systems.Job("complete", random_forest(rng, shape="complete", n_features=6), X), 3, 1.0)


def test_every_system_is_timed_or_has_a_reason(result: dict[str, Any]) -> None:
    assert {*result["rows"], *result["not_timed"]} >= {*SYSTEMS, "qs", "vqs", "bitslice"}
    assert result["not_timed"]["OBLIVIOUS"] == "a tree is not oblivious"
    assert all(row["us_per_document"] >= row["minimum_us"] > 0 for row in result["rows"].values())
    for name, system in SYSTEMS.items():
        if name in result["rows"]:
            assert tuple(result["rows"][name]["parameters"]) == tuple(
                p for p in ("v", "tau", "d", "s") if p in system.parameters
            )


def test_pages_name_every_system_once(result: dict[str, Any]) -> None:
    checks = {name: {"forests": 2, "rows": 1_234, "differ": 0} for name in (*SYSTEMS, "qs")}
    report = {"processor": "a processor", "versions": "versions", "load": "0.1 on 2 processors"}
    report |= {"checks": checks, "results": [result]}
    page = systems_page(report)
    for name in (*SYSTEMS, "qs", "vqs", "bwqs", "qs_oblivious", "qs_gpu"):
        assert page.count(f"\n| {name} |") == 1
    assert "| 2 | 1,234 | 0 | NA: a tree is not oblivious |" in page
    assert markdown(report).count("us/document") == 1


def test_time_a_node_is_time_over_visited_nodes(result: dict[str, Any]) -> None:
    rows = {"qs": {"us_per_document": 20.0}, "STRUCT+": {"us_per_document": 9.0}}
    counted = {"visited_nodes": {"false nodes": 10.0, "walks": 3.0}, "trees": 1_000, "rows": rows}
    assert nanoseconds_a_node(counted)[2:] == ["| qs | 10.0 | 2.00 | 0.89 |", "| STRUCT+ | 3.0 | 3.00 | 3.50 |"]
    assert len(nanoseconds_a_node(result)) == 6


def test_chains_are_shaped_as_in_the_paper() -> None:
    X = np.random.default_rng(0).lognormal(size=(500, 30)).astype(np.float32)
    counted = visited_nodes(chained(50, 64, X), X)
    assert (counted["predicated"], counted["nodes"]) == (47, 63)  # 45.6 and 63 in paper 002, Table V
    assert abs(counted["walks"] - 32.18) < 3
    assert abs(counted["false nodes"] - 12.52) < 3
    tiny = chained(3, 2, X)
    assert (tiny.n_leaves, tiny.n_nodes) == (2, 3)


def test_a_wrong_score_ends_the_run(monkeypatch: pytest.MonkeyPatch, result: dict[str, Any]) -> None:
    score = Program.score
    monkeypatch.setattr(Program, "score", lambda self, X, **blocks: score(self, X, **blocks) + 1e-9)
    X = np.zeros((5, 3), np.float32)
    with pytest.raises(SystemExit, match="wrong: IF-THEN-ELSE and walk give other scores"):
        systems.measure(systems.Job("wrong", random_forest(np.random.default_rng(1), n_features=3), X), 1, 0.1)
    monkeypatch.setattr(systems, "SYSTEMS", {"STRUCT+": SYSTEMS["STRUCT+"]})
    monkeypatch.setattr(systems, "ENGINES_OF_PAPERS", {})
    monkeypatch.setattr(systems, "cases", lambda oblivious, few: islice(cases(oblivious, few), 1))
    with pytest.raises(SystemExit, match=r"STRUCT\+: .*101 of 101 scores differ"):
        systems.check_all()


def test_oblivious_forests_are_oblivious() -> None:
    X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    forest = oblivious_like(7, 3, X)
    assert (forest.n_trees, forest.n_leaves) == (7, 8)
    assert SYSTEMS["OBLIVIOUS"].refuses(forest) is None
    counted = visited_nodes(forest, X)
    assert (counted["walks"], counted["predicated"], counted["nodes"]) == (3, 3, 7)


def test_visited_nodes_are_those_of_a_tree_by_hand() -> None:
    # x <= 0 ? leaf 0 : (x <= 1 ? leaf 1 : leaf 2), scored at -1, 0.5 and 2
    forest = Forest(
        n_features=1,
        node_offsets=np.array([0, 2]),
        leaf_offsets=np.array([0, 3]),
        feature=np.zeros(2, np.int32),
        threshold=np.array([0.0, 1.0]),
        left=np.array([~0, ~1], np.int32),
        right=np.array([1, ~2], np.int32),
        routing=np.zeros(2, np.uint8),
        leaf_value=np.zeros((3, 1)),
    )
    counted = visited_nodes(forest, np.array([[-1.0], [0.5], [2.0]]))
    assert counted == {"walks": 5 / 3, "predicated": 2.0, "false nodes": 1.0, "nodes": 2.0}


def test_orderings_tell_what_figures_say() -> None:
    ordering = Ordering("a", "b", 2.0, 3.0, "a table")
    assert ordering.told({"a": 1.0}) is None
    assert ordering.told({"a": 1.0, "b": 2.5}) == "a over b: 2.50 times (holds; 2 to 3 in a table)"
    assert "1.50 times (holds, by less;" in str(ordering.told({"a": 1.0, "b": 1.5}))
    assert "0.50 times (does not hold;" in str(ordering.told({"a": 1.0, "b": 0.5}))
    assert ordering.told({"a": 1.0, "b": 2.5, "OBLIVIOUS": 1.0}) is None
    up_to = Ordering("a", "b", None, 3.0, "a table")
    assert up_to.told({"a": 1.0, "b": 1.1}) == "a over b: 1.10 times (holds; up to 3 in a table)"
    assert "0.90 times (does not hold;" in str(up_to.told({"a": 1.0, "b": 0.9}))


@pytest.mark.parametrize(
    ("faster", "slower", "least", "most"),
    [
        ("qs", "VPRED", 1.91, 6.62),  # Yahoo, 1,000 trees of 8 leaves; MSN, 1,000 of 64
        ("qs", "IF-THEN-ELSE", 2.3, 26.97),  # MSN, 20,000 of 16
        ("qs", "CONDOP", 2.34, 8.66),
        ("qs", "STRUCT+", 5.25, 40.7),
        ("vqs", "qs", 1.3, 3.21),
        ("bwqs", "qs", 1.26, 1.34),
        ("DSD", "DS", 4.1, 6.57),
        ("OBLIVIOUS", "VPRED", 0.34, 1.5),
        ("qs_oblivious", "OBLIVIOUS", 0.69, 3.56),  # Yahoo, 1,000 of 8, where OBLIVIOUS is faster
        ("SDSD", "VPRED", None, 1.5),  # "up to 50 % faster"
    ],
)
def test_orderings_are_those_of_the_papers(faster: str, slower: str, least: float | None, most: float) -> None:
    (found,) = (o for o in ORDERINGS if (o.faster, o.slower) == (faster, slower))
    assert (found.least, found.most) == (least, most)


def test_blocks_of_documents_are_whole_vectors_and_each_is_tried_once() -> None:
    forest = random_forest(np.random.default_rng(8), n_trees=9)
    job = Job("", forest, np.zeros((40, forest.n_features), np.float32))
    tried = [given for given, _ in candidates(SYSTEMS["Block-VPRED"], job)]
    assert all(given["d"] % given["v"] == 0 for given in tried)
    assert len({tuple(given.items()) for given in tried}) == len(tried)


def test_blocks_are_tuned_on_all_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block size that is fastest on the whole batch is slowest on the few documents that are tried first."""

    class Slept:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def score(self, X: np.ndarray, d: int) -> None:
            time.sleep(0.001 if (d == 1_000) == (len(X) == 1_000) else 0.01)

    forest = random_forest(np.random.default_rng(9), n_trees=9)
    monkeypatch.setattr(tuned, "Program", Slept)
    monkeypatch.setattr(tuned, "FIRST_PAIRS", 9 * 100)
    job = Job("", forest, np.zeros((1_000, forest.n_features), np.float32))
    assert tuned.tune(SYSTEMS["DSD"], job, 0.1)[0] == {"d": 1_000}
