"""`oneof export RUN --onnx FILE` or `--torch FILE`: write the model for other programs."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import echo


def export(
    run: RunFolder,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="ONNX model to write: columns in, probabilities and a label out. Needs onnx and onnxruntime.")] = None,
    torch: Annotated[Path | None, typer.Option(metavar="FILE", help="torch.export program to write, a .pt2 file: columns in, probabilities out. Needs torch alone.")] = None,
) -> None:  # fmt: skip
    """Write the model, encoding of columns included, for programs without oneof; its predictions are compared first."""
    from oneof.runs.export import export_model
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    if onnx is None and torch is None:
        raise ValueError("export needs --onnx FILE or --torch FILE; got neither. Give one of them.")
    if onnx is not None:
        check_out(onnx, (".onnx",))
    if torch is not None:
        check_out(torch, (".pt2",))
    model = Run.open(run).model
    n_classes = len(model.classes)
    if onnx is not None:
        difference = export_model(model, onnx)
        echo(
            f"wrote {onnx}: columns as in the table to {n_classes} probabilities and a label; "
            f"onnxruntime differs by {difference:.1g} at most"
        )
    if torch is not None:
        difference = export_model(model, torch)
        echo(
            f"wrote {torch}: columns as in the table to {n_classes} probabilities; "
            f"torch.export differs by {difference:.1g} at most"
        )
    for line in replace(model.encoding, patches=()).derived_features:
        echo(f"{line}: compute them before you call the model")
    for part in model.encoding.patches:
        channels, side, _ = part.pixels.shape
        echo(f"{part.column}: give its pixels as pictures, levels 0 to 255, {channels} x {side} x {side} in a row")
