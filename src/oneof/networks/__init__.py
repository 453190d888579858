"""Networks: anything that, called with the shape of an example and the number of classes, builds a module."""

from oneof.networks.classifier import Backbone, Classifier, Network
from oneof.networks.lenet import LeNet
from oneof.networks.resnet import ResNet32
from oneof.networks.tables import MLP, GeneratorMLP, Linear
from oneof.networks.wide_resnet import WideResNet

__all__ = ["MLP", "Backbone", "Classifier", "GeneratorMLP", "LeNet", "Linear", "Network", "ResNet32", "WideResNet"]
