"""Faults of tuning on a device: what a reading counts, where a plan is used, what it may choose."""

from __future__ import annotations

from planted.campaign import Fault

_TUNING = ("test_tuning_on_devices.py",)
_SEARCH, _TUNE, _PLAN, _CHOOSER = "tuning/search.py", "tune.py", "tuning/plan.py", "chooser.py"

TUNING = [
    Fault("a reading does not wait", _SEARCH, "            synchronize()\n", "", _TUNING),
    Fault(
        "work of the search comes into a captured graph",
        _TUNE,
        "    device.synchronize()  # raises",
        "    # raises",
        _TUNING,
    ),
    Fault(
        "an interrupted search leaves work under way",
        _TUNE,
        "        device.synchronize()  # after",
        "        pass  # after",
        _TUNING,
    ),
    Fault("programs are kept as the host's", _TUNE, "narrow, device, here)\n", "narrow, HOST, here)\n", _TUNING),
    Fault("a plan counts everywhere", _CHOOSER, "why_not(target(device, machine),", "why_not(plan.target,", _TUNING),
    Fault(
        "calls on a device pass over the plan",
        _CHOOSER,
        "        if self.plan is None:\n            return",
        "        if self.plan is None or device is not HOST:\n            return",
        _TUNING,
    ),
    Fault(
        "ways are remembered for all devices",
        _CHOOSER,
        "n_documents, device.key, machine",
        "n_documents, machine",
        _TUNING,
    ),
    Fault(
        "whether a plan counts is remembered for all devices",
        _CHOOSER,
        "key = device.key, machine\n",
        "key = machine\n",
        _TUNING,
    ),
    Fault("a plan may choose sums of another order", _PLAN, "if ENGINES[engine].own_sums:", "if False:", _TUNING),
    Fault("a thousand documents tell of a million", _PLAN, '"cuda": 1 << 20', '"cuda": 1000', _TUNING),
    Fault(
        "synchronizing waits for nothing",
        "devices/cuda.py",
        '''end the capture first")
        self._cupy.cuda.get_current_stream().synchronize()''',
        'end the capture first")',
        ("test_cuda_device.py",),
    ),
]
