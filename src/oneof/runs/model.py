"""A trained ensemble at rest: networks, trees and regressions as safetensors, everything else as JSON; no pickle, so a model from a stranger runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.encode import Encoding
from oneof.data.ranks import Ranks
from oneof.networks import MLP
from oneof.runs.stored_learners import arrays_of, learner_of
from oneof.selection.learners import Learner, Own, Regression
from oneof.storage.files import written_beside
from oneof.storage.schema import NUMBER, first_misfit
from oneof.training.stack import Stack
from oneof.training.state import Fit
from oneof.version import __version__

FORMAT = 1
"""Of run folders: later versions read every format that a release wrote, and refuse one that they do not know."""
_FACTS = {
    "sha256": str,
    "checksum": str,
    "classes": [str],
    "members": [{"networks": int, "inputs": int, "hidden": [int]}],
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
    },
    "calibration": {"by": str, "reason": str, "rows": int, "accuracy": [[NUMBER]], "scores": [NUMBER]},
}
_CELLS = 2**22  # probabilities in memory at a time, over all networks


class Member(NamedTuple):
    """t networks of one architecture, and how they see features."""

    stack: Stack
    shift: Tensor | None  # [t, 1, d]
    scale: Tensor | None
    origin: NDArray[np.float64] | None  # [d], subtracted in double precision
    ranks: Ranks | None  # put beside the features before all else

    def seen(self, x: NDArray[Any], t: slice = slice(None)) -> Tensor:
        """Features x [n, d] as the networks t see them, [t, n, d or 2d]."""
        wide = x if self.ranks is None else self.ranks(x)
        values = wide if self.origin is None else np.asarray(wide, dtype=np.float64) - self.origin
        features = torch.as_tensor(np.asarray(values, dtype=np.float32))[None]
        if self.shift is None or self.scale is None:
            return features.expand(len(range(self.stack.t)[t]), -1, -1)
        return (features - self.shift[t]) * self.scale[t]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers; none in a linear model."""
        return tuple(_shape(self)["hidden"])

    @property
    def is_linear(self) -> bool:
        return not self.hidden

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Logits [t, n, c] of features x [n, d]."""
        with self.stack.evaluating():
            return self.stack(self.seen(x))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Model:
    """Everything that predicting needs."""

    classes: list[str]  # [c]
    encoding: Encoding  # columns -> features [n, d]
    members: tuple[Member, ...]
    calibration: dict[str, Any]  # as oneof.runs.calibrate makes it
    others: tuple[Learner, ...] = ()  # that are no networks
    shares: tuple[float, ...] = ()  # of each member, then of each other learner; (): every network counts alike

    @property
    def t(self) -> int:
        """Networks."""
        return sum(member.stack.t for member in self.members)

    @property
    def voices(self) -> int:
        """Networks, and other learners, which speak with one voice each."""
        return self.t + len(self.others)

    @property
    def learners(self) -> dict[str, float]:
        """How much each kind of learner counts."""
        names = ["linear" if member.is_linear else "networks" for member in self.members]
        names += [type(one.fitted[0]).__name__ if isinstance(one, Own) else one.kind for one in self.others]
        counted = dict.fromkeys(names, 0.0)
        for name, share in zip(names, self.shares or [member.stack.t / self.t for member in self.members], strict=True):
            counted[name] = round(counted[name] + share, 4)
        return counted

    def blocks(self, x: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """Every network's probabilities [t, rows, c], some rows at a time: all at once would not fit for a million rows."""
        size = max(1, _CELLS // (self.t * max(len(self.classes), 2 * x.shape[1])))
        for start in range(0, len(x), size):
            rows = slice(start, min(start + size, len(x)))
            yield rows, torch.cat([member.logits(x[rows]).softmax(-1) for member in self.members])

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Mean probability [n, c] over the networks and other learners, by their shares."""
        found = np.zeros((len(x), len(self.classes)), dtype=np.float32)
        of_each = self.shares or [member.stack.t / self.t for member in self.members]
        sizes = [member.stack.t for member in self.members]
        weights = [torch.full((t,), share / t) for t, share in zip(sizes, of_each, strict=False)]
        for rows, each in self.blocks(x) if self.members else ():
            found[rows] = torch.einsum("t,tnc->nc", torch.cat(weights), each).numpy()
        for share, learner in zip(of_each[len(sizes) :], self.others, strict=True):
            found += np.float32(share) * learner(x)
        return found

    def check_portable(self) -> None:
        """Refuse a classifier of the user's own, which has no form but a pickle."""
        own = next((type(one.fitted[0]).__name__ for one in self.others if isinstance(one, Own)), None)
        if own is not None:
            raise ValueError(
                f"learners must be oneof's own in a model that is written; {own} is not. Fit without it to save or export."
            )


def member_of(fitted: Fit) -> Member:
    """The networks of a fit, without what training left beside them."""
    return Member(fitted.stack, fitted.shift, fitted.scale, fitted.origin, fitted.ranks)


# --------------------------------------------------------------------------------------------------------- files of a model


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
        "members": [_shape(member) for member in model.members],
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
    misfit = first_misfit(facts, _FACTS) or _contradiction(facts["encoding"], facts["calibration"])
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


def _contradiction(encoding: dict[str, Any], calibration: dict[str, Any]) -> str | None:
    """What the parts of model.json say that cannot be true together."""
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
    if part["inputs"] != d * (2 if "ranks" in own else 1) or min([part["networks"], c, *part["hidden"]]) < 1:
        return False
    with torch.device("meta"):  # shapes without memory, whatever numbers the file has
        weights = MLP(tuple(part["hidden"]))((part["inputs"],), c).state_dict()
    t, wide = part["networks"], part["inputs"]
    wanted = {f"weight.{name}": ((t, *weight.shape), torch.float32) for name, weight in weights.items()}
    beside: dict[str, Any] = dict.fromkeys(("shift", "scale"), ((t, 1, wide), torch.float32))
    beside["origin"] = ((wide,), torch.float64)
    found = {name: (tuple(one.shape), one.dtype) for name, one in own.items() if name != "ranks"}
    ranks = own.get("ranks")
    whole = ranks is None or (ranks.dim() == 2 and d in ranks.shape and ranks.is_floating_point())
    return whole and wanted.items() <= found.items() <= (wanted | beside).items()


def _own(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix and a dot, without these."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}


def _tensors(member: Member) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"weight.{name}", tensor) for name, tensor in member.stack.weights.items())
    for name, part in (("shift", member.shift), ("scale", member.scale)):
        if part is not None:
            yield name, part
    if member.origin is not None:
        yield "origin", torch.from_numpy(member.origin)
    if member.ranks is not None:
        yield "ranks", torch.from_numpy(member.ranks.knots).clone()  # which members share


def _shape(member: Member) -> dict[str, Any]:
    """What a network of the member is built from."""
    layers = [weight for weight in member.stack.weights.values() if weight.dim() == 3]
    return {
        "networks": member.stack.t,
        "inputs": layers[0].shape[2],
        "hidden": [layer.shape[1] for layer in layers[:-1]],
    }


def _member(part: dict[str, Any], own: dict[str, Tensor], c: int) -> Member:
    weights, hidden, width = _own(own, "weight"), tuple(part["hidden"]), part["inputs"]
    modules = [MLP(hidden)((width,), c) for _ in range(part["networks"])]
    for t, module in enumerate(modules):
        module.load_state_dict({name: weight[t] for name, weight in weights.items()})
    origin = own["origin"].numpy() if "origin" in own else None
    ranks = Ranks(own["ranks"].numpy()) if "ranks" in own else None
    return Member(Stack(modules), own.get("shift"), own.get("scale"), origin, ranks)
