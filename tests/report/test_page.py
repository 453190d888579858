"""The page of a run: its counts are those of plain loops, every string of the data is text, and it stays small."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commands import call
from markupsafe import Markup
from run_folder import NASTY, write_run
from small_table import frame

import oneof.cli.report
import oneof.report
import oneof.review.cards
from oneof.cli.report import report
from oneof.ensemble.accuracy import binomial_interval, measure_labels, sample_order
from oneof.report import heat_map, input_section, results_section, training_section
from oneof.report.page import _next_step, _percent, render_page
from oneof.report.plots import PAPER, TEXT, Drawing, placeholder
from oneof.report.results_section import audit_classes, audit_groups, compare_gold, count_pairs
from oneof.report.rows_section import escape_for_script, review_queue
from oneof.review.audit import Accuracy
from oneof.review.cards import _read_rows, sample_rows, shown_table
from oneof.runs.decisions import Decision
from oneof.runs.folder import Run
from oneof.runs.purified import read_purified

pytestmark = pytest.mark.usefixtures("small_forests")

VOID = {"meta", "link", "input", "br", "img"}


class Reader(HTMLParser):
    """Every element with its attributes, the text of the page, and the text of each script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        where = self.scripts if self.open and self.open[-1] == "script" else self.text
        where.append(data)


def render(folder: Path) -> str:
    opened = Run.open(folder)
    return render_page(opened.metadata, opened.purified, opened.training, opened.rows)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("page") / "RUN")


@pytest.fixture
def three_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder made up for tests has no model: say that three were fitted."""
    monkeypatch.setattr(Run, "n_models", 3)


@pytest.fixture(scope="module")
def html(run):
    return render(run)


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of the words alone: drawing takes most of the time."""
    for module in (heat_map, input_section, training_section, results_section):
        monkeypatch.setattr(module, "plot", lambda *_, **__: Drawing(Markup(), Markup("</svg>")))


@pytest.fixture(scope="module")
def table(run):
    opened = Run.open(run)
    return read_purified(opened.purified, opened.metadata["classes"])


@pytest.fixture(scope="module")
def plain(run):
    return pq.read_table(run / "purified.parquet").to_pylist()


# ------------------------------------------------------------------------------------------------------ strings of the data


def test_no_string_of_the_data_becomes_an_element(html):
    found = Reader(html)
    assert not found.open
    tags = Counter(tag for tag, _ in found.elements)
    assert tags["script"] == 2
    assert not tags["img"]
    assert all(attributes == {} for tag, attributes in found.elements if tag == "b")
    assert tags["b"] <= 2  # the marks of both estimates; groups are called site <b>0</b>
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]


@pytest.mark.parametrize("name", NASTY)
def test_every_label_is_shown_as_it_is(html, name):
    assert name in Reader(html).text


def test_the_rows_as_json_hold_every_label_and_cannot_end_their_script(html):
    data, code = Reader(html).scripts
    assert "<" not in data
    assert json.loads(data)["names"] == NASTY
    assert "alert" not in code


def test_templates_of_the_data_are_not_run(html):
    assert "{{ 7 * 7 }}" in html
    assert "<th scope=\"row\"><bdi class=\"label\" title=\"49\">" not in html  # fmt: skip


def test_labels_in_drawings_are_escaped_and_whole_in_their_titles(html):
    drawing = html[html.index("Labels that occur together") :]
    drawing = drawing[: drawing.index("</svg>")]
    assert "&lt;script&gt;ale…cript&gt;<title>&lt;script&gt;alert(1)&lt;/script&gt;</title>" in drawing
    assert "@" not in drawing


