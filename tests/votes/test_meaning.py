"""Answers that are no plain label: parents, "not X", "unsure", names that nobody else uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call
from pyarrow import table

from oneof.votes import Spelling, Votes, read_long, read_taxonomy
from oneof.votes.spelling import Taxonomy, expand_labels

PETS = [("cat", "pet"), ("dog", "pet"), ("pet", "animal"), ("wolf", "animal")]


def read(labels: list[str], **said: object) -> Votes:
    columns = {"item": list(range(len(labels))), "annotator": ["x"] * len(labels), "label": labels}
    return read_long(table(columns), spelling=Spelling(**said))  # type: ignore[arg-type]


def named(votes: Votes, item: int) -> list[str]:
    return [votes.labels[j] for j in votes.label[votes.item == item]]


def test_a_vote_for_a_parent_is_a_vague_vote_for_its_leaves() -> None:
    votes = read(["cat", "pet", "animal", "stone"], taxonomy=Taxonomy(PETS))
    assert [named(votes, i) for i in range(4)] == [["cat"], ["cat", "dog"], ["cat", "dog", "wolf"], ["stone"]]
    assert votes.answer_size.tolist() == [1, 2, 2, 3, 3, 3, 1]


def test_not_x_is_a_vote_for_all_others_below_a_parent_too() -> None:
    votes = read(["cat", "dog", "wolf", "stone", "not cat", "Not Pet"], taxonomy=Taxonomy(PETS))
    assert named(votes, 4) == ["dog", "stone", "wolf"]
    assert named(votes, 5) == ["stone", "wolf"]
    assert "1 answers 'not cat' are votes for every other label" in " ".join(votes.remarks)


def test_not_x_is_a_label_where_nothing_else_would_be_left_or_classes_have_it() -> None:
    assert read(["spam", "not spam", "spam"]).labels == ["not spam", "spam"]
    assert named(read(["a", "b", "not a"], classes=["a", "b", "not a"]), 2) == ["not a"]
    assert named(read(["a", "b", "not fair", "b"]), 2) == ["not fair"]


def test_unsure_is_no_vote_and_is_counted() -> None:
    votes = read(["a", "Unsure", "b", "don't know"])
    assert (votes.labels, len(votes.items), votes.unanswered) == (["a", "b"], 2, 2)
    assert len(votes.remarks) == 1
    assert "2 answers such as 'Unsure'" in votes.remarks[0]
    assert read(["a", "unsure"], classes=["a", "unsure"]).labels == ["a", "unsure"]


def test_a_label_that_nobody_else_knows_is_told_and_kept() -> None:
    votes = read(["a", "a", "b", "b", "zebrra"])
    assert "zebrra" in votes.labels
    assert len(votes.remarks) == 1
    assert "1 label occurs only once ('zebrra')" in votes.remarks[0]
    assert "map it" in votes.remarks[0]


def test_a_cycle_is_named_and_a_long_chain_is_walked() -> None:
    with pytest.raises(ValueError, match="must have no cycle; it has a > b > c > a"):
        Taxonomy([("b", "a"), ("c", "b"), ("a", "c")])
    chain = Taxonomy([(f"{i + 1}", f"{i}") for i in range(5000)])
    assert chain.leaves("0") == ["5000"]


def test_a_child_of_two_parents_is_below_both() -> None:
    tree = Taxonomy([("bat", "mammal"), ("bat", "flies"), ("cow", "mammal"), ("jay", "flies")])
    assert (tree.leaves("mammal"), tree.leaves("flies")) == (["bat", "cow"], ["bat", "jay"])
    assert expand_labels([["mammal", "flies"]], [1], None, tree)[0] == [["bat", "cow", "jay"]]


def test_files_of_taxonomies(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"cat": "pet", "dog": "pet"}')
    assert read_taxonomy(tmp_path / "t.json").leaves("pet") == ["cat", "dog"]
    (tmp_path / "t.csv").write_text("child,parent\ncat,pet\npet,cat\n")
    (tmp_path / "v.csv").write_text("item,annotator,label\n1,x,pet\n1,y,cat\n2,x,dog\n")
    words = ["votes", "v.csv", "--taxonomy", "t.csv", "--out", "sets.csv"]
    done = call(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a taxonomy must have no cycle; it has pet > cat > pet" in done.stderr
    (tmp_path / "t.csv").write_text("child,parent\ncat,pet\ndog,pet\n")
    assert call(*words, cwd=tmp_path).returncode == 0
    assert "cat|dog" in (tmp_path / "sets.csv").read_text()
