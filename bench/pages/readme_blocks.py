"""README's blocks of figures."""

from __future__ import annotations

from pages import gpu_figures
from pages.figures import figure, listed, paragraph, table, times
from pages.markers import Block
from pages.results import MODELS, Report, Results, of_headline, result_for, short_version

#: The first table's lines: README's name for a contender, its name in the report, whether ratios are shown.
LINES = (
    ("gpuqs `qs`", "qs avx512", False),
    ("gpuqs `vqs` (AVX-512)", "vqs avx512", False),
    ("gpuqs `bitslice` (AVX2)", "bitslice avx2", True),
    ('gpuqs `bitslice` (AVX2), `precision="fast"`', "bitslice avx2 fast", True),
    ("gpuqs `bitslice` (AVX-512)", "bitslice avx512", True),
    ('gpuqs `bitslice` (AVX-512), `precision="fast"`', "bitslice avx512 fast", True),
    ("gpuqs `bitslice` (AVX-512), two threads", "bitslice avx512, 2 threads", False),
)
#: The line used in the headline: `auto`'s engine on that machine, with one thread.
BEST = "bitslice avx512"


def headline(results: Results) -> list[str]:
    """A sentence about the first table; bench/engines.py times only engines whose exact scores equal LightGBM's."""
    report = of_headline(results, "engines")
    name, words = next(iter(MODELS.items()))
    result = result_for(report, words)
    theirs, ours = (result["rows"][label]["us_per_document"] for label in ("LightGBM", BEST))
    return paragraph(
        f"On one core of an {report['processor']}, with {name} and {result['documents']:,} rows per call, LightGBM "
        f"takes {figure(theirs)} µs per row and gpuqs {figure(ours)} µs. gpuqs is {times(theirs / ours)} times as "
        "fast, and its scores are bit-identical."
    )[:-1]


def machines(results: Results) -> list[str]:
    """The machines for which there are figures."""
    processors = [results.name(processor) for processor in results.processors()]
    gpus = [report["gpu"]["name"] for report in results.gpus().values()]
    return paragraph(
        f"Measured on {listed([*processors, *gpus])}; [bench/README.md](bench/README.md) has all figures for each."
    )[:-1]


def engines(results: Results) -> list[str]:
    """Our engines against LightGBM."""
    report = of_headline(results, "engines")
    models = [result_for(report, words) for words in MODELS.values()]
    features = result_for(of_headline(results, "libraries"), MODELS["20,000 x 64"])["features"]

    def cell(result: Report, label: str, ratios: bool) -> str:
        if label not in result["rows"]:
            return ""
        row = result["rows"][label]
        return figure(row["us_per_document"]) + (f" ({times(row['times_library'])})" if ratios else "")

    lines = [(f"LightGBM {short_version(report['versions'], 'LightGBM')}", "LightGBM", False), *LINES]
    text = (
        f"Microseconds per document on one core of an {report['processor']}, from the NumPy array to the scores: "
        f"float32 rows with {features} features, {models[0]['documents']:,} documents per call "
        f"({models[2]['documents']:,} with 20,000 trees). In parentheses: how many times as fast as LightGBM. All "
        "contenders took turns in one run."
    )
    return [
        *paragraph(text),
        *table(["", *MODELS], [[name, *(cell(m, label, ratios) for m in models)] for name, label, ratios in lines]),
    ]


def calls(results: Results) -> list[str]:
    """Small calls."""
    report = of_headline(results, "small")
    model = report["models"][0]
    cells = {cell["documents"]: cell["calls"] for cell in model["cells"] if cell["documents"] in (1, 10, 100)}

    def row(kind: str, name: str) -> list[str]:
        return [f"{us:,.0f}" for us in (calls[kind]["1"][name]["median"] for calls in cells.values())]

    kinds = {"warm": "warm caches", "cold": "caches emptied by other work"}
    return [
        *paragraph(
            f"Small calls: median microseconds per call on the {report['processor']}, "
            f"{model['model'].split(maxsplit=1)[1]}, one thread, different documents in each call."
        ),
        *table(
            ["documents per call", *(str(n) for n in cells)],
            [[f"{name}, {told}", *row(kind, name)] for kind, told in kinds.items() for name in ("LightGBM", "gpuqs")],
        ),
    ]


def default_forests(results: Results) -> list[str]:
    """Forests of the size that the libraries grow by default."""
    report = of_headline(results, "forests")
    cells = {(c["features"], c["library"]): c["us_per_document"] for c in report["results"] if c["trees"] == 100}
    libraries = list(dict.fromkeys(library for _, library in cells))

    def cell(n_features: int, library: str) -> str:
        us = cells[n_features, library]
        return f"{figure(us[library])} : {figure(us['gpuqs'])} ({times(us[library] / us['gpuqs'])})"

    rows = [[str(n), *(cell(n, library) for library in libraries)] for n in dict.fromkeys(n for n, _ in cells)]
    return [
        *paragraph(
            f"Default models: 100 trees grown with each library's defaults, {report['rows']:,} float32 rows per call "
            f"on the {report['processor']}, one thread. Microseconds per document of the library and of gpuqs on the "
            "same model; in parentheses, how many times as fast gpuqs is."
        ),
        *table(["features", *(f"{library} : gpuqs" for library in libraries)], rows),
    ]


BLOCKS: dict[str, Block] = {
    block.__name__.replace("_", "-"): block for block in (headline, machines, engines, calls, default_forests)
} | {"gpus": gpu_figures.measured}
