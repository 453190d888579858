"""Render cells as a table, and notes below it: in Markdown, in LaTeX, or for a terminal of 80 columns."""

from collections.abc import Sequence
from textwrap import fill

TEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "±": r"$\pm$"})
SHORT = {  # titles of columns for a terminal
    "covering rate": "covering",
    "approximated accuracy": "approx.",
    "paper (oracle)": "paper",
    "oracle - paper": "differs",
    "trials": "n",
    "p (Wilcoxon)": "Wilcoxon",
    "effect size": "effect",
}


def typeset(head: Sequence[str], rows: Sequence[Sequence[str]], form: str) -> str:
    """Return cells as a Markdown table ("markdown"), in LaTeX with booktabs ("latex"), or in plain columns ("text")."""
    if form == "text":
        return _plain_columns(head, rows)
    if form == "markdown":
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        lines.insert(1, f"|{'---|' * len(head)}")
        return "\n".join(lines)
    first, *body = [_latex_row(row) for row in (head, *rows)]
    begin = r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}"
    return "\n".join([begin, r"\toprule", first, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def _plain_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns: the first to the left, the others to the right."""
    table = [[SHORT.get(name, name) for name in head], *rows]
    widths = []
    for column in zip(*table, strict=True):
        widths.append(max(map(len, column)))
    lines = []
    for row in table:
        first, *others = row
        padded = [first.ljust(widths[0])]
        for cell, width in zip(others, widths[1:], strict=True):
            padded.append(cell.rjust(width))
        lines.append("  ".join(padded))
    return "\n".join(lines)


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(cell.translate(TEX) for cell in row) + r" \\"


def listed(notes: Sequence[str], form: str) -> str:
    """Return the notes below a table: as a list, in LaTeX as comments."""
    if form == "text":
        return "\n".join(fill(note, 79, initial_indent="- ", subsequent_indent="  ") for note in notes)
    mark = "%" if form == "latex" else "-"
    return "\n".join(f"{mark} {note}" for note in notes)
