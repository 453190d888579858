"""Packages that only some commands need: imported when they are needed, and told as what they are where that fails."""

from importlib import import_module
from typing import Any


def load_package(module: str, purpose: str, function: str | None = None) -> Any:
    """Import a package, or a function of it; one that is absent is told from one that is there and broken."""
    name = module.replace("_", "-")
    try:
        package = import_module(module)
        return getattr(package, function) if function else package  # which some packages import only now
    except Exception as error:  # a broken package raises what it will: torchvision beside another torch a RuntimeError
        root: BaseException = error
        while root.__cause__ is not None:  # packages that import lazily hide why
            root = root.__cause__
        why = f"{type(root).__name__}: {' '.join(str(root).split())[:200]}"
        said = f"it is installed, but cannot be imported ({why}). Install it again, or what it names."
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            said = f"it is not installed. Run: pip install {name}."
        raise ValueError(f"{purpose} needs the package {name}; {said}") from error
