"""Check images, views, labels and networks before training begins; every message is one line."""

import copy
from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oneof.data.augment.views import Views
from oneof.data.scaling import Scaling
from oneof.methods.base import Method, first_output
from oneof.networks import Network
from oneof.networks.classifier import dummy_batch, eval_mode
from oneof.purify import Purify
from oneof.training.trials import Training


def check_views(views: Any, device: torch.device) -> None:
    """Check that views were made for training on this device."""
    if views is None:
        return
    if not isinstance(views, Views):
        raise TypeError(
            f"views must be made by oneof.data.augment.views, such as views('pop', 'mnist'); got {type(views).__name__}."
        )
    training_device = torch.empty(0, device=device).device  # with an index: "cuda" becomes "cuda:0"
    views_device = views.scale.device
    if training_device != views_device:
        raise ValueError(
            f"views must be on {training_device}, where training is; they are on {views_device}. "
            f"Give views(..., device='{device}')."
        )
    dtype = torch.get_default_dtype()
    may_be_smaller = device.type == "cuda"  # where networks run in bfloat16
    if views.dtype == dtype or (may_be_smaller and views.dtype.itemsize <= dtype.itemsize):
        return
    raise ValueError(
        f"views must be {dtype} on {training_device}, as weights are; got {views.dtype}. Give views(..., dtype={dtype})."
    )


