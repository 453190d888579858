"""Why a row got its label, in words."""

from collections import Counter
from typing import Any

import pyarrow as pa

from oneof.ensemble.review_order import queue

_BLOCK = 1 << 15  # rows as Python objects at a time: a million would take gigabytes


def explained(purified: pa.Table, voices: int) -> pa.Table:
    """A run's purified table with the columns `queue` (from 1, the most worth asking first) and `why`."""
    labels = purified["label"].to_pylist()
    blocks = purified.to_batches(max_chunksize=_BLOCK)
    why = [reason(row, labels, voices) for block in blocks for row in block.to_pylist()]
    return purified.append_column("queue", [queue(purified)]).append_column("why", [why])


def reason(row: dict[str, Any], labels: list[str], voices: int) -> str:
    """Why a row got its label, of which `voices` models had a say."""
    if row.get("decided"):
        return f"{row['by']} decided '{row['label']}'."
    parts = [f"{row['by']} looked at it and was unsure."] if row.get("by") else []
    parts += [fell(fall, row["trained"]) for fall in row["removed"]]
    if len(row["original"]) == 1:
        parts.append(f"'{row['label']}' is the only candidate.")
    else:
        named = round(row["agreement"] * voices)
        if voices == 0:
            who = "the votes name"
        elif named == voices:
            who = f"all {voices} models name"
        else:
            who = f"{named} of {voices} models name"
        parts.append(f"{who} '{row['label']}', with probability {row['probability']:.2f}.")
        if row["ask"]:
            parts.append(f"It leads the next candidate by {row['margin']:.2f}.")
    if outside := row["outside"]:
        parts.append(f"The models are sure of '{outside}', which is not in the set: does the set miss the truth?")
    if near := row["neighbours"]:
        (label, count), *_ = Counter(labels[i] for i in near).most_common()
        parts.append(f"{count} of the {len(near)} nearest settled rows are '{label}'.")
    return " ".join(parts)


def fell(fall: dict[str, Any], trained: int) -> str:
    """When and why a label fell."""
    label, at = f"'{fall['label']}'", f"at margin {fall['margin']:.2f}"
    if fall["round"] == 0:
        return f"{label} fell before training {at}: the other rows speak against it."
    count = "all" if fall["trials"] == trained else f"{fall['trials']} of"
    return f"{label} fell in round {fall['round']} {at}; {count} {trained} trials agree."
