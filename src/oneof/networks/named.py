"""Networks for pictures by name: `--architecture` of the command line."""

from dataclasses import dataclass
from functools import partial

from oneof.networks.classifier import Backbone, Classifier, Network
from oneof.networks.lenet import LeNet
from oneof.networks.resnet import ResNet32
from oneof.networks.wide_resnet import WideResNet
from oneof.storage.optional_packages import load_package

NAMES: dict[str, Network] = {"lenet": LeNet(), "wrn": WideResNet(), "resnet32": ResNet32()}


@dataclass(frozen=True)
class Timm:
    """A network that timm knows by name, with a linear head, trained from drawn weights."""

    name: str

    def __post_init__(self) -> None:
        timm = load_package("timm", f"network {self.name[:60]!r}, not {', '.join(NAMES)},")
        if not timm.is_model(self.name):  # hf-hub: would be fetched
            known = f"{', '.join(NAMES)}, or a name that timm knows, such as resnet18"
            raise ValueError(f"network must be one of {known}; got {self.name[:60]!r}.")

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        create = load_package("timm", "a network", "create_model")
        make = partial(create, self.name, pretrained=False, num_classes=0, in_chans=shape[0])
        return Backbone(make)(shape, classes)


def network_of(name: str) -> Network:
    """Return the network of a name."""
    return NAMES.get(name) or Timm(name)


def name_of(network: Network | None) -> str:
    """Return the name of a network."""
    if isinstance(network, Timm):
        return network.name
    for name, named in NAMES.items():
        if named == network:
            return name
    raise ValueError(f"network must be one of timm, or one of {', '.join(NAMES)}; got {network!r}.")
