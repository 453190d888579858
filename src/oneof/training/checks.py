"""What is wrong with images, views, labels or a network: said in one line, before training begins."""

import copy
from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oneof.data.augment.views import Views
from oneof.data.scaling import Scaling
from oneof.methods.base import Method, first
from oneof.networks import Network
from oneof.networks.classifier import dummy_batch, eval_mode
from oneof.purify import Purify


def check_views(views: Any, device: torch.device) -> None:
    """Were these views made for training on this device?"""
    if views is None:
        return
    if not isinstance(views, Views):
        raise TypeError(f"views must be such as oneof.data.augment.views('pop', 'mnist'); got {type(views).__name__}.")
    here, there = torch.empty(0, device=device).device, views.scale.device
    if here != there:
        raise ValueError(
            f"views must be on {here}, where training is; they are on {there}. Give views(..., device='{device}')."
        )
    weights = torch.get_default_dtype()
    mixes = device.type == "cuda" and views.dtype.itemsize <= weights.itemsize  # there networks run in bfloat16
    if views.dtype != weights and not mixes:
        raise ValueError(
            f"views must be {weights} on {here}, as weights are; got {views.dtype}. Give views(..., dtype={weights})."
        )


def check_images(x: Any, views: Views) -> None:
    """Are these images such as the views take? A cast would turn levels of 0 ... 1 into black."""
    kind = str(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype).removeprefix("torch.")
    shape = list(np.shape(x))
    needed = "x must be uint8 images [n, channels, height, width] where views are given; got"
    if kind != "uint8":
        raise TypeError(f"{needed} {kind}. Bring the levels to 0 ... 255, round and convert them.")
    if len(shape) != 4:
        raise ValueError(f"{needed} {shape}. Of grey images [n, height, width] give x[:, None].")
    if shape[1] != views.channels:
        raise ValueError(
            f"views must be for as many channels as x has; they are for {views.channels}, x is {shape}. "
            "Put the channels first, or take the views of another data set."
        )
    if views.size is not None and shape[2:] != [views.size, views.size]:
        raise ValueError(
            f"views must be for images as large as x; they move pixels of {views.size} x {views.size}, x is {shape}. "
            "Resize x, or take the views 'plain'."
        )
    if min(shape[2:]) < views.smallest:
        raise ValueError(
            f"x must have at least {views.smallest} x {views.smallest} pixels for views that crop; got {shape}. "
            "Take the views 'plain'."
        )


def check_like_trained(x: Any, shape: tuple[int, ...]) -> None:
    """Are these rows such as were trained on?"""
    given = list(np.shape(x))
    if tuple(given[1:]) != shape:
        raise ValueError(f"x must be {_form('n', shape)} as in training; got {given}. Bring it to that form.")


def check_method(method: Method, views: Views | None, alters_input: bool) -> None:
    """Are there as many views as the method takes, and does it take inputs that are altered?"""
    name, needed, given = type(method).__name__, method.views, 1 if views is None else views.count
    if given != needed and not (needed == 1 and method.joint_forward):
        advice = "Give the views 'plain'." if needed == 1 else "Give views= for images; tables have one view."
        raise ValueError(f"{name} needs {needed} view{'s' * (needed > 1)} of every example; got {given}. {advice}")
    if alters_input and type(method).step is not Method.step:
        raise ValueError(f"mixup and noise need a method whose loss is one of logits; {name} is not. Set both to 0.")


def check_rule(method: Method, rule: Purify | None) -> None:
    """Check that a rule that resets weights meets a method whose memory is weights of the candidates alone."""
    if rule is None or not rule.resets or method.resettable:
        return
    raise ValueError(
        f"{type(rule).__name__} resets a method's weights and needs a method that remembers weights of the candidates alone, "
        f"such as Proden; got {type(method).__name__}. Use PopRatio."
    )


def check_unscaled(kinds: Sequence[str | Scaling]) -> None:
    """Is no scaling asked for beside views, which would go without?"""
    asked = next((kind for kind in kinds if kind != "none"), None)
    if asked is not None:
        given = repr(asked) if isinstance(asked, str) else "a function"
        raise ValueError(f"scaling must be 'none' where views, which normalise, are given; got {given}. Leave it out.")