def test_nothing_outside_is_named_and_only_our_script_may_run(html):
    found = Reader(html)
    assert not re.search(r"(?:https?:)?//[a-z]", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))
    assert not [attributes for _, attributes in found.elements if "src" in attributes]
    policy = next(a["content"] for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "script-src 'sha256-" in policy


def test_ids_are_unique_and_every_reference_has_its_target(html):
    found = Reader(html)
    ids = Counter(attributes["id"] for _, attributes in found.elements if "id" in attributes)
    assert max(ids.values()) == 1
    wanted = {a["href"][1:] for _, a in found.elements if (a.get("href") or "").startswith("#")}
    wanted |= {a[name] for _, a in found.elements for name in ("aria-labelledby", "for") if name in a}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", html))
    assert wanted <= set(ids)


def test_every_drawing_says_what_it_shows(html):
    drawings = [attributes for tag, attributes in Reader(html).elements if tag == "svg"]
    assert len(drawings) == 9
    assert all(each["role"] == "img" and each["aria-label"] for each in drawings)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours, written #rrggbb."""

    def light(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_in_both_schemes(html):
    schemes = [
        dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    ]
    assert len(schemes) == 3  # light, dark and print
    for scheme in schemes:
        for paper in ("paper", "raised"):
            assert min(contrast(scheme[paper], scheme[name]) for name in ("ink", "ink-2", "accent")) > 4.5


# ------------------------------------------------------------------------------------------------------------------- counts


def test_classes_are_counted_as_by_loops(table, plain):
    even, alone, held, after = Counter(), Counter(), Counter(), Counter()
    for row in plain:
        after[row["label"]] += 1
        for name in row["original"]:
            held[name] += 1
            even[name] += 1 / len(row["original"])
            alone[name] += len(row["original"]) == 1
    found = audit_classes(table)
    assert [each.even_share for each in found.classes] == sorted(each.even_share for each in found.classes)
    for each in found.classes:
        assert each.even_share == pytest.approx(even[each.name])
        assert (each.min_rows, each.max_rows, each.resolved) == (alone[each.name], held[each.name], after[each.name])
    assert found.gone == []
    assert found.shrunk == [name for name in NASTY if after[name] < even[name] / 2] == ["rare"]


def test_pairs_are_counted_as_by_loops(table, plain):
    for pair in count_pairs(table):
        rows = [row for row in plain if {pair.first, pair.second} <= set(row["original"])]
        taken = Counter(row["label"] for row in rows if not row["ask"])
        assert pair.together == len(rows)
        assert (pair.to_first, pair.to_second) == (taken[pair.first], taken[pair.second])
        assert pair.to_first >= pair.to_second
        assert pair.to_review == sum(row["ask"] for row in rows)
        assert pair.to_first + pair.to_second + pair.to_third + pair.to_review == len(rows)


def test_gold_is_counted_as_by_loops(table, plain):
    known = [row for row in plain if row["gold"] is not None]
    found = compare_gold(table)
    assert found.rows == len(known)
    assert found.right == sum(row["gold"] == row["label"] for row in known)
    assert found.removed == sum(row["gold"] in row["original"] and row["gold"] not in row["kept"] for row in known)
    assert found.measured is None  # rows with gold labels are no prefix of those drawn
    bins = {}
    for row in known:
        bins.setdefault(min(int(row["probability"] * 10), 9), []).append(row)
    apart = [abs(sum(r["probability"] - (r["gold"] == r["label"]) for r in rows)) for rows in bins.values()]
    assert found.calibration_error == pytest.approx(sum(apart) / len(known))


def test_drawn_gold_labels_bound_the_resolved_ones(table):
    gold = np.full(table.n, -1)
    gold[sample_order(table.n)[:50]] = np.where(np.arange(50) < 45, table.label[sample_order(table.n)[:50]], 0)
    found = compare_gold(replace(table, gold=gold))
    assert found.measured.rows == 50
    assert (found.measured.low, found.measured.high) == binomial_interval(found.right, 50)


def test_groups_are_counted_as_by_loops(table, plain):
    found = audit_groups(table)
    assert found.total == len(found.shown) == 4
    assert [each.probability for each in found.shown] == sorted(each.probability for each in found.shown)
    for each in found.shown:
        rows = [row for row in plain if row["group"] == each.name]
        assert each.rows == len(rows)
        assert each.before == pytest.approx(np.mean([len(row["original"]) for row in rows]))
        assert each.after == pytest.approx(np.mean([len(row["kept"]) for row in rows]))
        assert each.to_review == sum(row["ask"] for row in rows)
        assert each.right == sum(row["gold"] == row["label"] for row in rows)


def small(**columns):
    """A purified table of a few rows; what is not given is plain."""
    n = len(columns["original"])
    filled = {
        "row": list(range(n)),
        "kept": [[label] for label in columns["label"]],
        "distribution": [[1 / len(labels)] * len(labels) for labels in columns["original"]],
        "probability": [0.9] * n,
        "margin": [0.8] * n,
        "agreement": [1.0] * n,
        "ask": [False] * n,
        "gain": [0.1] * n,
        "trained": [5] * n,
        "outside": pa.array([None] * n, pa.string()),
        "removed": pa.array([[]] * n, pq.read_schema(columns.pop("like")).field("removed").type),
    }
    return pa.table(filled | columns)


def test_a_class_that_a_group_lost_is_named(run):
    sets = [["a", "b"]] * 10 + [["a", "b"]] * 10
    purified = small(
        original=sets,
        label=["a"] * 10 + ["b"] * 10,
        group=["north"] * 10 + ["south"] * 10,
        like=run / "purified.parquet",
    )
    found = audit_groups(read_purified(purified, ["a", "b"]))
    assert [(each.label, each.group, each.even_share) for each in found.missing] == [
        ("b", "north", 5.0),
        ("a", "south", 5.0),
    ]


@pytest.mark.usefixtures("undrawn")
def test_a_row_to_review_shows_the_suspected_label_that_is_no_candidate(run):
    purified = small(
        original=[["a"], ["a", "b"]],
        label=["a", "b"],
        ask=[True, True],
        outside=["b", None],
        like=run / "purified.parquet",
    )
    opened = Run.open(run)
    html = render_page(opened.metadata | {"classes": ["a", "b"]}, purified, opened.training, opened.rows)
    assert html.count("not a candidate</small>") == 1
    assert '<bdi class="label" title="b">b</bdi>? <small>not a candidate</small>' in html


@pytest.mark.usefixtures("undrawn")
def test_a_class_that_is_gone_is_named_on_the_page(run):
    purified = small(original=[["a", "b"], ["a", "b"], ["a"]], label=["a"] * 3, like=run / "purified.parquet")
    opened = Run.open(run)
    html = render_page(opened.metadata | {"classes": ["a", "b"]}, purified, opened.training, opened.rows)
    assert "<strong>No row was resolved to</strong> <bdi class=\"label\" title=\"b\">b</bdi>." in html  # fmt: skip


def test_the_queue_begins_where_an_answer_gains_most(table, plain):
    asked = sorted((row for row in plain if row["ask"]), key=lambda row: -row["gain"])
    found = review_queue(table)
    assert found.length == len(asked)
    assert [each["row"] for each in found.head] == [row["row"] for row in asked[:20]]
    assert found.expected_errors == pytest.approx(sum(1 - row["probability"] for row in asked))


def test_every_row_is_there_with_why_its_labels_fell(html, plain):
    data = json.loads(Reader(html).scripts[0])
    assert len(data["rows"]) == len(plain)
    for values, row in zip(data["rows"], plain, strict=True):
        found = dict(zip(data["columns"], values, strict=True))
        assert {data["names"][k] for k in found["original"]} == set(row["original"])
        assert {data["names"][k] for k in found["kept"]} == set(row["kept"])
        assert data["names"][found["label"]] == row["label"]
        fell = {(data["names"][k], turn, trials) for k, turn, _, trials in found["removed"]}
        assert fell == {(fall["label"], fall["round"], fall["trials"]) for fall in row["removed"]}


# --------------------------------------------------------------------------------------------------- what a run may lack


@pytest.mark.usefixtures("undrawn")
def test_without_gold_labels_the_page_says_why_there_is_no_calibration(tmp_path):
    html = render(write_run(tmp_path / "RUN", n=60, gold=0, groups=0))
    assert "the run has no gold labels" in html
    assert "Calibration on gold labels" not in html
    assert "differ from their gold label" not in html
    assert "Is one group treated worse?" not in html
    assert "About 87 % (82 % to 91 %), by candidate sets: if wrong labels come by chance." in html
    assert "To measure it, label the rows in <code>sample.csv</code>." in html


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("bound", "At most 95 %, if the sets hold the truth; no more can be said: so it is"),
        ("nothing learned", "Nothing learned: so it is"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_a_claim_is_called_what_it_is(run, verdict, words):
    opened = Run.open(run)
    said = opened.metadata["estimate"] | {
        "verdict": verdict,
        "value": None,
        "by": "candidate sets",
        "reason": "so it is",
    }
    assert words in render_page(opened.metadata | {"estimate": said}, opened.purified, opened.training, opened.rows)


@pytest.mark.parametrize(("verdict", "bound"), [("bound", 1.0), ("bound", 0.999), ("nothing learned", 0.95)])
@pytest.mark.usefixtures("undrawn")
def test_an_accuracy_that_is_not_known_is_written_as_not_known(run, verdict, bound):
    opened = Run.open(run)
    estimate = opened.metadata["estimate"] | {"verdict": verdict, "value": None, "bound": bound, "high": bound}
    estimate |= {"by": "candidate sets", "reason": "so it is"}
    html = render_page(opened.metadata | {"estimate": estimate}, opened.purified, opened.training, opened.rows)
    masthead = html[html.index("<header") : html.index("</header>")]
    block = masthead[masthead.index("Accuracy on new rows") :]
    block = block[: block.index("</div>")]
    assert "not known" in block
    assert "%" not in block
    assert "at most" not in block
    assert "so it is" in block.lower()
    assert 'class="gauge"' not in block


@pytest.mark.usefixtures("undrawn")
def test_the_page_begins_with_how_many_labels_of_the_table_are_right(tmp_path):
    for share, expected in ((0, "not known"), (1.0, " %")):
        html = render(write_run(tmp_path / f"RUN{share}", n=80, gold=share, groups=0))
        masthead = html[html.index("<header") : html.index("</header>")]
        place = masthead.index("Correct labels in this table")
        assert place < masthead.index("Accuracy on new rows")
        figure = masthead[place:].split("<dd>")[1].split("</dd>")[0].replace("\N{NO-BREAK SPACE}", " ")
        assert expected in figure
        assert ("of all rows." in masthead) == (share == 1.0)


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_purification_has_no_panels_for_it(run):
    opened = Run.open(run)
    columns = {name: opened.training["columns"][name] for name in ("loss", "set_size", "covering")}
    html = render_page(opened.metadata, opened.purified, opened.training | {"columns": columns}, [])
    assert "Removal threshold</h3>" not in html
    assert "Removals</h3>" not in html
    assert "Candidates left per row</h3>" in html


# ------------------------------------------------------------------------------------------------------------ size and file


def test_a_hundred_thousand_rows_stay_under_five_megabytes_and_the_page_says_what_it_left_out(tmp_path):
    html = render(write_run(tmp_path / "RUN", n=100_000, gold=0, groups=0))
    data = json.loads(Reader(html).scripts[0])
    assert len(html.encode()) < 5e6
    assert len(data["rows"]) == 20_000
    assert "<strong>20,000 of 100,000 rows</strong>" in html
    asked = pq.read_table(tmp_path / "RUN" / "purified.parquet")["ask"].to_numpy().sum()
    assert sum(row[data["columns"].index("ask")] for row in data["rows"]) == min(asked, 20_000)


@pytest.mark.usefixtures("undrawn")
def test_large_sets_are_cut_by_bytes(run, monkeypatch):
    monkeypatch.setattr("oneof.report.rows_section._MAX_BYTES", 5_000)
    html = render(run)
    shown = len(json.loads(Reader(html).scripts[0])["rows"])
    assert 20 < shown < 200
    assert f"<strong>{shown} of 400 rows</strong>" in html


@pytest.mark.usefixtures("three_models")
def test_the_command_writes_the_same_page_for_the_same_run(run, tmp_path, capsys):
    report(run, tmp_path / "report.html", None)
    opened = Run.open(run)
    shown = shown_table(opened)
    assert shown["ask"].to_pylist() == [
        a and g is None for a, g in zip(*(opened.purified[n].to_pylist() for n in ("ask", "gold")), strict=True)
    ]
    html = render_page(opened.metadata, shown, opened.training, opened.rows, folder=str(run))
    assert (tmp_path / "report.html").read_text("utf-8") == html
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}: 400 rows, {len(html.encode()) / 1e6:.1f} MB\n"


@pytest.mark.parametrize(
    ("out", "words"),
    [("report.pdf", "--out must end in one of .html, .htm; got 'report.pdf'"), ("none/r.html", "Make 'none' first.")],
)
def test_a_place_where_the_page_cannot_lie_is_refused(run, out, words):
    done = call("report", str(run), "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("name", ["run.json", "purified.parquet", "training.json", "rows.jsonl"])
def test_a_run_with_a_part_missing_is_refused_and_no_page_written(tmp_path, name):
    folder = write_run(tmp_path / "RUN", n=20)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"a run must hold {re.escape(name)}; in .* it is missing or damaged"):
        report(folder, tmp_path / "report.html")
    assert not list(tmp_path.glob("*report.html*"))


def test_a_share_is_never_rounded_up_to_all_or_down_to_none():
    assert [_percent(share) for share in (0.5, 0.99999, 1.0)] == ["50.0\xa0%", "> 99.9\xa0%", "100.0\xa0%"]


def test_json_in_a_script_is_inert():
    assert escape_for_script('["</script>&"]') == '["\\u003c/script\\u003e\\u0026"]'


def test_what_stands_for_a_label_is_about_as_wide():
    assert (placeholder(7, "red fox"), placeholder(12, "x" * 200)) == ("@7nnnn@", "@12nnnnnnnnnnnnnn@")


def test_every_value_that_a_setting_takes_is_shown():
    chosen = [{"lr": 0.1, "scaling": "ranks"}, {"lr": 0.1, "scaling": "root"}]
    assert training_section.list_settings([], chosen).chosen == [("lr", "0.1"), ("scaling", "ranks; root")]


# -------------------------------------------------------------------------------------------------------- no network at all


def test_a_run_without_networks_has_a_page(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "candidates": np.where(x[:, 0] > 0, "u", "v|w").tolist()})
    pq.write_table(table, tmp_path / "table.parquet")
    assert not call("fit", str(tmp_path / "table.parquet"), "--out", str(tmp_path / "run"), "--quick").returncode
    assert "No network was trained." in render(tmp_path / "run")


def _luminance(colour: list[float]) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_numbers_on_the_map_are_readable_in_both_schemes(scheme: int):
    """A contrast of 4.5 to 1 or more, as WCAG asks for small text."""
    style = (files("oneof.report") / "templates" / "page.css").read_text("utf-8")

    def colour(name: str) -> list[float]:
        digits = re.findall(rf"--{name}: #([0-9a-f]{{6}});", style)[scheme]
        return [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]

    names = {TEXT: "ink", PAPER: "paper"}
    for share in np.linspace(0, 1, 101):
        opacity, text = heat_map.cell_style(float(share))
        pairs = zip(colour("accent"), colour("paper"), strict=True)
        square = [opacity * accent + (1 - opacity) * paper for accent, paper in pairs]
        darker, lighter = sorted([_luminance(square), _luminance(colour(names[text]))])
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, share


@pytest.mark.parametrize(
    ("n_to_review", "is_measured", "command"),
    [
        (3, False, "oneof review 'my run'"),
        (0, False, "oneof review 'my run'"),
        (0, True, "oneof clean 'my run' --out labels.csv"),
    ],
)
def test_the_next_step_is_one_command(n_to_review: int, is_measured: bool, command: str):
    assert _next_step("my run", n_to_review, is_measured).command == command


def test_candidates_stand_in_the_order_of_probability(table):
    for row in review_queue(table).head:
        cells = table.cells.slice(row["row"], 1).to_pylist()[0]
        probability = dict(zip(cells["original"], cells["distribution"], strict=True))
        shown = [probability[label] for label in row["original"]]
        assert shown == sorted(shown, reverse=True)


@pytest.mark.usefixtures("three_models")
def test_a_large_run_is_described_by_rows_drawn_at_random(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "run", 300)
    opened = Run.open(folder)
    monkeypatch.setattr(oneof.cli.report, "MAX_ROWS", 100)
    monkeypatch.setattr(oneof.review.cards, "_BATCH_ROWS", 64)
    expected = measure_labels(
        np.asarray(pc.fill_null(pc.equal(opened.purified["label"], opened.purified["gold"]), False)),
        np.asarray(pc.is_valid(opened.purified["gold"])),
    )
    sample = sample_rows(opened, 100)
    assert sample.label_accuracy == expected
    rows = sample.purified["row"].to_pylist()
    assert len(set(rows)) == 100
    assert sample.purified.equals(opened.purified.take(rows))
    candidates = opened.purified["original"][rows[7]].as_py()
    opened.log.write(Decision(rows[7], "label", (candidates[-1],), "ann", before=tuple(candidates)))
    shown = shown_table(opened, sample=sample)
    assert shown["decision"][7].as_py() == f"ann: {candidates[-1]}"
    assert shown["decision"].null_count == 99

    def refuse(self):
        raise AssertionError("the whole table was read")

    monkeypatch.setattr(Run, "purified", property(refuse))
    oneof.cli.report.report(folder, tmp_path / "page.html")
    assert "100 of 300 rows, drawn at random" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "The run has 300 rows" in page
    assert "100 rows drawn at random" in page


def test_cells_of_some_rows_are_those_of_the_file(tmp_path):
    frame(200).to_parquet(tmp_path / "table.parquet")
    names = ["hue", "x0"]
    rows = np.array([0, 5, 64, 199])
    found = _read_rows(tmp_path / "table.parquet", names, rows)
    assert found.to_pylist() == pq.read_table(tmp_path / "table.parquet", columns=names).take(rows).to_pylist()


# --------------------------------------------------------------------------------------------------- where people voted


@pytest.fixture
def voted(run):
    """A purified table in which every label is a candidate, and three people voted."""
    opened = Run.open(run)
    struct = pa.list_(pa.struct([("label", pa.string()), ("votes", pa.float32())]))
    counts = [[("a", 2), ("b", 1)], [("a", 1), ("b", 2)], [("c", 3)], []]
    votes = [[{"label": label, "votes": float(n)} for label, n in row] for row in counts]
    purified = small(
        original=[["a", "b", "c"]] * 4,
        kept=[["a", "b", "c"]] * 4,
        distribution=[[0.6, 0.3, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.2, 0.5, 0.3]],
        label=["a", "a", "c", "b"],
        votes=pa.array(votes, struct),
        item=["id 7", "id 8", "id 9", "id 10"],
        ask=[False, True, False, True],
        like=run / "purified.parquet",
    )
    person = {"annotator": "ann <b>", "votes": 9, "accuracy": 0.8, "low": 0.5, "high": 0.95, "agreement": None}
    people = {"items": 4, "votes": 9, "alpha": 0.31, "annotators": [person], "mistakes": []}
    return opened.metadata | {"classes": ["a", "b", "c"], "people": people}, purified


@pytest.mark.usefixtures("undrawn")
def test_where_people_voted_the_page_speaks_of_votes_and_not_of_sets(run, voted):
    opened = Run.open(run)
    html = render_page(voted[0], voted[1], {"trials": 0, "epochs": 0, "columns": {}, "chosen": []}, opened.rows)
    assert not Reader(html).open
    for words in ("On 1 row all votes agree.", "1 row has no vote.", "alpha", "0.31", "(50\xa0% to 95\xa0%)", "id 8"):
        assert words in html, words
    text = " ".join(Reader(html).text)
    for words in ("say nothing about the true label", "purification", "Removals", "struck through", "by margin"):
        assert words not in text, words
    assert 'data-by="margin"' not in html
    assert "1 row has a label that got fewer votes than another" in html
    assert "named by nobody" in html  # row 3 has no vote
    rows = json.loads(Reader(html).scripts[0])["rows"]
    assert [row[1] for row in rows] == [[0, 1], [0, 1], [2], []]


@pytest.mark.usefixtures("undrawn")
def test_answers_of_the_review_measure_the_labels(run):
    opened = Run.open(run)
    purified = opened.purified.drop_columns(["gold"])
    for measured, words in ((None, "nobody has checked it"), (Accuracy(50, 45, 0, 0.78, 0.97), "about 50 rows")):
        html = render_page(opened.metadata, purified, opened.training, opened.rows, reviewed=measured)
        assert words in html


def test_every_class_of_the_style_sheet_is_on_the_page():
    """A class that is renamed in a template alone loses its style, and nothing else tells."""
    templates = Path(oneof.report.__file__).parent / "templates"
    styled = set(re.findall(r"\.([a-zA-Z][\w-]*)", (templates / "page.css").read_text()))
    script = (templates / "page.js").read_text()
    used = set()
    for template in templates.glob("*.html"):
        for names in re.findall(r'class="([^"]*)"', template.read_text()):
            used.update(re.findall(r"[\w-]+", names))
    assert {"facts", "chip"} <= styled
    assert {name for name in styled - used if name not in script} == set()
