"""For mkdocstrings: docstrings here end with a bare doctest, which its NumPy reader would take for parameters. It gets a heading."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Puts "Examples" above the first prompt of a docstring that has no such heading."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for every function, class and module as it is read."""
        if obj.docstring is not None and "Examples\n---" not in obj.docstring.value:
            obj.docstring.value = re.sub(
                r"^>>>", "Examples\n--------\n>>>", obj.docstring.value, count=1, flags=re.MULTILINE
            )
