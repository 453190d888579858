"""Messages of the operating system are told without their number."""

from __future__ import annotations

import pytest

from oneof.storage.printable import describe_error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.csv"), "a.csv: no such file or directory"),
        (OSError(18, "Invalid cross-device link", "a", None, "b"), "a -> b: invalid cross-device link"),
        (OSError(28, "No space left on device"), "no space left on device"),
        (OSError("the folder is in use"), "the folder is in use"),
        (ValueError("lr must be positive"), "lr must be positive"),
    ],
)
def test_an_error_is_described_without_its_number(error, message):
    assert describe_error(error) == message
