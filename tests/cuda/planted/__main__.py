"""Plants one fault after another and prints a table of what catches them: `make planted`.

python -m planted [WORD ...]   # only faults with one of the words in their description or file
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from planted.bitslice import BITSLICE
from planted.campaign import copied_package, run_tests, try_fault
from planted.kernels import KERNELS
from planted.launches import LAUNCHES
from planted.repeated import REPEATED
from planted.streams import STREAMS
from planted.tuning import TUNING
from planted.walk import WALKS


def passes(tests: tuple[str, ...]) -> bool:
    """The control: an unchanged copy passes these tests."""
    with copied_package() as package:
        done = run_tests(package, tests)
    last = done.stdout.strip().splitlines()[-1:]
    print(f"without a fault, {' '.join(tests)}: {''.join(last) or done.stderr[-500:]}", flush=True)
    return done.returncode == 0


def main(wanted: list[str]) -> int:
    faults = [*STREAMS, *REPEATED, *LAUNCHES, *KERNELS, *BITSLICE, *WALKS, *TUNING]
    chosen = [fault for fault in faults if not wanted or any(word in fault.what + fault.file for word in wanted)]
    with ThreadPoolExecutor(2) as pool:
        sound = all(list(pool.map(passes, dict.fromkeys(fault.tests for fault in chosen))))
        print("\n| file | planted | caught by |\n|---|---|---|", flush=True)
        n_caught = 0
        for fault, outcome in zip(chosen, pool.map(try_fault, chosen), strict=True):
            n_caught += outcome.caught
            by = f"`{outcome.by}`" if "::" in outcome.by else outcome.by
            print(
                f"| `{fault.file}` | {fault.what} | {by if outcome.caught else f'**not caught**: {by}'} |", flush=True
            )
    print(f"\n{len(chosen)} planted, {n_caught} caught")
    return 0 if sound and n_caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
