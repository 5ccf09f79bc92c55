"""The demo: documents like MSLR-WEB's, a bundled LambdaMART model, and every engine on them."""

from __future__ import annotations

from gpuqs.demo.mslr import mslr_feature_names, mslr_like
from gpuqs.demo.run import bundled_model, run_demo, save_demo

__all__ = ["bundled_model", "mslr_feature_names", "mslr_like", "run_demo", "save_demo"]
