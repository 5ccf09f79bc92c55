"""TL2cgen: Treelite's model as C, compiled by GCC; kept in the benches' cache, since that takes minutes."""

from __future__ import annotations

import shutil

from peers.base import Contender, OfThreads, Peer, Source, larger_than
from peers.compiled import kept
from peers.treelite import as_treelite, converted

MAX_NODES = 100_000


def refuses(source: Source) -> str | None:
    if shutil.which("gcc") is None:
        return "there is no gcc to compile what it writes"
    return converted(source) or larger_than(source.model.forest, MAX_NODES, "compiling would take hours")


def build(source: Source) -> OfThreads:
    import tl2cgen

    model = as_treelite(source)
    library = kept(source.path.read_bytes() if source.path else model.serialize_bytes(), ".so")
    if not library.exists():
        files = min(source.model.forest.n_trees, 16)
        tl2cgen.export_lib(model, toolchain="gcc", libpath=str(library), params={"parallel_comp": files})

    def with_threads(n: int) -> dict[str, Contender]:
        predictor = tl2cgen.Predictor(str(library), nthread=n)
        return {"TL2cgen": Contender(lambda X: predictor.predict(tl2cgen.DMatrix(X), pred_margin=True))}

    return with_threads


PEER = Peer(
    name="TL2cgen",
    package="tl2cgen",
    distribution="tl2cgen",
    rows="float32 NumPy rows, copied into its DMatrix in the call",
    threads="nthread of the predictor",
    refuses=refuses,
    build=build,
)
