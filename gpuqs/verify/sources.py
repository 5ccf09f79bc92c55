"""The libraries that models come from, as scorers to compare with: LightGBM, XGBoost, CatBoost."""

from __future__ import annotations

import io
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from gpuqs.arrays import Documents
from gpuqs.errors import GpuqsError, InputError, ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.formats import content, readers
from gpuqs.formats.catboost_binary import MAGIC as BINARY
from gpuqs.formats.xgboost import CATEGORY_TYPES

#: What stands for every value that is in no category of the model.
_UNSEEN: Final = "a category that this model has not seen"

#: What CatBoost calls the values that a link makes.
_CATBOOST_VALUES: Final = {
    "identity": "RawFormulaVal",
    **dict.fromkeys(("sigmoid", "softmax", "ova_sigmoid"), "Probability"),
    "exp": "Exponent",
    "mean_variance": "RMSEWithUncertainty",
}

#: Units in the last place by which CatBoost may misread numbers in its own JSON.
_READ_OFF: Final = 2


class Source(ABC):
    """A model, loaded and scored by the library that it came from.

    Parameters
    ----------
    data : bytes
        The model file's content.
    n_threads : int
        Threads that the library scores with.

    Attributes
    ----------
    title : str
        "LightGBM", "XGBoost", "CatBoost".
    version : str
        The installed version.
    forest : Forest
        What gpuqs reads from the same bytes.
    notes : list of str
        What readers of the outcome must know.
    takes_infinite : bool
        Whether the library scores rows with infinite values.
    """

    title: ClassVar[str]
    package: ClassVar[str]
    takes_infinite: ClassVar[bool] = True

    def __init__(self, data: bytes, forest: Forest, n_threads: int = 1) -> None:
        try:
            self._module = import_module(self.package)
        except ImportError as error:
            lacks = error.name if isinstance(error, ModuleNotFoundError) and error.name else self.package
            raise InputError(
                f"{self.title} models are verified with {self.title} itself, which cannot be imported "
                f"({error}): pip install {lacks.partition('.')[0]}"
            ) from error
        self.version: str = self._module.__version__
        self.notes: list[str] = []
        self.n_threads = n_threads
        self.forest = forest
        try:
            self._booster = self._load(data)
        except (GpuqsError, MemoryError):
            raise
        except Exception as error:  # each library has its own kinds
            raise ModelFormatError(f"{self.name} itself cannot load the model: {_first_line(error)}") from error
        self.forest = self._as_held(forest)

    def __repr__(self) -> str:
        return f"<gpuqs.verify.Source: {self.name}, {self.forest.n_trees:,} trees>"

    @property
    def name(self) -> str:
        return f"{self.title} {self.version}"

    @property
    @abstractmethod
    def trees_per_iteration(self) -> int:
        """Trees that one boosting iteration made; `raw` can stop after any iteration."""

    def untested_categories(self) -> list[int]:
        """Features that the library treats as categories, though the model's trees test none of them."""
        return []

    def raw(self, X: Any, iterations: int | None = None) -> np.ndarray:
        """Raw scores, [D, n_outputs], of all trees, or of the first ``iterations`` (at least 1).

        ``X`` holds rows as users give them, dense or sparse, or is a pandas frame, whose categories the library codes
        itself; or it is `Documents`, whose categories are codes.
        """
        rows = self._rows(X)
        return self._ask(self._raw, rows, iterations).reshape(rows.shape[0], -1)

    def values(self, X: Any) -> np.ndarray | None:
        """What the library's ``predict`` gives, in its shape; None where equal bits are not promised.

        ``X`` as for `raw`.
        """
        return None

    def leaves(self, X: Any) -> np.ndarray:
        """Exit leaves, int64 [D, n_trees]; ``X`` as for `raw`."""
        rows = self._rows(X)
        leaves = self._ask(self._leaves, rows).astype(np.int64).reshape(rows.shape[0], -1)
        if leaves.shape[1] != self.forest.n_trees:
            raise UnsupportedModelError(
                f"{self.name} gives exit leaves of {leaves.shape[1]} trees, the model has {self.forest.n_trees}"
            )
        return leaves

    def bound(self) -> float:
        """How far raw scores may lie apart where gpuqs promises no equal bits; 0 where it does."""
        return 0.0

    @abstractmethod
    def _load(self, data: bytes) -> Any: ...

    @abstractmethod
    def _raw(self, X: Any, iterations: int | None) -> Any: ...

    @abstractmethod
    def _leaves(self, X: Any) -> Any: ...

    def _rows(self, X: Any) -> Any:
        """What the library is given for ``X``."""
        return X.chunk(0, X.n) if isinstance(X, Documents) else X

    def _ask(self, what: Callable[..., Any], X: Any, *more: Any) -> np.ndarray:
        try:
            return np.asarray(what(X, *more))
        except MemoryError:
            raise
        except Exception as error:  # each library has its own kinds
            kind = getattr(X, "dtype", "frame")
            raise InputError(f"{self.name} does not score the rows ({kind}): {_first_line(error)}") from error

    def _as_held(self, forest: Forest) -> Forest:
        """The forest, where the library itself holds other numbers than the file does."""
        return forest


