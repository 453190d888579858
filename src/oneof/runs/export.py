"""The whole model for other programs, as an ONNX graph or a program of `torch.export`; written only if it says what the model says."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.encode import Encoding
from oneof.data.table import Columns
from oneof.runs.model import Member, Model, PictureMember
from oneof.runs.portable import Portable, codes
from oneof.selection.forest import Forest
from oneof.selection.learners import Regression
from oneof.storage.files import written_beside
from oneof.storage.packages import load_package

TOLERANCE = 1e-4  # the largest difference of a probability that is put down to rounding
NUMBERS, CATEGORIES, VECTORS = "numbers", "categories", "vectors"
FACTS = "oneof.json"  # in a program of torch.export: the names of columns, categories and classes


def export_onnx(model: Model, path: Path) -> float:
    """Write the model as ONNX, if onnxruntime finds the same probabilities; the largest difference that it found.

    docs/serving.md says what the graph takes and gives; its metadata name the columns, the classes, and how vectors are made.
    """
    model.check_portable()
    onnx, runtime = (load_package(name, "export") for name in ("onnx", "onnxruntime"))
    (columns, x), buffer = _some_columns(model), io.BytesIO()
    given = _as_tensors(model.encoding, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter, which needs no further package, announces its age
        torch.onnx.export(
            Portable(model).eval(), (), buffer,  # type: ignore[arg-type]  # the older exporter takes any file
            kwargs=given, input_names=list(given), output_names=["probabilities"], dynamo=False,
            dynamic_axes={name: {0: "n"} for name in (*given, "probabilities")},
        )  # fmt: skip
    graph = onnx.load_from_string(buffer.getvalue())
    if CATEGORIES in columns:
        _take_text(onnx, graph, model.encoding)
    _name_label(onnx, graph, model.classes)
    onnx.helper.set_model_props(graph, {name: "\n".join(lines) for name, lines in _facts(model).items()})
    content = graph.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return _written(path, content, model, x, session.run(None, columns)[0])


def export_torch(model: Model, path: Path) -> float:
    """Write the model as a program of `torch.export`, if the file read back gives the same probabilities; the largest difference.

    It takes what the graph takes, but categories as `codes` of the values that the extra file `oneof.json` lists beside classes.
    """
    model.check_portable()
    (columns, x), buffer = _some_columns(model), io.BytesIO()
    given = _as_tensors(model.encoding, columns)
    shapes = {name: {0: torch.export.Dim("n")} for name in given}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will change in later versions of torch
        program = torch.export.export(Portable(model).eval(), (), given, dynamic_shapes=shapes)
        torch.export.save(program, buffer, extra_files={FACTS: json.dumps(_facts(model), ensure_ascii=False)})
        buffer.seek(0)
        found = torch.export.load(buffer).module()(**given)
    return _written(path, buffer.getvalue(), model, x, found.numpy())


def _written(path: Path, content: bytes, model: Model, x: NDArray[Any], found: NDArray[np.float32]) -> float:
    """Write the content, if it has found what the model says of these features; the largest difference."""
    with torch.backends.cudnn.flags(enabled=False):  # on a GPU it would round to TF32
        said = model.probabilities(x)
    difference = float(np.abs(found - said).max())
    if not difference <= TOLERANCE:
        got = f"it differs by {difference:.2g}, and was not written"
        raise ValueError(f"the exported model must give the model's probabilities to {TOLERANCE}; {got}.")
    with written_beside(path) as file:
        file.write(content)
    return difference


def _facts(model: Model) -> dict[str, Any]:
    """What a reader of the file must know; what is empty is left out."""
    encoding = model.encoding
    told: dict[str, Any] = {"classes": model.classes, NUMBERS: list(encoding.numbers), CATEGORIES: encoding.categories}
    told |= {VECTORS: encoding.names[len(encoding.plain.names) :], "made": encoding.made}
    return {name: lines for name, lines in told.items() if lines}


def _as_tensors(encoding: Encoding, columns: dict[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    words = columns.get(CATEGORIES)
    numbers = columns if words is None else columns | {CATEGORIES: codes(encoding, words)}
    return {name: torch.from_numpy(values) for name, values in numbers.items()}


def _take_text(onnx: Any, graph: Any, encoding: Encoding) -> None:
    """Nodes before all others that make `codes` of text, one column after another."""
    make, kinds = onnx.helper, onnx.TensorProto
    (given,) = (one for one in graph.graph.input if one.name == CATEGORIES)
    given.type.tensor_type.elem_type = kinds.STRING
    for node in graph.graph.node:
        node.input[:] = ["category_codes" if name == CATEGORIES else name for name in node.input]
    q = len(encoding.categories)
    nodes = [make.make_node("Split", [CATEGORIES], [f"text_{j}" for j in range(q)], axis=1, num_outputs=q)]
    for j, values in enumerate(encoding.categories.values()):
        how = {"keys_strings": list(values), "values_int64s": list(range(len(values))), "default_int64": -1}
        nodes.append(make.make_node("LabelEncoder", [f"text_{j}"], [f"code_{j}"], domain="ai.onnx.ml", **how))
    nodes.append(make.make_node("Concat", [f"code_{j}" for j in range(q)], ["category_codes"], axis=1))
    nodes += graph.graph.node
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    graph.opset_import.append(make.make_opsetid("ai.onnx.ml", 2))


def _name_label(onnx: Any, graph: Any, classes: list[str]) -> None:
    """Nodes after all others that name the most probable label."""
    make = onnx.helper
    names = onnx.numpy_helper.from_array(np.array(classes, dtype=object), "label_names")
    graph.graph.initializer.append(names)
    best = make.make_node("ArgMax", ["probabilities"], ["best"], axis=1, keepdims=0)
    graph.graph.node.extend([best, make.make_node("Gather", ["label_names", "best"], ["label"], axis=0)])
    graph.graph.output.append(make.make_tensor_value_info("label", onnx.TensorProto.STRING, ["n"]))


def _some_columns(model: Model) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Columns like those of training, with gaps and with values that training had not; and the features that they make."""
    encoding, features = model.encoding, _rows(model)
    rng, n = np.random.default_rng(0), len(features)
    numbers = features[:, : len(encoding.numbers)].copy()
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    words = [rng.choice([*values, "never seen"], n) for values in encoding.categories.values()]
    vectors = features[:, len(encoding.plain.names) :]
    told = dict(zip(encoding.categories, map(list, words), strict=True))
    made = encoding.plain.transform(Columns("the check", numbers, list(encoding.numbers), told))
    columns = {NUMBERS: numbers, CATEGORIES: np.array(words, dtype=object).T, VECTORS: vectors}
    given = {name: values for name, values in columns.items() if values.size}
    return given, np.hstack([made, vectors], dtype=np.float32)


