"""The engines by name, in the order in which "auto" prefers them."""

from __future__ import annotations

from gpuqs.engines.base import Engine, Program
from gpuqs.engines.bitslice import Bitslice
from gpuqs.engines.quickscorer import QuickScorer, VQuickScorer
from gpuqs.engines.rankwalk import RankWalk
from gpuqs.engines.reference import Reference
from gpuqs.engines.walk import Walk

__all__ = ["BITSLICE", "ENGINES", "QS_GPU", "RANKED", "Engine", "Program"]

ENGINES: dict[str, Engine] = {
    e.name: e for e in (Bitslice(), RankWalk(), VQuickScorer(), QuickScorer(), Walk(), Reference())
}

#: The engine whose documents can be coded beforehand.
BITSLICE = Bitslice.name
#: The engine that scores on GPUs.
QS_GPU = "qs_gpu"
#: The engines that rank documents: `prepare` takes the model's rank tables.
RANKED = (Bitslice.name, RankWalk.name)
