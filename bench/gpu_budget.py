"""The budget of `bitslice_gpu` on an H100, computed from counts, for docs/gpu.md, which also has measured times.

    python bench/gpu_budget.py           # write docs/gpu.md's tables from tests/cuda/budget.json and the machine code
    python bench/gpu_budget.py models    # count trained models anew, into that file

A stage's time per document is that of the busiest of four resources: instructions issued (counted in the machine
code), wavefronts of shared memory and bytes of the L2 cache (counted from the layout, on documents), bytes of DRAM.
Launches, latency, and the code outside the kernels' loops are not included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path += [str(CHECKOUT), str(CHECKOUT / "bench"), str(CHECKOUT / "tests" / "cuda")]

import unit_counts  # noqa: E402
from gpu_counts import DEVICES, Paper  # noqa: E402
from pages import gpu_figures  # noqa: E402
from pages.markers import Block, rendered  # noqa: E402
from pages.results import Results  # noqa: E402

import gpuqs  # noqa: E402
from gpuqs.engines import ENGINES  # noqa: E402
from gpuqs.engines.gpu import bitslice_placed, kernels  # noqa: E402
from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu  # noqa: E402
from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.layout.bitslice_gpu import RowLayout, build_rows  # noqa: E402
from gpuqs.layout.ranks import RankTables, build_ranks, level_tables  # noqa: E402
from gpuqs.layout.slots import SlotPrograms  # noqa: E402
from gpuqs.layout.steps import ENDS_PAGE, GROUP, MARK, POP, PUSHES, STEPS, StepPrograms  # noqa: E402

PAGE = CHECKOUT / "docs" / "gpu.md"
SIZES = {"1,000 x 64": 1000, "20,000 x 64": 20_000}
TILE, LANES, BANKS, TREES_COUNTED = 1024, 32, 32, 1000
#: Targets, independent of the counts: upper limits of nanoseconds and kilobytes of L2 traffic per document.
WANTED = {"1,000 x 64": (3, 10), "20,000 x 64": (50, None)}
#: Trees of a partial sum of `sum_fast`.
SUMMED = 128
#: For large batches: documents per thread of `sum_exact`, and documents for which a thread block reads a tree's values.
SUMMED_EACH = kernels.summed("float64", small=True)[0]
SUMMED_TOGETHER = SUMMED_EACH * bitslice_placed.SUMMED
WORDS = 2
EVALUATION = f"steps<{WORDS}>"


@dataclass(frozen=True)
class Device:
    """What a device does per clock, with the source of each figure."""

    multiprocessors: int = 132
    gigahertz: float = 1.7
    issues: int = 4
    l2_bytes: float = 5.5e12 / 1.7e9
    dram_bytes: float = 3.35e12 / 1.7e9

    SOURCES = """\
- 132 multiprocessors, each with 4 instructions and 1 wavefront of shared memory per clock; 3.35 TB/s of DRAM: from
  NVIDIA's data sheet and description of the H100 SXM5.
