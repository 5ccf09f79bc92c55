"""Engines that run on CUDA devices."""
