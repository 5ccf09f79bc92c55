"""Forests as C++ functions, for the systems that the compiler compiles: IF-THEN-ELSE and CONDOP."""

from __future__ import annotations

import ctypes
import hashlib
from types import ModuleType

import numpy as np

from baselines.compiler import CACHE, compiled
from gpuqs.forest import Forest

C_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

#: One function per tree, not inlined, so that compile time grows linearly with the forest, not quadratically.
TREE = "[[gnu::noinline]] static Sum tree_{number}(const Value *x) {{ {body} }}\n"
SCORE = """
extern "C" void score(const Value *documents, long n, long n_columns, Sum *sums) {{
    for (long i = 0; i < n; ++i) {{
        const Value *x = documents + i * n_columns;
        Sum sum = sums[i];
{adds}
        sums[i] = sum;
    }}
}}
"""


def literal(value: float, kind: str) -> str:
    """The C++ literal of exactly this value."""
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}static_cast<{kind}>(__builtin_inf()))"
    return float(value).hex() + ("f" if kind == "float" else "")


def source(system: ModuleType, forest: Forest, column: np.ndarray, threshold: np.ndarray, values: np.ndarray) -> str:
    """The forest's C++ source in the form of the system's module."""
    value_kind, sum_kind = C_TYPES[threshold.dtype], C_TYPES[values.dtype]
    lines = [f"using Value = {value_kind};\nusing Sum = {sum_kind};\n"]
    for t in range(forest.n_trees):
        nodes, leaves = int(forest.node_offsets[t]), int(forest.leaf_offsets[t])

        def text(child: int, nodes: int = nodes, leaves: int = leaves) -> str:
            if child < 0:
                return system.leaf(literal(values[leaves + ~child], sum_kind))
            n = nodes + child
            test = f"x[{column[n]}] <= {literal(threshold[n], value_kind)}"
            return system.node(test, text(int(forest.left[n])), text(int(forest.right[n])))

        root = 0 if forest.node_offsets[t + 1] > nodes else ~0
        lines.append(TREE.format(number=t, body=system.tree(text(root))))
    lines.append(SCORE.format(adds="\n".join(f"        sum += tree_{t}(x);" for t in range(forest.n_trees))))
    return "".join(lines)


def library(text: str) -> ctypes.CDLL:
    """The program, compiled."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"forest-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
    path.write_text(text)
    return compiled(path)