- 1.7 GHz, 5.5 TB/s of L2: estimates; NVIDIA states no L2 bandwidth."""


def count_model(forest: Forest, documents: np.ndarray) -> unit_counts.Model:
    """Counts of a model from its layout, and from scoring 1,024 documents."""
    ranks = build_ranks(forest)
    layout = build_rows(forest, ranks)
    steps, slots = layout.programs, build_rows(forest, ranks, evaluation="slots").programs
    if not isinstance(steps, StepPrograms) or not isinstance(slots, SlotPrograms):
        raise ValueError("the forest's stack is too deep for steps")
    segments = layout.segments
    bits = segments["n_bits"].astype(int)
    n_rows = int(np.bitwise_count(segments["low"]).sum())
    facts = {
        "trees": forest.n_trees,
        "nodes a tree": forest.n_nodes / forest.n_trees,
        "planes a tree": layout.n_planes,
        **steps_of(steps, forest.n_trees),
        "nodes of a program": float(np.diff(slots.node_offsets).mean()),
        "slots": slots.n_slots,
        "columns": len(ranks.columns),
        "thresholds": len(ranks.threshold),
        "rank bits a column": float(ranks.n_bits.mean()),
        "rank planes a column": float(np.diff(ranks.plane_offsets).mean()),
        "tree blocks": len(layout.block_segments) - 1,
        "segments": len(segments),
        "rows": n_rows,
        "rows a segment": n_rows / len(segments),
        "high bits a segment": float(np.maximum(bits - 4, 0).mean()),
        "planes a segment": float((bits + segments["marked"]).mean()),
        "wavefronts a search step": search_wavefronts(ranks, documents),
        "wavefronts a look-up": look_up_wavefronts(forest, layout, documents),
    }
    return {name: round(value, 4) for name, value in facts.items()}


def steps_of(programs: StepPrograms, n_trees: int) -> unit_counts.Model:
    """Counts of step programs, whose trees are not oblivious. Padding steps after a tree's last one count, too."""
    n_groups, pages = programs.n_groups, programs.pages
    flags = np.ascontiguousarray(pages[:, n_groups * STEPS : n_groups * GROUP]).view(np.uint8).reshape(-1, STEPS)
    last = np.flatnonzero(flags[:, ENDS_PAGE] & MARK)
    ran = np.arange(len(flags)) % n_groups <= np.repeat(last % n_groups, n_groups)
    flags = flags[ran]
    return {
        "groups a tree": len(flags) / n_trees,
        "pages a tree": len(pages) / n_trees,
        "words of a page": pages.shape[1],
        "pushes a step": float((flags & PUSHES).mean()),
        "steps with flags": float(((flags & (PUSHES | POP)) > 0).mean()),
        "stack": programs.depth,
    }


