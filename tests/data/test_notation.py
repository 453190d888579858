"""Numbers and dates as people write them: what is read, what is refused, and that new rows are read in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import ColumnRoles
from oneof.data.table import Features, read_columns, read_features, read_table
from oneof.data.written import days_of_date, split_number

RNG = np.random.default_rng(0)
ROWS = 120
VALUES = RNG.normal(50, 10, ROWS).round(2)
DAYS = pd.Timestamp("2021-01-01") + pd.to_timedelta(RNG.integers(0, 1000, ROWS), "D")
MOMENTS = DAYS + pd.to_timedelta(RNG.integers(0, 1440, ROWS), "min")


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def texts(write: Callable[[float], str], values: Any = VALUES) -> list[str]:
    return [write(value) for value in values]


def with_gaps(cells: list[str], gap: str) -> list[str]:
    return [gap if row % 9 == 0 else cell for row, cell in enumerate(cells)]


NUMBERS = {
    "unit": (texts("{:.2f} kg".format), VALUES),
    "unit without space": (texts("{:.2f}cm".format), VALUES),
    "per cent": (texts("{:.2f} %".format), VALUES),
    "long unit": (texts("{:.2f} Years".format), VALUES),
    "currency": (texts(lambda value: f"${100 * value:,.2f}"), 100 * VALUES),
    "currency after the sign": (texts(lambda value: f"-$ {100 * value:,.2f}"), -100 * VALUES),
    "currency code": (texts("EUR {:.2f}".format), VALUES),
    "decimal comma": (texts(lambda value: f"{value:.2f}".replace(".", ",")), VALUES),
    "German thousands": (texts(lambda value: german(100 * value)), 100 * VALUES),
    "German currency": (texts(lambda value: f"{german(100 * value)} €"), 100 * VALUES),
    "thousands": (texts(lambda value: f"{round(1000 * value):,}"), 1000 * VALUES),
    "thousands with spaces": (texts(lambda value: f"{round(1000 * value):,}".replace(",", " ")), 1000 * VALUES),
    "brackets": (texts("({:.2f})".format), -VALUES),
    "approximately": (texts("~{:.2f}".format), VALUES),
    "two units": ([f"{v:.2f} kg" if i % 3 else f"{1000 * v:.0f} g" for i, v in enumerate(VALUES)], VALUES),
    "multipliers": ([f"${v:.2f}M" if i % 3 else f"${1000 * v:.0f}K" for i, v in enumerate(VALUES)], 1e6 * VALUES),
    "ordinals": ([f"{i * i + 1}{'st' if i % 10 == 0 else 'th'}" for i in range(ROWS)], np.arange(ROWS) ** 2 + 1),
    "at least": ([f"{i % 60 + 1}+" for i in range(ROWS)], np.arange(ROWS) % 60 + 1),
    "padded": (texts(" {:.2f} ".format), VALUES),
}


@pytest.mark.parametrize(("cells", "values"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_are_read_however_they_are_written(cells: list[str], values: np.ndarray) -> None:
    features = read_features(pd.DataFrame({"w": cells}))
    assert features.uses["w"].use == "number"
    np.testing.assert_allclose(features.columns.numbers[:, 0], values, rtol=1e-5)


@pytest.mark.parametrize(
    "gap", ["?", "-", "--", "None", "n.a.", "missing", "Unknown", ".", "k. A.", "#DIV/0!", "NA", "", "much"]
)
@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_texts_that_mean_a_gap_among_numbers_are_gaps(
    gap: str, form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = texts("{:.2f}".format)
    n_gaps = 14
    if gap == "much":  # an unknown text is read as a gap where it is rare
        cells[7] = gap
        n_gaps = 1
    else:
        cells = with_gaps(cells, gap)
    features = read_features(in_form(pd.DataFrame({"w": cells}), form, tmp_path))
    assert features.uses["w"].use == "number"
    assert np.isnan(features.columns.numbers[:, 0]).sum() == n_gaps
    assert ("'much'" in caplog.text) == (gap == "much")


def in_form(frame: pd.DataFrame, form: str, folder: Path) -> Any:
    if form == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"
    if form == "parquet":
        frame.to_parquet(folder / "t.parquet")
        return folder / "t.parquet"
    return frame


DATES = {
    "German": "%d.%m.%Y",
    "German with time": "%d.%m.%Y %H:%M",
    "American": "%m/%d/%Y",
    "American with time": "%m/%d/%Y %I:%M %p",
    "British": "%d/%m/%Y",
    "year first": "%Y/%m/%d",
    "short year": "%d.%m.%y",
    "named month": "%b %d, %Y",
    "mail": "%a, %d %b %Y %H:%M:%S GMT",
    "time zone": "%d.%m.%Y %H:%M +0000",
}


@pytest.mark.parametrize("pattern", DATES.values(), ids=DATES)
@pytest.mark.parametrize("form", ["csv", "frame"])
def test_dates_are_read_however_they_are_written(pattern: str, form: str, tmp_path: Path) -> None:
    moments = MOMENTS if "%M" in pattern else DAYS
    cells = with_gaps(list(moments.strftime(pattern)), "?")
    features = read_features(in_form(pd.DataFrame({"when": cells}), form, tmp_path))
    assert features.uses["when"].use == "date"
    expected = (moments - pd.Timestamp(0)) / pd.Timedelta(days=1)
    is_gap = np.arange(ROWS) % 9 == 0
    days = features.columns.numbers[:, 0]
    assert np.isnan(days[is_gap]).all()
    np.testing.assert_allclose(days[~is_gap], expected[~is_gap], atol=1e-2)


def test_iso_dates_with_another_word_for_a_gap_are_dates(tmp_path: Path) -> None:
    frame = pd.DataFrame({"when": with_gaps(list(DAYS.strftime("%Y-%m-%d")), "-")})
    for form in ("csv", "parquet", "frame"):
        assert read_features(in_form(frame, form, tmp_path)).uses["when"].use == "date"


@pytest.mark.parametrize("pattern", ["%H:%M", "%H:%M:%S", "%I:%M %p"])
@pytest.mark.parametrize("form", ["csv", "frame"])
def test_times_of_day_are_hours(pattern: str, form: str, tmp_path: Path) -> None:
    features = read_features(in_form(pd.DataFrame({"at": MOMENTS.strftime(pattern)}), form, tmp_path))
    assert features.uses["at"].use == "number"
    np.testing.assert_allclose(features.columns.numbers[:, 0], MOMENTS.hour + MOMENTS.minute / 60, atol=1e-4)


OTHERS = {
    "identifiers": [f"AB-{row:04}" for row in range(ROWS)],
    "codes": [f"{row:04}" for row in range(ROWS)],
    "identifiers after a name": [f"item {row}" for row in range(ROWS)],
    "addresses": [f"10.0.{row}.1" for row in range(ROWS)],
    "versions": [f"1.{row % 40}.{row // 40 + 10}" for row in range(ROWS)],
    "telephones": [f"+49 30 {row + 100_000}" for row in range(ROWS)],
    "codes with a letter": [f"{4711 + row * row}X" for row in range(ROWS)],
    "coordinates": [f"{value}, {value}" for value in VALUES],
    "several units": [f"{value} {'kg' if row % 2 else 'apples'}" for row, value in enumerate(VALUES)],
}


@pytest.mark.parametrize("cells", OTHERS.values(), ids=OTHERS)
def test_what_is_not_surely_a_number_is_left_out(cells: list[str], caplog: pytest.LogCaptureFixture) -> None:
    features = read_features(pd.DataFrame({"w": cells, "x": VALUES}))
    assert "left out" in caplog.text
    assert features.uses["w"].use == "left out"


def test_few_values_with_a_unit_stay_a_category() -> None:
    features = read_features(pd.DataFrame({"w": ["10 GB", "20 GB", "40 GB"] * 40}))
    assert features.uses["w"].use == "category"


def test_different_units_are_named(caplog: pytest.LogCaptureFixture) -> None:
    read_features(pd.DataFrame({"w": OTHERS["several units"], "x": VALUES}))
    assert all(word in caplog.text for word in ("'w'", "'kg'", "'apple'", "one unit"))


def test_the_order_of_day_and_month_is_said_where_it_is_not_known() -> None:
    frame = pd.DataFrame({"when": [f"{1 + row % 12}/{1 + row % 11}/2024" for row in range(ROWS)]})
    assert "other way round" in read_features(frame).uses["when"].reason


def test_impossible_dates_are_none() -> None:
    assert days_of_date("31.02.2024", "dmy") is None
    assert days_of_date("1.2.10", "dmy") is None  # a version
    assert split_number("12-15") is None


def encoding_of(features: Features) -> Encoding:
    encoding = learn_encoding(features.columns, features.roles)
    return Encoding.from_json(json.loads(json.dumps(encoding.to_json())), encoding.arrays)


def test_new_rows_are_read_as_in_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame(
        {
            "w": with_gaps(texts("{:.2f} kg".format), "?"),
            "when": DAYS.strftime("%d/%m/%Y"),
            "code": with_gaps([str(value) for value in VALUES], "-999"),
            "x": VALUES,
        }
    )
    encoding = encoding_of(read_features(frame))
    assert "-999 is read as a missing value" in caplog.text
    expected = encoding.transform(read_columns(frame, encoding.roles))
    for form in ("csv", "parquet"):
        rows = in_form(frame, form, tmp_path)
        np.testing.assert_array_equal(encoding.transform(read_columns(rows, encoding.roles)), expected)
    # One row does not show in which order the date is written, and may have no unit.
    row = pd.DataFrame({"w": ["12"], "when": ["03/04/2024"], "code": ["-999"], "x": [1.0]})
    numbers = read_columns(row, encoding.roles).numbers[0]
    assert numbers[:2].tolist() == [12, (pd.Timestamp("2024-04-03") - pd.Timestamp(0)).days]
    assert np.isnan(numbers[2])
    plain = row.assign(w=[12.0], when=pd.to_datetime(["2024-04-03"]), code=[-999.0])
    np.testing.assert_array_equal(read_columns(plain, encoding.roles).numbers[0], numbers)


def test_a_cell_of_new_rows_that_is_written_otherwise_is_named(tmp_path: Path) -> None:
    encoding = encoding_of(read_features(pd.DataFrame({"w": texts("{:.2f} kg".format)})))
    new = in_form(pd.DataFrame({"w": ["1 kg", "2 g", "3 apples"]}), "csv", tmp_path)
    with pytest.raises(ValueError, match=r"t\.csv, column 'w', row 2 is '3 apples'"):
        read_columns(new, encoding.roles)


@pytest.mark.parametrize(
    ("values", "placeholder"),
    [
        ([-999, 3, 4, 5], -999),
        ([-99, 300, 4, 5], -99),
        ([999, 3, 4, 27], 999),
        ([-999, -900, 4, 5000], None),
        ([999, 990, 800, 10], None),
        ([99999, 41310, 0, 5], None),
        ([-1, 3, 4, 5], None),
        ([-999, 7, 7, 7], None),
    ],
)
def test_numbers_that_stand_for_a_gap_are_found(
    values: list[int], placeholder: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    frame = pd.DataFrame({"w": values * 10, "x": VALUES[:40]})
    features = read_features(frame)
    assert dict(features.roles.placeholders).get("w") == placeholder
    assert np.isnan(features.columns.numbers[:, 0]).sum() == (0 if placeholder is None else 10)
    assert ("'w'" in caplog.text) == (placeholder is not None)
    if placeholder is not None:
        assert str(placeholder) in features.uses["w"].reason


def test_a_column_requested_by_name_keeps_its_numbers() -> None:
    table = pa.table({"w": [-999, 3, 4, 5] * 10, "candidates": ["a", "b"] * 20})
    assert read_table(table, ColumnRoles(features=("*", "w"))).roles.placeholders == ()


def test_moments_within_a_day_are_told_apart() -> None:
    seconds = RNG.permutation(1000)
    moments = pd.Timestamp("2024-05-01 12:00") + pd.to_timedelta(seconds, "s")
    frame = pd.DataFrame({"when": moments, "ms": moments.as_unit("ms").astype("int64")})
    features = read_features(frame)
    numbers = features.columns.numbers
    for j, unit in enumerate((86_400, 1e-3)):
        np.testing.assert_allclose(numbers[:, j] * unit, seconds, atol=0.01)
    encoding = encoding_of(features)
    np.testing.assert_array_equal(read_columns(frame[5:6], encoding.roles).numbers, numbers[5:6])


@pytest.mark.parametrize("numbers", [np.arange(ROWS, 0, -1), 10 * np.arange(ROWS) + 5])
def test_numbers_of_the_rows_in_any_steps_are_left_out(numbers: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    features = read_features(pd.DataFrame({"nr": numbers, "x": VALUES}))
    assert "nr" in caplog.text
    assert features.uses["nr"].reason == "numbers of the rows"


def test_columns_of_pandas_of_every_type_are_read(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame(
        {
            "sparse": pd.arrays.SparseArray(np.where(VALUES > 60, VALUES, 0)),
            "period": pd.PeriodIndex(DAYS, freq="M"),
            "duration": pd.to_timedelta(VALUES, "h"),
            "time": MOMENTS.time,
            "decimal": [Decimal(str(value)) for value in VALUES],
            "huge": [10**25 + int(1e22 * value) for value in VALUES],
            "no date": pd.Series([pd.NaT] * ROWS),
            "complex": VALUES + 1j,
        }
    )
    features = read_features(frame)
    assert all(name in caplog.text for name in ("no date", "complex"))
    uses = {name: use.use for name, use in features.uses.items()}
    numbers = dict.fromkeys(("sparse", "duration", "time", "decimal", "huge"), "number")
    assert uses == {**numbers, "period": "date", "no date": "left out", "complex": "left out"}
    np.testing.assert_allclose(features.columns.numbers[:, features.columns.names.index("duration")], VALUES, rtol=1e-5)


def test_texts_in_views_are_read() -> None:
    table = pa.table({"hue": pa.array(["red", "blue"] * 20, pa.string_view()), "x": np.arange(40) % 7})
    assert read_features(table).uses["hue"].use == "category"


def test_a_gap_below_the_first_block_of_a_csv_is_a_gap(tmp_path: Path) -> None:
    lines = ["x,candidates", *(f"{row % 977}.5,a|b" for row in range(150_000)), "?,a", "-,b"]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    assert np.isnan(read_table(tmp_path / "t.csv").columns.numbers[-2:]).all()


def test_a_cell_that_is_no_number_is_named_beside_columns_of_truths(tmp_path: Path) -> None:
    lines = ["yes,code,candidates", *("TRUE,0x1f,a|b" for _ in range(30))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"'code', row 0 is '0x1f'"):
        read_table(tmp_path / "t.csv")


def test_separators_at_the_end_of_every_line_make_no_column(tmp_path: Path) -> None:
    lines = ["x,candidates,,,", *(f"{value},a|b,,," for value in VALUES)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    table = read_table(tmp_path / "t.csv")
    assert table.columns.names == ["x"]
    assert table.left_out == {"": "blank"}
