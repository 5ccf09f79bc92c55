"""The papers' systems: what each is, where its code stands, and what it can hold."""

from __future__ import annotations

from dataclasses import dataclass

from baselines.columns import find_columns, is_oblivious
from gpuqs.forest import Forest

#: Above this size compilers take minutes or crash. It is the number of nodes of 5,000 trees x 16 leaves, the largest
#: CONDOP forest in Table III of paper 002, which says NA where the compiler crashed. We apply the limit also to
#: IF-THEN-ELSE, which the paper has at every size, and to oblivious forests (Table IV has CONDOP up to 5,000 x 64,
#: 315,000 nodes).
MAX_GENERATED_NODES = 75_000
#: Compilers nest blocks and brackets some 256 deep.
DEEPEST_GENERATED = 200


@dataclass(frozen=True)
class System:
    """One system of the papers.

    Parameters
    ----------
    name : str
        As the papers call it.
    paper, section : str
    files : tuple of str
        Its source files in this folder; the first one opens with its loop.
    scorer, order : str
        What `baselines.cpp` combines; generated programs have no order.
    parameters : tuple of str
        What is tuned: "v" documents at a time, blocks of "d" documents and "s" scorers, "tau" trees merged.
    oblivious : bool
        Whether it supports only oblivious trees.
    """

    name: str
    paper: str
    section: str
    files: tuple[str, ...]
    scorer: str
    order: str = ""
    parameters: tuple[str, ...] = ()
    oblivious: bool = False

    @property
    def generated(self) -> bool:
        return not self.order

    @property
    def built(self) -> str:
        """How it is built, in words."""
        if self.generated:
            return "C++ generated from the forest, compiled with -O3"
        return "baselines.cpp, compiled with -O3 once for each pair of types"

    def refuses(self, forest: Forest) -> str | None:
        """Why the system cannot score a forest, or None."""
        if forest.has_categories:
            return "tests sets of categories; the papers' systems compare numbers"
        if forest.n_outputs > 1 or forest.average_raw:
            return "the papers' systems add one score a document"
        if self.generated and forest.n_nodes > MAX_GENERATED_NODES:
            return f"{forest.n_nodes:,} nodes; generated code is compiled up to {MAX_GENERATED_NODES:,}"
        if self.generated and forest.depth.max(initial=0) > DEEPEST_GENERATED:
            return f"a tree is deeper than {DEEPEST_GENERATED}, beyond what compilers nest"
        if self.oblivious and not is_oblivious(forest, find_columns(forest, missing=True).of_node):
            return "a tree is not oblivious"
        return None


def _tree_system(name: str, paper: str, section: str, *parameters: str) -> System:
    order = name.lower()
    files = (f"orders/{order}.hpp", "scorers/struct_plus.hpp")
    return System(name, paper, section, files, "struct_plus", order, parameters)


def _block_system(name: str, *parameters: str) -> System:
    order = name.lower()
    files = ("scorers/quickscorer_block.hpp", f"orders/{order}.hpp")
    title, tuned = f"{name} of QuickScorer blocks", ("tau", *parameters)
    return System(title, "004", "sections 3 and 5.3", files, "quickscorer_block", order, tuned)


_ALL = (
    System("IF-THEN-ELSE", "002", "sections 2 and 5.1", ("if_then_else.py",), "if_then_else"),
    System("CONDOP", "002", "section 5.1", ("condop.py",), "condop"),
    System("STRUCT+", "002", "sections 2 and 5.1", ("scorers/struct_plus.hpp",), "struct_plus", "ds"),
    System("PRED", "002", "section 2", ("scorers/pred.hpp",), "pred", "ds"),
    System("VPRED", "002", "sections 2 and 5.1", ("scorers/vpred.hpp",), "vpred", "ds", ("v",)),
    System("OBLIVIOUS", "002", "section 4", ("scorers/oblivious.hpp",), "oblivious", "ds", oblivious=True),
    _tree_system("DOT", "003", "Algorithm 1, Figure 1a"),
    _tree_system("SOT", "003", "Algorithm 1, Figure 1b"),
    _tree_system("DS", "004", "Algorithm 1"),
    _tree_system("SD", "004", "section 3"),
    _tree_system("DSD", "004", "Algorithm 3", "d"),
    _tree_system("SDS", "004", "section 3, Figure 1b", "s"),
    _tree_system("DSDS", "004", "section 3, Figure 1c", "d", "s"),
    _tree_system("SDDS", "004", "section 3, Figure 1e", "d", "s"),
    _tree_system("DSSD", "004", "section 3, Figure 1d", "d", "s"),
    _tree_system("SDSD", "003", "Algorithm 2", "d", "s"),
    System(
        "Block-VPRED", "003", "after Algorithm 2", ("scorers/block_vpred.hpp",), "block_vpred", "sdsd", ("v", "d", "s")
    ),
    _block_system("DSD", "d"),
    _block_system("SDS", "s"),
    _block_system("DSDS", "d", "s"),
    _block_system("SDSD", "d", "s"),
)

#: Every system by name.
SYSTEMS = {system.name: system for system in _ALL}


@dataclass(frozen=True)
class EngineOfPapers:
    """A system of the papers that is an engine of gpuqs."""

    name: str
    paper: str
    section: str
    files: tuple[str, ...]  # none: gpuqs does not have it


_PYTHON, _KERNEL = "gpuqs/engines/quickscorer.py", "cpu_fallback/generic/qs.inl"
_ENGINES = (
    EngineOfPapers("qs", "002", "Algorithm 2", (_PYTHON, _KERNEL)),
    EngineOfPapers("vqs", "001", "section 3", (_PYTHON, "cpu_fallback/generic/vqs.inl")),
    EngineOfPapers("bwqs", "002", "section 6", (_PYTHON, "gpuqs/layout/reversing.py", _KERNEL)),
    EngineOfPapers("qs_oblivious", "002", "section 4", (_PYTHON, "gpuqs/layout/oblivious.py", _KERNEL)),
    EngineOfPapers("qs_gpu", "000", "section 6", ("gpuqs/engines/gpu/qs_gpu.py",)),
)

#: The engines among the papers' systems, by name.
ENGINES_OF_PAPERS = {engine.name: engine for engine in _ENGINES}
