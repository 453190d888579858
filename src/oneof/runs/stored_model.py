"""A model at rest: networks, trees and regressions as safetensors, everything else as JSON; no pickle, so a model from a stranger runs no code."""

import json
import math
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.picture import LARGEST
from oneof.data.with_ranks import Ranks
from oneof.ensemble.model import Model, OtherModel
from oneof.learners.forest import Forest
from oneof.learners.kernel import KernelModel
from oneof.learners.kernel_ensemble import KernelEnsemble, ScaledKernel
from oneof.learners.network_models import ImageNetworks, TableNetworks
from oneof.networks import MLP, Network
from oneof.networks.named import network_of
from oneof.storage.files import written_beside
from oneof.storage.regular import check_regular
from oneof.storage.schema import NUMBER, first_misfit
from oneof.training.device import best_device
from oneof.training.stack import Stack
from oneof.version import RUN_FORMAT, __version__

_ENCODING = {
    "numbers": [str], "fills": [NUMBER], "gaps": [str], "dates": [str], "categories": {str: [str]},
    "embedded": [{"column": str, "kind": {"text", "image"}, "model": str, "width": int}],
    "texts": [{"column": str, "terms": [str]}], "pixels": [{"column": str, "channels": int, "side": int}],
}  # fmt: skip
_FACTS = {
    "sha256": str, "checksum": str, "classes": [str], "encoding": _ENCODING,
    "members": [dict],  # as _MLPS or _ON_PICTURES says
    "others": [{"trees", "kernel"}], "shares": [NUMBER], "sharpness": NUMBER,
    "calibration": {"by": str, "reason": str, "rows": int, "accuracy": [[NUMBER]], "scores": [NUMBER]},
}  # fmt: skip
_MOST_NETWORKS, _MOST_LAYERS = 10_000, 1_000  # what a file may claim: building more takes many seconds
_FOREST = ("right", "feature", "threshold", "root", "origin")
_WAY = ("shift", "scale", "landmarks", "coefficients", "mean", "gamma")
_KINDS = {"right": np.int32, "feature": np.int32, "threshold": np.float32, "root": np.int32}  # others: double precision
_MLPS = {"networks": int, "inputs": int, "hidden": [int]}
_ON_PICTURES = {"networks": int, "network": str, "pixels": [int]}


def save_model(model: Model, folder: Path) -> None:
    """Write model.safetensors, then model.json, which holds the checksums of the first and of itself."""
    model.check_portable()
    parts = [(f"{i}.{name}", part) for i, member in enumerate(model.members) for name, part in _tensors(member).items()]
    tensors = {name: part.detach().cpu().contiguous() for name, part in parts}
    texts = {f"texts.{name}": torch.from_numpy(array) for name, array in model.encoding.arrays.items()}
    arrays = {f"{one.kind}.{name}": torch.from_numpy(part) for one in model.others for name, part in _arrays(one)}
    content = save(tensors | texts | arrays)
    sharpness = next((one.inverse_temperature for one in model.others if isinstance(one, KernelEnsemble)), 1.0)
    facts = {
        "format": RUN_FORMAT, "oneof": __version__, "sha256": sha256(content).hexdigest(), "classes": model.classes,
        "members": [member.shape for member in model.members], "others": [one.kind for one in model.others],
        "shares": list(model.shares), "sharpness": sharpness,
        "encoding": model.encoding.to_json(), "calibration": model.calibration,
    }  # fmt: skip
    facts["checksum"] = checksum(facts)
    with written_beside(folder / "model.safetensors") as file:
        file.write(content)
    with written_beside(folder / "model.json") as file:
        file.write(json.dumps(facts, ensure_ascii=False, indent=1).encode())


def checksum(facts: dict[str, Any]) -> str:
    """Of everything else that model.json says."""
    said = {name: part for name, part in facts.items() if name != "checksum"}
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def load_model(folder: Path) -> Model:
    """Read a model back; a file that is missing, damaged or of another format is refused."""
    facts = _read_facts(folder)
    weights = folder / "model.safetensors"
    check_regular(weights)
    try:
        content = weights.read_bytes()
        tensors = load(content)
    except (FileNotFoundError, ValueError, LookupError, RuntimeError, OverflowError, SafetensorError) as error:
        raise _incomplete(folder) from error
    if sha256(content).hexdigest() != facts["sha256"]:
        raise _refused(weights, "be the file that was written; it was changed")
    return _model(facts, tensors, folder)


def count_models(folder: Path) -> int:
    """Return how many models have a say, as `Model.n_models` does, by model.json alone: no weights are read."""
    facts = _read_facts(folder)
    networks = sum(member["networks"] for member in facts["members"])
    return int(networks + len(facts["others"]))


def _read_facts(folder: Path) -> dict[str, Any]:
    """Read model.json; one that is missing, damaged or of another format is refused."""
    path = folder / "model.json"
    check_regular(path)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise _incomplete(folder) from error
    if not isinstance(facts, dict) or facts.get("format") != RUN_FORMAT:
        raise _refused(folder, f"hold a model of format {RUN_FORMAT}; it has another")
    misfit = first_misfit(facts, _FACTS) or _contradiction(facts)
    if misfit:
        raise _refused(path, f"be the file that was written; {misfit}")
    if checksum(facts) != facts["checksum"]:
        raise _refused(path, "be the file that was written; it was changed")
    return facts


