"""bench/README.md: for each processor, what was measured, and what was not and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages.figures import LINE, figure, paragraph, share, table, times, wrapped
from pages.gpu_figures import front as gpu_front
from pages.peers import peers
from pages.plots import curves
from pages.results import FOLDER, Report, Results, time_in
from pages.small_calls import small_calls

#: The benches: kind of report, command, and what it measures.
BENCHES = {
    "engines": ("engines.py --large", "every engine on every instruction set, and each stage of `bitslice`"),
    "libraries": ("libraries.py --large", "other libraries (`pip install '.[peers]'`), by batch size and threads"),
    "small": ("small.py", "calls with few documents, warm and cold"),
    "forests": ("default_forests.py", "forests grown with the libraries' defaults, on rows of 28 to 700 features"),
    "growth": ("growth.py", "time as a function of trees, leaves, batch size and features"),
    "sparse": ("sparse.py", "sparse input"),
    "special": ("special.py", "several outputs, fully grown forests, categorical features, linear trees, stages"),
    "loading": ("loading.py", "load time and peak memory for every format, and import time"),
    "systems": ("systems.py --large", "the systems that the papers compare, checked bit for bit"),
    "tuning": ("tuning.py", "guided tuning compared with an exhaustive grid"),
}
#: Benches whose results do not belong to one processor, or have a separate folder.
OTHERS = (
    ("regret.py", "how much slower `auto`'s choice is than the fastest engine; it prints this and stores nothing"),
    ("tables.py all", "the papers' tables and figures, with gpuqs's engines added; without `all` it lists them"),
    ("gpu.py", "the GPU engines compared with nvForest and XGBoost; it needs a GPU"),
    ("profile.py kernel", "the GPU kernels, in Nsight Compute; it needs a GPU"),
    ("gpu_counts.py", "the work that `qs_gpu` does, counted without a GPU"),
    ("readme.py", "nothing: it writes this page"),
)


def page(results: Results, folder: Path = FOLDER) -> str:
    lines = ["# What was measured", ""]
    lines += paragraph(
        "`python bench/readme.py` writes this page and README's figures from the JSON files in `bench/results/`; a "
        "test fails if they differ. Times are medians over rounds in which the contenders take turns, in microseconds "
        "per document unless stated otherwise. The machines' load differed from run to run, so compare times only "
        "within a table."
    )
    lines += paragraph(
        "Scores are compared before anything is timed. gpuqs's exact scores are bit-identical to those of the library "
        "that trained the model; the tables of other libraries show how far each library's scores are from them."
    )
    commands = [[f"`python bench/{command}`", told] for command, told in BENCHES.values()]
    commands += [[f"`python bench/{command}`", told] for command, told in OTHERS]
    lines += [*table(["command", "what it measures"], commands), ""]
    lines += paragraph(
        "The commands above `gpu.py` accept `--quick` for a smoke run, except `loading.py`, which accepts `--trees "
        "100`. `make bench-quick` makes the papers' tables with small models and batches; `tables.py --data FOLDER` "
        "makes them with the real data sets. [systems.md](systems.md) lists the systems that the papers compare. "
        "`bench/peers/` has one file for each of the other libraries."
    )
    lines += ["## Against other libraries", "", *peers(results), ""]
    for processor in results.processors():
        lines += [f"## {results.name(processor)}", ""]
        for kind, section in SECTIONS.items():
            report = results.get(kind, processor)
            if report is not None:
                lines += [*section(report, processor), ""]
        lines += [*others(results, processor, folder), *missing(results, processor)]
    lines += gpu_front(results, folder)
    prose = (wrapped(line) if len(line) > LINE and not line.startswith("|") else [line] for line in lines)
    return "\n".join(line for each in prose for line in each) + "\n"


def picture(kind: str, processor: str, says: str) -> list[str]:
    return ["", f"![{says}](results/{kind}-{processor}.png)"]


def engines(report: Report, processor: str) -> list[str]:
    """All contenders of all models."""
    models = report["results"]
    labels = list(dict.fromkeys(label for model in models for label in model["rows"]))

    def cell(model: Report, label: str) -> str:
        row = model["rows"].get(label)
        return f"{figure(row['us_per_document'])} ({times(row['times_library'])})" if row else ""

    head = ["", *(f"{m['model']}, {m['documents']:,} documents" for m in models)]
    calls = [
        [n, each["engine"], figure(each["gpuqs"]), figure(each["LightGBM"])] for n, each in report["latencies"].items()
    ]
    return [
        "### Engines and instruction sets",
        "",
        f"{report['versions']}. In parentheses: how many times as fast as the model's library. [Stages, minima, ratios]"
        f"(results/engines-{processor}.md).",
        "",
        *table(head, [[label, *(cell(model, label) for model in models)] for label in labels]),
        *picture("engines", processor, "Engines and instruction sets"),
        "",
        f"Calls with few documents, different ones in each call, on {models[0]['model']}; microseconds per call:",
        "",
        *table(["documents", "engine", "gpuqs", "LightGBM"], calls),
    ]


def libraries(report: Report, processor: str) -> list[str]:
    """Other libraries, a table for each model and number of threads."""
    lines = ["### Other libraries", "", f"{report['versions']}. Load average when the run began: {report['load']}."]
    lines += ['"(of n)": measured with only n documents per call, because a larger call would take too long.', ""]
    known = [[name, p["version"] or "", p["rows"], p["threads"]] for name, p in report["peers"].items() if "rows" in p]
    if known:
        lines += [*table(["library", "version", "input rows", "number of threads set by"], known), ""]
    for result in report["results"]:
        for n_threads in sorted({cell["threads"] for cell in result["cells"]}):
            cells = [cell for cell in result["cells"] if cell["threads"] == n_threads]
            lines += [f"**{result['model']}**, {n_threads} thread{'s'[: n_threads - 1]}, by documents per call:", ""]
            lines += [*of_library(result, cells), ""]
        lines += [f"- {reason}: {', '.join(names)}" for reason, names in by_reason(left_out(result)).items()]
        lines += [""] if left_out(result) else []
    if curves(report):
        lines += picture("libraries", processor, "Other libraries by documents per call")[1:]
    return lines if lines[-1] else lines[:-1]


def of_library(result: Report, cells: list[dict[str, Any]]) -> list[str]:
    """A model's table for one number of threads: contenders, sizes, differences, energy."""
    labels = list(dict.fromkeys(label for cell in cells for label in cell["us_per_document"]))
    with_energy = [cell for cell in cells if "uj_per_document" in cell]

    def difference(label: str) -> str:
        found = result["agreement"].get(label)
        return "not stored" if found is None else "none" if found["same_bits"] else f"{found['largest_difference']:.1g}"

    head = ["", *(f"{cell['documents']:,}" for cell in cells), "largest difference in scores"]
    head += [f"µJ, {cell['documents']:,}" for cell in with_energy]
    rows = []
    for label in labels:
        energy = [cell["uj_per_document"].get(label) for cell in with_energy]
        row = [label, *(time_in(cell, label) for cell in cells), difference(label)]
        rows.append(row + ["" if uj is None else figure(uj) for uj in energy])
    return table(head, rows)