def check_images(x: Any, views: Views) -> None:
    """Check that the views can take these images; a cast would turn levels of 0 ... 1 into black."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    kind = str(x.dtype).removeprefix("torch.")
    shape = list(np.shape(x))
    needed = "x must be uint8 images [n, channels, height, width] where views are given; got"
    if kind != "uint8":
        raise TypeError(f"{needed} {kind}. Bring the levels to 0 ... 255, round and convert them.")
    if len(shape) != 4:
        raise ValueError(f"{needed} {shape}. For grey images [n, height, width], give x[:, None].")
    if shape[1] != views.channels:
        raise ValueError(
            f"views must be for as many channels as x has; they are for {views.channels}, x is {shape}. "
            "Put the channels first, or use the views of another data set."
        )
    if views.size is not None and shape[2:] != [views.size, views.size]:
        raise ValueError(
            f"views must be for images as large as x; they move pixels of {views.size} x {views.size}, x is {shape}. "
            "Resize x, or use the views 'plain'."
        )
    if min(shape[2:]) < views.smallest:
        raise ValueError(
            f"x must have at least {views.smallest} x {views.smallest} pixels for views that crop; got {shape}. "
            "Use the views 'plain'."
        )


def check_like_trained(x: Any, shape: tuple[int, ...]) -> None:
    """Check that rows have the shape of those that were trained on."""
    shape_of_x = list(np.shape(x))
    if tuple(shape_of_x[1:]) != shape:
        raise ValueError(f"x must be {_axes('n', shape)} as in training; got {shape_of_x}. Reshape it.")


def check_method(method: Method, views: Views | None, training: Training) -> None:
    """Check that there are as many views as the method takes, and that it can be trained in this way."""
    name = type(method).__name__
    n_views = 1
    if views is not None:
        n_views = views.count
    takes_any_number = method.views == 1 and method.joint_forward
    if n_views != method.views and not takes_any_number:
        if method.views == 1:
            needed = "1 view"
            advice = "Use the views 'plain'."
        else:
            needed = f"{method.views} views"
            advice = "Give views= for images; tables have one view."
        raise ValueError(f"{name} needs {needed} of every example; got {n_views}. {advice}")
    writes_its_step = type(method).step is not Method.step
    if training.alters_input and writes_its_step:
        raise ValueError(f"mixup and noise need a method whose loss is one of logits; {name} is not. Set both to 0.")
    if training.average and writes_its_step:
        raise ValueError(f"average needs a method whose loss is one of logits; {name} is not. Set it to 0.")


def check_rule(method: Method, rule: Purify | None) -> None:
    """Check that a rule that resets weights meets a method whose memory is weights of the candidates alone."""
    if rule is None or not rule.resets or method.resettable:
        return
    raise ValueError(
        f"{type(rule).__name__} resets a method's weights and needs a method that remembers weights of the candidates alone, "
        f"such as Proden; got {type(method).__name__}. Use PopRatio."
    )


def check_unscaled(kinds: Sequence[str | Scaling]) -> None:
    """Check that no scaling is requested beside views, which normalise and would ignore it."""
    for kind in kinds:
        if kind == "none":
            continue
        description = "a function"
        if isinstance(kind, str):
            description = repr(kind)
        raise ValueError(
            f"scaling must be 'none' where views, which normalise, are given; got {description}. Leave it out."
        )


def check_labels(labels: Tensor, n: int, classes: int) -> None:
    """Check that every row has a class; a negative one says that it is not known."""
    if labels.shape != (n,):
        raise ValueError(f"labels must have one entry per row of x ({n}); got shape {tuple(labels.shape)}.")
    too_large = (labels >= classes).nonzero()
    if len(too_large):
        row = int(too_large[0])
        raise ValueError(
            f"labels must be class numbers from 0 to {classes - 1}, as candidates have {classes} columns; "
            f"row {row} has {int(labels[row])}. Use -1 where the label is not known."
        )


def probe_network(
    network: Any, method: Method, shape: tuple[int, ...], classes: int, device: torch.device, in_bfloat16: bool
) -> nn.Module:
    """Build a network as the method trains it, check that it gives logits for two blank examples, and return it.

    The global generator is left as it was.
    """
    _check_builder(network)
    with torch.random.fork_rng(devices=[]):
        module = _build(network, method, shape, classes).to(device)
        examples = dummy_batch(module, shape, 2)
        try:
            with eval_mode(module), torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16):
                logits: Any = first_output(module(examples))
        except Exception as error:  # a user's own code, so anything
            raise ValueError(
                f"network must take examples {_axes('b', shape)}; two blank ones gave: {_first_line(error)} "
                "Build it for the shape in its first argument."
            ) from error
    if not isinstance(logits, Tensor):
        expected = f"a tensor [b, {classes}], alone or first in a tuple"
        raise TypeError(f"network must give logits, {expected}; got {type(logits).__name__}.")
    if logits.shape != (2, classes):
        raise ValueError(
            f"network must give logits [b, {classes}], one for each class; got {list(logits.shape)} for two examples. "
            "Build it for the number of classes in its second argument."
        )
    return module


def _check_builder(network: Any) -> None:
    """Check that the network is a function that builds modules: not a module, nor the class of such functions."""
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


def _build(network: Network, method: Method, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a module, and let the method add what it needs to it."""
    try:
        module: Any = network(shape, classes)
    except RuntimeError as error:  # a backbone runs a blank example to find its width
        raise ValueError(
            f"network must take examples {_axes('b', shape)}; building it gave: {_first_line(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise TypeError(f"network must build a torch module; it built {type(module).__name__}.")
    extends_network = type(method).network is not Method.network
    for attribute in ("body", "width", "head"):
        if extends_network and not hasattr(module, attribute):
            raise ValueError(
                f"{type(method).__name__} needs a network with body, width and head; {type(module).__name__} has no "
                f"{attribute}. Give Backbone(lambda: ...) with a body that gives features, or build a Classifier."
            )
    return method.network(module, classes, shape)


def check_last_batch(module: nn.Module, shape: tuple[int, ...], rows: set[int], batch: int) -> None:
    """Check that no trial ends its epoch with a batch of a single row, if the network cannot learn from one.

    Batch normalisation cannot. `rows` has how many rows trials train on.
    """
    if not _leaves_single_row(rows, batch):
        return
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            copy.deepcopy(module)(dummy_batch(module, shape, 1))  # in training mode, where statistics move
    except ValueError as error:
        n_rows = min(m for m in rows if _last_batch_size(m, batch) == 1)
        advice = "Give more rows."
        for size in range(batch + 1, max(rows) + 2):
            if not _leaves_single_row(rows, size):
                advice = f"Use batch={size}."
                break
        raise ValueError(
            f"batch must not leave a single row over for a network with batch normalisation; {n_rows} rows in batches of "
            f"{batch} do. {advice}"
        ) from error


def _leaves_single_row(rows: set[int], batch: int) -> bool:
    """Return whether any of these numbers of rows ends in a batch of one."""
    return any(_last_batch_size(m, batch) == 1 for m in rows)


def _last_batch_size(m: int, batch: int) -> int:
    """Return how many of m rows are in the last batch."""
    return m % batch or batch


def _axes(first_axis: str, shape: tuple[int, ...]) -> str:
    """Return the shape of a batch as messages write it, such as [b, 3, 32, 32]."""
    return f"[{', '.join([first_axis, *map(str, shape)])}]"


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, by torch or by a user's own code."""
    lines = str(error).splitlines()
    message = ""
    if lines:
        message = lines[0]
    return f"{type(error).__name__}: {message.rstrip('.')}."
