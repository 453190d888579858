"""What `inspect` reports, against plain counts, made defects and sets of known origin."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
import typer
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.ensemble.candidate_randomness import failed_randomness_test
from oneof.inspect import Inspection, inspect_sets
from oneof.inspect.dependence import (
    MAX_ROWS,
    MIN_ROWS,
    _draw_uniform_sets,
    _permute_within_labels,
    cross_fit,
    find_dependence,
)
from oneof.inspect.picture import draw, save_picture

torch.set_num_threads(1)

DATA = os.environ.get("ONEOF_DATA")


def _random_sets(n: int, c: int, seed: int) -> Candidates:
    rng = np.random.default_rng(seed)
    mask = rng.random((n, c)) < 0.3
    mask[np.arange(n), rng.integers(c, size=n)] = True
    return Candidates(mask, np.array([f"label {j}" for j in range(c)]))


def _features(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


# ------------------------------------------------------------------------------------------------- independent counts


def _check_counts(found: Inspection, sets: list[set]) -> None:
    """Everything again, with loops over sets of labels."""
    counts, identity = found.counts, found.identity
    n, classes = len(sets), counts.classes
    sizes = Counter(len(s) for s in sets)
    assert counts.rows == n
    assert list(counts.sizes) == [sizes[size] for size in range(len(classes) + 1)]
    assert counts.average == pytest.approx(sum(len(s) for s in sets) / n)
    assert (counts.empty, counts.singletons, counts.full) == (sizes[0], sizes[1], sizes[len(classes)])
    held = {a: sum(a in s for s in sets) for a in classes}
    assert dict(zip(classes, counts.held, strict=True)) == held
    assert dict(zip(classes, counts.share, strict=True)) == pytest.approx({a: held[a] / n for a in classes})
    assert counts.absent == tuple(a for a in classes if held[a] == 0)
    both = {(a, b): sum(a in s and b in s for s in sets) for a in classes for b in classes}
    for i, a in enumerate(classes):
        for j, b in enumerate(classes):
            assert identity.together[i][j] == both[a, b]
    pairs = [(a, b) for a in classes for b in classes if a != b and held[a]]
    always = {(a, b) for a, b in pairs if both[a, b] == held[a]}
    assert {(p.label, p.other): p.sets for p in identity.one_sided} == {
        (a, b): held[a] for a, b in always if (b, a) not in always
    }
    grouped = {(a, b) for group in identity.groups for a in group for b in group if a != b}
    assert grouped == {(a, b) for a, b in always if (b, a) in always}
    worst = identity.ambiguity
    assert worst is not None
    assert worst.degree == pytest.approx(max(both[p] / held[p[0]] for p in pairs))
    assert both[worst.label, worst.other] / held[worst.label] == pytest.approx(worst.degree)


@pytest.mark.parametrize(("n", "c", "seed"), [(40, 5, 0), (7, 6, 1), (300, 12, 2)])
def test_counts_match_plain_loops(n: int, c: int, seed: int) -> None:
    sets = _random_sets(n, c, seed)
    as_sets = [set(sets.classes[row].tolist()) for row in sets.mask]
    _check_counts(inspect_sets(None, sets), as_sets)


def _mat(name: str) -> tuple[np.ndarray, Candidates]:
    found = [p for p in Path(str(DATA)).rglob("*.mat") if p.name.lower() == name]
    if not found:
        pytest.skip(f"{name} is not under ONEOF_DATA={DATA}")
    stored = scipy.io.loadmat(found[0])
    return stored["data"].astype(np.float32), read(stored["partial_target"].toarray().T)


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="ONEOF_DATA is not set: no real data sets to count")
@pytest.mark.parametrize(
    ("name", "rows", "classes"), [("lost.mat", 1122, 16), ("birdsong.mat", 4998, 13), ("msrcv2.mat", 1758, 23)]
)
def test_counts_of_real_sets_match_plain_loops(name: str, rows: int, classes: int) -> None:
    x, sets = _mat(name)
    found = inspect_sets(x, sets)
    assert (found.counts.rows, len(found.counts.classes)) == (rows, classes)
    _check_counts(found, [set(np.flatnonzero(row).tolist()) for row in sets.mask])
    assert found.dependence.verdict in ("class-dependent", "instance-dependent")  # BirdSong is a close call
    assert found.dependence.by_classes is not None
    assert found.dependence.by_classes.statistic > 5 * found.dependence.by_classes.expected


# ---------------------------------------------------------------------------------------- tables made to hold a defect


def _clean() -> tuple[np.ndarray, Candidates]:
    """A table without any defect: every pair of labels is separated by singletons."""
    sets = [["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["a", "c"]] * 4
    return _features(len(sets)), read(sets)


def _about(found: Inspection) -> list[tuple[str, str]]:
    return [(f.severity, f.about) for f in found.findings if f.about != "dependence"]


def _text(found: Inspection, about: str) -> str:
    (text,) = [f.text for f in found.findings if f.about == about]
    return text


def test_a_clean_table_has_no_defect() -> None:
    assert _about(inspect_sets(*_clean())) == []


def test_labels_that_always_occur_together() -> None:
    sets = read([["ant", "bee"], ["cow"], ["ant", "bee", "cow"], ["dog"], ["cow", "dog"]])
    found = inspect_sets(_features(5), sets)
    assert _about(found) == [("warn", "together")]
    assert found.identity.groups == (("ant", "bee"),)
    assert "labels ant, bee always occur together: merge them, or get one row" in _text(found, "together")


def test_two_groups_of_labels_are_kept_apart() -> None:
    found = inspect_sets(None, read([[1, 2], [3, 4, 5], [1, 2, 3, 4, 5]]))
    assert found.identity.groups == ((1, 2), (3, 4, 5))


def test_a_label_that_never_occurs_alone() -> None:
    found = inspect_sets(_features(4), read([["a", "b"], ["b"], ["a", "b"], ["c"]]))
    assert _about(found) == [("info", "one-sided")]
    assert "a only with b (2 sets)" in _text(found, "one-sided")
    assert found.identity.ambiguity is not None
    assert (found.identity.ambiguity.degree, found.identity.ambiguity.label) == (1.0, "a")


def test_all_labels_in_one_group_is_a_stop() -> None:
    found = inspect_sets(_features(4), read([["a", "b"]] * 4, classes=["a", "b", "c"]))
    assert _about(found) == [("stop", "together"), ("warn", "absent")]
    assert "labels a, b always occur together: nothing can be learned." in _text(found, "together")


def test_classes_in_no_set() -> None:
    x, sets = _clean()
    mask = np.insert(sets.mask, 1, False, axis=1)
    found = inspect_sets(x, Candidates(mask, np.array(["a", "zebra", "b", "c"])))
    assert _about(found) == [("warn", "absent")]
    assert "in no set, which cannot be learned: zebra." in _text(found, "absent")


def test_every_set_full() -> None:
    found = inspect_sets(_features(5), read(np.ones((5, 3), dtype=bool)))
    assert _about(found) == [("stop", "full")]
    assert "every set is full" in _text(found, "full")


def test_most_sets_full() -> None:
    sets = _clean()[1]
    full = Candidates(np.vstack([sets.mask, np.ones((30, 3), dtype=bool)]), sets.classes)
    found = inspect_sets(_features(54), full)
    assert _about(found) == [("warn", "full")]
    assert "30 of 54 sets are full and exclude no label: only the other 24 rows" in _text(found, "full")


def test_empty_sets() -> None:
    x, sets = _clean()
    mask = sets.mask.copy()
    mask[[3, 5]] = False
    found = inspect_sets(x, Candidates(mask, sets.classes))
    assert _about(found) == [("stop", "empty")]
    assert "2 of 24 sets are empty" in _text(found, "empty")


def test_fewer_rows_than_classes() -> None:
    found = inspect_sets(_features(3), read([[0, 1], [1, 2], [3, 0]]))
    assert ("stop", "rows") in _about(found)
    assert "3 rows for 4 classes" in _text(found, "rows")


def test_all_singletons() -> None:
    found = inspect_sets(_features(6), read([0, 1, 2, 0, 1, 2]))
    assert _about(found) == [("info", "singletons")]


def test_features_that_are_not_finite() -> None:
    x, sets = _clean()
    x[[4, 9], 1] = np.nan
    x[7, 2] = -np.inf
    found = inspect_sets(x, sets, features=["mass", "size", "age"])
    assert _about(found) == [("stop", "non-finite")] * 2
    assert [f.text for f in found.findings[:2]] == [
        "feature size is NaN or infinite in 2 rows, first row 4: fill or drop them.",
        "feature age is NaN or infinite in 1 rows, first row 7: fill or drop them.",
    ]


def test_constant_features() -> None:
    x, sets = _clean()
    x[:, 2] = 5
    found = inspect_sets(x, sets)
    assert _about(found) == [("info", "constant")]
    assert found.faults is not None
    assert found.faults.constant == (2,)


def test_equal_rows_with_sets_that_agree() -> None:
    x, sets = _clean()
    x[3] = x[0]  # {a, b} and {a}
    found = inspect_sets(x, sets)
    assert _about(found) == [("info", "duplicates")]
    assert "1 rows repeat" in _text(found, "duplicates")


def test_equal_rows_with_disjoint_sets() -> None:
    x, sets = _clean()
    x[[8, 10]] = x[3]  # {a, b}, {c}, {b, c}: only the first two are disjoint
    x[1] = x[0] = 0.0  # {b}, {a}
    x[1] *= -1.0  # -0.0 equals 0.0
    found = inspect_sets(x, sets)
    assert _about(found) == [("warn", "conflict"), ("info", "duplicates")]
    assert found.faults is not None
    assert (found.faults.conflicts, found.faults.duplicates) == (((0, 1), (3, 8)), 3)
    assert "rows 0, 1; rows 3, 8." in _text(found, "conflict")


def test_long_lists_are_cut_in_words_and_whole_in_values() -> None:
    x, sets = _clean()
    x = np.hstack([x, np.ones((len(x), 11), dtype=np.float32)])
    found = inspect_sets(x, sets)
    assert "3, 4, 5, 6, 7, 8, 9, 10, ... (11 in all)" in _text(found, "constant")
    assert found.faults is not None
    assert len(found.faults.constant) == 11


@pytest.mark.parametrize(
    ("x", "features", "message"),
    [
        (np.zeros((24, 2, 2)), None, r"x must be an array of floats \[n, d\]; got float64 of shape \(24, 2, 2\)\."),
        (np.array(5.0), None, r"x must be an array of floats \[n, d\]; got float64 of shape \(\)\."),
        (np.zeros((24, 2), dtype=int), None, r"x must be an array of floats \[n, d\]; got int64"),
        (np.zeros((5, 2)), None, r"x must have one row per candidate set; got 5 rows for 24 sets\."),
        (np.zeros((24, 2)), ["one"], r"features must name every column of x; got 1 names for 2 columns\."),
    ],
)
def test_arrays_that_do_not_fit(x: np.ndarray, features: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inspect_sets(x, _clean()[1], features=features)


def test_to_dict_survives_json() -> None:
    x, sets = _clean()
    written = inspect_sets(x, sets).to_dict()
    assert json.loads(json.dumps(written, allow_nan=False))["counts"]["classes"] == ["a", "b", "c"]


# --------------------------------------------------------------------------------------------- what the sets depend on


def _blobs(n: int, c: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(c, 10)) * 1.2
    labels = rng.integers(c, size=n)
    return (centres[labels] + rng.normal(size=(n, 10))).astype(np.float32), labels, rng


def _made(kind: str, seed: int, n: int = 1000, c: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Features and sets of a known kind, all with about 1.5 distractors a row."""
    x, labels, rng = _blobs(n, c, seed)
    if kind == "uniform":
        rate = np.full((n, c), 0.3)
    elif kind == "class-dependent":
        step = (np.arange(c)[None] - np.arange(c)[:, None]) % c
        rate = np.where((step == 1) | (step == c - 1), 0.6, 0.1)[labels]
    else:
        centres = np.stack([x[labels == j].mean(0) for j in range(c)])
        teacher = x @ centres.T - (centres**2).sum(1) / 2 + rng.normal(size=(n, c))
        share = np.exp((teacher - teacher.max(1, keepdims=True)) / 2)
        share[np.arange(n), labels] = 0
        rate = np.minimum(1, 0.3 * (c - 1) * share / share.sum(1, keepdims=True))
    mask = rng.random((n, c)) < rate
    mask[np.arange(n), labels] = True
    return x, mask


