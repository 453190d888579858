"""For mkdocs: every decision is in the menu, in the order of its number, without a line for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called when mkdocs.yml has been read."""
    pages = sorted(Path(config.docs_dir, "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{page.name}" for page in pages]})
    return config
