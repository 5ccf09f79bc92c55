"""lleaves: LightGBM's text compiled by LLVM; kept in the benches' cache, since that takes minutes."""

from __future__ import annotations

from peers.base import Contender, OfThreads, Peer, Source, larger_than, of_libraries
from peers.compiled import kept

_converted = of_libraries("LightGBM")
MAX_NODES = 100_000


def refuses(source: Source) -> str | None:
    return _converted(source) or larger_than(source.model.forest, MAX_NODES, "compiling would take hours")


def build(source: Source) -> OfThreads:
    import lleaves

    assert source.path is not None
    model = lleaves.Model(model_file=str(source.path))
    model.compile(cache=str(kept(source.path.read_bytes(), ".lleaves")), raw_score=True)
    return lambda n: {"lleaves": Contender(lambda X: model.predict(X, n_jobs=n))}


PEER = Peer(
    name="lleaves",
    package="lleaves",
    distribution="lleaves",
    rows="float32 NumPy rows",
    threads="n_jobs of each call",
    refuses=refuses,
    build=build,
)
