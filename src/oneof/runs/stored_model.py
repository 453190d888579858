"""Store a model: tensors of networks, trees and regressions as safetensors, everything else as JSON.

Classifiers of the user's own are bytes of skops among the tensors. There is no pickle, so opening a model from a stranger runs no code. Everything that a file claims is checked before memory is
allocated for it.
"""

import json
import math
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.patches import ARRAYS, GRID, patch_side
from oneof.data.roles import LARGEST_SIDE, PATCHES, SMALLEST_SIDE
from oneof.data.with_ranks import N_QUANTILES, QuantileNormalizer
from oneof.data.written import DATE_ORDERS
from oneof.ensemble.model import Model, OtherModel
from oneof.learners.boosting import BoostedTrees
from oneof.learners.forest import Forest
from oneof.learners.kernel_ensemble import KernelEnsemble, ScaledKernel
from oneof.learners.network_models import ImageNetworks, TableNetworks
from oneof.learners.sklearn_classifier import SklearnModel
from oneof.learners.smoother import KernelModel
from oneof.networks import MLP, Network
from oneof.networks.named import network_of
from oneof.runs.stored_classifiers import dump_classifiers, load_classifiers
from oneof.storage.files import atomic_write
from oneof.storage.memory import available_memory
from oneof.storage.printable import shortened
from oneof.storage.regular import check_regular, read_regular
from oneof.storage.schema import NUMBER, find_schema_error
from oneof.storage.strict_json import parse_json
from oneof.training.device import best_device
from oneof.training.stack import Stack
from oneof.version import RUN_FORMAT, __version__

_ENCODING = {
    "numbers": [str],
    "fills": [NUMBER],
    "gaps": [str],
    "dates": [str],
    "categories": {str: [str]},
    "embedded": [{"column": str, "kind": {"text", "image"}, "model": str, "width": int}],
    "texts": [{"column": str, "terms": [str]}],
    "pixels": [{"column": str, "channels": int, "side": int}],
}
_METADATA = {
    "sha256": str,
    "checksum": str,
    "classes": [str],
    "encoding": _ENCODING,
    "members": [dict],  # of _TABLE_MEMBER or _PICTURE_MEMBER
    "others": [{"trees", "set_trees", "boosting", "kernel", "own"}],
    "shares": [NUMBER],
    "sharpness": NUMBER,
    "calibration": {"by": str, "reason": str, "rows": int, "accuracy": [[NUMBER]], "scores": [NUMBER]},
}
_NOTATION = {"column": str, "form": {".", ",", "time", *DATE_ORDERS}, "units": {str: NUMBER}, "gaps": [str]}
_COLUMN_NUMBER = {"column": str, "number": NUMBER}
_PATCHES = {"column": str, "channels": int, "side": int, "mirrored": int}
_CLASSIFIER = {"name": str, "labels": [[int]]}  # labels that the classifier of each fold was trained on
_TABLE_MEMBER = {"networks": int, "inputs": int, "hidden": [int]}
_PICTURE_MEMBER = {"networks": int, "network": str, "pixels": [int]}
_MAX_NETWORKS = 10_000  # a file may claim any number, and building more takes many seconds
_MAX_LAYERS = 1_000
_MAX_SIZE = 2**31  # above which torch refuses a size by a message of many lines
_ROUNDING = 1e-6  # by which a share may exceed 1
_LARGEST = torch.finfo(torch.float32).max
_FOREST_ARRAYS = ("right", "feature", "threshold", "root", "origin")
_BOOSTING_ARRAYS = ("steps", "start")  # beside those of a forest
_KERNEL_ARRAYS = ("shift", "scale", "landmarks", "coefficients", "mean", "gamma")
_DTYPES = {  # others: float64
    "right": torch.int32,
    "feature": torch.int32,
    "threshold": torch.float32,
    "root": torch.int32,
    "steps": torch.float32,
    "start": torch.float32,
}


