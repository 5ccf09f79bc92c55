"""`gpuqs info`: what is in a model, and which engines can run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.cli.console import Output
from gpuqs.cli.models import load_model
from gpuqs.forest import CATEGORICAL, NAN_LEFT, ZERO_MISSING, Forest

_SHOWN_NAMES = 6


def print_info(path: Path, console: Console | None = None) -> None:
    """Print what is in the model at ``path``."""
    console = console or Output()
    model = load_model(path)
    table = Table(title=escape(str(path)), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in describe(model.forest):
        table.add_row(name, escape(value))
    if model.plan is not None:
        table.add_row("plan", escape(_plan(model)))
    console.print(table)

    engines = Table("engine", "runs here?", title=f"Engines ({cpu_fallback.isa()})", title_justify="left")
    default = model.engine_for(10_000)
    for engine, reason in model.engines().items():
        runs = "yes, the default for batches" if engine == default else "yes"
        engines.add_row(engine, runs if reason is None else escape(f"no: {reason}"))
    console.print(engines)


def _plan(model: gpuqs.Model) -> str:
    """The batch sizes that the model was tuned for, and whether its plan is used here."""
    sizes = ", ".join(f"{tuned.n_documents:,}" for tuned in model.plan.sizes) if model.plan else "no"
    note = model.explain().note
    return f"tuned for {sizes} documents a call" + ("" if note is None else f"; not used here: {note}")


def describe(forest: Forest) -> list[tuple[str, str]]:
    """The model's properties, for people: name and value."""
    used = np.unique(forest.feature)
    depths = forest.depth + 1 if forest.n_nodes else np.zeros(1, np.int64)
    leaves = np.diff(forest.leaf_offsets)
    properties = [
        ("trained by", forest.source),
        ("objective", forest.objective or "unknown"),
        ("trees", f"{forest.n_trees:,}{_also(forest)}"),
        ("leaves", f"{leaves.sum():,}; {_range(leaves)} a tree"),
        ("nodes", f"{forest.n_nodes:,}"),
        ("features", f"{len(used):,} used of {forest.n_features:,}{_ctrs(forest)}"),
        ("depth", f"{depths.max()} levels of tests at most"),
        ("missing values", _missing(forest)),
        ("link", forest.link if forest.link_scale == 1.0 else f"{forest.link}, scale {forest.link_scale:g}"),
        ("base score", ", ".join(f"{value:g}" for value in forest.base_score[:4].tolist())),
        ("sums", f"{forest.sum_dtype}; documents are compared in {forest.input_dtype}"),
    ]
    if forest.n_outputs > 1:
        properties.insert(3, ("outputs", f"{forest.n_outputs:,}"))
    return properties + _schema(forest)


def _ctrs(forest: Forest) -> str:
    """How many of the features are CTRs."""
    if forest.ctrs is None:
        return ""
    return f", of which {forest.n_features - forest.ctrs.n_given:,} are statistics of categories (CTRs)"


def _schema(forest: Forest) -> list[tuple[str, str]]:
    """What the columns of documents are."""
    schema, lines = forest.schema, []
    if schema.names:
        names = ", ".join(schema.names[:_SHOWN_NAMES]) + (", ..." if len(schema.names) > _SHOWN_NAMES else "")
        lines.append(("feature names", names if schema.has_names else f"{names} (made up)"))
    placed = [(at, known) for at, known in enumerate(schema.categories) if known is not None]
    if placed:
        shown = [f"{schema.name_of(at)} {_listed(known)}" for at, known in placed[:_SHOWN_NAMES]]
        if forest.ctrs is not None:
            shown = [f"{schema.name_of(at)} (by hashes of strings)" for at, _ in placed[:_SHOWN_NAMES]]
        more = f"; and {len(placed) - _SHOWN_NAMES:,} columns more" if len(placed) > _SHOWN_NAMES else ""
        lines.append(("category columns", "; ".join(shown) + more))
    elif schema.in_order:
        n, shown = len(schema.in_order), [_listed(known) for known in schema.in_order[:_SHOWN_NAMES]]
        more = f"; and {n - _SHOWN_NAMES:,} more" if n > _SHOWN_NAMES else ""
        lines.append(("category columns", f"{n:,} of the training frame, in its order: {'; '.join(shown)}{more}"))
    if placed or schema.in_order:
        rules = schema.rules
        unseen = "refused" if rules.unseen_refused else "in no category" if rules.as_texts else "missing"
        lines.append(("unseen categories", unseen + ("; missing ones are refused" if rules.missing_refused else "")))
    if schema.missing is not None:
        lines.append(("missing besides NaN", repr(schema.missing)))
    lines.append(("absent entries", "missing" if np.isnan(schema.absent) else "0"))
    return lines


def _listed(known: tuple[Any, ...]) -> str:
    """How many categories, and the first of them."""
    more = ", ..." if len(known) > _SHOWN_NAMES else ""
    return f"({len(known):,}: {', '.join(map(repr, known[:_SHOWN_NAMES]))}{more})"


def _also(forest: Forest) -> str:
    traits = []
    if forest.average:
        traits.append("averaged")
    if (forest.tree_weight != 1.0).any():
        traits.append("weighted")
    return f" ({', '.join(traits)})" if traits else ""


def _range(counts: np.ndarray) -> str:
    if len(counts) == 0:
        return "none"
    low, high = counts.min(), counts.max()
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"


def _missing(forest: Forest) -> str:
    if forest.n_nodes == 0:
        return "no tests"
    numeric = (forest.routing & CATEGORICAL) == 0
    left = int(((forest.routing & NAN_LEFT) != 0).sum())
    text = f"NaN goes left at {left:,} nodes, right at {forest.n_nodes - left:,}"
    zero = int(((forest.routing & ZERO_MISSING) != 0)[numeric].sum())
    if zero:
        text += f"; zero counts as missing at {zero:,}"
    if not numeric.all():
        text += f"; {int((~numeric).sum()):,} nodes test categories"
    return text
