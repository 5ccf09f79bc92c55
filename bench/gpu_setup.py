"""What `bench/gpu.py` needs before it can import gpuqs: a build, or the checkout without CPU engines; peers' wheels."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
WHEELS = ("xgboost", "nvforest-cu13", "libnvforest-cu13", "libraft-cu13", "librmm-cu13", "pylibraft-cu13",
          "rmm-cu13", "treelite", "rapids-logger")  # fmt: skip
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]


def make_importable() -> bool:
    """Make ``import gpuqs`` work, building it if necessary; return whether its CPU engines are available."""
    here = str(CHECKOUT / "bench")
    sys.path[:] = [
        str(CHECKOUT),
        *(folder for folder in sys.path if folder != here),
        here,
    ]  # bench/ has its own profile.py
    if _imports():
        return True
    target = tempfile.mkdtemp(prefix="gpuqs-build-")
    command = [*PIP, "--no-build-isolation", "--target", target, str(CHECKOUT)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode == 0:
        sys.path.insert(0, target)
        if _imports():
            return True
    print(f"gpuqs's CPU engines do not build here; going on without them\n{built.stderr[-800:]}")
    for name, parts in (("gpuqs", ()), ("gpuqs.engines", ("engines",)), ("gpuqs.demo", ("demo",))):
        folder = CHECKOUT.joinpath("gpuqs", *parts)
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        # Not executed, since it imports the CPU engines; its loader finds submodules and the device code next to it.
        sys.modules[name] = importlib.util.module_from_spec(spec)
    import plain_making

    stand_in: Any = types.ModuleType("gpuqs.cpu_fallback")
    stand_in.making, stand_in.Machine = plain_making, tuple
    sys.modules |= {"gpuqs.cpu_fallback": stand_in, "gpuqs.cpu_fallback.making": plain_making}
    sys.modules["gpuqs.cpu_fallback.file_bytes"] = plain_making
    ctrs: Any = types.ModuleType("gpuqs.cpu_fallback.ctrs")
    ctrs.CtrTable = ctrs.text_hashes = None  # for CatBoost's categories, which no model here has
    sys.modules["gpuqs.cpu_fallback.ctrs"] = ctrs
    return False


def _imports() -> bool:
    try:
        import gpuqs.model  # noqa: F401
    except ImportError:
        for name in [n for n in sys.modules if n == "gpuqs" or n.startswith("gpuqs.")]:
            del sys.modules[name]
        return False
    return True


def install_peers(wheels: Path) -> None:
    """Install the available wheels of other libraries, one by one, where this process finds them."""
    target = tempfile.mkdtemp(prefix="gpuqs-peers-")
    for wheel in WHEELS:
        subprocess.run([*PIP, "--target", target, "--find-links", str(wheels), wheel], capture_output=True)
    sys.path.append(target)
