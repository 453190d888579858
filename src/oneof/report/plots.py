"""Draw plots as inline SVG in the colours and fonts of the page, for its light and its dark scheme.

Matplotlib draws with placeholder colours, which are then replaced by the page's CSS variables. Label names never reach
matplotlib, which would read `$` as mathematics and lacks the glyphs of many scripts: it draws a placeholder for each, which
is then replaced by the escaped name.
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

INK = "#010203"
ACCENT = "#040506"
PAPER = "#070809"
LINE = "#0a0b0c"
TEXT = "#0d0e0f"
_CSS_VARIABLES = {
    INK: "var(--ink-2)",
    ACCENT: "var(--accent)",
    PAPER: "var(--paper)",
    LINE: "var(--line)",
    TEXT: "var(--ink)",
}
_STYLE = str(files("oneof.report") / "templates" / "plots.mplstyle")
_MAX_CHARACTERS = 18  # of a label beside an axis
_TAIL = 6  # characters kept from the end of a shortened label


class Drawing(NamedTuple):
    """Hold an SVG without its opening tag, which the template writes together with a description."""

    box: Markup  # the attribute viewBox
    inside: Markup  # everything after the opening tag


def plot(
    name: str, draw: Callable[[Axes], None], labels: Sequence[str] = (), size: tuple[float, float] = (4.6, 2.9)
) -> Drawing:
    """Return the SVG of what `draw` adds to its axes.

    Parameters
    ----------
    name : str
        Prefix of the ids in the SVG, which must be unique on the page.
    draw : callable
        Draws on the axes it is given, with `placeholder` in place of label names.
    labels : sequence of str
        The label names that replace the placeholders.
    size : tuple
        Width and height in inches.
    """
    with matplotlib.style.context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    document = buffer.getvalue()
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    view_box = ""
    match = re.search(r'viewBox="[^"]+"', svg)
    if match is not None:
        view_box = match[0]
    inside = svg[svg.index(">") + 1 :]
    inside = re.sub(r'<g id="[^"]*"', "<g", inside)
    inside = re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-", inside)
    inside = inside.replace("xlink:href", "href")
    for colour, variable in _CSS_VARIABLES.items():
        inside = inside.replace(colour, variable)
    inside = re.sub(r"@(\d+)n*@", lambda match: _svg_text(labels[int(match[1])]), inside.strip())
    return Drawing(Markup(view_box), Markup(inside))


def placeholder(label: int, name: str) -> str:
    """Return text to draw in place of a label's name: about as wide, and unlike anything else in a drawing."""
    width = len(_shorten(name)) - 1
    return f"@{label}".ljust(width, "n") + "@"


def _svg_text(label: str) -> str:
    """Return the escaped and shortened name of a label, with the full name as its tooltip."""
    return f"{escape(_shorten(label))}<title>{escape(label)}</title>"


def _shorten(label: str) -> str:
    """Cut a long label in its middle, since similar names may differ at the start or at the end."""
    if len(label) <= _MAX_CHARACTERS:
        return label
    head = label[: _MAX_CHARACTERS - _TAIL - 1]
    return f"{head}…{label[-_TAIL:]}"
