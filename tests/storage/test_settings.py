"""Settings as plain values, and their digests: rows that were written once must be found for good."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path

from oneof.data.roles import ColumnRoles
from oneof.data.scaling import RawAndRankScaling
from oneof.storage.rows import read
from oneof.storage.settings import digest, from_serializable, stored_kind, to_serializable
from oneof_paper.compute_rows import Cell
from oneof_paper.experiments import ABOVE_WIDE, REAL, TABLES, WIDE, wide_systems

RESULTS = Path(__file__).parents[2] / "results"
ROWS = read(RESULTS / "tables.jsonl")
for path in RESULTS.glob("wide_grid_*.jsonl"):
    ROWS += read(path)


@dataclass(frozen=True)
class Rule:
    rate: float = 0.1
    patience: int = field(default=3, metadata={"since": "0.2"})


def test_a_field_added_later_is_left_out_while_it_has_its_default():
    before = make_dataclass("Rule", [("rate", float, 0.1)], frozen=True)
    assert to_serializable(Rule(rate=0.2)) == to_serializable(before(rate=0.2)) == {"kind": "Rule", "rate": 0.2}
    assert digest(to_serializable([Rule()])) == digest(to_serializable([before()]))
    assert to_serializable(Rule(patience=4)) == {"kind": "Rule", "rate": 0.1, "patience": 4}


def test_the_digest_of_every_row_is_that_of_what_it_carries():
    rows = {row["setting"]: row for row in ROWS if "protocol" in row}
    assert len(rows) > 50
    for setting, row in rows.items():
        names = [name for name in ("dataset", "method", "purify", "protocol", "variants") if name in row]
        assert digest({name: row[name] for name in names}) == setting


def test_every_row_of_a_real_set_is_found_by_a_cell_of_a_table():
    settings = {row["setting"] for row in ROWS if row["dataset"] in REAL}
    cells = set()
    for table in TABLES.values():
        for name in set(table.datasets) & set(REAL):
            for system in table.systems:
                cells.add(Cell(name, table.system(system, name), table.protocol(name), ()).setting)
    for name in REAL:
        for system in wide_systems():
            cells.add(Cell(name, system, WIDE, ()).setting)
            cells.add(Cell(name, system, ABOVE_WIDE, ()).setting)
    assert len(settings) >= 57  # a system that was added later may have no rows yet; no row is lost
    assert settings - cells == set()


def test_a_renamed_class_is_stored_under_its_earlier_name() -> None:
    spec = {
        "roles": to_serializable(ColumnRoles(gold="truth")),
        "scaling": to_serializable(RawAndRankScaling("feature")),
    }
    assert spec["roles"]["kind"] == "Roles"
    assert spec["scaling"] == {"kind": "Beside", "raw": "feature", "ranks": True}
    assert from_serializable(spec["roles"], {stored_kind(ColumnRoles): ColumnRoles}) == ColumnRoles(gold="truth")
