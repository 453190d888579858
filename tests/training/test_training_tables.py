"""Rows of tables of t trials: what is written is read back, and writing to a copy is refused."""

from __future__ import annotations

import pytest
import torch

from oneof.training.tables import flat_index, gather_rows, scatter_rows_


def test_rows_that_were_written_are_read_back():
    table = torch.zeros(2, 5, 3)
    index = flat_index(torch.tensor([[4, 0], [1, 2]]), 5)
    rows = torch.rand(2, 2, 3)
    scatter_rows_(table, index, rows)
    assert torch.equal(gather_rows(table, index), rows)
    assert torch.equal(table[0, 4], rows[0, 0])
    assert table[0, 1:4].sum() == 0


def test_a_table_that_would_be_copied_is_refused():
    """A method's memory that is not contiguous would never change, and nothing would be learned."""
    table = torch.zeros(2, 3, 5).mT
    with pytest.raises(RuntimeError, match="view"):
        scatter_rows_(table, flat_index(torch.tensor([[4], [1]]), 5), torch.rand(2, 1, 3))
