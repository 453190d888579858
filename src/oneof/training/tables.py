"""Read and write rows of tensors [t, n, ...] that hold something for every row of t trials: candidates, memory, sums.

The trial axis and the row axis are flattened to one, so that one index serves all trials.
"""

import torch
from torch import Tensor


def flat_index(rows: Tensor, n: int) -> Tensor:
    """Return where rows [t, b] of tensors [t, n, ...] are once both axes are flattened to one; it serves every such tensor."""
    first_rows = torch.arange(0, rows.shape[0] * n, n, device=rows.device)
    return rows + first_rows[:, None]


def gather_rows(values: Tensor, index: Tensor) -> Tensor:
    """Return the rows of values [t, n, ...] at a `flat_index` [t, b], as [t, b, ...].

    >>> gather_rows(torch.arange(6).view(2, 3, 1), flat_index(torch.tensor([[2, 0], [1, 1]]), 3)).squeeze(-1)
    tensor([[2, 0],
            [4, 4]])
    """
    flat = values.flatten(0, 1).index_select(0, index.reshape(-1))
    return flat.view(*index.shape, *values.shape[2:])


def scatter_rows_(values: Tensor, index: Tensor, rows: Tensor) -> None:
    """Write rows [t, b, ...] to contiguous values [t, n, ...] at a `flat_index` [t, b], in place."""
    flat = values.view(-1, *values.shape[2:])  # not `flatten`, which would write to a copy of others
    flat.index_copy_(0, index.reshape(-1), rows.flatten(0, 1))
