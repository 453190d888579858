"""Tables of the rows of `votes_cifar10n.py`, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oneof.storage.rows import Row


def forms_table(rows: Sequence[Row]) -> str:
    """Return mean and deviation of test accuracy and of labels right, for every form and number of epochs."""
    lines = ["| trained on | epochs | test accuracy | training labels resolved | runs |", "|---|---|---|---|---|"]
    trained = [row for row in rows if row["plan"] == "forms"]
    forms = list(dict.fromkeys((row["form"], row["epochs"]) for row in trained))
    for form, epochs in sorted(forms, key=lambda key: key[1]):  # else in the order of their rows
        of_form = [row for row in trained if (row["form"], row["epochs"]) == (form, epochs)]
        accuracy = _mean_and_deviation([100 * row["accuracy"] for row in of_form])
        resolved = _mean_and_deviation([100 * row["resolved"] for row in of_form])
        lines.append(f"| {form} | {epochs} | {accuracy} | {resolved} | {len(of_form)} |")
    return "\n".join(lines)


def held_out_table(rows: Sequence[Row]) -> str:
    """Return what a third person says of labels learned from two votes, best first."""
    lines = ["| form | third person agrees % | log-likelihood of their vote |", "|---|---|---|"]
    held_out = [row for row in rows if row["plan"] == "held-out"]
    for row in sorted(held_out, key=lambda row: -row["agreement"]):
        lines.append(f"| {row['form']} | {100 * row['agreement']:.2f} | {row['likelihood']:.4f} |")
    return "\n".join(lines)


def humans_table(rows: Sequence[Row]) -> str:
    """Return how far probabilities of test images agree with the shares of 51 people's votes."""
    lines = [
        "| trained on | epochs | cross-entropy against people | most people name its label % | runs |",
        "|---|---|---|---|---|",
    ]
    beside_humans = [row for row in rows if row["plan"] == "humans"]
    forms = {(row["epochs"], row["form"]) for row in beside_humans}
    for epochs, form in sorted(forms):
        of_form = [row for row in beside_humans if (row["epochs"], row["form"]) == (epochs, form)]
        entropy = np.mean([row["cross_entropy"] for row in of_form])
        agrees = _mean_and_deviation([100 * row["agrees"] for row in of_form])
        lines.append(f"| {form} | {epochs} | {entropy:.3f} | {agrees} | {len(of_form)} |")
    return "\n".join(lines)


def _mean_and_deviation(values: list[float]) -> str:
    mean = f"{np.mean(values):.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1):.2f}"
