"""Options that several commands share; above all those that say which column of a table plays which part."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from oneof.data.roles import Roles

TableFile = Annotated[Path, typer.Argument(help="A CSV, TSV, Parquet or npz table, or a .mat file of the partial-label community.")]  # fmt: skip
CacheFolder = Annotated[Path | None, typer.Option("--cache-dir", help="Where embeddings are kept. Default: ~/.cache/oneof, or as XDG_CACHE_HOME says.")]  # fmt: skip
RunFolder = Annotated[Path, typer.Argument(help="A folder that oneof fit wrote.")]
DataFolder = Annotated[Path | None, typer.Option(help="Folder of the data sets. Default: what ONEOF_DATA says.")]
Unpacked = Annotated[float, typer.Option(help="Gigabytes that a compressed file may hold. Raise it for a file that you trust.")]  # fmt: skip
_DEFAULT = Roles()
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "candidates": (Annotated[str | None, typer.Option(help="The column of candidate sets. Default: 'candidates'; with --not there may be none.")], None),
    "exclude": (Annotated[str | None, typer.Option("--not", help="A column of labels that are ruled out for the row. Default: none.")], None),
    "gold": (Annotated[str | None, typer.Option(help="A column of true labels, where they are known. They choose settings, and measure the accuracy where rows were drawn at random; they are not trained on. Default: none.")], None),
    "features": (Annotated[list[str] | None, typer.Option(help="A column to learn from, or a glob such as 'x*'. May be given again. Only these are features then; text that is named becomes a category. Default: '*', every column of numbers, dates, or text with few values.")], None),
    "categories": (Annotated[list[str] | None, typer.Option("--category", help="A column to take as a category beside the features: text with many values, or numbers that stand for names. Text with few values is one by default. May be given again.")], None),
    "text": (Annotated[list[str] | None, typer.Option(help="A column of free text to learn from, by the words in it (TF-IDF, offline). May be given again. Default: none; free text is embedded if sentence-transformers and its weights are on this machine, else left out.")], None),
    "text_model": (Annotated[str | None, typer.Option(help="Learn from --text by a model of sentence-transformers instead: its name or folder. Default: none. It knows words that the table lacks.")], None),
    "image": (Annotated[list[str] | None, typer.Option(help="A column of names of image files, looked up beside the table, or of their bytes. A network is trained on them (--network), or --image-model makes numbers of them. May be given again with --image-model.")], None),
    "image_model": (Annotated[str | None, typer.Option(help="The model that turns --image into numbers: a name that timm knows, or its .safetensors file. Default: a small ResNet if its weights are on this machine; else a network is trained.")], None),
    "group": (Annotated[str | None, typer.Option(help="A column of groups, such as patients: rows of one group are trained on together or held out together. Default: none.")], None),
    "ignore": (Annotated[list[str] | None, typer.Option(help="A column to leave out, such as an id. May be given again.")], None),
    "separator": (Annotated[str, typer.Option(help="What separates the labels in a cell of text.")], _DEFAULT.separator),
    "unpacked": (Unpacked, _DEFAULT.unpacked),
    "empty": (Annotated[str, typer.Option(help="What an empty set means: 'error' stops, 'unlabelled' allows every label.")], _DEFAULT.empty),
}  # fmt: skip


def takes_roles(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its argument `roles`."""
    hints, alone = get_type_hints(command, include_extras=True), Parameter.KEYWORD_ONLY
    options = [Parameter(name, alone, annotation=kind, default=value) for name, (kind, value) in _OPTIONS.items()]
    own = {
        name: [one.replace(annotation=hints[name], kind=alone)] for name, one in signature(command).parameters.items()
    }
    ordered = [one for parts in (own | {"roles": options}).values() for one in parts]

    @wraps(command)
    def with_options(**given: Any) -> None:
        columns = {name: given.pop(name) for name in _OPTIONS}
        said: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in columns.items()}
        said = {name: value for name, value in said.items() if value not in (None, ())}
        for kind in ("text", "image"):
            if f"{kind}_model" in said and kind not in said:
                raise ValueError(f"--{kind}-model needs a column to embed. Say --{kind} COLUMN too.")
        if "exclude" in said:
            said.setdefault("candidates", None)
        command(roles=Roles(**said), **given)

    with_options.__signature__ = signature(command).replace(parameters=ordered)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in ordered} | {"return": None}
    return with_options
