"""Label Studio itself, where it is installed, with its own connector: predictions come in, annotations and training come back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from run_folder import write_run
from test_review_label_studio import CONFIG

from oneof.review.label_studio import Backend
from oneof.review.session import Review
from oneof.runs.decisions import Log

NAMES = ["cat", "dog", "fox", "cow"]
INSTALLED = shutil.which("label-studio")  # best in an environment of its own, whose bin is on the PATH
SCRIPT = Path(__file__).parents[1] / "fixtures/label_studio_project.py"


@pytest.mark.slow
@pytest.mark.skipif(
    INSTALLED is None, reason="label-studio is not on the PATH: python -m venv V, V/bin/pip install label-studio"
)
def test_a_project_of_label_studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend(Review(write_run(tmp_path / "RUN", n=80, names=NAMES, gold=0, groups=0)), 0)
    learning = threading.Event()
    monkeypatch.setattr(backend.review, "_learn", lambda folder: learning.set())
    threading.Thread(target=backend.serve_forever, args=(0.02,), daemon=True).start()
    rows = [row for row in backend.review.run.purified.to_pylist() if len(row["original"]) > 1][:5]
    config = CONFIG.replace('<Choice value="cat"/>', "".join(f'<Choice value="{name}"/>' for name in NAMES))
    tasks = [{"data": {"row": row["row"], "text": f"thing {row['row']}"}} for row in rows]
    answers, changed = [row["original"][-1] for row in rows[:3]], rows[1]["original"][0]
    (tmp_path / "asked.json").write_text(
        json.dumps({"config": config, "tasks": tasks, "answers": answers, "changed": changed})
    )
    python = Path(str(INSTALLED)).parent / "python"
    place = os.environ | {"LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path), "PYTHONPATH": ""}
    address = f"http://localhost:{backend.server_port}"
    done = subprocess.run([python, SCRIPT, address, tmp_path], env=place, capture_output=True, text=True, timeout=600)
    backend.shutdown()
    backend.server_close()
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["backend"]["state"] == "CO"  # connected
    for row, task in zip(rows, told["tasks"], strict=True):
        (prediction,) = task["predictions"]
        assert prediction["result"][0]["value"] == {"choices": [row["label"]]}
        assert prediction["score"] == pytest.approx(row["probability"], abs=1e-5)
        assert prediction["model_version"] == backend.version
    kept = {one.row: one.labels for one in Log(tmp_path / "RUN").active_decisions}
    assert kept == {rows[0]["row"]: (answers[0],), rows[1]["row"]: (changed,)}  # the third was deleted
    assert learning.wait(5)
