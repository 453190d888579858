"""Cells as a table, and notes below it: Markdown, LaTeX, or for a terminal of 80 columns."""

from collections.abc import Sequence
from textwrap import fill

TEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "±": r"$\pm$"})
SHORT = {  # heads where columns are scarce
    "covering rate": "covering", "approximated accuracy": "approx.", "paper (oracle)": "paper", "oracle - paper": "differs",
    "trials": "n", "p (Wilcoxon)": "Wilcoxon", "effect size": "effect",
}  # fmt: skip


def typeset(head: Sequence[str], rows: Sequence[Sequence[str]], form: str) -> str:
    """Cells as a Markdown table, as one of LaTeX's booktabs, or in plain columns."""
    if form == "text":
        head = [SHORT.get(name, name) for name in head]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        padded = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in (head, *rows)]
        return "\n".join("  ".join(row) for row in padded)
    if form == "markdown":
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
    body = [" & ".join(cell.translate(TEX) for cell in row) + r" \\" for row in (head, *rows)]
    begin = r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}"
    return "\n".join([begin, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"])


def listed(some: Sequence[str], form: str) -> str:
    """Notes below a table: a list, or in LaTeX comments."""
    if form == "text":
        return "\n".join(fill(note, 79, initial_indent="- ", subsequent_indent="  ") for note in some)
    return "\n".join(f"{'%' if form == 'latex' else '-'} {note}" for note in some)
