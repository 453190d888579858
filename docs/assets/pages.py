"""For mkdocs: pages that are written when the site is built, and menu entries for folders.

- reference/cli.md, from the commands themselves;
- gallery/NAME.md, from the notebooks in examples/gallery;
- decisions, in the order of their numbers.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

from oneof.cli import app

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples/gallery"


def on_config(config: Any) -> Any:
    """Add notebooks and decisions to the menu. Called when mkdocs.yml has been read."""
    sections = {}
    for entry in config.nav:
        sections.update(entry)
    for notebook in notebooks():
        sections["Gallery"].append(f"gallery/{notebook.stem}.md")
    decisions = sorted(Path(config.docs_dir, "decisions").glob("0*.md"))
    for entry in sections["Research"]:
        if isinstance(entry, dict) and "Decisions" in entry:
            entry["Decisions"] += [{_short_title(page): f"decisions/{page.name}"} for page in decisions]
    return config


def _short_title(page: Path) -> str:
    """Return a decision's line in the menu, such as "0007 Tables at rest"."""
    number, name = page.stem.split("-", 1)
    return f"{number} {name.replace('-', ' ').capitalize()}"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not stored. Called when mkdocs has listed the files."""
    files.append(File.generated(config, "reference/cli.md", content=command_line_page()))
    for notebook in notebooks():
        page, pictures = render_notebook(notebook)
        files.append(File.generated(config, f"gallery/{notebook.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"gallery/{name}", content=content))
    return files


def notebooks() -> list[Path]:
    """Return the notebooks of the gallery, in the order of their names."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def render_notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, with the pictures that it shows."""
    parts = []
    pictures = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                text = "".join(output["text"]).rstrip()
                parts.append(f"```text\n{text}\n```")
            else:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![Output of the cell above]({name}){{ .figure }}")
    parts.append(f"*This page is `examples/gallery/{path.name}`, with the output that it had when it was last run.*")
    return "\n\n".join(parts) + "\n", pictures


def command_line_page() -> str:
    """Return the reference of the command line, in Markdown, made from the commands."""
    group = typer.main.get_command(app)
    parts = [
        "# Command line",
        "Written from the commands themselves when this site is built; `oneof COMMAND --help` prints the same. "
        "Bad input ends with one line on standard error and exit code 2.",
    ]
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            parts.append(f"## oneof {name}\n\n{_paragraphs(command.help)}")
            for inner_name, inner in command.commands.items():
                parts.append(_describe(f"oneof {name} {inner_name}", inner, level=3))
        else:
            parts.append(_describe(f"oneof {name}", command, level=2))
    return "\n\n".join(parts) + "\n"


def _describe(name: str, command: Any, level: int) -> str:
    """Return a command's section: how it is called, and a table of options for each group of them."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * level} {name}", _paragraphs(command.help), f"```text\n{usage}\n```"]
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = _record(parameter, context)
        if record is not None:
            panel = getattr(parameter, "rich_help_panel", None)
            default_panel = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panels.setdefault(panel or default_panel, []).append(record)
    for panel, rows in panels.items():
        parts.append(f"| {panel} | |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _record(parameter: Any, context: Any) -> str | None:
    """Return an option's or argument's line of the table, or None if it is hidden or --help."""
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    if parameter.param_type_name == "argument":
        names = parameter.metavar or parameter.name.upper()
        text = parameter.help or ""
    else:
        described = parameter.get_help_record(context)
        if described is None:
            return None
        names, text = described
    return f"| `{' '.join(names.split())}` | {_escape(text)} |"


def _paragraphs(text: str | None) -> str:
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", (text or "").strip())


def _escape(text: str) -> str:
    """Escape what would end a table's cell or be read as HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
