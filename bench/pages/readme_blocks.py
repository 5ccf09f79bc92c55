"""README's blocks of figures."""

from __future__ import annotations

import textwrap
from typing import Any

from pages import gpu_figures
from pages.figures import figure, listed, share, table, times
from pages.markers import Block
from pages.results import HEADLINE, Report, Results, is_ours, ours_for, result_for, short_version, time_in

#: The models of the first table, by words of their names.
MODELS = {
    "1,000 trees x 64 leaves": "LightGBM LambdaMART 1,000 x 64",
    "1,000 x 32": "LightGBM LambdaMART 1,000 x 32",
    "20,000 x 64": "LightGBM 20,000 x 64",
}
#: The first table's lines: what README calls a contender, its name in the report, whether ratios are told.
LINES = (
    ("gpuqs `qs`", "qs avx512", False),
    ("gpuqs `vqs` (AVX-512)", "vqs avx512", False),
    ("gpuqs `bitslice` (AVX2)", "bitslice avx2", True),
    ('the same, `precision="fast"`', "bitslice avx2 fast", True),
    ("gpuqs `bitslice` (AVX-512)", "bitslice avx512", True),
    ('the same, `precision="fast"`', "bitslice avx512 fast", True),
    ("AVX-512, exact, two threads", "bitslice avx512, 2 threads", False),
)
#: What the engines' report calls the contenders on XGBoost's model.
OF_RANKER = {"XGBoost": "XGBoost", "gpuqs": "bitslice avx512"}


def paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, 119, break_long_words=False, break_on_hyphens=False), ""]


def headline(results: Results, kind: str) -> Report:
    return results.reports[kind, HEADLINE]


def engines(results: Results) -> list[str]:
    """Our engines against LightGBM."""
    report = headline(results, "engines")
    models = [result_for(report, words) for words in MODELS.values()]
    features = result_for(headline(results, "libraries"), MODELS["20,000 x 64"])["features"]

    def cell(result: Report, label: str, ratios: bool) -> str:
        if label not in result["rows"]:
            return ""
        row = result["rows"][label]
        return figure(row["us_per_document"]) + (f" ({times(row['times_library'])})" if ratios else "")

    lines = [(f"LightGBM {short_version(report['versions'], 'LightGBM')}", "LightGBM", False), *LINES]
    text = (
        f"Microseconds a document on one core of an {report['processor']}, every stage included, from float32 NumPy "
        f"rows of {features} features, {models[0]['documents']:,} documents a call ({models[2]['documents']:,} of "
        "20,000 trees). One run, contenders by turns in changing order; in parentheses, how many times as fast as "
        "LightGBM in that run."
    )
    return [
        *paragraph(text),
        *table(["", *MODELS], [[name, *(cell(m, label, ratios) for m in models)] for name, label, ratios in lines]),
    ]


def versus(contender: str, peer: str, model: str, us: dict[str, float]) -> list[str]:
    """A line of the table of peers."""
    theirs, own = us[contender], us[ours_for(contender)]
    return [peer, model, f"{times(theirs / own)} times", f"{figure(theirs)} : {figure(own)}"]


def largest_cell(result: Report) -> dict[str, Any]:
    """One thread and the most documents."""
    return max((c for c in result["cells"] if c["threads"] == 1), key=lambda cell: cell["documents"])


def peers(results: Results) -> list[str]:
    """Other libraries on the headline's processor; XGBoost was timed among our engines there."""
    report, with_engines = headline(results, "libraries"), headline(results, "engines")
    rows = []
    for result in report["results"]:
        cell = largest_cell(result)
        for contender in cell["us_per_document"]:
            name = contender.partition(",")[0]
            if name == "LightGBM" or is_ours(contender):
                continue
            version = ".".join(report["peers"][name]["version"].split(".")[:2])
            model = result["model"] + (", `Pool` : `model.encode`" if contender.endswith("Pool") else "")
            rows.append(versus(contender, f"{name} {version}", model, cell["us_per_document"]))
    ranker = result_for(with_engines, "XGBoost")
    us = {name: ranker["rows"][row]["us_per_document"] for name, row in OF_RANKER.items()}
    rows.append(versus("XGBoost", f"XGBoost {short_version(with_engines['versions'], 'XGBoost')}", ranker["model"], us))
    order = [name for name, *_ in rows]
    rows.sort(key=lambda row: order.index(row[0]))
    text = (
        f"Other libraries on the {report['processor']}, in runs of their own (XGBoost with the engines above): each "
        "with one thread against gpuqs as it is by default (exact; `bitslice` with AVX-512, but `walk` for the fully "
        "grown trees). The last column holds both sides' microseconds in that run: those of the same model differ from "
        "the table above as runs on that shared machine do, by up to "
        f"{share(apart(report, with_engines))}, so compare within a line."
    )
    head = ["against", "model", "gpuqs is faster", "peer : gpuqs, in that run"]
    return [*paragraph(text), *table(head, rows)]


