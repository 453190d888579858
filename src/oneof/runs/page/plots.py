"""Plots as SVG that belongs to the page: its colours, its fonts, its light and its dark.

Matplotlib draws with four stand-in colours, which are then exchanged for the page's CSS variables. Labels of the data never
reach matplotlib (it would read `$` as mathematics, and lacks the glyphs of many scripts): it draws a stand-in for each, which
is exchanged for the escaped name.
"""

import io
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import NamedTuple

import matplotlib.style
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, ACCENT, PAPER, LINE = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {INK: "var(--ink-2)", ACCENT: "var(--accent)", PAPER: "var(--paper)", LINE: "var(--line)"}
_STYLE = str(files("oneof.runs.page") / "templates" / "plots.mplstyle")
_LONGEST = 18  # characters of a label beside an axis


class Drawing(NamedTuple):
    """An SVG without its first tag: the page writes that, with words for those who cannot see it."""

    box: Markup  # its attribute viewBox
    inside: Markup


def plot(
    name: str, draw: Callable[[Axes], None], labels: Sequence[str] = (), size: tuple[float, float] = (4.6, 2.9)
) -> Drawing:
    """What `draw` makes of its axes; `labels` are what `stand_in` stands for."""
    with matplotlib.style.context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()[drawn.getvalue().index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    box, inside = re.search(r'viewBox="[^"]+"', svg), svg[svg.index(">") + 1 :]
    inside = re.sub(r'<g id="[^"]*"', "<g", inside)
    inside = re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-", inside).replace("xlink:href", "href")
    for colour, variable in _VARIABLES.items():
        inside = inside.replace(colour, variable)
    inside = re.sub(r"@(\d+)n*@", lambda found: _name(labels[int(found[1])]), inside.strip())
    return Drawing(Markup(box[0] if box else ""), Markup(inside))


def stand_in(label: int, name: str) -> str:
    """Drawn in place of a label's name: about as wide, and nothing else in a drawing looks like it."""
    return f"@{label}".ljust(len(_short(name)) - 1, "n") + "@"


def _name(label: str) -> str:
    return f"{escape(_short(label))}<title>{escape(label)}</title>"


def _short(label: str) -> str:
    """Shortened near the end, since names of one kind may differ there or at the start; whole when pointed at."""
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 7]}…{label[-6:]}"
