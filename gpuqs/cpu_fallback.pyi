# For type checkers in the source tree, where the package cpu_fallback lies next to gpuqs, not inside it.
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

class InstructionSet(NamedTuple):
    name: str
    lanes: int
    widest_word: int
    has_encoder: bool
    has_jumps: bool
    gathers: bool
    is_here: bool

class Machine(NamedTuple):
    isa: str
    compiles: bool

INSTRUCTION_SETS: tuple[InstructionSet, ...]
NAMES_OF_THREADS: tuple[str, ...]
QUICKSCORER: bool
ArrowTable: Any
Bitslice: Any
Coded: Any
ForestWalk: Any
PlainCalls: Any
Link: Any
QuickScorer: Any
RankWalk: Any
TreeRange: Any
Values: Any
Walk: Any
file_bytes: Any
json_text: Any
lightgbm_trees: Any
lists: Any
making: Any
node_tables: Any
sparse: Any
svmlight: Any
ubjson: Any

class PlainFirst:
    _plain: Any

def available_isas() -> list[str]: ...
def compiles_programs(on: str | None = None) -> bool: ...
def costs_age() -> int: ...
def costs_changed() -> None: ...
def default_threads() -> int: ...
def effective_threads(n_threads: int | None) -> int: ...
def plain_first(method: Any) -> Any: ...
def in_default_float_mode(function: Function) -> Function: ...
def instruction_set(name: str | None = None) -> InstructionSet: ...
def isa() -> str: ...
def latency(n_bytes: int, steps: int) -> float: ...
def machine() -> Machine: ...
def table_part(isa: str, n_leaves: int, value_bytes: int) -> int: ...