def _incomplete(folder: Path) -> ValueError:
    return _refused(folder, "hold a whole model; model.json or model.safetensors is missing or damaged")


def _refused(path: Path, must: str) -> ValueError:
    return ValueError(f"{path} must {must}. Fit it again.")


def _contradiction(facts: dict[str, Any]) -> str | None:
    """What the parts of model.json say that cannot be true together."""
    encoding, calibration, members = facts["encoding"], facts["calibration"], facts["members"]
    rare = encoding.get("rare", {})  # runs of the first versions have none
    misfit = first_misfit(members, [_ON_PICTURES if encoding["pixels"] else _MLPS], "members")
    misfit = misfit or first_misfit(rare, {str: [str]}, "encoding.rare")
    if misfit:
        return misfit
    pixels = [[one["channels"], one["side"], one["side"]] for one in encoding["pixels"]]
    numbers, fills, terms = encoding["numbers"], encoding["fills"], [part["terms"] for part in encoding["texts"]]
    rules = {
        f"members must have at most {_MOST_NETWORKS:,} networks": sum(part["networks"] for part in members)
        <= _MOST_NETWORKS,
        f"members.hidden must have at most {_MOST_LAYERS:,} layers": all(
            len(part.get("hidden", ())) <= _MOST_LAYERS for part in members
        ),
        "encoding.embedded.width must be positive": all(part["width"] > 0 for part in encoding["embedded"]),
        "encoding.pixels must have 1 or 3 channels": all(part["channels"] in (1, 3) for part in encoding["pixels"]),
        f"members.pixels must be those of encoding.pixels, of {LARGEST} a side at most": not pixels
        or all([part["pixels"]] == pixels and pixels[0][1] <= LARGEST for part in members),
        f"encoding.fills must be {len(numbers)} numbers, not {len(fills)}": len(fills) == len(numbers),
        "encoding.gaps must be among encoding.numbers": set(encoding["gaps"]) <= set(numbers),
        "encoding.categories must have a value for every column": all(
            values or rare.get(column) for column, values in encoding["categories"].items()
        ),
        "encoding.rare must have other values of columns of encoding.categories": all(
            values and column in encoding["categories"] and not set(values) & set(encoding["categories"][column])
            for column, values in rare.items()
        ),
        "encoding.texts must have terms, each once": all(one and len(set(one)) == len(one) for one in terms),
        "calibration.accuracy must be pairs": all(len(pair) == 2 for pair in calibration["accuracy"]),
        "calibration.scores must not be empty": calibration["scores"] or not calibration["rows"],
    }
    return next((rule for rule, holds in rules.items() if not holds), None)


