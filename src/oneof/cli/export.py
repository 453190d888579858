"""`oneof export RUN --onnx FILE` or `--torch FILE`: the model for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import say


def export(
    run: RunFolder,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX model here (needs onnx, onnxruntime). Default: none.")] = None,
    torch: Annotated[Path | None, typer.Option(help="Write a program of torch.export here, a .pt2 file, which needs torch alone. Default: none.")] = None,
) -> None:  # fmt: skip
    """Write the whole model: columns in, probabilities out (in ONNX labels too). First the file must give what the model gives."""
    from oneof.runs.export import export_onnx, export_torch
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    ways = [(onnx, ".onnx", export_onnx, "onnxruntime"), (torch, ".pt2", export_torch, "torch.export")]
    asked = [(path, ending, write, name) for path, ending, write, name in ways if path is not None]
    if not asked:
        raise ValueError("export needs --onnx FILE or --torch FILE; got neither. Give one of them.")
    for path, ending, _, _ in asked:
        check_out(path, (ending,))
    model = Run.open(run).model
    for path, ending, write, name in asked:
        difference = write(model, path)
        label = " and a label" if ending == ".onnx" else ""
        made = f"columns as in the table to {len(model.classes)} probabilities{label}"
        say(f"wrote {path}: {made}; {name} differs by {difference:.1g} at most")
    for line in model.encoding.made:
        say(f"{line}: make them before you ask the graph")