def save_model(model: Model, folder: Path) -> None:
    """Write model.safetensors, then model.json, which holds the checksums of the first and of itself."""
    content = save(_all_tensors(model))
    inverse_temperature = 1.0
    for learner in model.others:
        if isinstance(learner, KernelEnsemble):
            inverse_temperature = learner.inverse_temperature
            break
    metadata = {
        "format": RUN_FORMAT,
        "oneof": __version__,
        "sha256": sha256(content).hexdigest(),
        "classes": model.classes,
        "members": [member.shape for member in model.members],
        "others": [learner.kind for learner in model.others],
        "own": [_describe_classifiers(learner) for learner in _own_learners(model)],
        "shares": list(model.shares),
        "sharpness": inverse_temperature,
        "encoding": model.encoding.to_json(),
        "calibration": model.calibration,
    }
    metadata["checksum"] = checksum(metadata)
    with atomic_write(folder / "model.safetensors") as file:
        file.write(content)
    with atomic_write(folder / "model.json") as file:
        file.write(json.dumps(metadata, ensure_ascii=False, indent=1, allow_nan=False).encode())


def _all_tensors(model: Model) -> dict[str, Tensor]:
    """Return the tensors of a model; their names begin with the index of the member or the kind of the learner."""
    tensors = {}
    for i, member in enumerate(model.members):
        for name, tensor in _member_tensors(member).items():
            tensors[f"{i}.{name}"] = tensor.detach().cpu().contiguous()
    for name, array in model.encoding.arrays.items():
        tensors[name] = torch.from_numpy(array)
    for learner in model.others:
        for name, array in _learner_arrays(learner):
            tensors[f"{learner.kind}.{name}"] = torch.from_numpy(array)
    for i, learner in enumerate(_own_learners(model)):
        content = np.frombuffer(dump_classifiers(learner), dtype=np.uint8)
        tensors[f"own.{i}"] = torch.from_numpy(content.copy())
    return tensors


def _own_learners(model: Model) -> list[SklearnModel]:
    """Return the classifiers of the user's own."""
    return [learner for learner in model.others if isinstance(learner, SklearnModel)]


def _describe_classifiers(learner: SklearnModel) -> dict[str, Any]:
    """Return what model.json stores about a classifier of the user's own."""
    return {"name": learner.name, "labels": [labels.tolist() for labels in learner.labels]}


def checksum(metadata: dict[str, Any]) -> str:
    """Return the checksum of everything else in model.json."""
    others = {name: value for name, value in metadata.items() if name != "checksum"}
    return sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def load_model(folder: Path) -> Model:
    """Read a model; raise ValueError if a file is missing, damaged or of another format."""
    metadata = _read_metadata(folder)
    weights = folder / "model.safetensors"
    check_regular(weights)
    if weights.exists() and weights.stat().st_size > available_memory():
        raise _refused(weights, f"fit into memory; it has {weights.stat().st_size:,} bytes")
    try:
        with safe_open(weights, "pt"):  # which compares the length of the file with that in its header
            content = weights.read_bytes()
        tensors = load(content)
    except (FileNotFoundError, ValueError, LookupError, RuntimeError, OverflowError, SafetensorError) as error:
        raise _incomplete(folder) from error
    if sha256(content).hexdigest() != metadata["sha256"]:
        raise _refused(weights, "be the file that was written; it was changed")
    for name, tensor in tensors.items():
        if not _is_within_float32(tensor):
            raise _refused(weights, f"hold finite numbers within float32; {shortened(name)!r} does not")
    return _build_model(metadata, tensors, folder)


