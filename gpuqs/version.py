"""This gpuqs's version, which the build, plans and calibrations read too."""

__version__ = "0.1.0"
