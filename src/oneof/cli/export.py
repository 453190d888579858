"""`oneof export RUN --onnx FILE`: the model for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder


def export(
    run: RunFolder,
    onnx: Annotated[Path, typer.Option(help="Where to write the ONNX model (needs onnx, onnxruntime).")],
) -> None:
    """Write the ensemble as one ONNX graph, after onnxruntime has found the same probabilities."""
    from oneof.runs.export import export_onnx
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    check_out(onnx, (".onnx",))
    model = Run.open(run).model
    difference = export_onnx(model, onnx)
    typer.echo(
        f"wrote {onnx}: {len(model.encoding.names)} features to {len(model.classes)} probabilities; "
        f"onnxruntime differs by {difference:.1g} at most"
    )
    for line in model.encoding.made:
        typer.echo(f"{line}: make them before you ask the graph")