KINDS = ["uniform", "class-dependent", "instance-dependent"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_made_sets_is_found(kind: str) -> None:
    found = find_dependence(*_made(kind, seed=0))
    assert found.verdict == kind, found


@pytest.mark.parametrize("seed", [0, 1])
def test_the_advice_does_not_deny_dependence_that_a_fit_reports(seed: int) -> None:
    """Set sizes that follow a feature weakly: significant, as oneof fit says, and below the size that the inspection requires."""
    x, labels, rng = _blobs(2000, 6, seed)
    rate = 0.3 + 0.08 * (x[:, :1] - x[:, 0].mean()) / x[:, 0].std()
    mask = rng.random((2000, 6)) < rate
    mask[np.arange(2000), labels] = True
    scores = cross_fit(x, seed).predict((mask / mask.sum(1, keepdims=True)).astype(np.float32))
    assert failed_randomness_test(scores, mask) == "the size of a set depends on the features"

    inspection = inspect_sets(x, Candidates(mask, np.arange(6)), seed=seed)
    assert inspection.dependence is not None
    assert inspection.dependence.verdict != "instance-dependent"
    texts = [finding.text for finding in inspection.findings if finding.about == "dependence"]
    assert "not ruled out" in texts[0]
    assert "look uniform" not in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_made_sets_is_found_in_most_seeds(kind: str) -> None:
    verdicts = Counter(find_dependence(*_made(kind, seed), seed).verdict for seed in range(10))
    assert verdicts[kind] >= 8, verdicts


@pytest.mark.parametrize("share", [0.06, 0.1, 0.2])
def test_a_few_ambiguous_rows_among_single_labels(share: float) -> None:
    """The commonest table there is: nearly every set holds one label. The test looks at the few, and never ends the command."""
    x, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[: int(share * len(y))]
    mask = np.arange(10) == y[:, None]
    mask[rows, (y[rows] + 1) % 10] = True
    assert find_dependence(x, mask).verdict == "class-dependent"


def test_the_same_seed_gives_the_same_verdict_and_figures() -> None:
    x, mask = _made("uniform", seed=3, n=300)
    assert find_dependence(x, mask, seed=5) == find_dependence(x, mask, seed=5)


def test_a_column_that_is_not_finite_is_left_out_of_the_test() -> None:
    x, mask = _made("class-dependent", seed=1, n=300)
    spoiled = np.hstack([x, np.full((300, 1), np.nan, dtype=np.float32)])
    assert find_dependence(spoiled, mask) == find_dependence(x, mask)


def test_many_rows_are_sampled_down_and_full_sets_left_out() -> None:
    x, mask = _made("uniform", seed=0, n=MAX_ROWS + 500, c=3)
    sampled = find_dependence(x, mask)
    assert sampled.rows == MAX_ROWS
    assert re.search(r"; from 4,000 of \d,\d{3} rows, drawn at random$", sampled.reason)
    mask[:4000] = True
    found = find_dependence(x, mask)
    assert found.rows == int((~mask.all(1)).sum()) < 500


@pytest.mark.parametrize(
    ("x", "mask", "reason"),
    [
        (None, _made("uniform", 0)[1], "there are no features"),
        (*(part[: MIN_ROWS - 1] for part in _made("uniform", 0)), "not enough data: .* 200 are needed"),
        (_features(400), np.eye(4, dtype=bool)[np.arange(400) % 4], "not enough data: 0 sets hold two labels or more"),
        (np.ones((1000, 2)), _made("uniform", 0)[1], "no feature is finite and varies"),
        (_features(1000, seed=1), _made("uniform", 0)[1], "the features do not predict the sets"),
    ],
)
def test_no_verdict_without_enough_to_go_by(x: np.ndarray | None, mask: np.ndarray, reason: str) -> None:
    found = find_dependence(x, mask)
    assert found.verdict == "unknown"
    assert re.match(reason, found.reason), found.reason


def test_resampled_sets_obey_their_hypothesis() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=500)
    sets = (rng.random((500, 4)) < 0.4).astype(np.float32)
    sets[np.arange(500), labels] = 1
    for made in (_permute_within_labels(sets, labels, rng), _draw_uniform_sets(sets, labels, rng)):
        assert made[np.arange(500), labels].all()
        assert sorted(made.sum(1)) == sorted(sets.sum(1))
    exchanged = _permute_within_labels(sets, labels, rng)
    for j in range(4):
        rows = labels == j
        assert Counter(map(bytes, exchanged[rows])) == Counter(map(bytes, sets[rows]))
    assert (exchanged != sets).any()