def _model(facts: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> Model:
    plain, c = facts["encoding"], len(facts["classes"])
    parted = _by_prefix(tensors)
    texts = parted.get("texts", {})
    for i, part in enumerate(plain["texts"]):
        idf, axes = (texts.get(f"{i}.{name}", torch.empty(0)) for name in ("idf", "axes"))
        wanted = ((len(part["terms"]),), torch.float32, (len(part["terms"]), axes.shape[-1]), torch.float16)
        if (idf.shape, idf.dtype, axes.shape, axes.dtype) != wanted or not (idf.sum() + axes.sum()).isfinite():
            raise _refused(folder / "model.json", "describe model.safetensors; the texts there are others")
    d = _count_features(plain, texts)
    if d > sum(tensor.numel() for tensor in tensors.values()):  # before their names are made
        raise _refused(folder / "model.json", f"describe model.safetensors; it claims {d:,} features")
    encoding = Encoding.from_json(plain, texts)
    parts, kinds, shares = facts["members"], facts["others"], facts["shares"]
    own = [parted.get(name, {}) for name in (*map(str, range(len(parts))), *kinds)]
    members = [member for i, part in enumerate(parts) if (member := _member(part, own[i], d, c))]
    arrays = zip(kinds, own[len(parts) :], strict=True)
    others = [one for kind, some in arrays if (one := _learner(kind, some, facts["sharpness"], d, c))]
    learners = len(members) + len(others)
    whole = len(tensors) == sum(map(len, own)) + len(encoding.arrays) and learners == len(own)
    whole = whole and (learners > 0 or d == 0)  # votes on a table without features leave no learner
    if not whole or len(shares) not in ((len(own),) if others else (0, len(own))):
        raise _refused(folder / "model.json", "describe model.safetensors; the networks there are others")
    return Model(facts["classes"], encoding, tuple(members), facts["calibration"], tuple(others), tuple(shares))


def _count_features(encoding: dict[str, Any], texts: dict[str, Tensor]) -> int:
    """Return how many features an encoding says it makes."""
    rare = encoding.get("rare", {})
    one_hot = sum(len(values) + (column in rare) for column, values in encoding["categories"].items())
    embedded: int = sum(part["width"] for part in encoding["embedded"])
    of_texts = sum(texts[f"{i}.axes"].shape[1] for i in range(len(encoding["texts"])))
    levels: int = sum(part["channels"] * part["side"] ** 2 for part in encoding["pixels"])
    return len(encoding["numbers"]) + len(encoding["gaps"]) + one_hot + embedded + of_texts + levels


def _by_prefix(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group tensors by what stands before the first dot of their names; the rest is their name in the group."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        prefix, _, rest = name.partition(".")
        groups.setdefault(prefix, {})[rest] = tensor
    return groups


def _tensors(member: TableNetworks | ImageNetworks) -> dict[str, Tensor]:
    weights = {f"weight.{name}": tensor for name, tensor in member.stack.tensors.items()}
    if isinstance(member, ImageNetworks):
        return weights | {"scale": member.scale, "offset": member.offset}
    parts = {"shift": member.shift, "scale": member.scale, "origin": member.origin}
    parts["ranks"] = None if member.ranks is None else member.ranks.knots
    return weights | {name: torch.as_tensor(part).clone() for name, part in parts.items() if part is not None}


def _member(part: dict[str, Any], own: dict[str, Tensor], d: int, c: int) -> TableNetworks | ImageNetworks | None:
    """The networks that were stored; None if the tensors are not those of networks built like this, from d features to c classes."""
    pictures, t = "network" in part, part["networks"]
    network: Network = network_of(part["network"]) if pictures else MLP(tuple(part["hidden"]))
    shape = tuple(part["pixels"]) if pictures else (part["inputs"],)
    wide = math.prod(shape)
    if wide != d * (2 if "ranks" in own else 1) or min([t, c, *part.get("hidden", ())]) < 1:
        return None
    with torch.device("meta"):  # shapes without memory, whatever numbers the file has
        weights = network(shape, c).state_dict()
    wanted: dict[str, Any] = {f"weight.{name}": ((t, *one.shape), one.dtype) for name, one in weights.items()}
    beside: dict[str, Any] = dict.fromkeys(("shift", "scale"), ((t, 1, wide), torch.float32))
    beside["origin"] = ((wide,), torch.float64)
    if pictures:
        wanted |= dict.fromkeys(("scale", "offset"), ((shape[0],), torch.float32))
        beside = {}
    found = {name: (tuple(one.shape), one.dtype) for name, one in own.items() if name != "ranks"}
    ranks = own.get("ranks")
    whole = ranks is None or (ranks.dim() == 2 and d in ranks.shape and ranks.is_floating_point())
    if not whole or not wanted.items() <= found.items() <= (wanted | beside).items():
        return None
    device = best_device() if pictures else torch.device("cpu")
    modules = [network(shape, c).to(device) for _ in range(t)]
    for i, module in enumerate(modules):
        module.load_state_dict({name: own[f"weight.{name}"][i] for name in weights})
    if pictures:
        return ImageNetworks(Stack(modules), part["network"], shape, own["scale"].to(device), own["offset"].to(device))
    origin = own["origin"].numpy() if "origin" in own else None
    knots = None if ranks is None else Ranks(ranks.numpy())
    return TableNetworks(Stack(modules), own.get("shift"), own.get("scale"), origin, knots)


def _arrays(learner: OtherModel) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(learner, Forest):
        yield from ((name, getattr(learner, name)) for name in _FOREST)
    if isinstance(learner, KernelEnsemble):
        yield "knots", learner.ranks.knots.copy()
        for i, way in enumerate(learner.kernels):
            parts = (way.shift, way.scale, *way.model[:3], np.array([way.model.gamma]))
            yield from ((f"{i}.{name}", np.ascontiguousarray(part)) for name, part in zip(_WAY, parts, strict=True))


def _learner(kind: str, own: dict[str, Tensor], sharpness: float, d: int, c: int) -> OtherModel | None:
    """The learner that was stored; None if the arrays are not those of one from d features to c classes."""
    arrays = {name: tensor.numpy() for name, tensor in own.items()}
    if any(array.dtype != _KINDS.get(name, np.float64) for name, array in arrays.items()):
        return None
    if kind == "trees":
        forest = Forest(**arrays, classes=c) if set(arrays) == set(_FOREST) else None
        return None if forest is None or forest.is_malformed(d, c) else forest
    count = (len(arrays) - 1) // len(_WAY)
    names = ["knots", *(f"{i}.{name}" for i in range(count) for name in _WAY)]
    if not count or set(arrays) != set(names) or arrays["knots"].shape[1:] != (d,):
        return None
    ways = [[arrays[f"{i}.{name}"] for name in _WAY] for i in range(count)]
    wide, inputs = (2 * d,), [int((way[1] != 0).sum()) for way in ways]
    shapes = [[wide, wide, (len(way[2]), k), (len(way[2]), c), (c,), (1,)] for way, k in zip(ways, inputs, strict=True)]
    if [[part.shape for part in way] for way in ways] != shapes:
        return None
    seen = [ScaledKernel(way[0], way[1], KernelModel(way[2], way[3], way[4], float(way[5][0]))) for way in ways]
    return KernelEnsemble(Ranks(arrays["knots"]), tuple(seen), sharpness)
