"""A jury of five language models on 400 texts: every form of its votes, clean and dirty, gives the same good labels by every door."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_votes_command import invoke
from typer.testing import CliRunner

from oneof.cli import app
from oneof.votes import resolve

CLASSES = ["ABBREVIATION", "DESCRIPTION", "ENTITY", "HUMAN", "LOCATION", "NUMERIC"]
MODELS = {"gpt": 0.93, "claude": 0.93, "llama": 0.88, "qwen": 0.85, "phi": 0.75}  # how often each is right
N_TEXTS = 400
MIN_RIGHT = 0.96
Record = dict[str, Any]


def jury() -> tuple[list[str], dict[tuple[int, str], str]]:
    """Return the true labels, and each model's answer on each text."""
    rng = np.random.default_rng(0)
    truth = rng.choice(CLASSES, size=N_TEXTS, p=[0.05, 0.2, 0.2, 0.2, 0.15, 0.2]).tolist()
    answers = {}
    for text, true_label in enumerate(truth):
        for model, accuracy in MODELS.items():
            answers[text, model] = true_label if rng.random() < accuracy else str(rng.choice(CLASSES))
    return truth, answers


TRUTH, ANSWERS = jury()


def nested(value: Callable[[str], Any]) -> list[Record]:
    """Return an object per text with a value per model."""
    records = []
    for text in range(N_TEXTS):
        records.append({"item": text, **{model: value(ANSWERS[text, model]) for model in MODELS}})
    return records


def long(value: Callable[[str], Any]) -> list[Record]:
    """Return an object per vote."""
    return [{"item": text, "annotator": model, "label": value(answer)} for (text, model), answer in ANSWERS.items()]


def probabilities(answer: str) -> dict[str, float]:
    return {name: 0.8 if name == answer else 0.04 for name in CLASSES}


def log_probabilities(answer: str) -> dict[str, float]:
    return {name: round(float(np.log(share)), 3) for name, share in probabilities(answer).items()}


def ranking(answer: str) -> list[str]:
    return [answer, *[name for name in CLASSES if name != answer][:2]]


def plausible(answer: str) -> list[str]:
    """Return two labels for every third answer."""
    index = CLASSES.index(answer)
    return [answer, CLASSES[index - 1]] if index % 3 == 0 else [answer]


def dirty(answer: str) -> str:
    """Return an answer as a model may write it; the generator makes it differ from vote to vote."""
    number = next(_COUNTER)
    other = CLASSES[CLASSES.index(answer) - 1]
    if number % 40 == 9:
        return f"{answer} or {other}"
    if number % 40 == 10:
        return ["N/A", "Unsure.", "None of the above", "I cannot tell from the text."][number % 4]
    forms = [
        f"{answer}.", f"**{answer}**", f"Answer: {answer}", answer.capitalize(), f"The answer is {answer}.", f"`{answer}`",
        answer[:-2] + answer[-1] + answer[-2], f" {answer.lower()} ", f"Label: {answer.title()}", f"\u201e{answer}\u201c", answer, answer,
        json.dumps({"label": answer, "confidence": 0.9}), f"```json\n{json.dumps({'answer': answer.title()})}\n```",
        f"<think>It may be {other}, or not: thought {number}.</think>\n{answer}", f"{answer}\n\nExplanation {number}: it is no {other} at all.",
        f"Text {number} seems to be about {other}. But it asks for something else. So the answer is {answer}.",
        f"Let me think about text {number}. {other} is possible.\n\n**Final answer:** {answer}",
        f"It is definitely not {other}. It is {answer}.", f"{CLASSES.index(answer) + 1}) {answer}", f"{CLASSES.index(answer) + 1}.",
        f'{{"label": "{answer}", "reason": "Text {number} may seem to be {other}, but', f"{other}: no, {answer}: yes",
    ]  # fmt: skip
    return forms[number % len(forms)]


_COUNTER = iter(range(10**6))


def write_json(path: Path, records: list[Record]) -> None:
    path.write_text(json.dumps(records))


