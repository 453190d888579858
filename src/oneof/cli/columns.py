"""Options that several commands share: above all, which column of a table has which role."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from oneof.data.roles import PATCHES, ColumnRoles

# panels of the help; what is in none of them comes first
INPUT = "Input"
VOTES = "Votes (with --votes)"
PICTURES = "Pictures (with --image, or a folder)"
LEARNING = "Learning"
RESOURCES = "Output and resources"

TableFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Table: CSV, TSV, Parquet, npz or .mat.")]  # fmt: skip
CacheFolder = Annotated[Path | None, typer.Option("--cache-dir", metavar="FOLDER", rich_help_panel=RESOURCES, help="Folder of cached embeddings. Default: ~/.cache/oneof, or below XDG_CACHE_HOME.")]  # fmt: skip
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="Folder that oneof fit wrote.")]
DataFolder = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder of the data sets. Default: ONEOF_DATA.")]  # fmt: skip
Unpacked = Annotated[float, typer.Option(metavar="GB", rich_help_panel=INPUT, help="Gigabytes that a compressed file may unpack to. Raise it for a file that you trust.")]  # fmt: skip


def roles_from_options(
    candidates: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of candidate labels, such as 'cat|dog'; or 'is_*' for columns of 0 and 1, one for each label. Default: 'candidates'; with --not, none.")] = None,
    features: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to learn from, or a pattern such as 'x*'. Repeatable. Default: all columns of numbers, dates, or text with few values.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out, such as an id. Repeatable.")] = None,
    text: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of free text to learn from. Repeatable. Default: free text is used if sentence-transformers is installed with a model.")] = None,
    image: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of picture files, relative to the table, or of their bytes.")] = None,
    exclude: Annotated[str | None, typer.Option("--not", metavar="COLUMN", rich_help_panel=INPUT, help="Column of labels that are ruled out for the row, the opposite of --candidates. Without --candidates, all other labels are candidates.")] = None,
    gold: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=INPUT, help="Column of true labels in the table, empty where unknown. They choose settings and measure the accuracy; they are trained on only with --train-on-gold.")] = None,
    category: Annotated[list[str] | None, typer.Option(metavar="COLUMN", rich_help_panel=INPUT, help="Column to read as a category although it holds numbers, or text with many values. Repeatable.")] = None,
    group: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=INPUT, help="Column of groups, such as patients: a group is trained on or held out as a whole.")] = None,
    text_model: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=INPUT, help="Embed --text by this model of sentence-transformers, a name or a folder. Default: counts of words (TF-IDF).")] = None,
    image_model: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=PICTURES, help="Embed --image by this timm model, a name or a .safetensors file, and learn from the embeddings. 'patches': features that are learned from the pictures themselves, in seconds. Default: a small ResNet if its weights are on this machine; else patches, or on a GPU a network that is trained on the pixels.")] = None,
    side: Annotated[int | None, typer.Option(metavar="PIXELS", rich_help_panel=PICTURES, help="Resize pictures to this many pixels a side, 8 to 512; larger ones show more and take longer. Default: their own size, at most 64.")] = None,
    separator: Annotated[str, typer.Option(metavar="TEXT", rich_help_panel=INPUT, help="Separator of the labels in a cell.")] = ColumnRoles.separator,
    unpacked: Unpacked = ColumnRoles.unpacked,
    empty: Annotated[str, typer.Option(metavar="MEANING", rich_help_panel=INPUT, help="What an empty set means: 'error' stops, 'unlabelled' allows every label.")] = ColumnRoles.empty,
) -> ColumnRoles:  # fmt: skip
    """Return the roles of the columns that the options give."""
    if text_model is not None and not text:
        raise ValueError("--text-model needs a column to embed. Add --text COLUMN.")
    if image_model is not None and not image:
        raise ValueError("--image-model needs a column to embed. Add --image COLUMN.")
    if side is not None and image_model not in (None, PATCHES):
        raise ValueError(f"--side is for pixels; {image_model} reads pictures in its own size. Leave one of them out.")
    if candidates is None and exclude is None:
        candidates = ColumnRoles.candidates
    return ColumnRoles(
        features=tuple(features or ColumnRoles.features),
        categories=tuple(category or ()),
        text=tuple(text or ()),
        image=tuple(image or ()),
        candidates=candidates,
        exclude=exclude,
        gold=gold,
        group=group,
        ignore=tuple(ignore or ()),
        separator=separator,
        empty=empty,
        text_model=text_model,
        image_model=image_model,
        image_side=side,
        unpacked=unpacked,
    )


def split_classes(text: str | None) -> tuple[str, ...] | None:
    """Return the labels that `--classes` lists; None without it."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(","))


def path_text(path: Path | None) -> str | None:
    """Return the path of an option as settings store it; None without the option."""
    if path is None:
        return None
    return str(path)


def with_column_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `roles_from_options` in place of its parameter `roles`."""
    return with_options(roles=roles_from_options)(command)


def with_options(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command groups of options, each in place of a parameter.

    Parameters
    ----------
    groups
        By the name of the parameter, what is called with the options of the group: a function or a dataclass, whose parameters or
        fields are the options. The command is called with what it returns.
    """
    options_of_groups = {name: _keyword_parameters(group) for name, group in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = []
        for parameter in _keyword_parameters(command):
            parameters.extend(options_of_groups.get(parameter.name, [parameter]))

        @wraps(command)
        def run_with_options(**arguments: Any) -> None:
            for name, group in groups.items():
                group_arguments = {option.name: arguments.pop(option.name) for option in options_of_groups[name]}
                arguments[name] = group(**group_arguments)
            command(**arguments)

        # typer reads the options of a command from its signature and annotations
        run_with_options.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        run_with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run_with_options.__annotations__["return"] = None
        return run_with_options

    return decorate


def _keyword_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function, each with its annotation evaluated and as a keyword, which may stand in any order."""
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for name, parameter in signature(function).parameters.items():
        parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
    return parameters
