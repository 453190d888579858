"""Write what was learned to a run folder."""

import json
import shutil
from pathlib import Path
from typing import Any

from oneof.ensemble.records import FitResult
from oneof.runs.folder import METADATA, PURIFIED, ROWS, TRAINING, write_json, write_sample
from oneof.runs.stored_model import save_model
from oneof.storage.files import atomic_write
from oneof.storage.sheets import write_sheet


def write_run(result: FitResult, folder: Path, metadata: dict[str, Any]) -> None:
    """Write every part into a folder that exists; run.json comes last, since with it the run counts as finished."""
    save_model(result.model, folder)
    write_sheet(result.purified, folder / PURIFIED)
    write_json(result.training, folder / TRAINING)
    with atomic_write(folder / ROWS) as file:
        for row in result.tried:
            line = json.dumps(row, ensure_ascii=False)
            file.write(f"{line}\n".encode())
    write_sample(result.purified, folder)
    write_json({**result.metadata, **metadata}, folder / METADATA)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