def _rows(model: Model, n: int = 64) -> NDArray[np.float32]:
    """Rows like those of training: drawn between knots or thresholds, or normal where the first network expects it."""
    d, rng = len(model.encoding.names), np.random.default_rng(0)
    member = model.members[0] if model.members else None
    learners = [one for one in (*model.members, *model.others) if isinstance(one, (Member, Regression))]
    knots = next((one.ranks.knots for one in learners if one.ranks), None)
    if isinstance(member, PictureMember):
        x = rng.integers(0, 256, (n, d)).astype(np.float64)
    elif knots is not None:
        x = knots[rng.integers(len(knots), size=(n, d)), np.arange(d)]
        x = x + (knots[-1] - knots[0]) * rng.normal(0, 0.05, (n, d))
    elif member is None:
        (forest,) = (one for one in model.others if isinstance(one, Forest))
        inner = forest.right > 0
        levels = [forest.threshold[inner & (forest.feature == j)] for j in range(d)]
        x = np.stack([rng.choice(one if len(one) else np.zeros(1), n) for one in levels], axis=1) + forest.origin
    else:
        shift, scale = (np.zeros(d) if part is None else part[0, 0].numpy() for part in (member.shift, member.scale))
        x = rng.normal(size=(n, d)) / np.where(scale == 0, 1, scale) + shift
        x = x if member.origin is None else x + member.origin
    return np.asarray(x, dtype=np.float32)
