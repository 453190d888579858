"""Networks for pictures by name: `--architecture` of the command line."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oneof.data.embed import find_cached_weights
from oneof.networks.classifier import Backbone, Classifier, Network
from oneof.networks.lenet import LeNet
from oneof.networks.resnet import ResNet32
from oneof.networks.wide_resnet import WideResNet
from oneof.storage.optional_packages import load_package

NAMES: dict[str, Network] = {"lenet": LeNet(), "wrn": WideResNet(), "resnet32": ResNet32()}


@dataclass(frozen=True)
class Timm:
    """A network that timm knows by name, with a linear head."""

    name: str
    weights: str | None = None  # file of pretrained weights that it starts from; None: weights are random

    def __post_init__(self) -> None:
        timm = load_package("timm", f"network {self.name[:60]!r}, not {', '.join(NAMES)},", extra="vision")
        if not timm.is_model(self.name):  # hf-hub: would be fetched
            known = f"{', '.join(NAMES)}, or a name that timm knows, such as resnet18"
            raise ValueError(f"network must be one of {known}; got {self.name[:60]!r}.")

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        create = load_package("timm", "a network", "create_model")
        start: dict[str, Any] = {"pretrained": False}
        if self.weights is not None:
            start = {"pretrained": True, "pretrained_cfg_overlay": {"file": self.weights}}
        make = partial(create, self.name, num_classes=0, in_chans=shape[0], **start)
        return Backbone(make)(shape, classes)


def network_of(name: str) -> Network:
    """Return the network of a name, with random weights."""
    return NAMES.get(name) or Timm(name)


def network_to_train(name: str) -> Network:
    """Return the network of a name, or of a file of weights that is called after a model of timm.

    A model of timm starts from pretrained weights, if they are in that file or in the cache of the Hugging Face hub; nothing is downloaded.
    """
    if name in NAMES:
        return NAMES[name]
    path = Path(name)
    if path.suffix == ".safetensors" and path.is_file():
        return Timm(path.stem, str(path))
    return Timm(name, find_cached_weights(name))


def is_pretrained(network: Network) -> bool:
    """Return whether a network starts from pretrained weights."""
    return isinstance(network, Timm) and network.weights is not None


def name_of(network: Network | None) -> str:
    """Return the name of a network."""
    if isinstance(network, Timm):
        return network.name
    for name, named in NAMES.items():
        if named == network:
            return name
    raise ValueError(f"network must be one of timm, or one of {', '.join(NAMES)}; got {network!r}.")
