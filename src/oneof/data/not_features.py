"""Columns that are no features though they could be read as such: row numbers, true labels, names of rows, blank columns.

Whoever learns from them learns the order of the table, or the answer itself.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.text_columns import MAX_VALUES, MIN_CELLS

_IDS = re.compile(r"(|unnamed: \d+|index|id|item|row|.*[_ .-]id|.*[a-z]I[dD])", re.DOTALL)
_TRUTHS = re.compile(
    r"((true|gold|ground|correct)[_ .-]?)?(truth|labels?|targets?|gold|class|y)([_ .-]?(id|idx|index|code|true))?"
)
_EXACT = 2**24  # whole numbers that float32 can hold
_SAMPLE = 1024  # rows that are looked at for true labels
_SURE = 10  # rows more than chance gives must agree with their set
_REASONS = {  # what such columns are called, and what to do on the command line, or with a frame in Python
    "text": ("columns of free text", "To use one, say --text NAME (by the words in it), or --category NAME.", "To use one, add numbers made from it, such as an embedding."),
    "identifier": ("columns of identifiers (nearly every value is different)", "To use one, say --category NAME, or --text NAME if it is text.", "To use one whose values recur, give it the dtype 'category'."),
    "other": ("columns that hold neither numbers, dates nor text", "", ""),
    "blank": ("columns without a value", "", ""),
    "row numbers": ("columns that number the rows", "To use them beside the others, say {flags}.", "To use them too, give X as an array."),
    "truth": ("columns that look like true labels", "If they are, say --gold NAME; if they are features, say {flags}.", "If they are features, rename them."),
}  # fmt: skip
_SHORT_REASONS = {  # for the list of what became of each column
    "text": "free text, and no embedder for it is installed",
    "identifier": "an identifier, nearly every value is different",
    "other": "neither numbers, dates nor text",
    "blank": "it has no value",
    "row numbers": "it numbers the rows",
    "truth": "it looks like the true label",
}


def short_reason(why: str) -> str:
    """Say in a few words why a column is left out: a key of _REASONS, or the reason itself."""
    return _SHORT_REASONS.get(why, why)


def left_out_lines(left_out: Mapping[str, str], of_a_frame: bool = False) -> list[str]:
    """List the columns that are left out, a line for every key of _REASONS; any other reason is a line by itself."""
    lines = []
    for reason, (what, *advice) in _REASONS.items():
        names = [name for name, why in left_out.items() if why == reason]
        if names:
            flags = " ".join(f"--features {name!r}" for name in ("*", *names))
            shown = ", ".join(name or "(unnamed)" for name in names)
            lines.append(f"{what} are left out: {shown}. {advice[of_a_frame].format(flags=flags)}".rstrip())
    return lines + [why for why in left_out.values() if why not in _REASONS]


def why_no_feature(name: str, values: NDArray[np.float32], sets: Candidates | None) -> str | None:
    """Why a column of numbers [n] is no feature, a key of _REASONS; None if it may be one."""
    if np.isnan(values[0]) and np.isnan(values).all():
        return "blank"
    if numbers_rows(name, values):
        return "row numbers"
    sample = values[_sampled(len(values))]
    if (np.round(sample) != sample)[~np.isnan(sample)].any():
        return None
    if _TRUTHS.fullmatch(name.lower()):
        return "truth"
    if sets is None or len(np.unique(sample)) > len(sets.classes) + 1:  # a gap counts as one
        return None
    words = [None if np.isnan(value) else str(int(value)) for value in sample.tolist()]
    return "truth" if _in_its_set(words, sets) else None


def why_no_category(
    name: str, words: Sequence[str | None], sets: Candidates | None, separator: str = "|"
) -> str | None:
    """Why a column of categories is no feature, a key of _REASONS; None if it may be one."""
    rows = _sampled(len(words)).tolist()
    # A cell may hold several labels, as the column of another annotator does: the first is looked at.
    sample = [words[row] for row in rows]
    first_labels = [None if word is None else word.split(separator)[0].strip() for word in sample]
    if _TRUTHS.fullmatch(name.lower()) or (sets is not None and _in_its_set(first_labels, sets)):
        return "truth"
    values = {*words} - {None}
    cells = sum(word is not None for word in words)
    names_rows = cells >= MIN_CELLS and len(values) == cells  # a categorical type overrules less than that
    return "identifier" if names_rows or len(values) > MAX_VALUES else None


def numbers_rows(name: str, values: NDArray[np.float32]) -> bool:
    """Is a column [n] the row's number, or by its name an id that is different in every row?"""
    if len(values) < MIN_CELLS or not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    if (values == values[0] + np.arange(len(values))).all():
        return True
    like_id = _IDS.fullmatch(name) or _IDS.fullmatch(name.lower())
    return bool(like_id) and (len(np.unique(values)) == len(values) or bool(np.abs(values).max() >= _EXACT))


def _sampled(n: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))


def _in_its_set(words: Sequence[str | None], sets: Candidates) -> bool:
    """Does nearly every row hold a label of its own set, far more often than the sets of other rows would have it?"""
    column = {str(label): j for j, label in enumerate(sets.classes.tolist())}
    known = [(row, column.get(word, -1)) for row, word in zip(_sampled(len(sets.mask)), words, strict=True) if word]
    if not known:
        return False
    rows, labels = np.array(known).T
    misses = int((~sets.mask[rows, labels] | (labels < 0)).sum())
    by_chance = np.where(labels < 0, 1.0, 1 - sets.mask[rows].mean(0)[labels]).sum()
    return misses <= len(known) / 20 and by_chance >= _SURE + 4 * misses
