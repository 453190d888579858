"""The methods, each in a file of its own. To add one: write its file, add its line here, write its reference test."""

from oneof.methods.base import Batch, Memory, Method, Net, Step
from oneof.methods.cavl import CAVL
from oneof.methods.cc import CC
from oneof.methods.clpl import CLPL, CLPLSoftmax
from oneof.methods.lws import LWS, LWSCrossEntropy
from oneof.methods.pico import PiCO
from oneof.methods.proden import BalancedProden, Proden
from oneof.methods.rc import RC
from oneof.methods.rcr import RCR
from oneof.methods.valen import Valen

METHODS: dict[str, type[Method]] = {
    "proden": Proden,
    "balanced_proden": BalancedProden,
    "rc": RC,
    "cc": CC,
    "lws": LWS,
    "lws_ce": LWSCrossEntropy,
    "cavl": CAVL,
    "clpl": CLPL,
    "clpl_softmax": CLPLSoftmax,
    "rcr": RCR,
    "pico": PiCO,
    "valen": Valen,
}

__all__ = [
    "CAVL", "CC", "CLPL", "LWS", "METHODS", "RC", "RCR", "BalancedProden", "Batch", "CLPLSoftmax", "LWSCrossEntropy", "Memory", "Method", "Net", "PiCO",
    "Proden", "Step", "Valen",
]  # fmt: skip
