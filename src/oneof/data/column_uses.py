"""Describe how each column of a table is used, and why: for the terminal, run.json and the report."""

from collections.abc import Mapping
from dataclasses import dataclass

from oneof.data.not_features import short_reason
from oneof.data.roles import ColumnRoles, Kind
from oneof.data.text_columns import TextUse

_PLURALS = {
    "number": "numbers",
    "date": "dates",
    "category": "categories",
    "text": "texts",
    "image": "images",
    "left out": "left out",
}
_MAX_NAMES = 8  # in a line of the summary
_KIND_REASONS = {"number": "numbers", "date": "dates, as days since 1970", "category": "a categorical type"}


@dataclass(frozen=True)
class ColumnUse:
    """Use of a column, and the reason."""

    # "number", "date", "category", "text", "image", "left out"; or "candidates", "exclusions", "gold", "group"
    use: str
    reason: str


def describe_columns(
    kinds: Mapping[str, Kind],
    requested: ColumnRoles,
    resolved: ColumnRoles,
    texts: Mapping[str, TextUse],
    left_out: Mapping[str, str],
) -> dict[str, ColumnUse]:
    """Return the use of every column of a table.

    Parameters
    ----------
    kinds
        What each column holds.
    requested, resolved
        The roles as a person wrote them, and with the columns that are learned from.
    texts
        What was decided about columns of text by their values.
    left_out
        Columns that look like features but are not, with the reason.
    """
    supervision = {
        requested.candidates: ColumnUse("candidates", "the candidate sets"),
        requested.exclude: ColumnUse("exclusions", "labels that are ruled out"),
        requested.gold: ColumnUse("gold", "true labels, never trained on by default"),
        requested.group: ColumnUse("group", "rows of one group stay together"),
    }
    uses = {}
    for name, kind in kinds.items():
        if name in supervision:
            uses[name] = supervision[name]
        elif name in left_out:
            reason = short_reason(left_out[name])
            if name in texts and texts[name].use == left_out[name]:
                reason = texts[name].reason
            uses[name] = ColumnUse("left out", reason)
        else:
            uses[name] = _feature_use(name, kind, requested, resolved, texts)
    return uses


def _feature_use(
    name: str, kind: Kind, requested: ColumnRoles, resolved: ColumnRoles, texts: Mapping[str, TextUse]
) -> ColumnUse:
    """Return the use of a column that is a feature, or that nobody requested."""
    by_values = None
    if name in texts:
        by_values = texts[name].reason
    if name in resolved.features:
        use = "number"
        if name in resolved.dates:
            use = "date"
        return ColumnUse(use, by_values or _KIND_REASONS[use])
    if name in resolved.categories:
        if by_values:
            return ColumnUse("category", by_values)
        if name in requested.categories or name in requested.features:
            return ColumnUse("category", "as requested")
        return ColumnUse("category", _KIND_REASONS["category"])
    if name in resolved.text:
        model = resolved.text_model or "TF-IDF"
        return ColumnUse("text", f"{by_values or 'as requested'}; by {model}")
    if name in resolved.image:
        return ColumnUse("image", "as requested")
    if name in requested.ignore:
        return ColumnUse("left out", "ignored as requested")
    return ColumnUse("left out", "not among the features requested")


def summary_lines(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Summarise the uses of columns, as run.json has them: a line per use, and per reason of those that are left out."""
    groups: dict[str, list[str]] = {}
    for use in _PLURALS:
        for name, column in columns.items():
            if column["use"] != use:
                continue
            group = use
            if use == "left out":
                group = f"left out ({column['reason']})"
            groups.setdefault(group, []).append(name or "(unnamed)")
    lines = []
    for group, names in groups.items():
        title = group
        if len(names) > 1:
            title = _PLURALS.get(group, group)
        shown = ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            shown += ", ..."
        lines.append(f"{len(names):,} {title}: {shown}")
    return lines
