"""JSON from outside: what no file of ours holds is refused in one line."""

from __future__ import annotations

import pytest

from oneof.storage.schema import NUMBER, find_schema_error
from oneof.storage.strict_json import parse_json


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "1e999", '{"a": -1e400}', '"\\ud800"', '{"\\udfff": 1}', "[" * 100_000, "", "{", b"\xff", b'"\xed\xa0\x80"'],
)  # fmt: skip
def test_what_no_file_holds_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError) as raised:
        parse_json(text)
    assert "\n" not in str(raised.value)


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(b'["\\ud83e\\udd8a", 1.5, 7, "\\\\ud800"]') == ["\N{FOX FACE}", 1.5, 7, "\\ud800"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30, -(10**30)])
def test_a_number_must_fit_into_64_bits(value: float) -> None:
    assert find_schema_error({"n": value}, {"n": NUMBER}) is not None
    assert find_schema_error({"n": 2**64 - 1}, {"n": NUMBER}) is None