def _is_within_float32(tensor: Tensor) -> bool:
    """Return whether the numbers of a tensor are finite, and do not become infinite in float32."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = tensor.float().aminmax()  # NaN if there is any
    return bool(low >= -_LARGEST and high <= _LARGEST)


def count_models(folder: Path) -> int:
    """Return the number of models in the ensemble, as `Model.n_models` does, without reading weights."""
    metadata = _read_metadata(folder)
    n_networks = sum(member["networks"] for member in metadata["members"])
    return int(n_networks + len(metadata["others"]))


def _read_metadata(folder: Path) -> dict[str, Any]:
    """Read model.json; raise ValueError if it is missing, damaged or of another format."""
    path = folder / "model.json"
    try:
        stored = read_regular(path)
    except FileNotFoundError as error:
        raise _incomplete(folder) from error
    try:
        metadata = parse_json(stored)
    except ValueError as error:
        raise _incomplete(folder) from error
    if not isinstance(metadata, dict) or metadata.get("format") != RUN_FORMAT:
        raise _refused(folder, f"hold a model of format {RUN_FORMAT}; it has another")
    misfit = find_schema_error(metadata, _METADATA) or _check_consistency(metadata)
    if misfit:
        raise _refused(path, f"be the file that was written; {misfit}")
    if checksum(metadata) != metadata["checksum"]:
        raise _refused(path, "be the file that was written; it was changed")
    return metadata


def _incomplete(folder: Path) -> ValueError:
    return _refused(folder, "hold a whole model; model.json or model.safetensors is missing or damaged")


def _refused(path: Path, must: str) -> ValueError:
    return ValueError(f"{path} must {must}. Fit it again.")


def _check_consistency(metadata: dict[str, Any]) -> str | None:
    """Return a rule that the parts of model.json violate together, or None."""
    encoding = metadata["encoding"]
    rare = encoding.get("rare", {})  # runs of the first versions have none
    member_shape = _TABLE_MEMBER
    if encoding["pixels"]:
        member_shape = _PICTURE_MEMBER
    error = find_schema_error(metadata["members"], [member_shape], "members")
    error = error or find_schema_error(rare, {str: [str]}, "encoding.rare")
    error = error or find_schema_error(encoding.get("patches", []), [_PATCHES], "encoding.patches")
    error = error or find_schema_error(encoding.get("components", 0), int, "encoding.components")
    error = error or find_schema_error(encoding.get("notations", []), [_NOTATION], "encoding.notations")
    for name in ("placeholders", "origins"):
        error = error or find_schema_error(encoding.get(name, []), [_COLUMN_NUMBER], f"encoding.{name}")
    classifiers = metadata.get("own", [])  # runs of the first versions have none
    error = error or find_schema_error(classifiers, [_CLASSIFIER], "own")
    if not error and len(classifiers) != metadata["others"].count("own"):
        error = "own must describe every learner of that kind"
    if error:
        return error
    return (
        _check_members(metadata["members"], encoding["pixels"])
        or _check_encoding(encoding)
        or _check_categories(encoding["categories"], rare)
        or _check_calibration(metadata["calibration"])
        or _check_shares(metadata["shares"])
    )


def _check_members(members: list[dict[str, Any]], pixels: list[dict[str, Any]]) -> str | None:
    """Return a rule that the networks violate, or None."""
    if sum(member["networks"] for member in members) > _MAX_NETWORKS:
        return f"members must have at most {_MAX_NETWORKS:,} networks"
    for member in members:
        if len(member.get("hidden", ())) > _MAX_LAYERS:
            return f"members.hidden must have at most {_MAX_LAYERS:,} layers"
        sizes = (member["networks"], *member.get("hidden", ()), *member.get("pixels", ()))
        if max(sizes) > _MAX_SIZE:
            return f"members must have sizes of at most {_MAX_SIZE:,}"
    if any(column["channels"] not in (1, 3) for column in pixels):
        return "encoding.pixels must have 1 or 3 channels"
    shapes = [[column["channels"], column["side"], column["side"]] for column in pixels]
    for member in members:
        if shapes and ([member["pixels"]] != shapes or shapes[0][1] > LARGEST_SIDE):
            return f"members.pixels must be those of encoding.pixels, of {LARGEST_SIDE} a side at most"
    return None


def _check_encoding(encoding: dict[str, Any]) -> str | None:
    """Return a rule that the encoding of numbers, texts, embeddings and patches violates, or None."""
    for column in encoding.get("patches", []):
        if column["channels"] not in (1, 3) or not SMALLEST_SIDE <= column["side"] <= LARGEST_SIDE:
            return f"encoding.patches must have 1 or 3 channels, and {SMALLEST_SIDE} to {LARGEST_SIDE} pixels a side"
    if any(column["width"] <= 0 for column in encoding["embedded"]):
        return "encoding.embedded.width must be positive"
    n_numbers = len(encoding["numbers"])
    n_fills = len(encoding["fills"])
    if n_fills != n_numbers:
        return f"encoding.fills must be {n_numbers} numbers, not {n_fills}"
    if not set(encoding["gaps"]) <= set(encoding["numbers"]):
        return "encoding.gaps must be among encoding.numbers"
    for key in ("notations", "placeholders", "origins"):
        columns = [part["column"] for part in encoding.get(key, [])]
        if len(set(columns)) != len(columns) or not set(columns) <= set(encoding["numbers"]):
            return f"encoding.{key} must be of columns among encoding.numbers, each once"
    for column in encoding["texts"]:
        terms = column["terms"]
        if not terms or len(set(terms)) != len(terms):
            return "encoding.texts must have terms, each once"
    return None


def _check_categories(categories: dict[str, list[str]], rare: dict[str, list[str]]) -> str | None:
    """Return a rule that the values of categories violate, or None."""
    for column, values in categories.items():
        if not values and not rare.get(column):
            return "encoding.categories must have a value for every column"
    for column, values in rare.items():
        if not values or column not in categories or set(values) & set(categories[column]):
            return "encoding.rare must have other values of columns of encoding.categories"
    return None


def _check_calibration(calibration: dict[str, Any]) -> str | None:
    """Return a rule that the calibration violates, or None."""
    if any(len(pair) != 2 for pair in calibration["accuracy"]):
        return "calibration.accuracy must be pairs"
    if calibration["rows"] and not calibration["scores"]:
        return "calibration.scores must not be empty"
    return None


def _check_shares(shares: list[float]) -> str | None:
    """Return a rule that the weights of the learners violate, or None."""
    if any(not 0 <= share <= 1 + _ROUNDING for share in shares) or (shares and sum(shares) <= 0):
        return "shares must be numbers from 0 to 1, not all of them 0"
    return None


def _build_model(metadata: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> Model:
    """Return the model that model.json describes and whose tensors were stored."""
    path = folder / "model.json"
    groups = _by_prefix(tensors)
    _check_text_tensors(metadata["encoding"], groups.get("texts", {}), path)
    _check_patch_tensors(metadata["encoding"], groups.get(PATCHES, {}), path)
    _check_component_tensors(metadata["encoding"], groups.get("components", {}), path)
    d = _count_features(metadata["encoding"], tensors)
    if d > sum(tensor.numel() for tensor in tensors.values()):  # before names are made for them
        raise _refused(path, f"describe model.safetensors; it claims {d:,} features")
    encoding = Encoding.from_json(metadata["encoding"], tensors)
    c = len(metadata["classes"])
    members = []
    for i, description in enumerate(metadata["members"]):
        member = _build_member(description, groups.get(str(i), {}), d, c)
        if member is not None:
            members.append(member)
    others = _build_others(metadata, groups, d, c, path)
    n_described = len(metadata["members"]) + len(metadata["others"])
    n_built = len(members) + len(others)
    is_complete = n_built == n_described and len(tensors) == _count_described(metadata, groups, encoding)
    if n_built == 0 and d > 0:  # votes on a table without features leave no learner
        is_complete = False
    shares = metadata["shares"]
    has_all_shares = len(shares) == n_described
    if not others and not shares:  # networks alone need none
        has_all_shares = True
    if not is_complete or not has_all_shares:
        raise _refused(path, "describe model.safetensors; the networks there are others")
    return Model(metadata["classes"], encoding, tuple(members), metadata["calibration"], tuple(others), tuple(shares))


def _build_others(
    metadata: dict[str, Any], groups: dict[str, dict[str, Tensor]], d: int, c: int, path: Path
) -> list[OtherModel]:
    """Return the learners that are no networks, without those whose tensors do not fit."""
    others: list[OtherModel] = []
    classifiers = groups.get("own", {})
    n_classifiers = 0
    for kind in metadata["others"]:
        if kind == "own":
            content = classifiers.get(str(n_classifiers))
            others.append(_build_classifiers(metadata["own"][n_classifiers], content, d, c, path))
            n_classifiers += 1
            continue
        learner = _build_learner(kind, groups.get(kind, {}), metadata["sharpness"], d, c)
        if learner is not None:
            others.append(learner)
    return others


def _count_described(metadata: dict[str, Any], groups: dict[str, dict[str, Tensor]], encoding: Encoding) -> int:
    """Return the number of tensors that belong to what model.json describes."""
    count = len(encoding.arrays)
    for i in range(len(metadata["members"])):
        count += len(groups.get(str(i), {}))
    for kind in metadata["others"]:
        if kind == "own":
            count += 1
        else:
            count += len(groups.get(kind, {}))
    return count


def _check_text_tensors(encoding: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Raise ValueError if the weights of terms are not those of the text columns that model.json describes."""
    for i, column in enumerate(encoding["texts"]):
        n_terms = len(column["terms"])
        idf = tensors.get(f"{i}.idf", torch.empty(0))
        axes = tensors.get(f"{i}.axes", torch.empty(0))
        fits = (
            idf.shape == (n_terms,)
            and idf.dtype == torch.float32
            and axes.dim() == 2
            and len(axes) == n_terms
            and axes.dtype == torch.float16
            and bool((idf.sum() + axes.float().sum()).isfinite())  # half precision would overflow
        )
        if not fits:
            raise _refused(path, "describe model.safetensors; the texts there are others")


