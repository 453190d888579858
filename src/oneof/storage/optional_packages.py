"""Import packages that only some commands need, with a message that says what to install if that fails."""

from importlib import import_module
from typing import Any


def load_package(module: str, purpose: str, function: str | None = None, extra: str | None = None) -> Any:
    """Import a package, or a function of it; `extra` is the extra of oneof that installs it.

    Raises ValueError that distinguishes a package that is not installed from one that is installed but cannot be imported.
    """
    name = module.replace("_", "-")
    try:
        package = import_module(module)
        if function is None:
            return package
        return getattr(package, function)  # some packages import their parts only now
    except Exception as error:  # a broken package may raise anything: torchvision with another torch a RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            to_install = name
            if extra is not None:
                to_install = f"'oneof[{extra}]'"
            problem = f"it is not installed. Run: pip install {to_install}."
        else:
            cause = _describe_root_cause(error)
            problem = f"it is installed, but cannot be imported ({cause}). Install it again, or what it names."
        raise ValueError(f"{purpose} needs the package {name}; {problem}") from error


def _describe_root_cause(error: BaseException) -> str:
    """Return the first error of a chain on one line; packages that import lazily hide it behind others."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    message = " ".join(str(root).split())
    return f"{type(root).__name__}: {message[:200]}"
