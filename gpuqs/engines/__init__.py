"""The engines by name, in the order in which "auto" prefers them, and those that a build may leave out."""

from __future__ import annotations

from gpuqs.cpu_fallback import QUICKSCORER
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.bitslice import Bitslice
from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.walk_gpu import WalkGpu
from gpuqs.engines.quickscorer import BlockwiseQuickScorer, ObliviousQuickScorer, QuickScorer, VQuickScorer
from gpuqs.engines.rankwalk import RankWalk
from gpuqs.engines.reference import Reference
from gpuqs.engines.walk import Walk

__all__ = ["BITSLICE", "ENGINES", "LEFT_OUT", "Engine", "Program", "engines_on"]

_ALL: tuple[Engine, ...]
_ALL = (
    Bitslice(),
    RankWalk(),
    ObliviousQuickScorer(),
    VQuickScorer(),
    QuickScorer(),
    BlockwiseQuickScorer(),
    Walk(),
    Reference(),
    QsGpu(),
    BitsliceGpu(),
    WalkGpu(),
)
_OF_QUICKSCORER = (ObliviousQuickScorer, VQuickScorer, QuickScorer, BlockwiseQuickScorer, QsGpu)
_WITHOUT = (
    "this gpuqs was built without QuickScorer (GPUQS_QUICKSCORER=OFF); "
    "pip install . -Ccmake.define.GPUQS_QUICKSCORER=ON builds it with all engines"
)

ENGINES: dict[str, Engine] = {e.name: e for e in _ALL if QUICKSCORER or not isinstance(e, _OF_QUICKSCORER)}
#: By engine name: what error messages add if the user asks for an engine that this build lacks.
LEFT_OUT: dict[str, str] = {e.name: f": {_WITHOUT}" for e in _ALL if e.name not in ENGINES}

#: The engine whose documents can be coded ahead of a call.
BITSLICE = Bitslice.name


def engines_on(kind: str) -> list[str]:
    """Names of the engines that run on devices of a kind."""
    return [name for name, engine in ENGINES.items() if engine.device == kind]