def apart(report: Report, with_engines: Report) -> float:
    """How far two runs' figures for gpuqs on the same model lie apart, at most."""
    ratios = []
    for words in MODELS.values():
        ours = largest_cell(result_for(report, words))["us_per_document"]["gpuqs"]
        ratio = ours / result_for(with_engines, words)["rows"]["bitslice avx512"]["us_per_document"]
        ratios.append(max(ratio, 1 / ratio) - 1)
    return max(ratios)


def by_batch(results: Results) -> list[str]:
    """Every library on the LightGBM model, by documents a call, on each processor where it was measured."""
    lines = []
    for processor in results.processors():
        report = results.get("libraries", processor)
        if report is None:
            continue
        result = report["results"][0]
        cells = [c for c in result["cells"] if c["threads"] == 1]
        cells += [c for c in result["cells"] if c["threads"] > 1 and c["documents"] == 10_000]
        head = [f"{c['documents']:,}" + (f", {c['threads']} threads" if c["threads"] > 1 else "") for c in cells]
        rows = [[label, *(time_in(cell, label) for cell in cells)] for label in cells[0]["us_per_document"]]
        lines += paragraph(
            f"By documents a call, on the {report['processor']}: microseconds a document of {result['model']} with one "
            "thread, and with all in the last column; (of n): with n documents a call, where a call with more would "
            "take too long. Scores were compared with LightGBM's first: gpuqs's are the same bits; bench/README.md "
            "says how far the others' lie apart."
        )
        lines += [*table(["", *head], rows), ""]
    return lines[:-1]


def calls(results: Results) -> list[str]:
    """Small calls."""
    report = results.reports["small", "amd-epyc-zen-5"]
    model = report["models"][0]
    cells = {cell["documents"]: cell["calls"] for cell in model["cells"] if cell["documents"] in (1, 10, 100)}

    def of(kind: str, name: str) -> str:
        return listed([figure_of_call(calls[kind]["1"][name]["median"]) for calls in cells.values()])

    return paragraph(
        f"One call with {listed([str(n) for n in cells])} documents of {model['model'].split(maxsplit=1)[1]}, others "
        f"each time, takes {of('warm', 'gpuqs')} us on the {report['processor']} (LightGBM: {of('warm', 'LightGBM')}), "
        f"and {of('cold', 'gpuqs')} from caches that other work has emptied ({of('cold', 'LightGBM')}): medians."
    )[:-1]


def figure_of_call(us: float) -> str:
    return f"{us:,.0f}"


def default_forests(results: Results) -> list[str]:
    """Forests of the size that the libraries grow by default."""
    report = headline(results, "forests")
    cells = {(c["features"], c["library"]): c["us_per_document"] for c in report["results"] if c["trees"] == 100}
    libraries = list(dict.fromkeys(library for _, library in cells))

    def cell(n_features: int, library: str) -> str:
        us = cells[n_features, library]
        return f"{figure(us[library])} : {figure(us['gpuqs'])} ({times(us[library] / us['gpuqs'])})"

    rows = [[str(n), *(cell(n, library) for library in libraries)] for n in dict.fromkeys(n for n, _ in cells)]
    return [
        *paragraph(
            f"Forests of 100 trees grown with the libraries' defaults, {report['rows']:,} float32 rows a call on the "
            f"{report['processor']}, one thread: microseconds a document of each library on its own model, of gpuqs on "
            "the same, and in parentheses how many times as fast that is."
        ),
        *table(["features", *(f"{library} : gpuqs" for library in libraries)], rows),
    ]


def growth(results: Results) -> list[str]:
    report = results.reports["growth", "amd-epyc-zen-3"]
    text = (
        f"How time grows with trees, leaves, batch and features, on the {report['processor']}, which has no AVX-512 "
        "(every engine and LightGBM by turns; `auto` runs the engine that is predicted to be fastest):"
    )
    return [*paragraph(text), "![Time per document and tree](bench/results/growth-amd-epyc-zen-3.png)"]


def sparse(results: Results) -> list[str]:
    report = results.reports["sparse", "amd-epyc-zen-3"]
    row = report["results"][1]
    us, ratio = row["us_per_document"], row["times_as_fast"]
    of_lightgbm, of_xgboost = (figure(us[f"gpuqs, {library}'s"]) for library in ("LightGBM", "XGBoost"))
    return paragraph(
        f"Sparse input (CSR of {share(row['density'])} density, {row['model']}, {report['processor']}): LightGBM takes "
        f"{figure(us['LightGBM'])} us a document, gpuqs {of_lightgbm} ({times(ratio['LightGBM'])} times as fast); "
        f"XGBoost in place {figure(us['XGBoost, in place'])}, gpuqs {of_xgboost} "
        f"({times(ratio['XGBoost, in place'])} times)."
    )[:-1]


BLOCKS: dict[str, Block] = {
    block.__name__.replace("_", "-"): block
    for block in (engines, peers, by_batch, calls, default_forests, growth, sparse)
} | {"gpus": gpu_figures.measured}
