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
    from oneof.runs.export import export_model
    from oneof.runs.folder import Run
    from oneof.storage.sheets import check_out

    paths = {ending: path for ending, path in ((".onnx", onnx), (".pt2", torch)) if path is not None}
    if not paths:
        raise ValueError("export needs --onnx FILE or --torch FILE; got neither. Give one of them.")
    for ending, path in paths.items():
        check_out(path, (ending,))
    model = Run.open(run).model
    for ending, path in paths.items():
        difference = export_model(model, path)
        label, by = (" and a label", "onnxruntime") if ending == ".onnx" else ("", "torch.export")
        made = f"columns as in the table to {len(model.classes)} probabilities{label}"
        say(f"wrote {path}: {made}; {by} differs by {difference:.1g} at most")
    for line in model.encoding.made:
        say(f"{line}: make them before you ask the graph")
