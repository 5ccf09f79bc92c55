"""Faults of the walks: barriers, missing values, orders of sums, shares of parts."""

from __future__ import annotations

from planted.campaign import Fault

_FILE = "test_walk_emulated.py"
_SMALL = (_FILE, "-k", "test_equals_reference")
_ORDERS = (_FILE, "-k", "other_orders_of_threads")
_SETTINGS = (_FILE, "-k", "random_forests_and_settings")
_INTEGERS = (_FILE, "-k", "integer_documents")
_SPLIT = (f"{_FILE}::test_whole_numbers_of_many_trees_are_split",)
_STARTED = (f"{_FILE}::test_sums_begin_with_what_is_there",)

_WALK, _SCORES, _LEAVES = "cuda/walk.cuh", "cuda/walk_scores.cu", "cuda/walk_leaves.cu"
_HOST, _LAYOUT = "engines/gpu/walk_placed.py", "layout/walk_gpu.py"

WALKS = [
    Fault(
        "no barrier after a document's columns are read",
        _WALK,
        "(blockIdx.x, column);\n        __syncthreads();\n",
        "(blockIdx.x, column);\n",
        _ORDERS,
    ),
    Fault("walks send missing values right", _WALK, "!(node.z & MISSING_LEFT)", "!(node.z & 0)", _SMALL),
    Fault("a threshold's own value goes right", _WALK, "value > threshold_of", "value >= threshold_of", _SMALL),
    Fault("a right child is always a leaf", _WALK, "!(node.z & RIGHT_IS_LEAF)", "n_left < 0", _SMALL),
    Fault("leaves passed are not counted", _WALK, "leaf += right ? n_left : 0;", "leaf += right ? 1 : 0;", _SMALL),
    Fault(
        "short integers are read as bytes",
        _WALK,
        "reinterpret_cast<const short*>(at)",
        "reinterpret_cast<const signed char*>(at)",
        _INTEGERS,
    ),
    Fault(
        "no barrier between parts of the trees", _SCORES, "        __syncthreads();\n    }\n}", "    }\n}", _ORDERS
    ),
    Fault("parts share one buffer", _SCORES, "found + part % 2 * part_trees", "found + 0 * part", _ORDERS),
    Fault(
        "values ahead are added in another order",
        _SCORES,
        "for (int k = 0; k < N; ++k) sum += ahead[k];",
        "for (int k = N - 1; k >= 0; --k) sum += ahead[k];",
        _SMALL,
    ),
    Fault(
        "the first of the values ahead is added again",
        _SCORES,
        "                sum += ahead[k];",
        "                sum += ahead[0];",
        _SETTINGS,
    ),
    Fault("the last part is not added", _SCORES, "part <= end; ++part", "part < end; ++part", _SMALL),
    Fault("each part's sums begin anew, walking", _SCORES, "last > first || started", "started", _SETTINGS),
    Fault(
        "trees of outputs are walked in tree order",
        _HOST,
        "self._int32(layout.roots[trees])",
        "self._int32(layout.roots)",
        _SMALL,
    ),
    Fault(
        "trees of vector leaves are ordered by output", _HOST, "in_order = self.width > 1 or", "in_order =", _SMALL
    ),
    Fault("shares' sums lie on one another", _SCORES, "(blockIdx.y) * gridDim.x", "(0) * gridDim.x", _SPLIT),
    Fault("each share begins with what is there", _HOST, "started and n_shares == 1", "started", _STARTED),
    Fault(
        "a look-up's later trees take the first ones' places",
        _LEAVES,
        "first = blockIdx.y * trees_each",
        "first = 0 * blockIdx.y",
        _ORDERS,
    ),
    Fault(
        "every launch's scores go to the first rows",
        _HOST,
        "out[start : start + MAX_DOCUMENTS]",
        "out[:MAX_DOCUMENTS]",
        (f"{_FILE}::test_more_documents_than_a_grid_has_room_for",),
    ),
    Fault(
        "walks' thresholds for float32 are rounded to nearest",
        _LAYOUT,
        "round_down(columns.threshold)",
        "columns.threshold.astype(np.float32)",
        _SETTINGS,
    ),
]
