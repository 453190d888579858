"""Work through a project of Label Studio itself: tasks in, predictions from the backend, annotations back as decisions.

    python -m venv V && V/bin/pip install label-studio
    python benchmarks/robustness/label_studio.py --label-studio V/bin/label-studio --screenshots DIR

Runs are fitted on pictures, on texts and on a table of numbers. For each, Label Studio gets a project with the configuration that
`oneof label-studio RUN --config` prints, the tasks of `oneof clean RUN --out tasks.json`, and the backend with its password; a
person in Chromium opens the first task of the queue, chooses another candidate than the suggested one and submits it. Annotations are
also made, changed and deleted through the API. Printed: what was checked. Needs Chromium and playwright (extra dev).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from review_browser import browser, wait
from sklearn.datasets import load_digits

from oneof.runs.decisions import Log
from oneof.runs.folder import Run

USER = "ann@example.org"
PASSWORD = "a-password-of-ann"
API_TOKEN = "0f" * 20
KINDS = ("image", "text", "cells")
_NAMES = ("zero", "one", "two", "three", "four")
_WORDS = {
    "fruit": "a ripe {} lies on the market stall near apples",
    "tool": "he hits the nail with a {} from the workshop",
    "animal": "the {} sleeps under the tree and barks at birds",
}


def candidate_sets(truth: Any, names: Any, rng: np.random.Generator) -> list[str]:
    """Return sets that hold the truth and each other name with a probability of 0.4."""
    mask = (rng.random((len(truth), len(names))) < 0.4) | (np.arange(len(names)) == truth[:, None])
    return ["|".join(np.asarray(names)[row]) for row in mask]


def write_table(kind: str, folder: Path) -> list[str]:
    """Write a table of this kind, and return the options of `oneof fit` for it."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    if kind == "text":
        subjects = list(_WORDS)
        truth = rng.integers(3, size=150)
        misleading = rng.random(150) < 0.2
        subject = np.where(misleading, rng.integers(3, size=150), truth)
        texts = [_WORDS[subjects[label]].format(f"thing {rng.integers(1000)}") for label in subject]
        table = pd.DataFrame({"sentence": texts, "candidates": candidate_sets(truth, subjects, rng)})
        table.to_csv(folder / "table.csv", index=False)
        return ["--text", "sentence"]
    pixels, truth = load_digits(n_class=5, return_X_y=True)
    table = pd.DataFrame({"candidates": candidate_sets(truth[:120], _NAMES, rng)})
    options = []
    if kind == "image":
        (folder / "scans of digits").mkdir()
        for row in range(120):
            levels = np.clip(pixels[row].reshape(8, 8) * 16, 0, 255).astype(np.uint8)
            large = Image.fromarray(255 - levels).resize((32, 32), Image.Resampling.NEAREST)
            large.save(folder / "scans of digits" / f"{row}.png")
        table["scan"] = [f"scans of digits/{row}.png" for row in range(120)]
        options = ["--image", "scan", "--epochs", "4", "--networks", "1"]  # what is learned is no matter here
    else:
        table = table.join(pd.DataFrame(pixels[:120, 18:46]).add_prefix("pixel "))
    table.to_csv(folder / "table.csv", index=False)
    return options


