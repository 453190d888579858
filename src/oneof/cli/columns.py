"""The options that say which column of a table plays which part: the same in every command that reads a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from oneof.data.roles import Roles

TableFile = Annotated[
    Path, typer.Argument(help="A CSV, TSV, Parquet or npz table, or a .mat file as partial-label data sets have it.")
]
CacheFolder = Annotated[
    Path | None, typer.Option("--cache-dir", help="Where embeddings are kept. Default: ~/.cache/oneof, or as XDG_CACHE_HOME says.")
]  # fmt: skip
_DEFAULT = Roles()
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "candidates": (Annotated[str | None, typer.Option(help="The column of candidate sets. Default: 'candidates'; with --not it may be missing.")], None),
    "exclude": (Annotated[str | None, typer.Option("--not", help="A column of labels that a row does not have.")], None),
    "gold": (Annotated[str | None, typer.Option(help="A column of true labels, where known: to choose settings by, and to measure the accuracy where rows were drawn at random; not to train on.")], None),
    "features": (Annotated[list[str] | None, typer.Option(help="A column, or a glob such as 'x*'; may be given again. Only these columns are features then; one of text becomes a category. Default: '*', all columns of numbers and dates.")], None),
    "categories": (Annotated[list[str] | None, typer.Option("--category", help="A column to take as a category beside the features: text, or numbers that are names. May be given again.")], None),
    "text": (Annotated[list[str] | None, typer.Option(help="A column of free text: its words become numbers, without a network. May be given again.")], None),
    "text_model": (Annotated[str | None, typer.Option(help="An embedder for --text, of sentence-transformers: a name or a folder. Default: none, TF-IDF; an embedder knows more words than the table.")], None),
    "image": (Annotated[list[str] | None, typer.Option(help="A column of image files, beside the table, to embed (needs timm). May be given again.")], None),
    "image_model": (Annotated[str | None, typer.Option(help="The embedder of --image: a name that timm knows, or its .safetensors file. Default: a small ResNet.")], None),
    "group": (Annotated[str | None, typer.Option(help="Rows with one value here stay on one side of a split.")], None),
    "ignore": (Annotated[list[str] | None, typer.Option(help="A column to keep out, such as an id. May be given again.")], None),
    "separator": (Annotated[str, typer.Option(help="What stands between the labels of a text cell.")], _DEFAULT.separator),
    "empty": (Annotated[str, typer.Option(help="What an empty set means: 'error' or 'unlabelled'.")], _DEFAULT.empty),
}  # fmt: skip


def takes_roles(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its argument `roles`."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, one in signature(command).parameters.items()
        if name != "roles"
    ]
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        columns = {name: given.pop(name) for name in _OPTIONS}
        command(roles=_roles(columns), **given)

    required = [one for one in own if one.default is Parameter.empty]
    ordered = [*required, *options, *(one for one in own if one not in required)]
    with_options.__signature__ = signature(command).replace(parameters=ordered)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in ordered} | {"return": None}
    return with_options


def _roles(given: dict[str, Any]) -> Roles:
    said: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    said = {name: value for name, value in said.items() if value not in (None, ())}
    for kind in ("text", "image"):
        if f"{kind}_model" in said and kind not in said:
            raise ValueError(f"--{kind}-model needs a column to embed. Say --{kind} COLUMN too.")
    if "exclude" in said:
        said.setdefault("candidates", None)
    return Roles(**said)
