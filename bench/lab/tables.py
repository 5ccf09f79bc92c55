"""Each table and figure: its models, its systems, and gpuqs's own engines for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lab.blocking import CASES, PREDICTED, choices, order_of
from lab.plan import NANOSECONDS, QUERIES, Counted, Given, Point, Row, Spec, Table

SHAPES = ("MSN", "Yahoo", "Istella")
TREES = (1_000, 5_000, 10_000, 20_000)
#: The papers' trees with 10 and 50 leaves have 8 and 64 here; those with 150 leaves have 150.
LEAVES = {"10": 8, "50": 64, "150": 150}
BLOCKED = ("DSD", "SDS", "DSDS", "SDSD")
MERGED = tuple(f"{order} of QuickScorer blocks" for order in BLOCKED)
LARGE_LEAVES = "The paper's trees of 10 and 50 leaves are of 8 and 64 here."


Points = tuple[Point, ...]


def batch(trees: int) -> int:
    """Batch size; smaller for large models, so that no call takes minutes."""
    return min(max(10_000_000 // trees, 500), 10_000)


def sizes(shapes: tuple[str, ...], leaves: tuple[int, ...], trees: tuple[int, ...], oblivious: bool = False) -> Points:
    """A panel for each shape and Λ, along the number of trees."""
    specs = [Spec(shape, t, n, oblivious) for shape in shapes for n in leaves for t in trees]
    return tuple(Point(f"{m.shape}, Λ = {m.leaves}", m.trees, m, batch(m.trees)) for m in specs)


def fixed(**given: int | str) -> partial[tuple[Given, ...]]:
    return partial(_fixed, given)


def _fixed(given: Given, _: Point) -> tuple[Given, ...]:
    return (given,)


def engine(label: str, name: str, ours: bool = False, **given: int | str) -> Row:
    return Row(label, (name,), fixed(**given), ours)


def same(*systems: str) -> tuple[Row, ...]:
    """Rows named like their systems."""
    return tuple(Row(system, (system,)) for system in systems)


def ours(*names: str) -> tuple[Row, ...]:
    return tuple(engine(f"{name} (ours)" if name in ("bitslice", "auto") else name, name, True) for name in names)


QS, GPU = engine("QS", "qs"), engine("QS-GPU", "qs_gpu")
THREADS = engine("bitslice (ours), all threads", "bitslice", True, n_threads=0)
COMPETITORS = same("VPRED", "CONDOP", "IF-THEN-ELSE", "STRUCT+")
COUNTERS = ("instructions", "branch mispredictions", "branches", "L3 misses", "L3 references")
VISITED = ("visited nodes", "visited nodes, % of all")
FIVE_SIZES = sizes(("Istella",), (64,), (1_000, 5_000, 10_000, 15_000, 20_000))
FIGURE_12 = sizes(("Istella",), (64,), (1_000, 2_000, 5_000, 8_000, 10_000, 12_000, 15_000, 20_000))


def ensemble(name: str, trees: int) -> Spec:
    """The model for one of paper 004's names, as "Yahoo, 50 leaves"."""
    shape, _, leaves = name.removesuffix(" leaves").partition(", ")
    return Spec(shape, trees, LEAVES.get(leaves, int(leaves)))


def ensembles(names: Iterable[str], panel: str, trees: int, documents: int) -> Points:
    """One panel with the ensembles along x."""
    return tuple(Point(panel, name, ensemble(name, trees), documents) for name in names)


