"""Every peer, in the order of tables."""

from __future__ import annotations

from peers import catboost, lightgbm, lleaves, onedal, onnxruntime, sklearn, tl2cgen, treelite, xgboost, ydf
from peers.base import Peer

_MODULES = (lightgbm, xgboost, catboost, sklearn, onnxruntime, lleaves, treelite, tl2cgen, ydf, onedal)
PEERS: dict[str, Peer] = {module.PEER.name: module.PEER for module in _MODULES}