def left_out(result: Report) -> dict[str, str]:
    """Why contenders have no times for a model."""
    differ = {
        label: f"not timed because scores differ by up to {found['largest_difference']:.2g}"
        for label, found in result["agreement"].items()
        if not found["agrees"]
    }
    for cell in result["cells"]:
        for label, difference in cell.get("differ", {}).items():  # older runs compared only the first documents
            where = f"{cell['documents']:,} documents per call ({cell['threads']} thread{'s'[: cell['threads'] - 1]})"
            differ[f"{label} with {where}"] = f"not timed because scores differ by up to {difference:.2g}"
    return result["not_held"] | differ


def by_reason(reasons: dict[str, str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        grouped.setdefault(reason, []).append(name)
    return grouped


def small(report: Report, processor: str) -> list[str]:
    lines = ["### Small calls", "", f"{report['versions']}. Load average when the run began: {report['load']}."]
    for model in report["models"]:
        lines += ["", *small_calls(model)]
    return [*lines, *picture("small", processor, "Microseconds per call by number of documents")]


def forests(report: Report, processor: str) -> list[str]:
    rows = []
    for cell in report["results"]:
        of_library, *ours = cell["us_per_document"].values()
        of_cell = [cell["library"], str(cell["features"]), f"{cell['trees']:,}", figure(of_library)]
        rows.append([*of_cell, *map(figure, ours), times(of_library / ours[0])])
    names = [name for name in report["results"][0]["us_per_document"] if name.startswith("gpuqs")]
    return [
        "### Default forests",
        "",
        f"{report['versions']}. Load average when the run began: {report['load']}. One thread, {report['rows']:,} "
        "float32 rows per call, microseconds per document; each library scores a model that it trained itself.",
        "",
        *table(["library", "features", "trees", "library's time", *names, "library : gpuqs"], rows),
        *picture("forests", processor, "How many times as fast as the library, by number of trees"),
    ]


def growth(report: Report, processor: str) -> list[str]:
    text = (
        "How time grows with trees, leaves, documents per call and features, for every engine and LightGBM, which took "
        "turns; `auto` runs the engine that it predicts to be fastest."
    )
    return ["### Growth", "", *paragraph(text)[:-1], *picture("growth", processor, "Time per document and tree")]


def sparse(report: Report, processor: str) -> list[str]:
    labels = list(report["results"][0]["us_per_document"])
    rows = [
        [share(r["density"]), *(figure(r["us_per_document"][label]) for label in labels)] for r in report["results"]
    ]
    wide = report["wide"]
    row = report["results"][1]
    us, ratio = row["us_per_document"], row["times_as_fast"]
    of_lightgbm, of_xgboost = (figure(us[f"gpuqs, {library}'s"]) for library in ("LightGBM", "XGBoost"))
    text = (
        f"At {share(row['density'])} density (CSR), LightGBM takes {figure(us['LightGBM'])} µs per document and gpuqs "
        f"{of_lightgbm} µs ({times(ratio['LightGBM'])} times as fast). XGBoost, predicting in place, takes "
        f"{figure(us['XGBoost, in place'])} µs and gpuqs {of_xgboost} µs ({times(ratio['XGBoost, in place'])} times as "
        "fast)."
    )
    return [
        "### Sparse input",
        "",
        f"{report['versions']}. One thread, {report['results'][0]['model']} models.",
        "",
        *paragraph(text),
        *table(["density", *labels], rows),
        "",
        f"A matrix with {wide['columns']:,} columns, of which the model tests {wide['tested']:,}, and "
        f"{wide['rows']:,} rows: {figure(wide['us_per_document'])} µs per document; scoring adds "
        f"{figure(wide['peak_mib_of_predict'])} MiB to the peak memory of loading model and matrix.",
    ]


def special(report: Report, processor: str) -> list[str]:
    lines = ["### Special models", ""]
    for result in report["results"]:
        rows = [
            [case["case"], f"{figure(case['theirs'])} : {figure(case['ours'])}", times(case["theirs"] / case["ours"])]
            for case in result["cases"]
        ]
        lines += [f"{result['what']}. One thread.", "", *table(["", "library : gpuqs", "times as fast"], rows), ""]
    return lines[:-1]


def loading(report: Report, processor: str) -> list[str]:
    rows = []
    for name, row in report["loading"].items():
        own = f"{row['library_seconds'] * 1e3:,.0f}" if "library_seconds" in row else ""
        size, peak = f"{row['file_bytes'] / 1e6:.1f}", f"{row['peak_over_file']:.1f}"
        rows.append([name, size, f"{row['seconds'] * 1e3:,.0f}", own, peak])
    imports = (f"{report[f'import_{name}seconds'] * 1e3:.0f}" for name in ("", "model_", "numpy_"))
    return [
        "### Loading and importing",
        "",
        f"Trees with {report['leaves']} leaves. Processor time of an import, in ms: `gpuqs` {next(imports)}, "
        f"`gpuqs.model` {next(imports)}, only NumPy {next(imports)}.",
        "",
        *table(["", "file, MB", "load, ms", "load by its library, ms", "peak memory / file size"], rows),
        *(line for name, ways in report.get("starting", {}).items() for line in _start(name, ways, report["batch"])),
    ]


def _start(name: str, ways: dict[str, Any], batch: int) -> list[str]:
    """Times from the beginning of a load to the first scores, for one model."""
    columns = ("loaded", "first_score", "first_batch", "batch_again")
    rows = [[way, *(f"{row[column] * 1e3:,.0f}" for column in columns)] for way, row in ways.items()]
    head = (
        f"`{name}`: milliseconds since the start of loading, one thread. A batch has {batch:,} documents; the last "
        "column is the duration of a second call with it."
    )
    lines = ["", head, "", *table(["", "loaded", "first score", "first batch", "same batch again"], rows)]
    for way, row in ways.items():
        if "own_bytes" in row:
            own, of_child = (f"{row[key] / 1e6:,.0f}" for key in ("own_bytes", "child_own_bytes"))
            what = "of private memory, including layouts and code; a child that is then forked adds"
            lines += ["", f"{way}: {own} MB {what} {of_child} MB."]
    return lines


def systems(report: Report, processor: str) -> list[str]:
    models = report["results"]
    first = models[0]["rows"]
    names = list(dict.fromkeys(name for model in models for name in model["rows"]))
    names.sort(key=lambda name: first[name]["us_per_document"] if name in first else float("inf"))

    def cell(model: Report, name: str) -> str:
        if name in model["rows"]:
            return figure(model["rows"][name]["us_per_document"])
        return f"NA: {model['not_timed'].get(name, 'not timed')}"

    lines = [
        "### The papers' systems",
        "",
        f"{report['versions']}. Load average when the run began: {report['load']}. One thread, fastest first. "
        "[What they are, and how each was checked](systems.md).",
        "",
        *table(["", *(m["model"] for m in models)], [[n, *(cell(m, n) for m in models)] for n in names]),
    ]
    for model in models:
        what = "how many times as fast the first system is as the second, and whether the papers' ordering holds"
        lines += ["", f"On {model['model']}, {what}:", "", *(f"- {told}" for told in model["orderings"])]
    return lines


SECTIONS: dict[str, Callable[[Report, str], list[str]]] = {
    "engines": engines,
    "libraries": libraries,
    "small": small,
    "forests": forests,
    "growth": growth,
    "sparse": sparse,
    "special": special,
    "loading": loading,
    "systems": systems,
}


def others(results: Results, processor: str, folder: Path) -> list[str]:
    """Files without a section on this page: the papers' tables, and results of newer benches."""
    links = [
        f"[{path.stem}{of_data}]({path.relative_to(folder.parent)})"
        for at, of_data in ((processor, ""), (f"{processor}-real", ", real data"))
        for path in sorted((folder / "tables" / at).glob("*.md"))
    ]
    kinds = [kind for kind, of in results.reports if of == processor and kind not in SECTIONS]
    kept = [f"[{kind}](results/{kind}-{processor}.json)" for kind in kinds]
    lines = ["### The papers' tables", "", ", ".join(links), ""] if links else []
    return lines + (["### More", "", ", ".join(kept), ""] if kept else [])


def missing(results: Results, processor: str) -> list[str]:
    """What was not measured, and why."""
    lines = ["### Not measured", ""]
    for kind, (command, told) in BENCHES.items():
        if results.get(kind, processor) is None:
            lines.append(f"- {told}: no run of `{command}` is stored")
    report = results.get("libraries", processor)
    if report is not None:
        lines += [f"- {name}: {peer['absent']}" for name, peer in report["peers"].items() if peer["absent"]]
        lines += [f"- energy: {report['no_energy']}"] if report["no_energy"] else []
    return [*lines, ""] if len(lines) > 2 else []