# ---------------------------------------------------------------------------------------------- picture, command line


def test_the_picture_shows_sizes_and_co_occurrence(tmp_path: Path) -> None:
    sets = _random_sets(60, 30, seed=0)
    found = inspect_sets(None, sets)
    left, right, _ = draw(found.counts, found.identity).axes
    heights = [bar.get_height() for bar in left.patches]
    assert [height for height in heights if height] == [rows for rows in found.counts.sizes if rows]
    shown = right.images[0].get_array()
    assert shown[2, 5] == pytest.approx(found.identity.together[2][5] / found.counts.held[2])
    save_picture(found.counts, found.identity, tmp_path / "sets.png")
    assert [p.name for p in tmp_path.iterdir()] == ["sets.png"]
    assert (tmp_path / "sets.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def command() -> typer.Typer:
    from oneof.cli.inspect import inspect

    app = typer.Typer(rich_markup_mode=None)
    app.command()(inspect)
    return app


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x, sets = _clean()
    lines = [
        f"{a},{b},1,{'+'.join(sets.classes[row])}" for (a, b), row in zip(x[:, :2].tolist(), sets.mask, strict=True)
    ]
    path = tmp_path / "animals.csv"
    path.write_text("\n".join(["mass,size,flat,maybe", *lines]))
    return path


def _options(table: Path) -> list[str]:
    return [str(table), "--candidates", "maybe", "--separator", "+"]


def test_command_prints_what_it_found(command: typer.Typer, table: Path) -> None:
    result = CliRunner().invoke(command, _options(table))
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "24 rows, 3 classes, 1.50 labels per set" in words
    assert "features with one value only: flat." in words


def test_command_prints_json_and_draws(command: typer.Typer, table: Path) -> None:
    picture = table.with_name("sets.png")
    options = [*_options(table), "--features", "mass", "--features", "si*", "--json", "--png", str(picture)]
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 0, result.output
    written = json.loads(result.output)
    assert written["counts"]["sizes"] == [0, 12, 12, 0]
    assert written["faults"]["constant"] == []
    assert picture.stat().st_size > 1000


def test_command_refuses_a_picture_it_could_not_write(command: typer.Typer, table: Path) -> None:
    for place, message in [
        ("sets.pdf", "--png must end in .png"),
        ("no/sets.png", "--png must lie in a folder that exists"),
    ]:
        result = CliRunner().invoke(command, [*_options(table), "--png", str(table.parent / place)])
        assert isinstance(result.exception, ValueError)
        assert message in str(result.exception)


@pytest.mark.parametrize(
    "table",
    [
        "size,candidates\n1.5,cat|dog\n,dog\n2.5,cat\n",  # a gap
        "note,candidates\nsmall,cat|dog\nlarge,dog\nround,cat\n",  # no numbers
    ],
)
def test_command_looks_at_sets_whatever_the_features_are(command: typer.Typer, tmp_path: Path, table: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table)
    done = CliRunner().invoke(command, [str(path)])
    assert done.exit_code == 0, done.output
    assert "3 rows, 2 classes, 1.33 labels per set" in " ".join(done.output.split())


def test_command_takes_no_id_for_a_feature(command: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{i},{i % 7},{('cat|dog', 'dog', 'cat')[i % 3]}" for i in range(60)]
    path.write_text("\n".join(["item,size,candidates", *rows]))
    found = [json.loads(CliRunner().invoke(command, [str(path), "--json", *more]).output)["faults"]["duplicates"] for more in ([], ["--features", "*", "--features", "item"])]  # fmt: skip
    assert found[0] > 0 == found[1]  # with an id no row repeats another
