"""`gpuqs calibrate`: how the engines compare on this machine, measured again and kept."""

from __future__ import annotations

import os

import click

from gpuqs import cpu_fallback
from gpuqs.errors import GpuqsError
from gpuqs.tuning.calibration import recalibrate


def print_factors() -> None:
    """Calibrate, and print what predicted costs are multiplied by."""
    factors, path = recalibrate(cpu_fallback.machine())
    if not factors:
        if path is not None:
            why = f"took too long (is the machine busy?), or cannot be saved as {path}"
        elif os.environ.get("GPUQS_CALIBRATE") == "0":
            why = "is turned off by GPUQS_CALIBRATE=0"
        else:
            why = "has no folder to be saved in; set GPUQS_CACHE_DIR to one"
        raise GpuqsError(f"the calibration {why}; engines are chosen by costs that were measured on another machine")
    for name, factor in factors.items():
        click.echo(f"{name:<10} {factor:.2f}")
    click.echo(f"{path}: kept", err=True)
