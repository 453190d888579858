"""`oneof export RUN --onnx FILE`: the model for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import say


def export(
    run: RunFolder,
    onnx: Annotated[Path, typer.Option(help="Where to write the ONNX model (needs onnx, onnxruntime).")],
) -> None:
    """Write the whole model as one ONNX graph: columns in, probabilities and labels out. First onnxruntime must find the same."""
    from oneof.runs.export import export_onnx
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    check_out(onnx, (".onnx",))
    model = Run.open(run).model
    difference = export_onnx(model, onnx)
    say(
        f"wrote {onnx}: columns as in the table to {len(model.classes)} probabilities and a label; "
        f"onnxruntime differs by {difference:.1g} at most"
    )
    for line in model.encoding.made:
        say(f"{line}: make them before you ask the graph")