class Launches(Paper):
    """A device that runs nothing, but records the bytes of shared memory of thread blocks at launch."""

    kind = "cuda"

    def __init__(self) -> None:
        super().__init__(DEVICES[0])
        self.shared: dict[str, int] = {}

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def stage(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def kernel(self, file: str, name: str, registers: int) -> Callable[..., None]:
        def launch(*arguments: Any, shared_mem: int = 0) -> None:
            self.shared[name] = max(shared_mem, self.shared.get(name, 0))

        return launch


def shared_memory(forest: Forest, documents: np.ndarray) -> dict[str, int]:
    """Bytes of a thread block's shared memory, by kernel."""
    device = Launches()
    each = (*kernels.summed("float64", small=True), None)  # few documents
    for words, precision, evaluation, summed in product((1, 2), ("exact", "fast"), ("steps", "slots"), each):
        settings = BitsliceSettings(words, evaluation=evaluation, summed=summed)
        placed = BitsliceGpu(settings).prepare(forest, precision, device=device).forest
        placed.score(documents, np.zeros((len(documents), 1), placed.values.sum_dtype))
    return device.shared


def conflicts(word: npt.NDArray[np.int64]) -> float:
    """Mean wavefronts of accesses [..., lanes] to words: the largest number of distinct words in one bank."""
    lanes = word.shape[-1]
    ordered = np.sort(word.reshape(-1, lanes), axis=1)
    first = np.ones(ordered.shape, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    access = np.broadcast_to(np.arange(len(ordered))[:, None], ordered.shape)
    met = np.bincount((access * BANKS + ordered % BANKS)[first], minlength=len(ordered) * BANKS)
    return float(met.reshape(-1, BANKS).max(axis=1).mean())


def look_up_wavefronts(forest: Forest, layout: RowLayout, documents: np.ndarray) -> float:
    """Wavefronts of a warp's look-ups in a tree's table of 64 values of 4 bytes."""
    some = forest.select(slice(0, TREES_COUNTED))
    leaves = np.zeros((len(documents), some.n_trees), np.int32)
    ENGINES["bitslice"].leaves(ENGINES["bitslice"].prepare(some, "exact"), documents, leaves, 1)
    position = layout.position[some.leaf_offsets[:-1] + leaves].astype(np.int64)
    place = np.where(layout.oblivious[: some.n_trees], position, position ^ (position >> 1))
    return conflicts(place.reshape(LANES, LANES, -1).transpose(2, 1, 0))  # a lane's documents are consecutive


def search_wavefronts(ranks: RankTables, documents: np.ndarray) -> float:
    """Wavefronts of a step of the rank search, whose thresholds are in shared memory."""
    tables, offsets = level_tables(ranks, "float32")
    totals = []
    for column, (begin, end) in enumerate(pairwise(offsets)):
        x = documents[:, ranks.columns.feature[column]].reshape(-1, LANES)
        answers = np.zeros(x.shape, np.int64)
        for level in range(int(ranks.n_bits[column])):
            place = (1 << level) - 1 + answers
            totals.append(conflicts(place))
            answers |= (~(tables[begin:end][place] >= x)).astype(np.int64) << level
    return float(np.mean(totals))


@dataclass(frozen=True)
class Stage:
    """Costs of a kernel: instructions and wavefronts for 1,024 documents, and bytes for one."""

    name: str
    instructions: float
    wavefronts: float
    l2_bytes: float
    dram_bytes: float = 0.0

    def nanoseconds(self, device: Device) -> dict[str, float]:
        """Nanoseconds per document, by resource."""
        clocks = 1 / (device.multiprocessors * TILE)
        by_clock = {
            "issue": self.instructions / device.issues * clocks,
            "wavefronts": self.wavefronts * clocks,
            "L2": self.l2_bytes / device.l2_bytes,
            "DRAM": self.dram_bytes / device.dram_bytes,
        }
        return {name: n / device.gigahertz for name, n in by_clock.items()}


def width_of(opcode: str) -> int:
    """Wavefronts of an access to shared memory when the lanes' words are consecutive."""
    return 4 if ".128" in opcode else 2 if ".64" in opcode else 1


def stages(model: unit_counts.Model, architecture: int = 90) -> dict[str, Stage]:
    """The stages of scoring, by kernel; `sum_fast` or `sum_exact` comes last."""
    trees, columns = model["trees"], model["columns"]
    nodes, searched = trees * model["nodes a tree"], columns * model["rank bits a column"] * LANES
    planes, word = trees * model["planes a tree"] / 8, 1 / 8  # a word of 32 documents in bytes per document
    rank_planes = columns * model["rank planes a column"] * word

    def counted(kernel: str, units: float, **wavefronts: float) -> tuple[float, float]:
        """Instructions and wavefronts; ``wavefronts`` overrides those that follow from an opcode's width."""
        seen = unit_counts.counted(kernel, architecture)
        each = [
            n * wavefronts.get(op.replace(".U", "").replace(".", "_"), width_of(op)) for op, n in seen.shared.items()
        ]
        return seen.instructions * units, sum(each) * units

    votes = model["rank planes a column"]  # one wavefront each, and a batch's values four
    ranked = counted("rank_documents<float, float, true>", searched, LDS=model["wavefronts a search step"],
                     STS_128=(4 + votes) / (1 + votes))  # fmt: skip
    look_up, numbers = model["wavefronts a look-up"], LANES / SUMMED_EACH  # of numbers one wavefront each
    read = (numbers + 2 * LANES * look_up) / (numbers + 2 * LANES)
    sum_exact = kernels.sum_exact("float64", True, WORDS, SUMMED_EACH)
    groups = -(-trees // SUMMED)
    pages = trees * model["pages a tree"] * model["words of a page"] * 4 / TILE / WORDS
    found = {
        "rank_documents": Stage("rank_documents", *ranked, 4 * columns + rank_planes, 4 * columns),
        # Rows and planes of a batch do not fit in the L2 cache: they are written to DRAM, and read once.
        "decode_predicates": Stage("decode_predicates", *counted(f"decode_predicates<{WORDS}>", model["rows"]),
                                   (model["segments"] * model["planes a segment"] + model["rows"]) * word
                                   + 16 * model["segments"] / TILE / WORDS, model["rows"] * word),
        # All lanes read a group's row numbers at the same address. The row of zeros stays in L1.
        EVALUATION: Stage(EVALUATION, *counted(EVALUATION, nodes, LDS_128=1), nodes * word + pages + planes,
                          model["rows"] * word + planes),
        "sum_fast": Stage("sum_fast", *counted(f"sum_fast<{WORDS}>", trees, LDS=look_up),
                          planes + 2 * 8 * groups + trees * 64 * 4 / TILE, planes + 2 * 8 * groups),
        "sum_exact": Stage("sum_exact", *counted(sum_exact, trees, LDS=read), planes + trees * 64 * 8 / SUMMED_TOGETHER,
                           planes),
    }  # fmt: skip
    return found


def total(model: unit_counts.Model, device: Device, last: str) -> tuple[float, float]:
    """Nanoseconds and bytes of L2 traffic per document."""
    chosen = [stage for name, stage in stages(model).items() if not name.startswith("sum") or name == last]
    return sum(max(s.nanoseconds(device).values()) for s in chosen), sum(s.l2_bytes for s in chosen)


def table(models: dict[str, unit_counts.Model], device: Device) -> str:
    """The stages' nanoseconds and bytes, in Markdown."""
    lines = ["| forest | stage, ns per document | issue | wavefronts | L2 | DRAM | bound | L2, KB per document |"]
    lines += ["|---" * 8 + "|"]
    for size, model in models.items():
        for name, stage in stages(model).items():
            ns = stage.nanoseconds(device)
            cells = [f"{n:.2f}" for n in ns.values()]
            lines.append(
                f"| {size} | `{name}` | {' | '.join(cells)} | {max(ns.values()):.2f} | {stage.l2_bytes / 1e3:.2f} |"
            )
        for last in ("sum_fast", "sum_exact"):
            ns_total, kilobytes = total(model, device, last)
            lines.append(
                f"| {size} | **all, with `{last}`** | | | | | **{ns_total:.1f}** | **{kilobytes / 1e3:.1f}** |"
            )
    return "\n".join(lines)


def verdict(models: dict[str, unit_counts.Model], device: Device) -> str:
    """The targets, and whether the total with `sum_exact` meets them."""
    lines = []
    for size, (max_ns, max_kilobytes) in WANTED.items():
        ns, n_bytes = total(models[size], device, "sum_exact")
        lines.append(f"- {size}: the target is at most {max_ns} ns per document; {ns:.1f}: {reached(ns, max_ns)}.")
        if max_kilobytes:
            kilobytes = n_bytes / 1e3
            said = reached(kilobytes, max_kilobytes)
            lines[-1] += f" The target for L2 traffic is at most {max_kilobytes} KB; {kilobytes:.1f}: {said}."
    return "\n".join(lines)


def reached(value: float, most: float) -> str:
    return "reached by this estimate" if value <= most else "**not reached**"


def blocks() -> dict[str, Block]:
    """The page's blocks, by name."""
    kept = unit_counts.kept()
    models, version = kept["models"], ".".join(map(str, kept["nvrtc"]))
    texts = {
        "counts": (f"Counted with NVRTC {version}:", unit_counts.table()),
        "h100": (Device.SOURCES, table(models, Device()), verdict(models, Device())),
        "stages": ("\n".join(gpu_figures.stages(Results.read())),),
    }
    return {name: lambda _, text=text: ["", *"\n\n".join(text).splitlines(), ""] for name, text in texts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["page", "models"], default="page")
    if parser.parse_args().what == "models":
        import models
        from datasets import MSN

        documents = models.documents(TILE)
        forests = {size: gpuqs.load(models.ranker(MSN, n, 64)).forest for size, n in SIZES.items()}
        kept = unit_counts.kept()
        kept["models"] = {size: count_model(forest, documents) for size, forest in forests.items()}
        kept["shared memory"] = shared_memory(forests[unit_counts.SIZE], documents)
        unit_counts.BUDGET.write_text(json.dumps(kept, indent=1) + "\n")
        return
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), blocks(), None), encoding="utf-8")


if __name__ == "__main__":
    main()
