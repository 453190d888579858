"""For mkdocstrings, whose NumPy reader would misread two habits of our docstrings."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Puts "Examples" above the first prompt, and words in place of braces.

    A bare doctest after the parameters would be taken for one of them, and the first of `{"a", "b"}` for the default.
    """

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for every function, class and module as it is read."""
        if obj.docstring is None:
            return
        text = re.sub(r"^(\w+) : \{(.*?)\}", r"\1 : one of \2", obj.docstring.value, flags=re.MULTILINE)
        if "Examples\n---" not in text:
            text = re.sub(r"^>>>", "Examples\n--------\n>>>", text, count=1, flags=re.MULTILINE)
        obj.docstring.value = text
