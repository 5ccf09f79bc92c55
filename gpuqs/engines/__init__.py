"""The engines by name, in the order in which "auto" prefers them."""

from __future__ import annotations

from gpuqs.engines.base import Engine, Program
from gpuqs.engines.bitslice import Bitslice
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.quickscorer import QuickScorer, VQuickScorer
from gpuqs.engines.rankwalk import RankWalk
from gpuqs.engines.reference import Reference
from gpuqs.engines.walk import Walk

__all__ = ["BITSLICE", "ENGINES", "Engine", "Program"]

ENGINES: dict[str, Engine] = {
    e.name: e for e in (Bitslice(), RankWalk(), VQuickScorer(), QuickScorer(), Walk(), Reference(), QsGpu())
}

#: The engine whose documents can be coded beforehand.
BITSLICE = Bitslice.name
