"""Export a whole model as an ONNX graph or a `torch.export` program, checked against the model before it is written."""

import io
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.notation import describe
from oneof.data.table import Columns
from oneof.ensemble.model import Model
from oneof.learners.boosting import BoostedTrees
from oneof.learners.forest import Forest
from oneof.learners.kernel_ensemble import KernelEnsemble
from oneof.learners.network_models import ImageNetworks, TableNetworks
from oneof.runs.export_module import ExportModule, codes
from oneof.storage.files import atomic_write
from oneof.storage.optional_packages import load_package

TOLERANCE = 1e-4  # the largest difference between probabilities that rounding may cause
NUMBERS = "numbers"
CATEGORIES = "categories"
VECTORS = "vectors"
PICTURES = "pictures"
METADATA = "oneof.json"  # extra file of a torch.export program: the names of columns, categories and classes


def export_model(model: Model, path: Path) -> float:
    """Write a model as an ONNX graph or, if the file ends in .pt2, as a `torch.export` program.

    The file is written only if it reproduces the model's probabilities, run by onnxruntime or read back by torch.
    docs/guide/serving.md describes inputs and outputs. A program takes categories as `codes` of the values listed in its extra
    file `oneof.json`.

    Returns
    -------
    float
        The largest difference between the probabilities of the file and of the model, on generated rows.
    """
    model.check_exportable()
    model.check_predicts()
    columns, x = _example_columns(model)
    inputs = {}
    for name, values in columns.items():
        if name == CATEGORIES:
            values = codes(model.encoding, values)
        inputs[name] = torch.from_numpy(values)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch's exporters
        if path.suffix.lower() == ".pt2":
            content, exported_probabilities = _to_program(model, inputs)
        else:
            content, exported_probabilities = _to_onnx(model, inputs, columns)
    with torch.backends.cudnn.flags(enabled=False):  # on a GPU it would round to TF32
        difference = float(np.abs(exported_probabilities - model.probabilities(x)).max())
    if not difference <= TOLERANCE:  # also if it is NaN
        raise ValueError(
            f"the exported model must give the model's probabilities to within {TOLERANCE}; "
            f"it differs by {difference:.2g}, so {path} was not written."
        )
    with atomic_write(path) as file:
        file.write(content)
    return difference


def _to_onnx(model: Model, inputs: dict[str, Tensor], columns: dict[str, NDArray[Any]]) -> tuple[bytes, NDArray[Any]]:
    """Return the model as an ONNX graph, and the probabilities that onnxruntime computes with it for `columns`."""
    onnx = load_package("onnx", "export")
    runtime = load_package("onnxruntime", "export")
    buffer = io.BytesIO()
    dynamic_axes = {name: {0: "n"} for name in (*inputs, "probabilities")}
    torch.onnx.export(
        ExportModule(model).eval(),
        (),
        buffer,  # type: ignore[arg-type]  # the older exporter takes any file object
        kwargs=inputs,
        input_names=list(inputs),
        output_names=["probabilities"],
        dynamo=False,  # the newer exporter needs another package
        dynamic_axes=dynamic_axes,
    )
    graph = onnx.load_from_string(buffer.getvalue())
    if CATEGORIES in columns:
        _add_text_input(onnx, graph, model.encoding)
    _add_label_output(onnx, graph, model.classes)
    properties = {name: "\n".join(lines) for name, lines in _metadata(model).items()}
    onnx.helper.set_model_props(graph, properties)
    content = graph.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    outputs = session.run(None, columns)
    return content, outputs[0]


def _to_program(model: Model, inputs: dict[str, Tensor]) -> tuple[bytes, NDArray[Any]]:
    """Return the model as a `torch.export` program, and the probabilities that it gives when it is read back."""
    shapes = {name: {0: torch.export.Dim("n")} for name in inputs}
    program = torch.export.export(ExportModule(model).eval(), (), inputs, dynamic_shapes=shapes)
    metadata = json.dumps(_metadata(model), ensure_ascii=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={METADATA: metadata})
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    return buffer.getvalue(), loaded(**inputs).numpy()


def _metadata(model: Model) -> dict[str, Any]:
    """Return the names that a user of the file needs, without empty entries."""
    encoding = model.encoding
    metadata: dict[str, Any] = {
        "classes": model.classes,
        NUMBERS: list(encoding.numbers),
        CATEGORIES: encoding.categories,
        "rare": encoding.rare,
        VECTORS: replace(encoding, patches=()).names[len(encoding.without_vectors.names) :],
        PICTURES: _describe_pictures(encoding),
        "made": replace(encoding, patches=()).derived_features,
        "read": _describe_reading(encoding),
    }
    return {name: lines for name, lines in metadata.items() if lines}


def _describe_reading(encoding: Encoding) -> list[str]:
    """Say which of the numbers differ from what the table holds: the file takes them as `oneof` reads them."""
    lines = []
    for notation in encoding.notations:
        lines.append(f"{notation.column}: {describe(notation)}")
    for name, number in encoding.placeholders:
        lines.append(f"{name}: NaN in place of {number:g}")
    for name, origin in encoding.origins:
        lines.append(f"{name}: minus {origin!r}")
    return lines


def _describe_pictures(encoding: Encoding) -> list[str]:
    """Return a line for each column of pictures whose levels the file takes."""
    lines = []
    for part in encoding.patches:
        lines.append(f"{part.column}: levels 0 to 255 of {part.pixels.shape}, channels first")
    return lines


