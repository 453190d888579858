"""Settings as plain values, and their digests: rows that were written once must be found for good."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path

from oneof.paper.experiments import REAL, TABLES
from oneof.paper.obtain import Cell
from oneof.storage.rows import read
from oneof.storage.settings import digest, plain_value

ROWS = Path(__file__).parents[2] / "results" / "tables.jsonl"


@dataclass(frozen=True)
class Rule:
    rate: float = 0.1
    patience: int = field(default=3, metadata={"since": "0.2"})


def test_a_field_added_later_is_left_out_while_it_has_its_default():
    before = make_dataclass("Rule", [("rate", float, 0.1)], frozen=True)
    assert plain_value(Rule(rate=0.2)) == plain_value(before(rate=0.2)) == {"kind": "Rule", "rate": 0.2}
    assert digest(plain_value([Rule()])) == digest(plain_value([before()]))
    assert plain_value(Rule(patience=4)) == {"kind": "Rule", "rate": 0.1, "patience": 4}


def test_the_digest_of_every_row_is_that_of_what_it_carries():
    rows = {row["setting"]: row for row in read(ROWS) if "protocol" in row}
    assert len(rows) > 50
    for setting, row in rows.items():
        assert digest({name: row[name] for name in ("dataset", "method", "purify", "protocol")}) == setting


def test_every_cell_of_the_tables_on_sets_that_were_run_finds_its_rows():
    rows = read(ROWS)
    known, ran = {row["setting"] for row in rows}, {row["dataset"] for row in rows} & set(REAL)
    cells = [
        Cell(name, table.system(system, name), table.protocol(name), ())
        for table in TABLES.values()
        for name in table.datasets
        if name in ran
        for system in table.systems
    ]
    assert ran >= {"lost", "birdsong", "msrcv2"}
    assert [cell for cell in cells if cell.setting not in known] == []
