"""Compare `auto`'s engine with the fastest one: forests of many shapes, few documents per call, warm and cold caches.

    python bench/regret.py [--seconds 300]
    python bench/regret.py --quick    # a smoke run

Forests are generated in random order until the time is over, and the engines' kernels take turns on each. Printed is
how much longer `auto`'s engine takes than the fastest one, by the mean of a warm and a cold call, which `auto` uses,
and by warm calls only: geometric means, and the worst. Nothing is saved: this checks the cost model.
"""

from __future__ import annotations

import argparse
import random
import time
from itertools import product
from typing import NamedTuple, cast

import numpy as np
from growth import documents
from interleave import processor
from made_up import lambdamart_like
from pages.small_calls import percentile_name
from small import engine_calls, measure

from gpuqs.model import Model

TREES, LEAVES, FEATURES = (1, 10, 50, 100, 300, 1_000), (4, 16, 31, 64, 128, 255), (10, 40, 136, 700)
SIZES = (1, 2, 4, 8, 16, 35, 64)
#: Calls of each engine, and seconds of them, warm and cold.
WARM, COLD = (60, 0.02), (7, 0.2)
SHOWN = 15
MEDIAN = percentile_name(50.0)


class Choice(NamedTuple):
    """One forest and number of documents: the chosen and the fastest engine, and microseconds by engine."""

    trees: int
    leaves: int
    features: int
    documents: int
    taken: str
    warm: dict[str, float]
    cold: dict[str, float]

    @property
    def mean(self) -> dict[str, float]:
        return {name: (self.warm[name] + self.cold[name]) / 2 for name in self.warm}

    def regret(self, of: dict[str, float]) -> float:
        return of[self.taken] / min(of.values())

    def __str__(self) -> str:
        best = min(self.mean, key=self.mean.__getitem__)
        times = (f"{name} {self.warm[name]:.1f} warm, {self.cold[name]:.1f} cold" for name in (self.taken, best))
        forest = f"{self.trees:,} x {self.leaves}, {self.features} features, {self.documents} documents"
        return f"{self.regret(self.mean):5.2f}  {forest}: {'; '.join(times)}"


def choices(n_trees: int, n_leaves: int, n_features: int, sizes: tuple[int, ...]) -> list[Choice]:
    """The choices for one forest, and the time of each engine."""
    X, found = documents(4_096, n_features), []
    model = Model(lambdamart_like(n_trees, n_leaves, X[:1_000]))
    for n in sizes:
        batches = [X[at : at + n] for at in range(0, len(X) - n + 1, n)][: WARM[0]]
        calls = engine_calls(model, n)
        medians = []
        for cold, (n_calls, seconds) in ((False, WARM), (True, COLD)):
            taken = measure(calls, batches[:n_calls], cold, 1, seconds)
            medians.append({name: cast(float, told[MEDIAN]) for name, told in taken.items()})
        found.append(Choice(n_trees, n_leaves, n_features, n, model.engine_for(n), *medians))
    return found


def mean(regrets: list[float]) -> str:
    """The geometric mean of regrets, and the shares of large ones."""
    shares = (f"{np.mean(np.array(regrets) > least):.1%} above {least}" for least in (1.2, 1.5, 2.0))
    return f"{np.exp(np.mean(np.log(regrets))):.3f} ({', '.join(shares)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--quick", action="store_true", help="two forests, two sizes")
    given = parser.parse_args()
    shapes = list(product(TREES, LEAVES, FEATURES))
    random.Random(0).shuffle(shapes)
    Model(lambdamart_like(10, 8, documents(100, 8))).warm_up()  # calibrates, as a user's first call does
    found: list[Choice] = []
    began = time.perf_counter()
    for shape in shapes[:2] if given.quick else shapes:
        if time.perf_counter() - began > given.seconds:
            break
        found += choices(*shape, SIZES[:2] if given.quick else SIZES)
    found.sort(key=lambda choice: -choice.regret(choice.mean))
    print(f"{processor()}, one thread: {len(found)} choices; time of the chosen engine relative to the fastest")
    print(f"warm and cold: {mean([choice.regret(choice.mean) for choice in found])}")
    print(f"warm only:     {mean([choice.regret(choice.warm) for choice in found])}")
    print(*found[:SHOWN], sep="\n")


if __name__ == "__main__":
    main()