def along(names: Iterable[str], values: Iterable[int], trees: int, documents: int, what: str) -> Points:
    """A panel for each ensemble, along the number of trees, or of documents, or a parameter."""
    out = []
    for name in names:
        for x in values:
            m, n = x if what == "trees" else trees, x if what == "documents" else documents
            given = {"trees": (), "documents": (), "blocks": (("tau", max(trees // x, 1)),)}.get(what, ((what, x),))
            out.append(Point(name, x, ensemble(name, m), n, given))
    return tuple(out)


TEN, FIFTY, MANY = (tuple(f"{shape}, {n} leaves" for shape in ("Yahoo", "MSN")) for n in (10, 50, 150))
SIX = (TEN[0], FIFTY[0], MANY[0], TEN[1], FIFTY[1])
PARAMETER_D = along((FIFTY[0], MANY[0]), (1, 5, 20, 100, 373, 1_000, 4_000), 5_000, 4_000, "d")
BLOCKED_ROW = Row("cache blocking", BLOCKED)
FIGURE_3 = (
    *(Point("n = 2,000", m, Spec("Yahoo", m, 150), 2_000) for m in (100, 500, 1_000, 2_000, 4_000, 8_051)),
    *(Point("m = 8,051", n, Spec("Yahoo", 8_051, 150), n) for n in (10, 100, 1_000, 5_000)),
)
FIGURE_3C = tuple(
    Point(f"s = {s:,}", d, Spec("Yahoo", 8_051, 150), 2_000, (("s", s), ("d", d)))
    for s in (100, 1_000, 8_051)
    for d in (1, 10, 100, 1_000, 2_000)
)

TABLES = (
    Table("000-3", "QuickScorer and vQS", sizes(SHAPES, (32, 64), TREES),
          (QS, engine("vQS-256", "vqs", isa="avx2"), *ours("bwqs", "bitslice", "auto")), "QS"),
    Table("000-4", "vQS on one thread and on all", sizes(SHAPES, (32, 64), TREES),
          (engine("vQS-256", "vqs", isa="avx2"), engine("vQS MT", "vqs", n_threads=0), *ours("bitslice"), THREADS),
          "vQS-256"),
    Table("000-5", "What vQS's instructions do", (), (), "QS",
          counted=Counted(COUNTERS, FIVE_SIZES, (QS, engine("vQS-256", "vqs", isa="avx2"),
                                                 engine("vQS MT", "vqs", n_threads=0), *ours("bitslice")))),
    Table("000-7", "QuickScorer on one thread, on all, and on a GPU", sizes(SHAPES, (32, 64), TREES),
          (QS, engine("vQS MT", "vqs", n_threads=0), GPU, *ours("bitslice"), THREADS), "QS"),
    Table("000-F2", "GPU-QuickScorer by the size of tree blocks",
          tuple(Point(f"Λ = {n}", tau, Spec("MSN", 20_000, n), 500, (("tau", tau),))
                for n in (32, 64) for tau in (1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000)),
          (GPU, *ours("bitslice")), "QS-GPU", x_name="τ"),
    Table("001-1", "vQS with SSE4.2 and AVX2", sizes(SHAPES, (32, 64), (1_000, 10_000)),
          (QS, engine("vQS (SSE4.2)", "vqs", isa="sse4.2"), engine("vQS (AVX2)", "vqs", isa="avx2"),
           engine("vqs (AVX-512)", "vqs", True, isa="avx512"), *ours("bitslice", "auto")), "QS"),
    Table("002-III", "QuickScorer and its competitors", sizes(SHAPES, (8, 16, 32, 64), TREES),
          (QS, *COMPETITORS, *ours("vqs", "bwqs", "bitslice", "auto")), "QS"),
    Table("002-IV", "Oblivious trees", sizes(SHAPES, (8, 16, 32, 64), TREES, oblivious=True),
          (engine("QS-Omega", "qs_oblivious"), Row("OBLIVIOUS", ("OBLIVIOUS",)), *COMPETITORS,
           *ours("qs", "bitslice", "auto")), "QS-Omega"),
    Table("002-V", "Instructions, branches, cache misses, visited nodes", (), (), "QS",
          counted=Counted(COUNTERS + VISITED, FIVE_SIZES,
                          (QS, *same("VPRED", "IF-THEN-ELSE", "STRUCT+"), *ours("bwqs", "bitslice")))),
    Table("002-VI", "Blockwise QuickScorer at 20,000 trees",
          tuple(Point("Istella, 20,000 trees", n, Spec("Istella", 20_000, n), 500) for n in (8, 16, 32, 64)),
          (engine("BWQS", "bwqs"), QS, Row("VPRED", ("VPRED",)), *ours("vqs", "bitslice", "auto")), "BWQS", x_name="Λ"),
    Table("002-F12", "Time and cache misses along the number of trees", FIGURE_12,
          (QS, engine("BWQS", "bwqs"), *ours("vqs", "bitslice")), "QS", NANOSECONDS,
          counted=Counted(("L3 misses, % of references",), FIGURE_12,
                          (QS, engine("BWQS", "bwqs"), *ours("bitslice")), by_panel=True)),
    Table("003-1", "2D blocking, and VPRED blocked",
          tuple(Point(name, 8_051, ensemble(name, 8_051), 2_000) for name in (*FIFTY, MANY[0])),
          (*same("DOT", "SOT", "VPRED"), Row("2D blocking", ("SDSD",)), Row("Block-VPRED", ("Block-VPRED",)),
           *ours("bwqs", "bitslice", "auto")), "2D blocking", NANOSECONDS, notes=(LARGE_LEAVES,)),
    Table("003-F3", "Along trees, documents and block sizes", FIGURE_3 + FIGURE_3C,
          (*same("DOT", "SOT", "VPRED"), Row("2D blocking", ("SDSD",)), *ours("bitslice")), "2D blocking", NANOSECONDS,
          x_name="trees, documents or d", notes=("Batches end at 5,000: DOT takes a quarter of a minute for them.",)),
    Table("004-4", "The range cases of the blocking orders", ensembles(SIX, "ns a document and tree", 5_000, 500),
          (Row("DS", ("DS",)), *(Row(name, (order_of(name),), partial(choices, name)) for name in CASES),
           *ours("bwqs", "bitslice", "auto")), "DS", NANOSECONDS, x_name="ensemble", notes=(LARGE_LEAVES, PREDICTED)),
    Table("004-5", "Guided sampling beside an exhaustive search", ensembles(SIX, "selection", 4_000, 1_000),
          (), "", x_name="ensemble", selects=True, notes=(LARGE_LEAVES, PREDICTED)),
    Table("004-6", "Blocked trees, and blocked QuickScorer",
          ensembles(SIX[:3] + SIX[4:], "ns a document and tree", 5_000, 2_000),
          (Row("tree scorers", BLOCKED), Row("QuickScorer blocks", MERGED), *ours("bwqs", "bitslice", "auto")),
          "tree scorers", NANOSECONDS, x_name="ensemble", notes=(LARGE_LEAVES,)),
    Table("004-7", "Queries of ten documents, batched",
          tuple(Point(name, x, ensemble(name, 5_000), 10 * x) for name in (FIFTY[0], MANY[0], FIFTY[1])
                for x in (1, 10, 100, 1_000)),
          (BLOCKED_ROW, Row("DS", ("DS",)), *ours("rankwalk", "bitslice", "auto")), "DS", QUERIES,
          x_name="queries a batch", notes=(LARGE_LEAVES,)),
    Table("004-F5", "DSD along d", PARAMETER_D, (*same("DSD"), *ours("vqs", "bitslice")), "DSD", NANOSECONDS,
          x_name="d", counted=Counted(("L3 misses, % of references",), PARAMETER_D, same("DSD"), by_panel=True)),
    Table("004-F6", "Along the number of trees",
          along((*FIFTY, TEN[0]), (2_000, 5_000, 10_000, 20_000), 0, 500, "trees"),
          (BLOCKED_ROW, *ours("vqs", "bitslice")), "cache blocking", NANOSECONDS, notes=(LARGE_LEAVES,)),
    Table("004-F7", "Along the number of documents",
          along((*FIFTY, MANY[0]), (1, 10, 100, 1_000, 5_000), 5_000, 0, "documents"),
          (BLOCKED_ROW, *ours("vqs", "bitslice", "auto")), "cache blocking", NANOSECONDS, x_name="documents",
          notes=(LARGE_LEAVES,)),
    Table("004-F8", "Along the number of QuickScorer blocks",
          along(("Yahoo, 64 leaves", "Yahoo, 32 leaves", "Yahoo, 16 leaves", "MSN, 64 leaves"),
                (1, 4, 10, 20, 200, 1_000, 20_000), 20_000, 500, "blocks"),
          (Row("QuickScorer blocks", MERGED[:1]), *ours("bwqs", "bitslice")), "QuickScorer blocks", NANOSECONDS,
          x_name="blocks"),
)  # fmt: skip