def oneof(*arguments: str | Path) -> str:
    """Run a command, and return what it printed."""
    done = subprocess.run([sys.executable, "-m", "oneof", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class LabelStudio:
    """Label Studio in a process of its own, with an empty data base."""

    def __init__(self, program: str, folder: Path, pictures: Path) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        settings = {
            "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
            "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
            "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(pictures.parent),
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "ML_BLOCK_LOCAL_IP": "False",  # the backend is on the same machine
            "SSRF_PROTECTION_ENABLED": "False",
            "COLLECT_ANALYTICS": "False",
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
            "LATEST_VERSION_CHECK": "False",
            "PYTHONPATH": "",
        }
        port = self.address.rpartition(":")[2]
        command = [program, "start", "--no-browser", "--port", port]
        command += ["--username", USER, "--password", PASSWORD, "--user-token", API_TOKEN]
        self.log = folder / "label-studio.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **settings}, cwd=folder, stdout=log, stderr=log)

    def wait_until_up(self) -> None:
        """Wait until it answers; it creates its data base first."""
        limit = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=5).close()
                return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()[-1200:]
                assert time.monotonic() < limit, self.log.read_text()[-1200:]
                time.sleep(1)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Call its API and return the JSON of the reply."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Token {API_TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.loads(reply.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:1000]!r}") from error

    def fetch(self, path: str) -> tuple[str, bytes]:
        """Return type and content of what it serves."""
        request = urllib.request.Request(f"{self.address}{path}", headers={"Authorization": f"Token {API_TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.headers["Content-Type"], reply.read()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def backend(run: Path) -> Iterator[tuple[str, str]]:
    """Run `oneof label-studio`, and give its address and password."""
    command = [sys.executable, "-m", "oneof", "label-studio", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = re.search(r"connect (\S+) as a model, user oneof, password (\S+);", line)
        assert match, line
        yield match[1], match[2]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def create_project(studio: LabelStudio, kind: str, run: Path, tasks: list[dict[str, Any]], connection: Any) -> int:
    """Create a project with our configuration and tasks, and connect it to the backend."""
    address, password = connection
    config = oneof("label-studio", run, "--config")
    project: int = studio.request("POST", "/api/projects", {"title": f"oneof, {kind}", "label_config": config})["id"]
    if kind == "image":
        storage = {"project": project, "title": "pictures", "path": str(run.parent.resolve()), "use_blob_urls": True}
        studio.request("POST", "/api/storages/localfiles", storage)
    studio.request("POST", f"/api/projects/{project}/import", tasks)
    webhook = {
        "url": f"{address}/webhook",
        "project": project,
        "send_payload": True,
        "send_for_all_actions": True,
        "headers": {"Authorization": f"Token {password}"},
    }
    studio.request("POST", "/api/webhooks/", webhook)
    model = {
        "project": project,
        "url": address,
        "title": "oneof",
        "auth_method": "BASIC_AUTH",
        "basic_auth_user": "oneof",
        "basic_auth_pass": password,
    }
    connected = studio.request("POST", "/api/ml", model)
    assert connected["state"] == "CO", connected  # connected
    return project


def check_predictions(
    studio: LabelStudio, project: int, run: Run, kind: str, written: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Let Label Studio ask the backend for predictions of all tasks; return the tasks in their order."""
    everything = {"selectedItems": {"all": True, "excluded": []}}
    studio.request("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", everything)
    listed = studio.request("GET", f"/api/projects/{project}/tasks?page_size=1000")
    tasks = [studio.request("GET", f"/api/tasks/{task['id']}") for task in sorted(listed, key=lambda task: task["id"])]
    purified = run.purified
    assert [task["data"] for task in tasks] == [task["data"] for task in written]
    for task in tasks:
        row = task["data"]["row"]
        assert task["data"][kind]
        imported_and_served = sorted(prediction["model_version"] for prediction in task["predictions"])
        assert len(imported_and_served) == 2, imported_and_served
        for prediction in task["predictions"]:
            (result,) = prediction["result"]
            assert result["to_name"] == kind
            assert result["value"] == {"choices": [purified["label"][row].as_py()]}
            assert abs(prediction["score"] - purified["probability"][row].as_py()) < 1e-5
    return tasks


def check_api(studio: LabelStudio, project: int, run: Path, kind: str, tasks: list[dict[str, Any]]) -> None:
    """Make, change and delete annotations through the API; the log must follow."""
    made = []
    for task in tasks[:3]:
        label = task["data"]["candidates"][-1]["value"]
        result = {"from_name": "label", "to_name": kind, "type": "choices", "value": {"choices": [label]}}
        annotation = {"result": [result], "lead_time": 2.0}
        made.append(studio.request("POST", f"/api/tasks/{task['id']}/annotations/", annotation))
    first_choice = tasks[1]["data"]["candidates"][0]["value"]
    changed = {**made[1]["result"][0], "value": {"choices": [first_choice]}}
    studio.request("PATCH", f"/api/annotations/{made[1]['id']}/", {"result": [changed]})
    studio.request("DELETE", f"/api/annotations/{made[2]['id']}/")
    expected = {
        tasks[0]["data"]["row"]: tasks[0]["data"]["candidates"][-1]["value"],
        tasks[1]["data"]["row"]: first_choice,
    }
    wait(lambda: decided(run) == expected, 30)


def decided(run: Path) -> dict[int, str]:
    """Return the label that was decided for each row."""
    return {decision.row: decision.labels[0] for decision in Log(run).active_decisions}


def annotate_in_browser(
    studio: LabelStudio, project: int, run: Path, task: dict[str, Any], screenshot: Path | None
) -> None:
    """Open a task as a person does, choose its second candidate and submit; the answer must be a decision."""
    second = task["data"]["candidates"][1]["value"]
    with browser() as opened:
        page = opened.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(f"{studio.address}/user/login/")
        page.fill("input[name=email]", USER)
        page.fill("input[name=password]", PASSWORD)
        page.click("button[type=submit]")
        page.wait_for_load_state("networkidle")
        page.goto(f"{studio.address}/projects/{project}/data?task={task['id']}")
        offered = page.locator(".lsf-choices label, .lsf-choices .ant-checkbox-wrapper")
        offered.first.wait_for(timeout=60_000)
        page.wait_for_timeout(1500)  # pictures
        if screenshot is not None:
            page.screenshot(path=screenshot)
        offered.nth(1).click()
        page.get_by_role("button", name="submit").first.click()
        wait(lambda: decided(run).get(task["data"]["row"]) == second, 30)


def work_through(studio: LabelStudio, kind: str, folder: Path, screenshots: Path | None) -> None:
    """Check one kind of run from the fit to the log of decisions."""
    options = write_table(kind, folder)
    run = folder / "RUN"
    oneof("fit", folder / "table.csv", *options, "--out", run)
    print(oneof("clean", run, "--all", "--out", folder / "tasks.json").splitlines()[0])
    tasks = json.loads((folder / "tasks.json").read_text())
    with backend(run) as connection:
        project = create_project(studio, kind, run, tasks, connection)
        in_project = check_predictions(studio, project, Run.open(run), kind, tasks)
        print(f"{kind}: {len(in_project)} tasks in the order of the queue, each with its two predictions")
        if kind == "image":
            content_type, content = studio.fetch(in_project[0]["data"]["image"])
            assert content_type == "image/png"
            assert content.startswith(b"\x89PNG")
            print(f"{kind}: pictures are served from the disk")
        check_api(studio, project, run, kind, in_project)
        print(f"{kind}: annotations that were made, changed and deleted through the API are in the log")
        screenshot = None if screenshots is None else screenshots / f"label-studio-{kind}.png"
        annotate_in_browser(studio, project, run, in_project[3], screenshot)
        print(f"{kind}: what a person submitted in Chromium is a decision")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--label-studio", default=shutil.which("label-studio"), help="the program; default: on the PATH"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what the runs are fitted on")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the labelling page")
    asked = parser.parse_args()
    if asked.label_studio is None:
        parser.error("label-studio is not on the PATH; give --label-studio V/bin/label-studio.")
    if asked.screenshots is not None:
        asked.screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"  # of the backend's passwords
        data = Path(name) / "label-studio"
        data.mkdir()
        pictures = Path(name).resolve() / "image"
        studio = LabelStudio(str(Path(asked.label_studio).absolute()), data, pictures)
        try:
            studio.wait_until_up()
            for kind in asked.kinds:
                work_through(studio, kind, Path(name) / kind, asked.screenshots)
        finally:
            studio.stop()


if __name__ == "__main__":
    main()
