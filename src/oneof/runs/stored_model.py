"""A model at rest: networks, trees and regressions as safetensors, everything else as JSON; no pickle, so a model from a stranger runs no code."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.images import LARGEST
from oneof.data.ranks import Ranks
from oneof.networks import MLP, Network
from oneof.networks.named import network_of
from oneof.runs.model import Member, Model, PictureMember
from oneof.runs.stored_learners import arrays_of, learner_of
from oneof.selection.learners import Regression
from oneof.storage.files import written_beside
from oneof.storage.schema import NUMBER, first_misfit
from oneof.training.device import best_device
from oneof.training.stack import Stack
from oneof.version import __version__

FORMAT = 1
"""Of run folders: later versions read every format that a release wrote, and refuse one that they do not know."""
_FACTS = {
    "sha256": str,
    "checksum": str,
    "classes": [str],
    "members": [dict],  # as _MLPS or _ON_PICTURES says
    "others": [{"trees", "kernel"}],
    "shares": [NUMBER],
    "sharpness": NUMBER,
    "encoding": {
        "numbers": [str],
        "fills": [NUMBER],
        "gaps": [str],
        "categories": {str: [str]},
        "embedded": [{"column": str, "kind": {"text", "image"}, "model": str, "width": int}],
        "dates": [str],
        "texts": [{"column": str, "terms": [str]}],
        "pixels": [{"column": str, "channels": int, "side": int}],
    },
    "calibration": {"by": str, "reason": str, "rows": int, "accuracy": [[NUMBER]], "scores": [NUMBER]},
}
_MLPS = {"networks": int, "inputs": int, "hidden": [int]}
_ON_PICTURES = {"networks": int, "network": str, "pixels": [int]}


def save_model(model: Model, folder: Path) -> None:
    """Write model.safetensors, then model.json, which holds the checksums of the first and of itself."""
    model.check_portable()
    tensors = {
        f"{i}.{name}": tensor.detach().cpu().contiguous()
        for i, member in enumerate(model.members)
        for name, tensor in _tensors(member)
    }
    texts = {f"texts.{name}": torch.from_numpy(array) for name, array in model.encoding.arrays.items()}
    arrays = {f"{one.kind}.{name}": torch.from_numpy(part) for one in model.others for name, part in arrays_of(one)}
    content = save(tensors | texts | arrays)
    facts = {
        "format": FORMAT,
        "oneof": __version__,
        "sha256": hashlib.sha256(content).hexdigest(),
        "classes": model.classes,
        "members": [member.shape for member in model.members],
        "others": [one.kind for one in model.others],
        "shares": list(model.shares),
        "sharpness": next((one.sharpness for one in model.others if isinstance(one, Regression)), 1.0),
        "encoding": model.encoding.to_json(),
        "calibration": model.calibration,
    }
    facts["checksum"] = checksum(facts)
    with written_beside(folder / "model.safetensors") as file:
        file.write(content)
    with written_beside(folder / "model.json") as file:
        file.write(json.dumps(facts, ensure_ascii=False, indent=1).encode())


def checksum(facts: dict[str, Any]) -> str:
    """Of everything else that model.json says."""
    said = {name: part for name, part in facts.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def load_model(folder: Path) -> Model:
    """Read a model back; a file that is missing, damaged or of another format is refused."""
    try:
        facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        content = (folder / "model.safetensors").read_bytes()
        tensors = load(content)
    except (FileNotFoundError, ValueError, LookupError, RuntimeError, OverflowError, SafetensorError) as error:
        raise ValueError(
            f"{folder} must hold a whole model; model.json or model.safetensors is missing or damaged. Fit it again."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(
            f"{folder} must hold a model of format {FORMAT}; it has another. Fit it again with this version."
        )
    misfit = first_misfit(facts, _FACTS) or _contradiction(facts)
    if misfit:
        raise ValueError(f"{folder}/model.json must be the file that was written; {misfit}. Fit it again.")
    sums = {
        "model.json": (checksum(facts), "checksum"),
        "model.safetensors": (hashlib.sha256(content).hexdigest(), "sha256"),
    }
    for name, (found, written) in sums.items():
        if found != facts[written]:
            raise ValueError(f"{folder}/{name} must be the file that was written; it was changed. Fit it again.")
    return _model(facts, tensors, folder)


def _contradiction(facts: dict[str, Any]) -> str | None:
    """What the parts of model.json say that cannot be true together."""
    encoding, calibration = facts["encoding"], facts["calibration"]
    for i, part in enumerate(facts["members"]):
        misfit = first_misfit(part, _ON_PICTURES if encoding["pixels"] else _MLPS, f"members[{i}]")
        if misfit:
            return misfit
    pixels = [[one["channels"], one["side"], one["side"]] for one in encoding["pixels"]]
    if pixels and any([part["pixels"]] != pixels or pixels[0][1] > LARGEST for part in facts["members"]):
        return f"members.pixels must be those of encoding.pixels, of {LARGEST} a side at most"
    if len(encoding["fills"]) != len(encoding["numbers"]):
        return f"encoding.fills must be {len(encoding['numbers'])} numbers, not {len(encoding['fills'])}"
    if not set(encoding["gaps"]) <= set(encoding["numbers"]):
        return "encoding.gaps must be among encoding.numbers"
    if not all(encoding["categories"].values()):
        return "encoding.categories must have a value for every column"
    if not all(part["terms"] and len(set(part["terms"])) == len(part["terms"]) for part in encoding["texts"]):
        return "encoding.texts must have terms, each once"
    if any(len(pair) != 2 for pair in calibration["accuracy"]):
        return "calibration.accuracy must be pairs"
    if calibration["rows"] and not calibration["scores"]:
        return "calibration.scores must not be empty"
    return None


def _model(facts: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> Model:
    encoding, c = _encoding(facts["encoding"], _own(tensors, "texts"), folder), len(facts["classes"])
    own = [_own(tensors, str(i)) for i in range(len(facts["members"]))]
    alike = [_describes(part, own[i], len(encoding.names), c) for i, part in enumerate(facts["members"])]
    others = [
        learner_of(kind, _own(tensors, kind), facts["sharpness"], len(encoding.names), c) for kind in facts["others"]
    ]
    stored = sum(map(len, own)) + len(encoding.arrays) + sum(len(_own(tensors, kind)) for kind in facts["others"])
    counts = (0, len(alike) + len(others)) if alike and not others else (len(alike) + len(others),)
    if (
        not alike + others
        or not all(alike)
        or None in others
        or stored != len(tensors)
        or len(facts["shares"]) not in counts
    ):
        raise ValueError(
            f"{folder}/model.json must describe model.safetensors; the networks there are others. Fit it again."
        )
    members = [_member(part, parts, c) for part, parts in zip(facts["members"], own, strict=True)]
    known = tuple(one for one in others if one is not None)
    return Model(facts["classes"], encoding, tuple(members), facts["calibration"], known, tuple(facts["shares"]))


def _encoding(plain: dict[str, Any], texts: dict[str, Tensor], folder: Path) -> Encoding:
    """The encoding, if the arrays of its texts are such as learning makes them."""
    for i, part in enumerate(plain["texts"]):
        idf, axes = (texts.get(f"{i}.{name}", torch.empty(0)) for name in ("idf", "axes"))
        wanted = ((len(part["terms"]),), torch.float32, (len(part["terms"]), axes.shape[-1]), torch.float16)
        if (idf.shape, idf.dtype, axes.shape, axes.dtype) != wanted or not (idf.sum() + axes.sum()).isfinite():
            raise ValueError(
                f"{folder}/model.json must describe model.safetensors; the texts there are others. Fit it again."
            )
    return Encoding.from_json(plain, texts)


def _describes(part: dict[str, Any], own: dict[str, Tensor], d: int, c: int) -> bool:
    """Do networks built like this, from d features to c classes, have weights of the shapes that are stored?"""
    network, shape = _built_from(part)
    wide, t = math.prod(shape), part["networks"]
    if wide != d * (2 if "ranks" in own else 1) or min([t, c, *part.get("hidden", ())]) < 1:
        return False
    with torch.device("meta"):  # shapes without memory, whatever numbers the file has
        weights = network(shape, c).state_dict()
    wanted: dict[str, Any] = {f"weight.{name}": ((t, *one.shape), one.dtype) for name, one in weights.items()}
    beside: dict[str, Any] = dict.fromkeys(("shift", "scale"), ((t, 1, wide), torch.float32))
    beside["origin"] = ((wide,), torch.float64)
    if "network" in part:
        wanted |= dict.fromkeys(("scale", "offset"), ((shape[0],), torch.float32))
        beside = {}
    found = {name: (tuple(one.shape), one.dtype) for name, one in own.items() if name != "ranks"}
    ranks = own.get("ranks")
    whole = ranks is None or (ranks.dim() == 2 and d in ranks.shape and ranks.is_floating_point())
    return whole and wanted.items() <= found.items() <= (wanted | beside).items()


def _built_from(part: dict[str, Any]) -> tuple[Network, tuple[int, ...]]:
    if "network" in part:
        return network_of(part["network"]), tuple(part["pixels"])
    return MLP(tuple(part["hidden"])), (part["inputs"],)


def _own(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix and a dot, without these."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}


def _tensors(member: Member | PictureMember) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"weight.{name}", tensor) for name, tensor in member.stack.whole.items())
    if isinstance(member, PictureMember):
        yield from (("scale", member.scale), ("offset", member.offset))
        return
    for name, part in (("shift", member.shift), ("scale", member.scale)):
        if part is not None:
            yield name, part
    if member.origin is not None:
        yield "origin", torch.from_numpy(member.origin)
    if member.ranks is not None:
        yield "ranks", torch.from_numpy(member.ranks.knots).clone()  # which members share


def _member(part: dict[str, Any], own: dict[str, Tensor], c: int) -> Member | PictureMember:
    weights, device = _own(own, "weight"), best_device() if "network" in part else torch.device("cpu")
    network, shape = _built_from(part)
    modules = [network(shape, c).to(device) for _ in range(part["networks"])]
    for t, module in enumerate(modules):
        module.load_state_dict({name: weight[t] for name, weight in weights.items()})
    if "network" in part:
        seen = (own[name].to(device) for name in ("scale", "offset"))
        return PictureMember(Stack(modules), part["network"], shape, *seen)
    origin = own["origin"].numpy() if "origin" in own else None
    ranks = Ranks(own["ranks"].numpy()) if "ranks" in own else None
    return Member(Stack(modules), own.get("shift"), own.get("scale"), origin, ranks)
