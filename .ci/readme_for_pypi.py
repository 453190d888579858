"""Make the links of README absolute, for PyPI, which shows README without the repository around it.

    python .ci/readme_for_pypi.py https://github.com/OWNER/NAME v0.2.0

In a checkout links are relative, so that they lead to the files beside it. The workflow *release* runs this before it builds.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """Return a text whose links lead to a repository on GitHub; pictures are linked as files, not as pages about them."""

    def replace(match: re.Match[str]) -> str:
        is_picture, title, target = match.groups()
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{title}]({repository}/{kind}/{tag}/{target})"

    return LINK.sub(replace, text)


if __name__ == "__main__":
    repository, tag = sys.argv[1:]
    README.write_text(with_absolute_links(README.read_text("utf-8"), repository.rstrip("/"), tag), "utf-8")
