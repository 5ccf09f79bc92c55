"""Scores after each of several stages of a forest's trees: documents pass the trees once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from gpuqs.chunks import pieces
from gpuqs.cpu_fallback import in_default_float_mode
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.links import numpy_link
from gpuqs.outputs import answer_form
from gpuqs.scoring import Scoring

#: Outputs that stages may have.
STAGED_OUTPUTS: Final = ("value", "raw", "class")
#: Bytes of sums that are held at a time: of as many stages as fit, but at least one.
SUM_BYTES: Final = 64 << 20
#: Documents whose sums become answers at a time, counted once per stage, where stages may be finished together.
FINISHED_TOGETHER: Final = 4096


def ends_of_stages(forest: Forest, eval_period: int) -> list[int]:
    """The tree before which each stage ends: ``eval_period`` iterations after the last end, or the forest's end."""
    starts = forest.iteration_starts
    ends: list[int] = [*starts[eval_period:-1:eval_period].tolist(), int(starts[-1])]
    return ends if forest.n_iterations else []


def stages_at_once(forest: Forest, n_documents: int) -> int:
    """Stages whose sums are held at a time."""
    return max(SUM_BYTES // max(n_documents * forest.n_outputs * np.dtype(forest.sum_dtype).itemsize, 1), 1)


def staged_answers(
    scoring: Scoring, documents: Any, ends: Sequence[int], rows: int, margin: np.ndarray | None
) -> Iterator[np.ndarray]:
    """Answers of `Scoring.fill` after each of the stages that end before the trees ``ends``, which never descend.

    ``scoring``: has a `CpuProgram` of all trees with exact sums. ``documents``: all of them, as its engine takes them.
    ``rows``: how many are scored between two checks for signals.
    """
    values, n = scoring.program.values, len(documents)
    times = Counter(ends)  # an iteration may have no trees
    apart = list(times)
    begin = margin if margin is None or values.starts_at_base else np.zeros_like(margin)
    n_held = min(stages_at_once(scoring.forest, n), len(apart))
    held = np.empty((n_held, n, values.n_outputs), values.sum_dtype)
    together = max(FINISHED_TOGETHER // max(n, 1), 1) if _alike(scoring) else 1
    first = 0
    for at in range(0, len(apart), max(n_held, 1)):
        group = apart[at : at + n_held]
        sums = held[: len(group)]
        _add_up(scoring, documents, first, group, rows, begin, sums)
        for some in range(0, len(group), together):
            of_some = group[some : some + together]
            answers = _answers(scoring, sums[some : some + together], of_some, margin)
            for end, answer in zip(of_some, answers, strict=True):
                for _ in range(times[end] - 1):
                    yield answer.copy()
                yield answer
        first = group[-1]
        if at + n_held < len(apart):
            begin = sums[-1].copy()


def _alike(scoring: Scoring) -> bool:
    """Whether sums of all stages become answers in the same way, independently of the other rows."""
    return not scoring.forest.average and (scoring.output == "raw" or numpy_link(scoring.forest) is None)


@in_default_float_mode
def _add_up(
    scoring: Scoring,
    documents: Any,
    first: int,
    ends: Sequence[int],
    rows: int,
    begin: np.ndarray | None,
    sums: np.ndarray,
) -> None:
    """Fill ``sums`` [stages, D, K]: ``begin`` plus the trees from ``first`` to each of ``ends``."""
    program = scoring.program
    assert isinstance(program, CpuProgram)
    of_trees = program.of_trees(slice(first, ends[-1]), scoring.forest.base_of(0))
    between = np.array(ends[:-1], np.int32)
    for start, stop in pieces(len(documents), rows):
        part = documents if stop - start == len(documents) else documents[start:stop]
        of_part = None if begin is None else begin[start:stop]
        of_trees.scorer.stages(of_trees.bound, part, between, of_part, sums[:, start:stop], scoring.n_threads)


@in_default_float_mode
def _answers(scoring: Scoring, sums: np.ndarray, ends: Sequence[int], margin: np.ndarray | None) -> np.ndarray:
    """The answers [stages, D, ...] of sums [stages, D, K]; there are several stages only if they are `_alike`."""
    n_stages, n, n_outputs = sums.shape
    forest, values = scoring.forest, scoring.program.values
    if forest.average:
        values = values.of_trees(slice(0, ends[-1]), forest.base_of(0))
        scoring = scoring._replace(program=Program(values))
    shape, dtype = answer_form(forest, values, scoring.output, n_stages * n)
    out = np.empty(shape, dtype)
    of_each = None if margin is None else np.tile(margin, (n_stages, 1))
    scoring.fill_from(sums.reshape(-1, n_outputs), out, of_each)
    return out.reshape(n_stages, n, *shape[1:])
