"""The repr of public objects is one short line, whatever they hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest
from trained import lightgbm_trained

from gpuqs.model import Model
from gpuqs.readers import Chunk, open_documents
from gpuqs.schema import Schema
from gpuqs.verify import verify

N = 500
FOREST = replace(
    random_forest(np.random.default_rng(0), n_trees=1200, n_features=N, n_outputs=2),
    source="LightGBM 4",
    objective="binary",
    schema=Schema(tuple(f"feature {i}" for i in range(N)), (None, tuple("abc" * 100)) * (N // 2)),
)
MODEL = Model(FOREST)


def objects(folder: Path) -> dict[str, tuple[Any, list[str]]]:
    X = probing_documents(np.random.default_rng(1), FOREST, 100)
    table = folder / "rows.npy"
    np.save(table, X)
    certificate = verify(lightgbm_trained("regression").booster.model_to_string().encode(), rows=200)
    summary = ["LightGBM 4 binary", "1,200 trees", "500 features", "2 outputs"]
    return {
        "Model": (MODEL, ["<gpuqs.Model: ", *summary]),
        "Forest": (FOREST, ["<gpuqs.Forest: ", *summary]),
        "Schema": (FOREST.schema, ["feature 0, feature 1, feature 2, ... (500 columns)", "250 with categories"]),
        "no schema": (Schema(absent=np.nan), ["no names", "absent is missing"]),
        "EncodedDocuments": (MODEL.encode(X), ["<gpuqs.EncodedDocuments: 100 for ", " bytes"]),
        "Certificate": (certificate, ["<gpuqs.verify.Certificate: LightGBM", "rows, everything agrees"]),
        "Tally": (certificate.tallies[0], ["Tally(engine=", "leaves_agree="]),
        "Chunk": (Chunk(X, labels=X[:, 0]), ["100 x 500 float64, labels>"]),
        "reader": (open_documents(table, FOREST), ["rows.npy, 0 of "]),
    }


@pytest.mark.parametrize(
    "name", ["Model", "Forest", "Schema", "no schema", "EncodedDocuments", "Certificate", "Tally", "Chunk", "reader"]
)
def test_reprs_are_one_short_line(name: str, tmp_path: Path) -> None:
    obj, parts = objects(tmp_path)[name]
    for part in parts:
        assert part in repr(obj)
    assert len(repr(obj)) < 250 + len(str(tmp_path)) and "\n" not in repr(obj)


def test_an_explanation_is_its_table() -> None:
    assert repr(MODEL.explain(7)) == str(MODEL.explain(7))
    assert repr(MODEL.explain(7)).startswith("7 documents: ")