def _check_patch_tensors(encoding: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Raise ValueError if the patches are not those of the pictures that model.json describes."""
    for i, column in enumerate(encoding.get("patches", [])):
        stored = [tensors.get(f"{i}.{name}", torch.empty(0)) for name in ARRAYS]
        filters, offset, mean, axes = stored
        k = offset.numel()
        size = patch_side(column["side"])
        fits = (
            filters.shape == (k, column["channels"], size, size)
            and offset.shape == (k,)
            and mean.shape == (2 * k * GRID**2,)
            and filters.dtype == offset.dtype == mean.dtype == torch.float32
            and axes.dtype == torch.float16
            and axes.dim() == 2
            and len(axes) == len(mean)
            and bool(axes.float().sum().isfinite())  # half precision would overflow
        )
        if not fits:
            raise _refused(path, "describe model.safetensors; the patches there are others")


def _check_component_tensors(encoding: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Raise ValueError if the components of numbers are not those that model.json describes."""
    n_components = encoding.get("components", 0)  # runs of earlier versions have none
    if not n_components:
        return
    n_columns = len(encoding["numbers"]) + len(encoding["gaps"])
    axes = tensors.get("axes", torch.empty(0))
    offset = tensors.get("offset", torch.empty(0))
    fits = (
        axes.shape == (n_columns, n_components)
        and offset.shape == (n_components,)
        and axes.dtype == offset.dtype == torch.float32
        and bool((axes.sum() + offset.sum()).isfinite())
    )
    if not fits:
        raise _refused(path, "describe model.safetensors; the components of numbers there are others")


def _count_features(encoding: dict[str, Any], tensors: dict[str, Tensor]) -> int:
    """Return the number of features that an encoding claims to make."""
    rare = encoding.get("rare", {})
    count = encoding.get("components", 0) or len(encoding["numbers"]) + len(encoding["gaps"])
    for column, values in encoding["categories"].items():
        count += len(values) + (column in rare)
    for column in encoding["embedded"]:
        count += column["width"]
    for i in range(len(encoding["texts"])):
        count += tensors[f"texts.{i}.axes"].shape[1]
    for i in range(len(encoding.get("patches", []))):
        count += tensors[f"{PATCHES}.{i}.axes"].shape[1]
    for column in encoding["pixels"]:
        count += column["channels"] * column["side"] ** 2
    return count


def _by_prefix(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group tensors by the part of their names before the first dot; the rest is their name in the group."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        prefix, _, rest = name.partition(".")
        groups.setdefault(prefix, {})[rest] = tensor
    return groups


def _member_tensors(member: TableNetworks | ImageNetworks) -> dict[str, Tensor]:
    """Return the weights of a stack of networks and the scaling of their inputs."""
    tensors = {f"weight.{name}": tensor for name, tensor in member.stack.tensors.items()}
    if isinstance(member, ImageNetworks):
        tensors["scale"] = member.scale
        tensors["offset"] = member.offset
        return tensors
    scaling: dict[str, Any] = {"shift": member.shift, "scale": member.scale, "origin": member.origin}
    if member.ranks is not None:
        scaling["ranks"] = member.ranks.quantiles
    for name, values in scaling.items():
        if values is not None:
            tensors[name] = torch.as_tensor(values).clone()
    return tensors


def _build_member(
    description: dict[str, Any], tensors: dict[str, Tensor], d: int, c: int
) -> TableNetworks | ImageNetworks | None:
    """Return the networks that were stored, or None if the tensors do not fit their description, d features and c classes."""
    if min([description["networks"], c, *description.get("hidden", ())]) < 1:
        return None
    if "network" in description:
        return _build_image_networks(description, tensors, d, c)
    return _build_table_networks(description, tensors, d, c)


def _build_image_networks(
    description: dict[str, Any], tensors: dict[str, Tensor], d: int, c: int
) -> ImageNetworks | None:
    """Return the networks on pictures that were stored, or None."""
    shape = tuple(description["pixels"])
    if math.prod(shape) != d:
        return None
    network = network_of(description["network"])
    n_networks = description["networks"]
    required = _weight_forms(network, shape, c, n_networks)
    required["scale"] = ((shape[0],), torch.float32)
    required["offset"] = ((shape[0],), torch.float32)
    if _forms(tensors) != required:
        return None
    device = best_device()
    stack = _load_stack(network, shape, c, n_networks, tensors, device)
    scale = tensors["scale"].to(device)
    offset = tensors["offset"].to(device)
    return ImageNetworks(stack, description["network"], shape, scale, offset)


def _build_table_networks(
    description: dict[str, Any], tensors: dict[str, Tensor], d: int, c: int
) -> TableNetworks | None:
    """Return the networks on columns that were stored, or None."""
    tensors = dict(tensors)
    quantiles = tensors.pop("ranks", None)
    width = description["inputs"]
    n_features = d
    if quantiles is not None:
        if quantiles.shape != (N_QUANTILES, d) or quantiles.dtype not in (torch.float32, torch.float64):
            return None
        n_features = 2 * d
    if width != n_features:
        return None
    network = MLP(tuple(description["hidden"]))
    n_networks = description["networks"]
    required = _weight_forms(network, (width,), c, n_networks)
    optional = {
        "shift": ((n_networks, 1, width), torch.float32),
        "scale": ((n_networks, 1, width), torch.float32),
        "origin": ((width,), torch.float64),
    }
    stored = _forms(tensors)
    if not required.items() <= stored.items() <= {**required, **optional}.items():
        return None
    origin = None
    if "origin" in tensors:
        origin = tensors["origin"].numpy()
    ranks = None
    if quantiles is not None:
        ranks = QuantileNormalizer(quantiles.numpy())
    stack = _load_stack(network, (width,), c, n_networks, tensors, torch.device("cpu"))
    return TableNetworks(stack, tensors.get("shift"), tensors.get("scale"), origin, ranks)


_Form = tuple[tuple[int, ...], torch.dtype]  # shape and type of a tensor


def _forms(tensors: dict[str, Tensor]) -> dict[str, _Form]:
    """Return shape and type of each tensor."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def _weight_forms(network: Network, shape: tuple[int, ...], c: int, n_networks: int) -> dict[str, _Form]:
    """Return shape and type that the weights of a stack of these networks have, by the name of the tensor."""
    with torch.device("meta"):  # shapes without memory, whatever numbers the file has
        weights = network(shape, c).state_dict()
    forms = {}
    for name, weight in weights.items():
        forms[f"weight.{name}"] = ((n_networks, *weight.shape), weight.dtype)
    return forms


def _load_stack(
    network: Network, shape: tuple[int, ...], c: int, n_networks: int, tensors: dict[str, Tensor], device: torch.device
) -> Stack:
    """Return a stack of these networks with the stored weights."""
    modules = []
    for i in range(n_networks):
        module = network(shape, c).to(device)
        module.load_state_dict({name: tensors[f"weight.{name}"][i] for name in module.state_dict()})
        modules.append(module)
    return Stack(modules)


def _learner_arrays(learner: OtherModel) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the names and arrays of a forest, boosted trees or a kernel regression."""
    if isinstance(learner, Forest):
        for name in _FOREST_ARRAYS:
            yield name, getattr(learner, name)
    if isinstance(learner, BoostedTrees):
        for name in _FOREST_ARRAYS:
            yield name, getattr(learner.trees, name)
        for name in _BOOSTING_ARRAYS:
            yield name, getattr(learner, name)
    if isinstance(learner, KernelEnsemble):
        yield "knots", learner.ranks.quantiles.copy()
        for i, scaled in enumerate(learner.kernels):
            gamma = np.array([scaled.model.gamma])
            arrays = (scaled.shift, scaled.scale, *scaled.model[:3], gamma)
            for name, array in zip(_KERNEL_ARRAYS, arrays, strict=True):
                yield f"{i}.{name}", np.ascontiguousarray(array)


def _build_learner(
    kind: str, tensors: dict[str, Tensor], inverse_temperature: float, d: int, c: int
) -> OtherModel | None:
    """Return the learner that was stored, or None if the arrays do not fit its kind, d features and c classes."""
    arrays = {}
    for name, tensor in tensors.items():
        if tensor.dtype != _DTYPES.get(name, torch.float64):  # NumPy lacks some types of torch
            return None
        arrays[name] = tensor.numpy()
    if kind in ("trees", "set_trees"):
        return _build_forest(kind, arrays, d, c)
    if kind == "boosting":
        return _build_boosted_trees(arrays, d, c)
    return _build_kernel_ensemble(arrays, inverse_temperature, d, c)


def _build_classifiers(description: dict[str, Any], content: Tensor | None, d: int, c: int, path: Path) -> SklearnModel:
    """Return the classifiers of the user's own that were stored; raise ValueError if they may not be read or do not fit."""
    if content is None or content.dtype != torch.uint8:
        raise _refused(path, "describe model.safetensors; the classifiers there are others")
    labels = tuple(np.array(known, dtype=np.intp) for known in description["labels"])
    return load_classifiers(content.numpy().tobytes(), description["name"], labels, d, c)


def _build_forest(kind: str, arrays: dict[str, NDArray[Any]], d: int, c: int) -> Forest | None:
    """Return the forest with these arrays, or None if they do not fit."""
    if set(arrays) != set(_FOREST_ARRAYS):
        return None
    forest = Forest(**arrays, classes=c, kind=kind)
    if forest.is_malformed(d, c):
        return None
    return forest


def _build_boosted_trees(arrays: dict[str, NDArray[Any]], d: int, c: int) -> BoostedTrees | None:
    """Return the boosted trees with these arrays, or None if they do not fit."""
    if set(arrays) != {*_FOREST_ARRAYS, *_BOOSTING_ARRAYS}:
        return None
    if arrays["steps"].ndim != 2 or arrays["start"].ndim != 2:
        return None
    right, feature, threshold, root, origin = (arrays[name] for name in _FOREST_ARRAYS)
    trees = Forest(right, feature, threshold, root, origin, classes=len(arrays["steps"]))
    boosted = BoostedTrees(trees, arrays["steps"], arrays["start"])
    if boosted.is_malformed(d, c):
        return None
    return boosted


def _build_kernel_ensemble(
    arrays: dict[str, NDArray[Any]], inverse_temperature: float, d: int, c: int
) -> KernelEnsemble | None:
    """Return the kernel regressions with these arrays, one for every scaling of the features, or None if they do not fit."""
    n_kernels = (len(arrays) - 1) // len(_KERNEL_ARRAYS)
    names = {"knots"}
    for i in range(n_kernels):
        names.update(f"{i}.{name}" for name in _KERNEL_ARRAYS)
    if n_kernels == 0 or set(arrays) != names or arrays["knots"].shape != (N_QUANTILES, d):
        return None
    kernels = []
    for i in range(n_kernels):
        parts = [arrays[f"{i}.{name}"] for name in _KERNEL_ARRAYS]
        shift, scale, landmarks, coefficients, mean, gamma = parts
        if landmarks.ndim != 2:
            return None
        n_inputs = int((scale != 0).sum())
        n_landmarks = len(landmarks)
        shapes = [(2 * d,), (2 * d,), (n_landmarks, n_inputs), (n_landmarks, c), (c,), (1,)]
        if [part.shape for part in parts] != shapes:
            return None
        kernels.append(ScaledKernel(shift, scale, KernelModel(landmarks, coefficients, mean, float(gamma[0]))))
    return KernelEnsemble(QuantileNormalizer(arrays["knots"]), tuple(kernels), inverse_temperature)
