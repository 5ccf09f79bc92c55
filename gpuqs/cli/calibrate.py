"""`gpuqs calibrate`: how the engines compare on this machine, measured anew and kept."""

from __future__ import annotations

import click

from gpuqs import cpu_fallback
from gpuqs.errors import GpuqsError
from gpuqs.tuning.calibration import anew


def print_factors() -> None:
    """Calibrate, and print what predicted costs are multiplied by."""
    factors, path = anew((cpu_fallback.isa(), cpu_fallback.compiles_programs()))
    if not factors:
        why = "is turned off, or its folder cannot be written" if path is None else "took too long, or cannot be kept"
        raise GpuqsError(f"the calibration {why}; engines are chosen by costs that were measured on another machine")
    for name, factor in factors.items():
        click.echo(f"{name:<10} {factor:.2f}")
    click.echo(f"{path}: kept", err=True)
