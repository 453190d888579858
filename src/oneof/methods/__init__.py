"""The methods, each in a file of its own. To add one: write its file, add its line here, write its reference test."""

from oneof.methods.base import Memory, Method
from oneof.methods.cavl import CAVL
from oneof.methods.cc import CC
from oneof.methods.clpl import CLPL, CLPLSoftmax
from oneof.methods.lws import LWS, LWSCrossEntropy
from oneof.methods.proden import Proden
from oneof.methods.rc import RC

METHODS: dict[str, type[Method]] = {
    "proden": Proden,
    "rc": RC,
    "cc": CC,
    "lws": LWS,
    "lws_ce": LWSCrossEntropy,
    "cavl": CAVL,
    "clpl": CLPL,
    "clpl_softmax": CLPLSoftmax,
}

__all__ = ["CAVL", "CC", "CLPL", "LWS", "METHODS", "RC", "CLPLSoftmax", "LWSCrossEntropy", "Memory", "Method", "Proden"]
