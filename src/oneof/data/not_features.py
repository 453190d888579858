"""Find columns that are not features though they could be read as such: row numbers, true labels, identifiers, blank columns.

A model that learns from them learns the order of the table, or the answer itself.
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
_MAX_SAMPLED_ROWS = 1024  # rows that are checked for true labels
_MIN_EXCESS = 10  # rows, more than by chance, that must agree with their set
_REASONS = {  # what such columns are called, and what to do on the command line, or with a frame in Python
    "text": ("columns of free text", "To use one, give --text NAME (by the words in it), or --category NAME.", "To use one, add numbers made from it, such as an embedding."),
    "identifier": ("columns of identifiers (nearly every value is different)", "To use one, give --category NAME, or --text NAME if it is text.", "To use one whose values recur, give it the dtype 'category'."),
    "pictures": ("columns that name pictures", "To learn from them, give --image NAME.", "To learn from them, use PartialLabelImageClassifier."),
    "other": ("columns that hold neither numbers, dates nor text", "", ""),
    "blank": ("columns without a value", "", ""),
    "row numbers": ("columns that number the rows", "To use them as well, give {flags}.", "To use them too, give X as an array."),
    "truth": ("columns that look like true labels", "If they are, give --gold NAME; if they are features, give {flags}.", "If they are features, rename them."),
}  # fmt: skip
_SHORT_REASONS = {  # for the list of what became of each column
    "text": "free text, and no embedder for it is installed",
    "identifier": "an identifier, nearly every value is different",
    "pictures": "names of pictures",
    "other": "neither numbers, dates nor text",
    "blank": "no value",
    "row numbers": "numbers of the rows",
    "truth": "looks like the true label",
}


def short_reason(why: str) -> str:
    """Return in a few words why a column is left out, given a key of _REASONS or the reason itself."""
    return _SHORT_REASONS.get(why, why)


def left_out_lines(left_out: Mapping[str, str], of_a_frame: bool = False) -> list[str]:
    """List the columns that are left out, a line for every key of _REASONS; any other reason is a line by itself."""
    lines = []
    for reason, (title, command_line_advice, frame_advice) in _REASONS.items():
        names = [name for name, why in left_out.items() if why == reason]
        if not names:
            continue
        flags = " ".join(f"--features {name!r}" for name in ("*", *names))
        listed = ", ".join(name or "(unnamed)" for name in names)
        advice = command_line_advice
        if of_a_frame:
            advice = frame_advice
        lines.append(f"{title} are left out: {listed}. {advice.format(flags=flags)}".rstrip())
    for why in left_out.values():
        if why not in _REASONS:
            lines.append(why)
    return lines


def number_exclusion_reason(name: str, values: NDArray[np.float32], sets: Candidates | None) -> str | None:
    """Return why a column of numbers [n] is not a feature, a key of _REASONS; None if it may be one."""
    if np.isnan(values[0]) and np.isnan(values).all():
        return "blank"
    if numbers_rows(name, values):
        return "row numbers"
    sample = values[_sample_rows(len(values))]
    known = sample[~np.isnan(sample)]
    if (np.round(known) != known).any():
        return None
    if _TRUTHS.fullmatch(name.lower()):
        return "truth"
    if sets is None or len(np.unique(sample)) > len(sets.classes) + 1:  # a gap counts as one
        return None
    labels: list[str | None] = []
    for value in sample.tolist():
        if np.isnan(value):
            labels.append(None)
        else:
            labels.append(str(int(value)))
    if _agrees_with_sets(labels, sets):
        return "truth"
    return None


def category_exclusion_reason(
    name: str, words: Sequence[str | None], sets: Candidates | None, separator: str = "|"
) -> str | None:
    """Return why a column of categories is not a feature, a key of _REASONS; None if it may be one."""
    # A cell may hold several labels, as the column of another annotator does: the first is compared.
    first_labels: list[str | None] = []
    for row in _sample_rows(len(words)).tolist():
        word = words[row]
        if word is None:
            first_labels.append(None)
        else:
            first_labels.append(word.split(separator)[0].strip())
    if _TRUTHS.fullmatch(name.lower()) or (sets is not None and _agrees_with_sets(first_labels, sets)):
        return "truth"
    values = {*words} - {None}
    n_cells = sum(word is not None for word in words)
    all_different = n_cells >= MIN_CELLS and len(values) == n_cells  # a categorical type overrules less than that
    if all_different or len(values) > MAX_VALUES:
        return "identifier"
    return None


def numbers_rows(name: str, values: NDArray[np.float32]) -> bool:
    """Return whether a column [n] counts the rows in steps of any size, or is by its name an id that is different in every row."""
    if len(values) < MIN_CELLS or not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    steps = np.diff(values)
    if np.abs(values).max() < _EXACT and steps[0] != 0 and (steps == steps[0]).all():
        return True
    is_named_like_id = _IDS.fullmatch(name) is not None or _IDS.fullmatch(name.lower()) is not None
    if not is_named_like_id:
        return False
    all_different = len(np.unique(values)) == len(values)
    return all_different or bool(np.abs(values).max() >= _EXACT)


def _sample_rows(n: int) -> NDArray[np.intp]:
    """Return at most _MAX_SAMPLED_ROWS row numbers, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, _MAX_SAMPLED_ROWS)).astype(np.intp))


def _agrees_with_sets(labels: Sequence[str | None], sets: Candidates) -> bool:
    """Return whether the labels of the sampled rows are nearly all in their own sets, far more often than by chance."""
    column_of_label = {str(label): j for j, label in enumerate(sets.classes.tolist())}
    known_rows = []
    known_columns = []
    for row, label in zip(_sample_rows(len(sets.mask)), labels, strict=True):
        if label:
            known_rows.append(row)
            known_columns.append(column_of_label.get(label, -1))
    if not known_rows:
        return False
    rows = np.array(known_rows)
    columns = np.array(known_columns)
    is_missing = ~sets.mask[rows, columns] | (columns < 0)
    n_missing = int(is_missing.sum())
    chance_of_missing = np.where(columns < 0, 1.0, 1 - sets.mask[rows].mean(0)[columns])
    missing_by_chance = chance_of_missing.sum()
    return bool(n_missing <= len(rows) / 20 and missing_by_chance >= _MIN_EXCESS + 4 * n_missing)
