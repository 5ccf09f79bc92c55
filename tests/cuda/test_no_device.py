"""What a GPU request says if something is missing, and that nothing else is affected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpuqs.devices import cuda
from gpuqs.devices.cuda import cuda_device
from gpuqs.devices.foreign import is_on_device
from gpuqs.errors import DeviceError


class FakeRuntime:
    """CuPy's runtime, with or without a driver."""

    class CUDARuntimeError(RuntimeError):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    def __init__(self, count: int = 0, status: int = 0, driver: int = 0) -> None:
        self._count, self._status, self._driver = count, status, driver

    def getDeviceCount(self) -> int:
        if self._status:
            raise self.CUDARuntimeError(self._status)
        return self._count

    def driverGetVersion(self) -> int:
        return self._driver

    def getDevice(self) -> int:
        return 0


def with_runtime(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(cuda, "_import_cupy", lambda: cupy)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"needs CuPy.*pip install 'gpuqs\[cuda13\]'"):
        cuda_device()


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (FakeRuntime(status=35, driver=0), "no NVIDIA driver.*device='cpu'"),
        (FakeRuntime(status=35, driver=12040), r"serves CUDA 12\.4.*update the driver.*cuda12"),
        (FakeRuntime(status=100, driver=13000), "finds no CUDA device.*CUDA_VISIBLE_DEVICES"),
        (FakeRuntime(status=999, driver=13000), "does not start: status 999"),
        (FakeRuntime(count=1), "no device cuda:1: this process sees 1"),
    ],
)
def test_without_a_driver_or_device(monkeypatch: pytest.MonkeyPatch, runtime, message: str) -> None:
    with_runtime(monkeypatch, runtime)
    with pytest.raises(DeviceError, match=message):
        cuda_device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", 1.5, True])
def test_device_names(monkeypatch: pytest.MonkeyPatch, name: object) -> None:
    with_runtime(monkeypatch, FakeRuntime(count=1))
    with pytest.raises(ValueError, match="device must be"):
        cuda_device(name)


def test_importing_gpuqs_imports_no_gpu_library(tmp_path: Path) -> None:
    code = (
        "import sys, gpuqs, gpuqs.devices.cuda, gpuqs.engines.gpu.qs_gpu; print({'cupy', 'cuda'} & {*sys.modules})"
    )
    # Not from the checkout, whose gpuqs has no compiled modules.
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_arrays_on_devices_are_told_from_arrays_on_hosts() -> None:
    assert not is_on_device(np.zeros(3))
    assert not is_on_device([1.0])
    assert is_on_device(SimpleNamespace(__cuda_array_interface__={}))
    assert is_on_device(SimpleNamespace(__dlpack_device__=lambda: (2, 0)))
    assert not is_on_device(SimpleNamespace(__dlpack_device__=lambda: (1, 0)))