def check_labels(labels: Tensor, n: int, classes: int) -> None:
    """Is there a class for every row? A negative one says that it is not known."""
    if labels.shape != (n,):
        raise ValueError(f"labels must have one entry per row of x ({n}); got shape {tuple(labels.shape)}.")
    beyond = (labels >= classes).nonzero()
    if len(beyond):
        row = int(beyond[0])
        raise ValueError(
            f"labels must be class numbers from 0 to {classes - 1}, as candidates have {classes} columns; "
            f"row {row} has {int(labels[row])}. Use -1 where the label is not known."
        )


def probe_network(
    network: Any, method: Method, shape: tuple[int, ...], classes: int, device: torch.device, in_bfloat16: bool
) -> nn.Module:
    """A network as the method trains it, once it gave logits of two blank examples; the global generator is left as it was."""
    _check_builder(network)
    with torch.random.fork_rng(devices=[]):
        module = _built(network, method, shape, classes).to(device)
        try:
            with eval_mode(module), torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16):
                logits: Any = first(module(dummy_batch(module, shape, 2)))
        except Exception as error:  # a user's own code, so anything
            raise ValueError(
                f"network must take examples {_form('b', shape)}; two blank ones gave: {_line(error)} "
                "Build it for the shape that it is told."
            ) from error
    if not isinstance(logits, Tensor):
        form = f"a tensor [b, {classes}], alone or first in a tuple"
        raise TypeError(f"network must give logits, {form}; got {type(logits).__name__}.")
    if logits.shape != (2, classes):
        raise ValueError(
            f"network must give logits [b, {classes}], one for each class; got {list(logits.shape)} for two examples. "
            "Take the number of classes that it is told."
        )
    return module


def _check_builder(network: Any) -> None:
    """Is this what builds modules, not a module, nor the class of what builds them?"""
    needed = "network must be a function of an example's shape and the number of classes that builds a module; got"
    if isinstance(network, nn.Module):
        raise TypeError(f"{needed} a module, {type(network).__name__}. Give Backbone(lambda: ...), or such a function.")
    if isinstance(network, type) and not issubclass(network, nn.Module):
        raise TypeError(f"{needed} the class {network.__name__}. Give {network.__name__}().")
    if not callable(network):
        raise TypeError(f"{needed} {type(network).__name__}.")
    try:
        signature(network).bind((), 0)
    except TypeError as error:
        raise TypeError(f"{needed} one of other arguments: {error}.") from error


def _built(network: Network, method: Method, shape: tuple[int, ...], classes: int) -> nn.Module:
    try:
        module: Any = network(shape, classes)
    except RuntimeError as error:  # a backbone has looked at a blank example
        raise ValueError(f"network must take examples {_form('b', shape)}; building it gave: {_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise TypeError(f"network must build a torch module; it built {type(module).__name__}.")
    missing = next((part for part in ("body", "width", "head") if not hasattr(module, part)), None)
    if missing and type(method).network is not Method.network:
        raise ValueError(
            f"{type(method).__name__} needs a network with body, width and head; {type(module).__name__} has no {missing}. "
            "Give Backbone(lambda: ...) with a body that gives features, or build a Classifier."
        )
    return method.network(module, classes, shape)


def check_last_batch(module: nn.Module, shape: tuple[int, ...], rows: set[int], batch: int) -> None:
    """Can the network learn from the last batch of so many rows, if it is a single one? Batch normalisation cannot."""
    single = next((m for m in sorted(rows) if _last(m, batch) == 1), None)
    if single is None:
        return
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            copy.deepcopy(module)(dummy_batch(module, shape, 1))  # in training mode, where statistics move
    except ValueError as error:
        larger = range(batch + 1, max(rows) + 2)
        better = next((size for size in larger if all(_last(m, size) > 1 for m in rows)), None)
        raise ValueError(
            f"batch must not leave a single row over for a network with batch normalisation; {single} rows in batches of "
            f"{batch} do. {'Give more rows.' if better is None else f'Take batch={better}.'}"
        ) from error


def _last(m: int, batch: int) -> int:
    return m % batch or batch


def _form(axis: str, shape: tuple[int, ...]) -> str:
    return f"[{', '.join([axis, *map(str, shape)])}]"


def _line(error: Exception) -> str:
    """The first line of what torch, or a user's own code, says."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}."
