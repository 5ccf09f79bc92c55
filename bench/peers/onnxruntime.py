"""ONNX Runtime, on the ONNX model made by each library's own converter; thresholds become float32."""

from __future__ import annotations

import tempfile
from pathlib import Path

from peers import xgboost
from peers.base import Contender, OfThreads, Peer, Source, larger_than, of_libraries

_converted = of_libraries("LightGBM", "XGBoost", "CatBoost", "scikit-learn")
#: Converters build ONNX's node lists in Python: this many nodes take a minute.
MAX_NODES = 2_000_000


def refuses(source: Source) -> str | None:
    return _converted(source) or larger_than(source.model.forest, MAX_NODES, "its converters list nodes in Python")


def as_onnx(source: Source) -> bytes:
    """The model in ONNX, its raw scores the output."""
    if source.library == "CatBoost":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.onnx"
            source.live.save_model(str(file), format="onnx")
            return file.read_bytes()
    if source.library == "scikit-learn":
        from skl2onnx import to_onnx

        return to_onnx(source.live, source.X[:1]).SerializeToString()
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    inputs = [("X", FloatTensorType([None, source.X.shape[1]]))]
    if source.library == "XGBoost":
        return onnxmltools.convert_xgboost(xgboost.as_regression(source), initial_types=inputs).SerializeToString()
    return onnxmltools.convert_lightgbm(source.live, initial_types=inputs).SerializeToString()


def build(source: Source) -> OfThreads:
    import onnxruntime

    model = as_onnx(source)

    def with_threads(n: int) -> dict[str, Contender]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n
        options.log_severity_level = 3  # CatBoost's files declare another output shape than they produce
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return {"ONNX Runtime": Contender(lambda X: session.run(None, {name: X})[0])}

    return with_threads


PEER = Peer(
    name="ONNX Runtime",
    package="onnxruntime",
    distribution="onnxruntime",
    rows="float32 NumPy rows",
    threads="intra_op_num_threads of the session",
    refuses=refuses,
    build=build,
)
