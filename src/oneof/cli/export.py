"""`oneof export RUN`: write the model for other programs, or as a folder to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import echo

if TYPE_CHECKING:
    from oneof.data.encode import Encoding


def export(
    run: RunFolder,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="ONNX model to write: columns in, probabilities and a label out. Needs onnx and onnxruntime.")] = None,
    torch: Annotated[Path | None, typer.Option(metavar="FILE", help="torch.export program to write, a .pt2 file: columns in, probabilities out. Needs torch alone.")] = None,
    hugging_face: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder to write, to be shared on the Hugging Face Hub or elsewhere: the model and a model card, without the training rows.")] = None,
    mlflow: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder to write in the format of MLflow, to be served or registered. Needs mlflow-skinny or mlflow.")] = None,
) -> None:  # fmt: skip
    """Write the model, encoding of columns included, for programs without oneof, or as a folder to share.

    The predictions of --onnx and --torch are compared with those of the run first.
    """
    from oneof.runs.export import export_model
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    if onnx is None and torch is None and hugging_face is None and mlflow is None:
        raise ValueError(
            "export needs --onnx FILE, --torch FILE, --hugging-face FOLDER or --mlflow FOLDER; got none. Give one of them."
        )
    for folder in (hugging_face, mlflow):
        if folder is not None and folder.exists():
            raise ValueError(f"a folder to export to must be new; {folder} exists. Give another name.")
    if onnx is not None:
        check_out(onnx, (".onnx",))
    if torch is not None:
        check_out(torch, (".pt2",))
    opened = Run.open(run)
    model = opened.model
    n_classes = len(model.classes)
    if onnx is not None:
        difference = export_model(model, onnx)
        columns = f"columns as in the table to {n_classes} probabilities and a label"
        echo(f"wrote {onnx}: {columns}; onnxruntime differs by {difference:.1g} at most")
    if torch is not None:
        difference = export_model(model, torch)
        columns = f"columns as in the table to {n_classes} probabilities"
        echo(f"wrote {torch}: {columns}; torch.export differs by {difference:.1g} at most")
    if hugging_face is not None:
        from oneof.runs.model_card import CARD, write_model_folder

        write_model_folder(opened, hugging_face)
        echo(f"wrote {hugging_face}: the model, and {CARD} about it. To share it: hf upload NAME/MODEL {hugging_face}")
    if mlflow is not None:
        from oneof.runs.mlflow import save_model

        save_model(opened, mlflow)
        echo(f"wrote {mlflow}: a model of MLflow. To serve it: mlflow models serve -m {mlflow} --env-manager local")
    if onnx is not None or torch is not None:
        _describe_inputs(model.encoding)


def _describe_inputs(encoding: Encoding) -> None:
    """Print what the caller of an exported model has to compute, and how pictures are given."""
    for line in replace(encoding, patches=()).derived_features:
        echo(f"{line}: compute them before you call the model")
    for part in encoding.patches:
        channels, side, _ = part.pixels.shape
        echo(f"{part.column}: give its pixels as pictures, levels 0 to 255, {channels} x {side} x {side} in a row")
