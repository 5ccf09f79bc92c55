"""The command line on a device: scores are the same, and a plan is that device's."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from emulation.device import EmulatedDevice
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cli.commands import cli

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


def gpuqs_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    device = EmulatedDevice()
    monkeypatch.setattr("gpuqs.devices.cuda.cuda_device", {"cuda": device}.__getitem__)
    return device


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    forest = random_forest(rng)
    gpuqs.from_model(forest).save(tmp_path / "model.gpuqs")
    np.save(tmp_path / "x.npy", probing_documents(rng, forest, 70))
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--precision", "fast"], ["--output", "raw"], ["--engine", "walk_gpu"]])
def test_scores(device: EmulatedDevice, folder: Path, options: list[str]) -> None:
    score = "score", folder / "model.gpuqs", folder / "x.npy"
    there = gpuqs_command(*score, "-o", folder / "there.npy", "--device", "cuda", *options)
    assert there.exit_code == 0 and device.launched, there.output
    assert f"_gpu, {device!r}".replace("<", "").replace(">", "") in there.stderr
    here = gpuqs_command(*score, "-o", folder / "here.npy", *(options if "walk_gpu" not in options else ()))
    assert here.exit_code == 0 and "_gpu" not in here.stderr
    assert (folder / "there.npy").read_bytes() == (folder / "here.npy").read_bytes()


def test_a_plan_of_the_device(device: EmulatedDevice, folder: Path) -> None:
    tune = "tune", folder / "model.gpuqs", folder / "x.npy", "-o", folder / "tuned.gpuqs", "--budget", "0.2"
    done = gpuqs_command(*tune, "--batch", "70", "--device", "cuda")
    assert done.exit_code == 0 and "_gpu" in done.stdout, done.output
    plan = gpuqs.load(folder / "tuned.gpuqs").plan
    assert plan is not None and plan.target.isa == "cuda"


def test_engines_of_the_other_device_are_refused(device: EmulatedDevice, folder: Path) -> None:
    score = "score", folder / "model.gpuqs", folder / "x.npy"
    refused = gpuqs_command(*score, "--device", "cuda", "--engine", "rankwalk")
    assert refused.exit_code == 1 and "engine 'rankwalk' does not run on GPUs" in refused.stderr, refused.output


def test_a_device_that_is_not_there(folder: Path) -> None:
    score = "score", folder / "model.gpuqs", folder / "x.npy", "--device"
    for name in ("tpu", "", "CUDA", "cuda:x", "0", "-1", "cpu:0"):
        refused = gpuqs_command(*score, name)
        assert refused.exit_code == 2 and "is not cpu, cuda, or cuda:N" in refused.stderr, refused.output
    refused = gpuqs_command(*score, "cuda:999")
    assert refused.exit_code == 1 and refused.stdout == "" and "GPU" in refused.stderr, refused.output
