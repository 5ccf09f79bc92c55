"""bench/papers/ holds the papers' printed numbers: it agrees with their speed-ups and with numbers printed twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT / "bench") not in sys.path:
    sys.path.append(str(ROOT / "bench"))

from lab.papers import Values, paper_of  # noqa: E402

#: Speed-ups as printed in brackets next to the times, by table, panel, row and x.
PRINTED: dict[str, Values] = json.loads((ROOT / "tests" / "data" / "printed_speedups.json").read_text())
#: The base of printed speed-ups. In `SLOWER`, a row is slower than the base by that factor; in `FASTER`, the base row.
SLOWER: dict[str, Callable[[Any, str], float]] = {
    "002-III": lambda rows, x: rows["QS"][x],
    "002-IV": lambda rows, x: min(row[x] for row in rows.values() if row[x] is not None),
    "002-VI": lambda rows, x: rows["BWQS"][x],
}
FASTER = {"000-3": "QS", "000-4": "vQS-256", "000-7": "QS", "001-1": "QS"}
#: Speed-ups that the paper's own times contradict: 10.05 is printed as 10.5, 6.5 as 4.7, and 1.29 as 1.4.
MISPRINTS = {
    ("002-III", "Istella, Λ = 64", "STRUCT+", "1000"),
    ("002-IV", "Yahoo, Λ = 8", "CONDOP", "10000"),
    ("002-IV", "Yahoo, Λ = 8", "OBLIVIOUS", "20000"),
}
#: The only time without a speed-up: its brackets are empty.
NOT_PRINTED = ("002-III", "Istella, Λ = 32", "STRUCT+", "5000")
#: Allowed error of a speed-up: the papers round some of them down.
LAST_PLACE = 0.1


def values(table: str) -> Values:
    found: Values = paper_of(table)["values"]
    return found


def half_a_place(row: dict[str, float | None]) -> float:
    """Largest rounding error of a row's numbers."""
    places = max(len(str(value).partition(".")[2]) for value in row.values() if value is not None)
    return 0.5 * 10**-places


def contradicted(table: str, values: Values) -> set[tuple[str, str, str, str]]:
    """Places where a printed speed-up differs from the quotient of the times by more than rounding explains."""
    found = set()
    for panel, rows in PRINTED[table].items():
        for label, printed in rows.items():
            for x, ratio in printed.items():
                each, theirs = values[panel][label][x], values[panel]
                base = SLOWER[table](theirs, x) if table in SLOWER else theirs[FASTER[table]][x]
                assert each is not None and base is not None and ratio is not None
                apart = half_a_place(dict(theirs[label]))
                ends = [(base + 0.05 * s) / (each - apart * s) for s in (-1, 1)]
                least, most = sorted(1 / end for end in ends) if table in SLOWER else ends
                if not least - LAST_PLACE <= ratio <= most + LAST_PLACE:
                    found.add((table, panel, label, x))
    return found


@pytest.mark.parametrize("table", PRINTED)
def test_times_are_those_whose_speed_ups_the_papers_print(table: str) -> None:
    assert contradicted(table, values(table)) == {place for place in MISPRINTS if place[0] == table}


@pytest.mark.parametrize("table", PRINTED)
def test_every_time_of_these_tables_has_a_speed_up(table: str) -> None:
    for panel, rows in values(table).items():
        for label, row in rows.items():
            told = {x for x, value in row.items() if value and (table, panel, label, x) != NOT_PRINTED}
            if label not in ("QS", "BWQS", "QS-Omega", "OBLIVIOUS", FASTER.get(table)):
                assert told == set(PRINTED[table][panel][label])


@pytest.mark.parametrize("table", sorted({*PRINTED} - {"000-4"}))  # prints small times with one digit
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_a_changed_number_is_seen(table: str, factor: float) -> None:
    for panel, rows in PRINTED[table].items():
        for label, row in rows.items():
            for x in row:
                wrong: Any = deepcopy(values(table))
                wrong[panel][label][x] *= factor
                place = (table, panel, label, x)
                assert place in MISPRINTS or contradicted(table, wrong) - MISPRINTS, place


# -- printed twice ----------------------------------------------------------------------------------


def test_times_that_several_tables_of_paper_000_print_are_the_same() -> None:
    differ = [
        (panel, label, x)
        for one, other in (("000-3", "000-4"), ("000-3", "000-7"), ("000-4", "000-7"))
        for panel, rows in values(one).items()
        for label in rows.keys() & values(other)[panel].keys()
        for x in rows[label]
        if rows[label][x] != values(other)[panel][label][x]
    ]
    assert differ == [("Istella, Λ = 64", "vQS MT", "1000")], "0.7 in Table 4, 2.5 in Table 7, with a speed-up each"


def test_times_at_20_000_trees_are_those_of_the_larger_table() -> None:
    for label in ("QS", "VPRED"):
        for leaves, value in values("002-VI")["Istella, 20,000 trees"][label].items():
            assert value == values("002-III")[f"Istella, Λ = {leaves}"][label]["20000"]


def test_points_of_figure_12_are_times_of_the_tables() -> None:
    figure, table = values("002-F12")["Istella, Λ = 64"], values("002-III")["Istella, Λ = 64"]["QS"]
    for x, value in figure["QS"].items():
        assert value == pytest.approx((table[x] or 0) / int(x) * 1_000, abs=0.005)
    of_blocks = values("002-VI")["Istella, 20,000 trees"]["BWQS"]["64"]
    assert figure["BWQS"]["20000"] == pytest.approx((of_blocks or 0) / 20, abs=0.005)


def test_shares_of_visited_nodes_are_of_63() -> None:
    of = values("002-V")
    for label, row in of["visited nodes"].items():
        for x, nodes in row.items():
            assert of["visited nodes, % of all"][label][x] == pytest.approx((nodes or 0) / 63 * 100, abs=1)


def test_the_best_of_each_ensemble_is_told_again() -> None:
    cases = values("004-4")["ns a document and tree"]
    for ensemble, best in values("004-6")["ns a document and tree"]["tree scorers"].items():
        assert best == min(row[ensemble] or 0 for row in cases.values())
    for ensemble, row in values("004-F5").items():
        assert row["DSD"]["373"] == cases["DSD2"][ensemble]
    assert cases["SDS4"] == cases["DS"], "no blocking at all"


def test_the_ratios_of_paper_003_are_those_of_its_text() -> None:
    row = {label: each.get("8051") or 0.0 for label, each in values("003-1")["Yahoo, 150 leaves"].items()}
    assert row["DOT"] / row["2D blocking"] == pytest.approx(4.61, abs=0.005)
    assert row["VPRED"] / row["Block-VPRED"] == pytest.approx(1.62, abs=0.005)
    assert row["VPRED"] / row["2D blocking"] == pytest.approx(1.5, abs=0.02)
    assert row["DOT"] * 8_051 == pytest.approx(3.04e6, rel=0.005)
