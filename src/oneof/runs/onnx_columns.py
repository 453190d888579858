"""Columns in, labels out: what `oneof.data.encode` does to a table's columns, as ONNX nodes before a graph on features; and names after it.

numbers [n, k], NaN where missing  ->  gaps filled, and a feature for each column that had gaps in training
categories [n, q], text            ->  one-hot; a value that training had not is no category at all
vectors [n, w]                     ->  as they are: what was made from texts or pictures
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.encode import Encoding

NUMBERS, CATEGORIES, VECTORS, FEATURES = "numbers", "categories", "vectors", "features"


class _Nodes:
    """ONNX nodes and constants, in the order in which they are made."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, kind: str, *inputs: str, output: str | None = None, **how: Any) -> str:
        name = output or f"columns_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **how))
        return name

    def constant(self, values: Any) -> str:
        name = f"columns_constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(values), name))
        return name


def takes_columns(onnx: Any, graph: Any, encoding: Encoding, classes: list[str]) -> None:
    """Make a model on features [n, d] take columns, and name the most probable label."""
    make, made = onnx.helper, _Nodes(onnx)
    width = len(encoding.names) - len(encoding.plain.names)
    single, text = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING
    kinds = {
        NUMBERS: (single, len(encoding.numbers)),
        CATEGORIES: (text, len(encoding.categories)),
        VECTORS: (single, width),
    }
    parts = [*_numbers(made, encoding), *_one_hot(made, encoding), *([VECTORS] if width else [])]
    made("Concat", *parts, output=FEATURES, axis=1)
    after = _Nodes(onnx)
    best = after("ArgMax", graph.graph.output[0].name, output="best", axis=1, keepdims=0)
    after("Gather", after.constant(np.array(classes, dtype=object)), best, output="label", axis=0)
    after.constants[0].name = after.nodes[1].input[0] = "label_names"
    nodes = [*made.nodes, *graph.graph.node, *after.nodes]
    del graph.graph.node[:], graph.graph.input[:]
    graph.graph.node.extend(nodes)
    graph.graph.initializer.extend([*made.constants, *after.constants])
    shapes = [make.make_tensor_value_info(name, kind, ["n", k]) for name, (kind, k) in kinds.items() if k]
    graph.graph.input.extend(shapes)
    graph.graph.output.append(make.make_tensor_value_info("label", text, ["n"]))
    if encoding.categories:
        graph.opset_import.append(make.make_opsetid("ai.onnx.ml", 2))


def _numbers(made: _Nodes, encoding: Encoding) -> list[str]:
    if not encoding.numbers:
        return []
    missing = made("IsNaN", NUMBERS)
    filled = made("Where", missing, made.constant(np.array([encoding.fills], dtype=np.float32)), NUMBERS)
    if not encoding.gaps:
        return [filled]
    places = made.constant(np.array([encoding.numbers.index(name) for name in encoding.gaps]))
    return [filled, made("Cast", made("Gather", missing, places, axis=1), to=made.onnx.TensorProto.FLOAT)]


def _one_hot(made: _Nodes, encoding: Encoding) -> list[str]:
    parts = []
    for q, values in enumerate(encoding.categories.values()):
        cells = made("Gather", CATEGORIES, made.constant(np.array([q])), axis=1)  # [n, 1]
        number = made(
            "LabelEncoder",
            cells,
            domain="ai.onnx.ml",
            keys_strings=list(values),
            values_int64s=list(range(len(values))),
            default_int64=len(values),
        )
        is_it = made("Equal", number, made.constant(np.arange(len(values))[None]))
        parts.append(made("Cast", is_it, to=made.onnx.TensorProto.FLOAT))
    return parts


def some_columns(encoding: Encoding, features: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Columns for rows whose features are like these, with gaps and with values that training had not."""
    rng, n = np.random.default_rng(0), len(features)
    numbers = features[:, : len(encoding.numbers)].copy()
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    words = [rng.choice([*values, "never seen"], n) for values in encoding.categories.values()]
    columns = {
        NUMBERS: numbers,
        CATEGORIES: np.array(words, dtype=object).T,
        VECTORS: features[:, len(encoding.plain.names) :],
    }
    return {name: values for name, values in columns.items() if values.size}