def write_lines(path: Path, records: list[Record]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_table(path: Path, records: list[Record]) -> None:
    frame = pd.DataFrame(records)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)


def same(answer: str) -> str:
    return answer


def in_votes(records: list[Record]) -> list[Record]:
    """Return objects with a list of votes each."""
    by_text: dict[int, list[Record]] = {}
    for record in records:
        by_text.setdefault(record["item"], []).append({"model": record["annotator"], "answer": record["label"]})
    return [{"id": text, "votes": votes} for text, votes in by_text.items()]


FORMS: dict[str, tuple[str, Callable[[Path, list[Record]], None], Callable[[], list[Record]], list[str]]] = {
    "long CSV": ("v.csv", write_table, lambda: long(same), []),
    "wide CSV": ("v.csv", write_table, lambda: nested(same), []),
    "long Parquet": ("v.parquet", write_table, lambda: long(same), []),
    "wide JSON": ("v.json", write_json, lambda: nested(same), []),
    "long JSON Lines": ("v.jsonl", write_lines, lambda: long(same), []),
    "nested lists of votes": ("v.jsonl", write_lines, lambda: in_votes(long(same)), []),
    "probability per label": ("v.jsonl", write_lines, lambda: nested(probabilities), []),
    "log-probabilities": ("v.jsonl", write_lines, lambda: long(log_probabilities), []),
    "ranked lists": ("v.jsonl", write_lines, lambda: long(ranking), ["--ranked"]),
    "lists of plausible labels": ("v.json", write_json, lambda: nested(plausible), []),
    "nulls": ("v.json", write_json, lambda: [*long(same)[:-3], {**long(same)[-3], "label": None}], []),
    "dirty, classes given": ("v.csv", write_table, lambda: long(dirty), ["--classes", ",".join(CLASSES)]),
    "dirty, classes found": ("v.jsonl", write_lines, lambda: nested(dirty), []),
    "dirty, wide CSV": ("v.csv", write_table, lambda: nested(dirty), ["--classes", ",".join(CLASSES)]),
    "dirty, nested": ("v.json", write_json, lambda: in_votes(long(dirty)), []),
    "dirty, Parquet": ("v.parquet", write_table, lambda: long(dirty), []),
}


def share_right(items: list[Any], labels: list[str]) -> float:
    assert set(labels) <= set(CLASSES)
    right = [label == TRUTH[int(item)] for item, label in zip(items, labels, strict=True)]
    return sum(right) / N_TEXTS


@pytest.mark.usefixtures("caplog")  # how the votes were read is logged
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_jury_gives_good_labels(tmp_path: Path, form: str) -> None:
    name, write, records, options = FORMS[form]
    path = tmp_path / name
    write(path, records())
    settings: dict[str, Any] = {}
    if "--ranked" in options:
        settings["ranked"] = True
    if "--classes" in options:
        settings["classes"] = CLASSES
    labels = resolve(path, **settings)
    assert share_right(labels.items, labels.labels.tolist()) >= MIN_RIGHT
    summary = json.loads(invoke(path, "--json", *options))
    assert summary["labels"] == len(CLASSES)
    assert summary["annotators"] == len(MODELS)
    assert summary["items"] >= N_TEXTS - 1


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_jury_is_fitted_by_one_command(tmp_path: Path, form: str) -> None:
    name, write, records, options = FORMS[form]
    path = tmp_path / name
    write(path, records())
    pd.DataFrame({"item": range(N_TEXTS)}).to_csv(tmp_path / "items.csv", index=False)
    run = tmp_path / "run"
    arguments = ["fit", tmp_path / "items.csv", "--votes", path, "--on", "item", "--out", run, *options]
    fitted = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert fitted.exit_code == 0, fitted.output
    cleaned = CliRunner().invoke(app, ["clean", str(run), "--out", str(tmp_path / "labels.csv")])
    assert cleaned.exit_code == 0, cleaned.output
    labels = pd.read_csv(tmp_path / "labels.csv")["label"].tolist()
    assert share_right(list(range(N_TEXTS)), labels) >= MIN_RIGHT
