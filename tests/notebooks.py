"""Notebooks of the gallery: executed here, without Jupyter, and their output compared with what is stored, or stored.

    python tests/notebooks.py examples/gallery/*.ipynb      # run notebooks and store their output

A cell's output is what it prints, and the figures of Matplotlib that it leaves open.
"""

from __future__ import annotations

import base64
import json
import sys
from contextlib import chdir, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib

FIGURE_WIDTH = 640  # pixels at most, to keep notebooks small


def execute(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """Run the code cells of a notebook in a folder, and return the outputs of each."""
    matplotlib.use("Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    outputs = []
    with chdir(folder):
        for cell in code_cells(notebook):
            with redirect_stdout(StringIO()) as printed:
                exec(compile("".join(cell["source"]), "cell", "exec", dont_inherit=True), names)
            cell_outputs: list[dict[str, Any]] = []
            if printed.getvalue():
                lines = printed.getvalue().splitlines(keepends=True)
                cell_outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
            outputs.append(cell_outputs + _figures())
    return outputs


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed_text(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell printed."""
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def _figures() -> list[dict[str, Any]]:
    """Return the open figures as outputs, and close them."""
    from matplotlib import pyplot as plt

    outputs = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        buffer = BytesIO()
        figure.savefig(buffer, dpi=min(100, FIGURE_WIDTH / figure.get_figwidth()), metadata={"Software": None})
        picture = base64.b64encode(buffer.getvalue()).decode()
        outputs.append({"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}})
        plt.close(figure)
    return outputs


def store_outputs(path: Path, folder: Path) -> None:
    """Run a notebook, and write its outputs into it."""
    notebook = json.loads(path.read_text("utf-8"))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), execute(notebook, folder), strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    import tempfile

    import torch

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as made:
            store_outputs(Path(name), Path(made))
