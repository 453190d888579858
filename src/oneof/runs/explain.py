"""Explain in a sentence or two why each row got its label."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from oneof.ensemble.review_order import queue_column

_CERTAIN = 0.95  # probability of an only candidate from which on it is not mentioned
_BATCH_SIZE = 1 << 15  # rows converted to Python objects at a time: a million at once would take gigabytes


def with_explanations(purified: pa.Table, n_models: int) -> pa.Table:
    """Return a run's purified table with two more columns, `queue` and `why`.

    `queue` is the row's place in the review queue, counted from 1; `why` explains its label. `n_models` is the number of
    models in the ensemble.
    """
    labels = purified["label"].to_pylist()
    explanations = explain_rows(purified, labels, n_models)
    with_queue = purified.append_column("queue", [queue_column(purified)])
    return with_queue.append_column("why", [explanations])


def explain_rows(rows: pa.Table, labels: Sequence[str], n_models: int) -> list[str]:
    """Explain the label of each of these rows; `labels` are those of all rows of the run."""
    explanations = []
    for batch in rows.to_batches(max_chunksize=_BATCH_SIZE):
        for row in batch.to_pylist():
            explanations.append(reason(row, labels, n_models))
    return explanations


def reason(row: dict[str, Any], labels: Sequence[str], n_models: int) -> str:
    """Explain the label of a row of the purified table.

    `labels` are the labels of all rows, for the row's neighbours; `n_models` is the number of models.
    """
    if row.get("decided"):
        return f"{row['by']} decided '{row['label']}'."
    sentences = []
    if row.get("by"):
        sentences.append(f"{row['by']} looked at it and was unsure.")
    votes = row.get("votes")
    if votes:
        sentences.append(_describe_votes(row["label"], votes))
    elif votes is not None:
        sentences.append("Nobody voted on it.")
    for removal in row["removed"]:
        sentences.append(describe_removal(removal, row["trained"]))
    if len(row["original"]) == 1:
        sentences.append(_describe_only_candidate(row))
    else:
        sentences += _describe_choice(row, n_models)
    outside = row["outside"]
    if outside:
        sentences.append(
            f"The models are confident of '{outside}', which is not a candidate: the true label may be missing."
        )
    neighbours = row["neighbours"]
    if neighbours:
        neighbour_labels = Counter(labels[i] for i in neighbours)
        commonest, count = neighbour_labels.most_common(1)[0]
        sentences.append(f"{count} of the {len(neighbours)} nearest settled rows are '{commonest}'.")
    return " ".join(sentences)


def _describe_only_candidate(row: dict[str, Any]) -> str:
    """Say that there is only one candidate, and how probable it is where it is in doubt."""
    only = "is the only candidate"
    if row.get("votes"):
        only = "is the only label that was named"
    if row["probability"] < _CERTAIN:
        only += f", and right with probability {_two_digits(row['probability'])}"
    return f"'{row['label']}' {only}."


def _describe_choice(row: dict[str, Any], n_models: int) -> list[str]:
    """Say how many models predict the label, and how clearly it was chosen where a person should review the row."""
    supporters = _supporters(row["agreement"], n_models, has_votes=row.get("votes") != [])
    sentences = [f"{supporters} '{row['label']}', with probability {_two_digits(row['probability'])}."]
    stronger = _more_probable_label(row)
    if stronger is not None:
        label, probability = stronger
        more_probable = f"'{label}' is more probable now ({_two_digits(probability)})"
        sentences.append(f"{more_probable}, but had been removed, so that it is not chosen: decide it yourself.")
    elif row["ask"]:
        sentences.append(f"Its lead over the next candidate is {row['margin']:.2f}.")
    return sentences


def _more_probable_label(row: dict[str, Any]) -> tuple[str, float] | None:
    """Return a label that was removed, and is more probable than the row's label by all models together; None if there is none."""
    probabilities = dict(zip(row["original"], row.get("distribution") or (), strict=False))
    removed = {removal["label"] for removal in row["removed"]}
    best = max(removed & probabilities.keys(), key=lambda label: probabilities[label], default=None)
    if best is None or probabilities[best] <= row["probability"]:
        return None
    return best, probabilities[best]


def _describe_votes(label: str, votes: Sequence[dict[str, Any]]) -> str:
    """Say how many of the votes on a row are for its label."""
    total = 0
    for_label = 0
    for vote in votes:
        total += vote["votes"]
        if vote["label"] == label:
            for_label += vote["votes"]
    votes_are = "votes are"
    if total == 1:
        votes_are = "vote is"
    if for_label == 0:
        return f"None of the {total:g} {votes_are} for '{label}'."
    return f"{for_label:g} of {total:g} {votes_are} for '{label}'."


def _two_digits(probability: float) -> str:
    """Format a probability, so that one below 1 is never shown as 1."""
    if 0.995 <= probability < 1:
        return "more than 0.99"
    return f"{probability:.2f}"


def _supporters(agreement: float, n_models: int, *, has_votes: bool) -> str:
    """Say how many of the models predict the label, as the start of a sentence."""
    if n_models == 0:
        if has_votes:
            return "The votes favour"
        return "The votes on other rows favour"
    agreeing = round(agreement * n_models)
    if n_models == 1:
        if agreeing:
            return "The model predicts"
        return "The votes outweigh the model, and favour"
    if agreeing == n_models == 2:
        return "Both models predict"
    if agreeing == n_models:
        return f"All {n_models} models predict"
    return f"{agreeing} of {n_models} models predict"


def describe_removal(removal: dict[str, Any], trained: int) -> str:
    """Say when a label was removed from the candidates and by how many of the `trained` networks that saw the row."""
    label = removal["label"]
    margin = f"{removal['margin']:.2f}"
    if removal["round"] == 0:
        return (
            f"'{label}' was removed before training: judged by the other rows, the best candidate leads it by {margin}."
        )
    if removal["trials"] == trained:
        networks = f"all {trained} networks"
    else:
        networks = f"{removal['trials']} of {trained} networks"
    return (
        f"'{label}' was removed in round {removal['round']} by {networks}, when the best candidate led it by {margin}."
    )
