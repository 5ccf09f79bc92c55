"""What every engine must have: the interface's signatures, and an entry wherever engines are listed."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import agreement
import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import find_device
from gpuqs.engines import ENGINES
from gpuqs.engines.base import Engine
from gpuqs.engines.bitslice import Bitslice
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import build_bitslice
from gpuqs.layout.ranks import build_ranks, count_tests
from gpuqs.model import Model

TESTS = Path(__file__).parents[1]
README = TESTS.parent.joinpath("README.md").read_text(encoding="utf-8")
INTERFACE = {
    name: method for name, method in vars(Engine).items() if inspect.isfunction(method) and not name.startswith("_")
}
FOREST = random_forest(np.random.default_rng(0), max_leaves=12)
OBLIVIOUS = random_forest(np.random.default_rng(0), max_leaves=8, shape="oblivious")

every_engine = pytest.mark.parametrize("name", ENGINES)


@every_engine
@pytest.mark.parametrize("method", INTERFACE)
def test_engines_have_the_interfaces_signatures(name: str, method: str) -> None:
    theirs, ours = (inspect.signature(f) for f in (getattr(type(ENGINES[name]), method), INTERFACE[method]))
    assert theirs.parameters == ours.parameters


@every_engine
def test_engines_add_no_public_methods_of_their_own(name: str) -> None:
    """Such methods could only be used by callers that know the engine."""
    public = {n for n, member in inspect.getmembers(type(ENGINES[name]), inspect.isfunction) if not n.startswith("_")}
    assert public == INTERFACE.keys()


@every_engine
def test_engines_say_what_they_are(name: str) -> None:
    engine = ENGINES[name]
    assert engine.name == name and engine.device in ("cpu", "cuda") and engine.summary


@every_engine
def test_engines_are_listed_everywhere(name: str) -> None:
    model = Model(FOREST)
    assert name in model.engines()
    choice = next(choice for choice in model.explain(10).choices if choice.engine == name)
    assert (choice.summary, choice.reason) == (ENGINES[name].summary, model.engines()[name])
    assert re.search(rf"^ *(-> )?{name} ", str(model.explain(10)), re.M)
    assert re.search(rf"^\| `{name}` \|", README.partition("## Engines")[2], re.M), "README's table of engines lacks it"


@every_engine
def test_engines_are_in_the_conformance_tests(name: str) -> None:
    """Every library's models are scored by the compiled CPU engines, and by GPU engines on the emulated device."""
    assert name in {"reference", *agreement.COMPILED, *agreement.ON_GPU}
    uses = "COMPILED" if ENGINES[name].device == "cpu" else "ON_GPU"
    files = TESTS.glob("conformance/test_*.py") if uses == "COMPILED" else [TESTS / "cuda" / "test_sources.py"]
    assert any(uses in file.read_text(encoding="utf-8") for file in files)


@every_engine
def test_costs_are_numbers_that_grow_or_are_not_known(name: str) -> None:
    few, many = (ENGINES[name].cost(FOREST, n) for n in (1, 10_000))
    assert (few is None and many is None) or 0 < few < many