def _add_text_input(onnx: Any, graph: Any, encoding: Encoding) -> None:
    """Let the graph take categories as text: insert nodes that turn each column into the codes of `export_module.codes`."""
    helper = onnx.helper
    for graph_input in graph.graph.input:
        if graph_input.name == CATEGORIES:
            graph_input.type.tensor_type.elem_type = onnx.TensorProto.STRING
    for node in graph.graph.node:
        for i, name in enumerate(node.input):
            if name == CATEGORIES:
                node.input[i] = "category_codes"
    n_columns = len(encoding.categories)
    text_names = [f"text_{j}" for j in range(n_columns)]
    code_names = [f"code_{j}" for j in range(n_columns)]
    nodes = [helper.make_node("Split", [CATEGORIES], text_names, axis=1, num_outputs=n_columns)]
    for column, text_name, code_name in zip(encoding.categories, text_names, code_names, strict=True):
        category_codes = encoding.category_codes(column)
        encode = helper.make_node(
            "LabelEncoder",
            [text_name],
            [code_name],
            domain="ai.onnx.ml",
            keys_strings=list(category_codes),
            values_int64s=list(category_codes.values()),
            default_int64=-1,
        )
        nodes.append(encode)
    nodes.append(helper.make_node("Concat", code_names, ["category_codes"], axis=1))
    nodes.extend(graph.graph.node)
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    graph.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))


def _add_label_output(onnx: Any, graph: Any, classes: list[str]) -> None:
    """Add nodes at the end of the graph that return the name of the most probable label."""
    helper = onnx.helper
    names = onnx.numpy_helper.from_array(np.array(classes, dtype=object), "label_names")
    graph.graph.initializer.append(names)
    best = helper.make_node("ArgMax", ["probabilities"], ["best"], axis=1, keepdims=0)
    label = helper.make_node("Gather", ["label_names", "best"], ["label"], axis=0)
    graph.graph.node.extend([best, label])
    graph.graph.output.append(helper.make_tensor_value_info("label", onnx.TensorProto.STRING, ["n"]))


def _example_columns(model: Model) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Return columns like those of training, with missing values and unseen categories, and the features they encode to."""
    encoding = model.encoding
    features = _example_features(model)
    rng = np.random.default_rng(0)
    if encoding.components is None:
        numbers = features[:, : len(encoding.numbers)].copy()
    else:
        numbers = rng.normal(encoding.fills, size=(len(features), len(encoding.numbers))).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    texts = []
    for column in encoding.categories:
        known = encoding.category_codes(column)
        texts.append(rng.choice([*known, "never seen"], len(features)))
    n_vectors = len(replace(encoding, patches=()).names)
    vectors = features[:, len(encoding.without_vectors.names) : n_vectors]
    levels = []
    patch_vectors = []
    for part in encoding.patches:
        pixels = rng.integers(0, 256, (len(features), math.prod(part.pixels.shape)), dtype=np.uint8)
        levels.append(pixels.astype(np.float32))
        patch_vectors.append(part(pixels))
    text_columns = {}
    for column, cells in zip(encoding.categories, texts, strict=True):
        text_columns[column] = list(cells)
    encoded = encoding.without_vectors.transform(Columns("the check", numbers, list(encoding.numbers), text_columns))
    columns = {NUMBERS: numbers, CATEGORIES: np.array(texts, dtype=object).T, VECTORS: vectors}
    if levels:
        columns[PICTURES] = np.hstack(levels)
    present = {name: values for name, values in columns.items() if values.size}
    return present, np.hstack([encoded, vectors, *patch_vectors], dtype=np.float32)


def _example_features(model: Model, n: int = 64) -> NDArray[np.float32]:
    """Draw features [n, d] in the range of the training data, as far as the fitted learners reveal it."""
    d = len(model.encoding.names)
    rng = np.random.default_rng(0)
    learners = (*model.members, *model.others)
    first = learners[0]
    ranks = None
    for learner in learners:
        if ranks is None and isinstance(learner, (TableNetworks, KernelEnsemble)):
            ranks = learner.ranks
    if isinstance(first, ImageNetworks):
        x = rng.integers(0, 256, (n, d)).astype(np.float64)
    elif ranks:
        nodes = rng.integers(len(ranks.quantiles), size=(n, d))
        x = ranks.quantiles[nodes, np.arange(d)]
        x = x + np.ptp(ranks.quantiles, axis=0) * rng.normal(0, 0.05, (n, d))
    elif isinstance(first, Forest):
        x = _draw_thresholds(first, n, d, rng)
    elif isinstance(first, BoostedTrees):
        x = _draw_thresholds(first.trees, n, d, rng)
    else:
        x = _draw_scaled(cast(TableNetworks, first), n, d, rng)
    return np.asarray(x, dtype=np.float32)


def _draw_thresholds(forest: Forest, n: int, d: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draw features [n, d] from the thresholds at which the trees split each."""
    is_split = forest.right > 0
    columns = []
    for j in range(d):
        thresholds: NDArray[Any] = forest.threshold[is_split & (forest.feature == j)]
        if not len(thresholds):
            thresholds = np.zeros(1)
        columns.append(rng.choice(thresholds, n))
    return np.stack(columns, axis=1) + forest.origin


def _draw_scaled(networks: TableNetworks, n: int, d: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draw features [n, d] that are normally distributed once the networks have scaled them."""
    x = rng.normal(size=(n, d))
    if networks.scale is not None:
        scale = networks.scale[0, 0].numpy()
        x = x / np.where(scale == 0, 1, scale)
    if networks.shift is not None:
        x = x + networks.shift[0, 0].numpy()
    if networks.origin is not None:
        x = x + networks.origin
    return x
