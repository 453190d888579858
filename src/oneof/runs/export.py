"""The whole model for other programs, as an ONNX graph or a program of `torch.export`; written only if it says what the model says."""

import io
import json
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.table import Columns
from oneof.ensemble.model import Member, Model, PictureMember
from oneof.learners.fitted import Regression
from oneof.learners.forest import Forest
from oneof.runs.portable import Portable, codes
from oneof.storage.files import written_beside
from oneof.storage.optional_packages import load_package

TOLERANCE = 1e-4  # the largest difference of a probability that is put down to rounding
NUMBERS, CATEGORIES, VECTORS = "numbers", "categories", "vectors"
FACTS = "oneof.json"  # in a program of torch.export: the names of columns, categories and classes


def export_model(model: Model, path: Path) -> float:
    """Write the model as ONNX or, where the file ends in .pt2, as a program of `torch.export`; the largest difference that was found.

    It is written only if the file, run by onnxruntime or read back by torch, gives the model's probabilities. docs/serving.md says what
    both take and give. A program takes categories as `codes` of the values that its extra file `oneof.json` lists beside classes.
    """
    model.check_portable()
    model.check_predicts()
    columns, x = _some_columns(model)
    words = columns.get(CATEGORIES)
    numbers = columns if words is None else columns | {CATEGORIES: codes(model.encoding, words)}
    given = {name: torch.from_numpy(values) for name, values in numbers.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will change in later versions of torch
        content, found = _as_program(model, given) if path.suffix.lower() == ".pt2" else _as_onnx(model, given, columns)
    with torch.backends.cudnn.flags(enabled=False):  # on a GPU it would round to TF32
        difference = float(np.abs(found - model.probabilities(x)).max())
    if not difference <= TOLERANCE:
        got = f"it differs by {difference:.2g}, and was not written"
        raise ValueError(f"the exported model must give the model's probabilities to {TOLERANCE}; {got}.")
    with written_beside(path) as file:
        file.write(content)
    return difference


def _as_onnx(model: Model, given: dict[str, Tensor], columns: dict[str, NDArray[Any]]) -> tuple[bytes, NDArray[Any]]:
    """The model as an ONNX graph, whose metadata are its facts, and the probabilities that onnxruntime finds by it."""
    onnx, runtime = (load_package(name, "export") for name in ("onnx", "onnxruntime"))
    buffer = io.BytesIO()
    torch.onnx.export(
        Portable(model).eval(), (), buffer,  # type: ignore[arg-type]  # the older exporter takes any file, and needs no further package
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
    return content, session.run(None, columns)[0]


def _as_program(model: Model, given: dict[str, Tensor]) -> tuple[bytes, NDArray[Any]]:
    """The model as a program of `torch.export`, and the probabilities that it gives when it is read back."""
    buffer, shapes = io.BytesIO(), {name: {0: torch.export.Dim("n")} for name in given}
    program = torch.export.export(Portable(model).eval(), (), given, dynamic_shapes=shapes)
    torch.export.save(program, buffer, extra_files={FACTS: json.dumps(_facts(model), ensure_ascii=False)})
    buffer.seek(0)
    return buffer.getvalue(), torch.export.load(buffer).module()(**given).numpy()


def _facts(model: Model) -> dict[str, Any]:
    """What a reader of the file must know; what is empty is left out."""
    encoding = model.encoding
    told: dict[str, Any] = {"classes": model.classes, NUMBERS: list(encoding.numbers), CATEGORIES: encoding.categories}
    told |= {"rare": encoding.rare, VECTORS: encoding.names[len(encoding.plain.names) :], "made": encoding.made}
    return {name: lines for name, lines in told.items() if lines}


def _take_text(onnx: Any, graph: Any, encoding: Encoding) -> None:
    """Nodes before all others that make `codes` of text, one column after another."""
    make, kinds = onnx.helper, onnx.TensorProto
    (given,) = (one for one in graph.graph.input if one.name == CATEGORIES)
    given.type.tensor_type.elem_type = kinds.STRING
    for node in graph.graph.node:
        node.input[:] = ["category_codes" if name == CATEGORIES else name for name in node.input]
    q = len(encoding.categories)
    nodes = [make.make_node("Split", [CATEGORIES], [f"text_{j}" for j in range(q)], axis=1, num_outputs=q)]
    for j, column in enumerate(encoding.categories):
        known = encoding.category_codes(column)
        how = {"keys_strings": list(known), "values_int64s": list(known.values()), "default_int64": -1}
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
    words = [rng.choice([*encoding.category_codes(column), "never seen"], n) for column in encoding.categories]
    vectors = features[:, len(encoding.plain.names) :]
    told = dict(zip(encoding.categories, map(list, words), strict=True))
    made = encoding.plain.transform(Columns("the check", numbers, list(encoding.numbers), told))
    columns = {NUMBERS: numbers, CATEGORIES: np.array(words, dtype=object).T, VECTORS: vectors}
    given = {name: values for name, values in columns.items() if values.size}
    return given, np.hstack([made, vectors], dtype=np.float32)


def _rows(model: Model, n: int = 64) -> NDArray[np.float32]:
    """Rows like those of training: drawn between knots or thresholds, or normal where the first network expects it."""
    d, rng, learners = len(model.encoding.names), np.random.default_rng(0), (*model.members, *model.others)
    first, ranked = learners[0], (one.ranks for one in learners if isinstance(one, (Member, Regression)))
    ranks = next(filter(None, ranked), None)
    if isinstance(first, PictureMember):
        x = rng.integers(0, 256, (n, d)).astype(np.float64)
    elif ranks:
        x = ranks.knots[rng.integers(len(ranks.knots), size=(n, d)), np.arange(d)]
        x = x + np.ptp(ranks.knots, axis=0) * rng.normal(0, 0.05, (n, d))
    elif isinstance(first, Forest):
        inner = first.right > 0
        levels = [first.threshold[inner & (first.feature == j)] for j in range(d)]
        x = np.stack([rng.choice(one if len(one) else np.zeros(1), n) for one in levels], axis=1) + first.origin
    else:
        member = cast(Member, first)
        shift, scale = (np.zeros(d) if part is None else part[0, 0].numpy() for part in (member.shift, member.scale))
        x = rng.normal(size=(n, d)) / np.where(scale == 0, 1, scale) + shift
        x = x if member.origin is None else x + member.origin
    return np.asarray(x, dtype=np.float32)