def test_costs_are_those_of_the_machine_that_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs do not depend on changes of the environment: choices are cached per machine."""
    machines = [Machine(isa, compiled) for isa in cpu_fallback.available_isas() for compiled in (False, True)]
    costs = {name: [ENGINES[name].cost(FOREST, 50, on) for on in machines] for name in ENGINES}
    for isa in cpu_fallback.available_isas():
        monkeypatch.setenv("GPUQS_ISA", isa)
        assert costs == {name: [ENGINES[name].cost(FOREST, 50, on) for on in machines] for name in ENGINES}
        here = cpu_fallback.machine()
        assert all(ENGINES[name].cost(FOREST, 50) == of[machines.index(here)] for name, of in costs.items())
    assert len(set(costs["bitslice"])) > 1


def test_auto_reckons_with_cold_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Model(FOREST).engine_for(30)
    monkeypatch.setattr(type(ENGINES[before]), "cold", lambda self, forest, n, machine: 1e6)
    assert Model(FOREST).engine_for(30) != before


@pytest.mark.parametrize("n", [0, 1, 100, 2_000])
def test_auto_takes_the_yardstick_of_no_usual_forest(n: int) -> None:
    """Also for constant models and models without trees."""
    rng = np.random.default_rng(2)
    for forest in (FOREST, random_forest(rng, n_trees=3, max_leaves=1), random_forest(rng, n_trees=0)):
        assert Model(forest).engine_for(n) != "reference"


def test_auto_takes_the_yardstick_where_no_other_engine_can_run_the_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, engine in ENGINES.items():
        if name != "reference":
            monkeypatch.setattr(type(engine), "why_not", lambda self, forest: "it is too large")
    assert Model(FOREST).engine_for(10) == "reference"


def test_costs_know_the_columns_that_are_tested() -> None:
    wide = dataclasses.replace(FOREST, n_features=FOREST.n_features + 5_000)
    for name, engine in ENGINES.items():
        if engine.device == "cpu" and engine.why_not(FOREST) is None:
            assert engine.cost(wide, 20) == engine.cost(FOREST, 20), name


def forest_and_documents(name: str) -> tuple[Forest, np.ndarray]:
    """A forest that the engine can run, and documents."""
    forest = FOREST if ENGINES[name].why_not(FOREST) is None else OBLIVIOUS
    return forest, probing_documents(np.random.default_rng(1), forest, 40)


def device_for(name: str) -> Any:
    """The device to run on: the host, or the emulated GPU."""
    if ENGINES[name].device == "cpu":
        return "cpu"
    if shutil.which("g++") is None:
        pytest.skip("the emulation needs g++")
    sys.path.append(str(TESTS / "cuda"))
    from emulation.device import EmulatedDevice

    return EmulatedDevice()


@every_engine
def test_engines_give_what_reference_gives(name: str) -> None:
    forest, X = forest_and_documents(name)
    model = Model(forest).to(device_for(name))
    for asked in ({"output": "leaf"}, {"output": "raw", "precision": "fast"}, {"output": "per_tree"}):
        want = Model(forest).predict(X, **asked, engine="reference")
        np.testing.assert_array_equal(model.predict(X, **asked, engine=name), want)


@every_engine
def test_sums_begin_with_what_they_are_given(name: str) -> None:
    forest, X = forest_and_documents(name)
    start = np.arange(len(X))[:, None] * 1000
    engine, device, reference, want = ENGINES[name], find_device(device_for(name)), ENGINES["reference"], start.copy()
    reference.score(reference.prepare(forest, "fast"), X, want, started=True)
    with device.active():
        program, got = engine.prepare(forest, "fast", device=device), start.copy()
        if device.kind == "cpu":
            engine.score(program, X, got, started=True)
        else:
            sums = device.from_host(start)
            engine.score(program, device.from_host(X), sums, started=True)
            got = device.to_host(sums)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n_thresholds", [100, 300, 2_000])
def test_bitslice_foresees_how_many_tests_its_superblocks_decode(
    n_thresholds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"n_trees": 60, "max_leaves": 120, "n_features": 20, "n_thresholds": n_thresholds}
    forest = random_forest(np.random.default_rng(0), **shape)
    engine, sizes = Bitslice(), {"one_superblock": 1_000, "max_predicates": 900}
    monkeypatch.setattr(engine, "_default", sizes.__getitem__)
    layout = build_bitslice(forest, build_ranks(forest), sizes["max_predicates"], forest.n_nodes, True)
    decoded = int(layout.block_low[-1])
    assert engine._decoded(forest) == pytest.approx(decoded, rel=0.1)
    assert count_tests(forest) <= decoded
    sizes["one_superblock"] = count_tests(forest)
    assert engine._decoded(forest) == count_tests(forest)
