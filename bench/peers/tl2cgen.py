"""TL2cgen: Treelite's model as C, compiled by GCC; kept in the benches' cache, since that takes minutes."""

from __future__ import annotations

import shutil

from models import CACHE

from peers.base import Peer, Source, Way, larger_than
from peers.treelite import as_treelite, converted

MOST_NODES = 100_000


def refuses(source: Source) -> str | None:
    if shutil.which("gcc") is None:
        return "there is no gcc to compile what it writes"
    return converted(source) or larger_than(source.model.forest, MOST_NODES, "compiling would take hours")


def build(source: Source, n_threads: int) -> dict[str, Way]:
    import tl2cgen

    CACHE.mkdir(exist_ok=True)
    stem = source.path.stem if source.path else f"{source.library}-{source.model.forest.n_nodes}"
    library = CACHE / f"{stem}.tl2cgen.so"
    if not library.exists():
        parts = {"parallel_comp": 16} if source.model.forest.n_trees >= 16 else {}
        tl2cgen.export_lib(as_treelite(source), toolchain="gcc", libpath=str(library), params=parts)
    predictor = tl2cgen.Predictor(str(library), nthread=n_threads)
    return {"TL2cgen": Way(lambda X: predictor.predict(tl2cgen.DMatrix(X), pred_margin=True))}


PEER = Peer(
    name="TL2cgen",
    package="tl2cgen",
    distribution="tl2cgen",
    rows="float32 NumPy rows, copied into its DMatrix in the call",
    threads="nthread of the predictor",
    refuses=refuses,
    build=build,
)
