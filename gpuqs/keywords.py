"""LightGBM's, XGBoost's and CatBoost's own keywords of ``predict``, turned into an output and a range of trees."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, SupportsIndex, cast

import numpy as np

from gpuqs.cpu_fallback import NAMES_OF_THREADS
from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.outputs import OUTPUTS, Output

#: Other keywords of these libraries' ``predict`` that change no score where they are False.
_NOT_OFFERED: Final = ("pred_early_stop", "data_has_header", "training", "strict_shape")
#: Keywords that change no score, whatever their value. (The number of columns is checked in any case, and the two about
#: early stopping only matter with ``pred_early_stop=True``.)
_PASSED_OVER: Final = (
    *("verbose", "verbosity", "predict_disable_shape_check", "pred_early_stop_freq", "pred_early_stop_margin"),
    *("deterministic", "seed", "random_seed", "random_state"),
)
#: CatBoost's and LightGBM's names of the device, and what they call the CPU.
_PLACES: Final = {"task_type": "CPU", "device_type": "cpu"}
#: Keywords that ask for something other than scores.
_EXPLAINING: Final = ("pred_contribs", "pred_interactions", "approx_contribs")
#: What keywords of other libraries are called here.
_CALLED: Final = {
    "ntree_limit": "iteration_range=(0, end)",
    "prediction_type": (
        "output ('raw' for 'RawFormulaVal', 'class' for 'Class', 'value' for 'Probability', of two classes the second)"
    ),
}
#: CatBoost's names of the ends of ``iteration_range``.
_ENDS: Final = ("ntree_start", "ntree_end")
#: LightGBM's, XGBoost's and CatBoost's names of ``n_threads``.
_THREADS: Final = NAMES_OF_THREADS[1:]


def check_others(forest: Forest, others: Mapping[str, Any]) -> None:
    """Ignore other libraries' keywords that change no score, and refuse all others.

    Raises
    ------
    TypeError
        No library has such a keyword, or it has another name here.
    UnsupportedModelError
        It asks for something that is not offered.
    """
    for name, value in others.items():
        if name == "validate_features":  # tables are matched by name, or refused, in any case
            if not as_bool(value, name) and forest.schema.library == "XGBoost":
                raise UnsupportedModelError(
                    "validate_features=False, which makes XGBoost go by the position of columns, is not offered; "
                    "leave it out, and pass a table as an array, such as X.to_numpy()"
                )
        elif name in _PLACES:
            if value is not None and str(value) != _PLACES[name]:
                raise UnsupportedModelError(
                    f"{name} must be {_PLACES[name]!r}, not {value!r}; to score on a GPU, use device='cuda'"
                )
        elif name in _PASSED_OVER or name in _THREADS or name in _ENDS:
            continue
        elif name in _EXPLAINING:
            refuse_explaining(name, value)
        elif name not in _NOT_OFFERED:
            hint = f"; it is called {_CALLED[name]} here" if name in _CALLED else ""
            raise TypeError(f"Model.predict() got an unexpected keyword argument {name!r}{hint}")
        elif as_bool(value, name):
            raise UnsupportedModelError(f"{name}=True is not offered; leave it out")


def threads_asked(n_threads: int | None, others: Mapping[str, Any]) -> Any:
    """``n_threads``, also if it is given by another library's name for it, where 0 means the default.

    Raises
    ------
    TypeError
        It is given twice.
    """
    given = [name for name in _THREADS if others.get(name) is not None]
    if not given:
        return n_threads
    if len(given) > 1 or n_threads is not None:
        raise _given_twice(["n_threads"] * (n_threads is not None) + given)
    value = others[given[0]]
    return None if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value == 0 else value


def iterations_asked(iteration_range: Sequence[int] | None, others: Mapping[str, Any]) -> Sequence[int] | None:
    """``iteration_range``, also if it is given by CatBoost's names for its ends.

    Raises
    ------
    TypeError
        It is given twice.
    """
    given = [name for name in _ENDS if name in others]
    if not given:
        return iteration_range
    if iteration_range is not None:
        raise _given_twice(["iteration_range", given[0]])
    first, last = (as_integer(others.get(name, 0), name) for name in _ENDS)
    return first, last


def _given_twice(names: Sequence[str]) -> TypeError:
    return TypeError(f"Model.predict() got {' and '.join(names)}, which mean the same; give one of them")


def refuse_explaining(name: str, value: Any) -> None:
    """Refuse a keyword that asks for contributions, where it is true."""
    if as_bool(value, name):
        raise UnsupportedModelError(
            f"{name}=True is not offered: gpuqs scores documents and does not explain scores; "
            "ask the training library for contributions"
        )


def output_and_trees(
    forest: Forest,
    output: Output,
    trees: slice | None,
    *,
    raw_score: bool = False,
    output_margin: bool = False,
    pred_leaf: bool = False,
    pred_contrib: bool = False,
    start_iteration: SupportsIndex = 0,
    num_iteration: SupportsIndex | None = None,
    iteration_range: Sequence[int] | None = None,
) -> tuple[Output, slice | None]:
    """The output and the trees that a call asks for, in any library's keywords; parameters as for `Model.predict`.

    Trees are None for all, else a slice whose start and stop are numbers, with stop not below start.

    Raises
    ------
    ValueError
        Keywords contradict each other, or name iterations that are not there.
    UnsupportedModelError
        ``pred_contrib``.
    """
    if not isinstance(output, str) or output not in OUTPUTS:
        hint = "; pass numbers of iterations by keyword, as num_iteration=" if isinstance(output, (int, slice)) else ""
        raise ValueError(f"output must be one of {', '.join(map(repr, OUTPUTS))}, not {output!r}{hint}")
    chosen = None if trees is None else _checked(forest, trees)
    refuse_explaining("pred_contrib", pred_contrib)
    wanted: list[tuple[str, Output]] = [] if output == "value" else [(f"output={output!r}", output)]
    for keyword, given, means in (
        ("raw_score", raw_score, "raw"),
        ("output_margin", output_margin, "raw"),
        ("pred_leaf", pred_leaf, "leaf"),
    ):
        if as_bool(given, keyword):
            wanted.append((f"{keyword}=True", cast(Output, means)))
    if len({means for _, means in wanted}) > 1:
        raise ValueError(f"{' and '.join(words for words, _ in wanted)} contradict each other; give one of them")
    output = wanted[0][1] if wanted else output
    start = as_integer(start_iteration, "start_iteration")
    staged = start != 0 or num_iteration is not None
    if iteration_range is None and not staged:
        return output, chosen
    if trees is not None or (iteration_range is not None and staged):
        raise ValueError(
            "trees=, iteration_range= and start_iteration= with num_iteration= all select trees; give only one of them"
        )
    if iteration_range is not None:
        first, last = _as_xgboost(forest, iteration_range)
    else:
        first, last = _as_lightgbm(forest, start, num_iteration)
    return output, _range(forest, int(forest.iteration_starts[first]), int(forest.iteration_starts[last]))


def _range(forest: Forest, start: int, stop: int) -> slice | None:
    return None if (start, stop) == (0, forest.n_trees) else slice(start, max(start, stop))


def _as_lightgbm(forest: Forest, start: int, number: SupportsIndex | None) -> tuple[int, int]:
    """Iterations [first, last): a range past the end stops there; None, or a number below 1, means all that follow."""
    start = max(start, 0)
    if number is None and start == 0:  # up to the best one
        return 0, forest.n_iterations
    length = 0 if number is None else as_integer(number, "num_iteration")
    everything = length <= 0
    if forest.iterations_left_out and (everything or start + length > forest.n_iterations):
        raise ValueError(
            f"the model ends at its best iteration, with {forest.n_iterations} in all; to use the "
            f"{forest.iterations_left_out} that followed, convert the model with all iterations: "
            "gpuqs.from_model(booster.model_to_string(num_iteration=-1)), or for an XGBModel its get_booster()"
        )
    first = min(start, forest.n_iterations)
    return first, forest.n_iterations if everything else min(first + length, forest.n_iterations)


def _as_xgboost(forest: Forest, iteration_range: Sequence[int]) -> tuple[int, int]:
    """Iterations [first, last): 0 for the last means the end; ranges that are not there are refused."""
    if not isinstance(iteration_range, Sequence) or len(iteration_range) != 2:
        raise ValueError(f"iteration_range must be two integers, such as (0, 100), not {iteration_range!r}")
    first, last = (as_integer(value, "each end of iteration_range") for value in iteration_range)
    last = last or forest.n_iterations
    if not 0 <= first <= last <= forest.n_iterations:
        left_out = forest.iterations_left_out
        more = f" (it ends at its best one; {left_out} followed: convert get_booster() to have all)" if left_out else ""
        raise ValueError(
            f"iteration_range={iteration_range!r} is not within the model's {forest.n_iterations} iterations{more}"
        )
    return first, last


def _checked(forest: Forest, trees: slice) -> slice | None:
    if not isinstance(trees, slice):
        raise ValueError(f"trees must be a slice, such as slice(0, 100), not {trees!r}")
    ends = (trees.start, trees.stop, trees.step)
    start, stop, step = slice(
        *(None if end is None else as_integer(end, "each end of trees") for end in ends)
    ).indices(forest.n_trees)
    if step != 1:
        raise ValueError(f"trees must be a slice with step 1, not {step}")
    return _range(forest, start, stop)


def as_bool(value: Any, name: str) -> bool:
    """``value`` as a bool: True, False, 1 or 0, also NumPy's.

    Raises
    ------
    ValueError
        It is something else; the message calls it ``name``.
    """
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{name} must be True or False, not {value!r}")


def as_integer(value: Any, name: str, least: int | None = None) -> int:
    """``value`` as an int.

    Raises
    ------
    ValueError
        It is not an integer, or below ``least``; the message calls it ``name``.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be an integer, not {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number