class LightGBM(Source):
    """A model that LightGBM loads and scores; parameters and attributes as for `Source`."""

    title = "LightGBM"
    package = "lightgbm"

    @property
    def trees_per_iteration(self) -> int:
        return int(self._booster.num_model_per_iteration())

    def _raw(self, X: Any, iterations: int | None) -> Any:
        return self._predict(X, raw_score=True, num_iteration=iterations)

    def values(self, X: Any) -> np.ndarray | None:
        return self._ask(self._predict, self._rows(X))

    def _load(self, data: bytes) -> Any:
        return self._module.Booster(model_str=data.decode(errors="replace"))

    def _leaves(self, X: Any) -> Any:
        return self._predict(X, pred_leaf=True)

    def _predict(self, X: Any, **what: Any) -> Any:
        return self._booster.predict(X, num_threads=self.n_threads, **what)


class XGBoost(Source):
    """A model that XGBoost loads and scores; parameters and attributes as for `Source`.

    XGBoost refuses infinite values, and integer categories of another width than in training.
    """

    title = "XGBoost"
    package = "xgboost"
    takes_infinite = False

    @property
    def trees_per_iteration(self) -> int:
        return max(1, self.forest.n_trees // max(1, int(self._booster.num_boosted_rounds())))

    def _raw(self, X: Any, iterations: int | None) -> Any:
        return self._booster.predict(self._matrix(X), output_margin=True, iteration_range=(0, iterations or 0))

    def values(self, X: Any) -> np.ndarray | None:
        forest = self.forest
        older = forest.objective == "reg:quantileerror" and forest.link == "identity" and forest.n_outputs > 1
        if older and _release(self.version) >= (3, 4):
            return None  # it also sorts the quantiles of an older release's model, which that release does not
        return self._ask(lambda rows: self._booster.predict(self._matrix(rows)), self._rows(X))

    def _load(self, data: bytes) -> Any:
        if self.forest.vector_leaves and b"leaf_weights" not in data and _release(self.version) >= (3, 2):
            raise UnsupportedModelError(
                f"{self.name} crashes when it loads leaves of several values that a release before 3.2 wrote; "
                "verify the model with the release that wrote it: pip install 'xgboost<3.2'"
            )
        booster = self._module.Booster({"nthread": self.n_threads})
        with self._module.config_context(verbosity=0):  # old files are warned about
            booster.load_model(bytearray(data))
        return booster

    def _leaves(self, X: Any) -> Any:
        return self._booster.predict(self._matrix(X), pred_leaf=True)

    def _matrix(self, X: Any) -> Any:
        if hasattr(X, "iloc"):
            return self._module.DMatrix(self._as_trained(X), enable_categorical=True, nthread=self.n_threads)
        types = self._booster.feature_types
        return self._module.DMatrix(
            X,
            feature_names=self._booster.feature_names,
            feature_types=types,
            enable_categorical="c" in (types or []),
            nthread=self.n_threads,
        )

    @lazy
    def _widths(self) -> list[str | None]:
        """Types of the columns' integer categories."""
        model = json.loads(self._booster.save_raw("json"))["learner"]["gradient_booster"]
        columns = (model.get("gbtree") or model)["model"].get("cats", {}).get("enc", [])
        return [CATEGORY_TYPES.get(column.get("type")) for column in columns]

    def _as_trained(self, frame: Any) -> Any:
        """The frame with integer categories of the width that they had in training, which XGBoost requires."""
        frame = frame.copy(deep=False)
        for at, width in enumerate(self._widths):
            if width is not None and frame.iloc[:, at].cat.categories.dtype.kind in "iu":
                levels = frame.iloc[:, at].cat.categories.astype(width)
                frame[frame.columns[at]] = frame.iloc[:, at].cat.rename_categories(levels)
        return frame


class CatBoost(Source):
    """A model that CatBoost loads and scores; parameters and attributes as for `Source`.

    CatBoost takes categories themselves, so codes in rows are replaced with the categories. It reads some numbers of
    its JSON, and some statistics of categories, differently from what it wrote. Where a model has a scale, equal bits
    are not promised, and `bound` says how far scores may lie apart.
    """

    title = "CatBoost"
    package = "catboost"

    @property
    def trees_per_iteration(self) -> int:
        return 1

    def _raw(self, X: Any, iterations: int | None) -> Any:
        return self._base.predict(
            self._booster,
            X,
            prediction_type="RawFormulaVal",
            ntree_end=iterations or 0,
            thread_count=self.n_threads,
        )

    def values(self, X: Any) -> np.ndarray | None:
        """The values that CatBoost computes for the model's loss; for two classes, the second one's probability."""
        if self.bound() or (kind := _CATBOOST_VALUES.get(self.forest.link)) is None:
            return None
        one = partial(self._base.predict, self._booster, prediction_type=kind, thread_count=self.n_threads)
        values = self._ask(one, self._rows(X))
        return values[:, 1] if kind == "Probability" and self.forest.n_outputs == 1 else values

    def bound(self) -> float:
        """The bound on rounding where the model has a scale, as `gpuqs.formats.catboost` says."""
        forest = self.forest
        if (np.abs(np.frexp(forest.tree_weight)[0]) == 0.5).all():
            return 0.0
        scaled = np.abs(forest.leaf_value).max(axis=1) * np.repeat(
            np.abs(forest.tree_weight), np.diff(forest.leaf_offsets)
        )
        largest = np.maximum.reduceat(scaled, forest.leaf_offsets[:-1]).sum() + np.abs(forest.base_score).max()
        return 2 * (forest.n_trees + 1) * 2.0**-53 * float(largest)

    def _load(self, data: bytes) -> Any:
        if self.forest.schema.has_hashes and self.forest.ctrs is None:
            raise UnsupportedModelError(
                "the model holds its categories' hashes, not the strings from which rows are made; save it "
                "together with its training data: "
                'model.save_model("model.json", format="json", pool=catboost.Pool(X, cat_features=...))'
            )
        self._base = self._module.CatBoost
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            path.write_bytes(data)
            return self._base().load_model(str(path), format="cbm" if data.startswith(BINARY) else "json")

    def untested_categories(self) -> list[int]:
        known = self.forest.schema.categories or (None,) * self.forest.n_features
        return [feature for feature in self._booster.get_cat_feature_indices() if not known[feature]]

    def _leaves(self, X: Any) -> Any:
        return self._booster.calc_leaf_indexes(X, thread_count=self.n_threads)

    def _rows(self, X: Any) -> Any:
        """Rows with the categories' values in place of codes; what users give is left as it is."""
        columns, rows = self._booster.get_cat_feature_indices(), super()._rows(X)
        if not columns or not isinstance(X, Documents):
            return rows
        with np.errstate(over="ignore"):
            codes = rows.astype(np.float32)
        rows = codes.astype(object)
        for column in columns:
            known = (self.forest.schema.categories or {column: None})[column] or ()
            value_of = dict(enumerate(known))
            rows[:, column] = [value_of.get(code, _UNSEEN) for code in codes[:, column].tolist()]
        return rows

    def _as_held(self, forest: Forest) -> Forest:
        """CatBoost misreads some numbers of its own JSON slightly: use those as it reads them, and say so."""
        start = np.repeat(forest.leaf_offsets[:-1], np.diff(forest.leaf_offsets))
        listed = np.asarray(self._booster.get_leaf_values(), np.float64)
        held = {"base_score": np.atleast_1d(np.asarray(self._booster.get_scale_and_bias()[1], np.float64))}
        if listed.size == forest.leaf_value.size:
            held["leaf_value"] = listed.reshape(forest.leaf_value.shape)[start + forest.leaf_id]
        taken: dict[str, Any] = {}
        for name, theirs in held.items():
            ours = getattr(forest, name)
            off = (ours != theirs) & (np.abs(ours - theirs) <= _READ_OFF * np.spacing(np.abs(ours)))
            if off.any():
                self.notes.append(
                    f"{self.name} reads {int(off.sum()):,} of {off.size:,} numbers in {name.replace('_', ' ')}s "
                    f"of its file wrong, by up to {_READ_OFF} units in the last place; scores are compared using those"
                )
                taken[name] = np.where(off, theirs, ours)
        return replace(forest, **taken)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


_SOURCES: Final[dict[str, type[LightGBM | XGBoost | CatBoost]]] = {
    "lightgbm": LightGBM,
    "xgboost": XGBoost,
    "catboost": CatBoost,
}


def open_source(model: str | os.PathLike[str] | bytes, n_threads: int = 1) -> Source:
    """Read a model with gpuqs, and load it with the library that it came from.

    That library may be less wary of damaged or hostile files than gpuqs is.

    Parameters
    ----------
    model : path or bytes
        A file that LightGBM, XGBoost or CatBoost wrote, or its content.
    n_threads : int
        Threads that the library scores with.

    Raises
    ------
    InputError
        The library is not installed; names the command that installs it.
    ModelFormatError
        The model is damaged; or the library itself does not load it.
    UnsupportedModelError
        The file is from another library, or in another format.
    OSError
        The file cannot be read.
    """
    called = "model bytes" if isinstance(model, bytes) else str(model)
    with io.BytesIO(model) if isinstance(model, bytes) else open(model, "rb") as file:
        data = content(file, called)
    reader = next(reader for reader in readers() if reader.recognises(data[:4096]))
    kind = reader.__name__.rpartition(".")[2]
    if kind not in _SOURCES:
        verified = ", ".join(source.title for source in _SOURCES.values())
        why = f"gpuqs verifies files of {verified}; this one is of the format {reader.NAME!r}"
        raise UnsupportedModelError(why if isinstance(model, bytes) else f"{called}: {why}")  # the caller names bytes
    try:
        return _SOURCES[kind](data, reader.read(data, called), n_threads)
    except ModelFormatError as error:
        raise error if error.source else error.at(called) from error
