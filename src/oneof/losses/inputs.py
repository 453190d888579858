"""Checks of what a criterion is built from: the method, the candidate sets and the prior."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneof.candidates.mask import Candidates
from oneof.candidates.prior import check_weights, log_weights
from oneof.candidates.read import empty_message, mask_and_classes
from oneof.methods import METHODS, Method
from oneof.storage.did_you_mean import did_you_mean


def as_method(method: Any) -> Method:
    """Return a method given by its name in `oneof.METHODS`, or as an instance."""
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        raise TypeError(
            f"method must be a name or an instance; got the class {method.__name__}. Give {method.__name__}()."
        )
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a oneof.Method; got {type(method).__name__}.")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.{did_you_mean(method, METHODS)}")
    return METHODS[method]()


def as_mask(candidates: Any) -> Tensor:
    """Return candidate sets as a bool mask [n, c] of its own memory.

    Takes bool and 0/1 masks as tensors, arrays, frames or sparse matrices of torch or SciPy, and what `oneof.read` returns.

    >>> as_mask(torch.tensor([[1.0, 0.0, 1.0]]).to_sparse())
    tensor([[ True, False,  True]])
    """
    if isinstance(candidates, Candidates):
        candidates = candidates.mask
    if isinstance(candidates, (list, tuple)):
        remedy = (
            "oneof.read(sets, classes=...) makes one of lists of labels: its columns are then the network's outputs."
        )
        raise TypeError(f"candidates must be a mask [n, c]; got a {type(candidates).__name__}. {remedy}")
    if isinstance(candidates, Tensor):
        mask = _mask_of_tensor(candidates)
    else:
        values, _ = mask_and_classes(candidates, None)
        mask = torch.tensor(values)
    _check_mask(mask)
    return mask


def _mask_of_tensor(candidates: Tensor) -> Tensor:
    dense = candidates.detach()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    if dense.dtype == torch.bool:
        return dense.clone()
    if dense.dtype in (torch.bfloat16, torch.float16):  # NumPy has no bfloat16
        dense = dense.float()
    values, _ = mask_and_classes(dense.cpu().numpy(), None)
    return torch.tensor(values, device=candidates.device)


def _check_mask(mask: Tensor) -> None:
    if mask.dim() != 2 or len(mask) == 0 or mask.shape[1] < 2:
        raise ValueError(
            f"candidates must be a mask [n, c] of at least one row and two classes; got {list(mask.shape)}."
        )
    empty = ~mask.any(-1)
    if empty.any():
        raise ValueError(empty_message(empty.cpu().numpy()))


def as_log_prior(prior: Any, candidates: Tensor) -> Tensor:
    """Return weights [n, c], such as counts of votes, as a log prior on the candidates; zero elsewhere.

    >>> as_log_prior([[2, 1, 0]], torch.tensor([[True, True, False]])).exp()
    tensor([[1.0000, 0.5000, 1.0000]])
    """
    n, c = candidates.shape
    checked = check_weights(prior, n, c)
    if hasattr(checked, "toarray"):
        checked = checked.toarray()
    numbers = torch.tensor(np.asarray(checked, dtype=np.float64))
    weights = numbers.to(candidates.device, torch.get_default_dtype()) * candidates
    return torch.where(candidates, log_weights(weights, weights.amax(-1, keepdim=True)), 0.0)
