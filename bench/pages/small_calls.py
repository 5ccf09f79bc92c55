"""Calls with few documents, as Markdown: a table of contenders, one of gpuqs's engines."""

from __future__ import annotations

from typing import Any

from pages.figures import figure, table, times

CONTENDER = "gpuqs"
#: The baseline for two Python threads: calls that take as long as ours but only hash.
HASHING = "SHA-256, as long"


def percentile_name(p: float) -> str:
    return "median" if p == 50 else f"p{p:g}"


def told(us: dict[str, float | None]) -> str:
    """The median, and in parentheses the other percentiles for which there were enough calls."""
    values = [us[name] for name in ("median", "p99", "p99.9")]
    median, *tails = [figure(value) for value in values if value is not None]
    return f"{median} ({', '.join(tails)})" if tails else median


def small_calls(model: dict[str, Any]) -> list[str]:
    """Lines of a model's tables."""
    cells = model["cells"]
    names = list(dict.fromkeys(name for cell in cells for name in cell["calls"]["warm"]["1"]))
    rows, engines = [], []
    for cell in cells:
        for kind, of_threads in cell["calls"].items():
            for threads, us in of_threads.items():
                ours, theirs = us[CONTENDER]["median"], us["LightGBM"]["median"]
                figures = [told(us[name]) if name in us else "" for name in names]
                rows.append([f"{cell['documents']:,}", kind, threads, *figures, times(theirs / ours)])
        for kind, us in cell["engines"].items():
            best, chosen = min(us.values()), us[cell["engine"]]
            more = f"{(chosen / best - 1) * 100:.0f} %"
            engines.append([f"{cell['documents']:,}", kind, *map(figure, us.values()), cell["engine"], more])
    scaled_names = [*names, *([HASHING] if HASHING in cells[0]["two_threads"] else [])]
    scaled = []
    for cell in cells:
        ratios = (cell["two_threads"].get(name) for name in scaled_names)
        scaled.append([f"{cell['documents']:,}", *("" if ratio is None else times(ratio) for ratio in ratios)])
    hashing = f" ({HASHING}: calls that take as long as gpuqs's but only hash)" if HASHING in scaled_names else ""
    of_one_thread = "n_threads" in cells[-1]
    note = "" if of_one_thread else " Here gpuqs's largest calls used two threads, the other libraries' one."
    engine_names = list(cells[0]["engines"]["warm"])
    return [
        f"**{model['model']}**, microseconds per call: median (99th, 99.9th percentile).{note}",
        "",
        *table(["documents", "", "threads", *names, "LightGBM : gpuqs"], rows),
        "",
        f"How many times as many calls two threads complete as one{hashing}:",
        "",
        *table(["documents", *scaled_names], scaled),
        "",
        "Microseconds per call of the engines' kernels, one thread; which engine `auto` chooses, and how much longer "
        "it takes than the fastest:",
        "",
        *table(["documents", "", *engine_names, "auto", "longer by"], engines),
        *(f"\n{name}: {reason}" for name, reason in model.get("not_held", {}).items()),
    ]
