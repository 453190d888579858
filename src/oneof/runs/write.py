"""Write what was learned to a run folder."""

import json
import shutil
from pathlib import Path
from typing import Any

from oneof.ensemble.pipeline import Learned
from oneof.runs.folder import METADATA, PURIFIED, ROWS, TRAINING, write_json, write_sample
from oneof.runs.stored_model import save_model
from oneof.storage.files import written_beside
from oneof.storage.sheets import write_sheet


def write_run(learned: Learned, folder: Path, facts: dict[str, Any]) -> None:
    """Write every part into a folder that exists; run.json comes last, since with it the run counts as finished."""
    save_model(learned.model, folder)
    write_sheet(learned.purified, folder / PURIFIED)
    write_json(learned.training, folder / TRAINING)
    with written_beside(folder / ROWS) as file:
        for row in learned.tried:
            line = json.dumps(row, ensure_ascii=False)
            file.write(f"{line}\n".encode())
    write_sample(learned.purified, folder)
    write_json({**learned.facts, **facts}, folder / METADATA)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
