"""Pictures by the front door: from files to a run, labels, a page and an exported model."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

import oneof.training.fit
from oneof.cli import main
from oneof.data.images import ImageSpec
from oneof.data.on_disk import OnDiskFeatures
from oneof.data.roles import ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig, ImageConfig
from oneof.learners.images import FINE_TUNING_LR, ImageLearner, late_pop_schedule, plan_images
from oneof.learners.network_models import ImageNetworks
from oneof.purify import Pop
from oneof.report.page import render_page
from oneof.review.cards import Items, card, shown_table
from oneof.review.label_studio import Backend
from oneof.review.session import Review
from oneof.runs import fit_table as fitting
from oneof.runs.decisions import Decision, Log
from oneof.runs.export import export_model
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import RunOptions, fit_again, fit_table
from oneof.runs.folder import Run
from oneof.runs.read_dataset import dataset_from_table, stays_on_disk
from oneof.training.trials import Training
from oneof.votes.read import VotesFile

N, BROKEN = 150, 7
IMAGES, LABELS = load_digits(n_class=3, return_X_y=True)
SHORT = EnsembleConfig(epochs=6)
SPEC = FitSpec(ColumnRoles(image=("file",)), config=FitConfig(SHORT, ImageConfig("lenet")))


def sets() -> list[str]:
    """The true label, and in half of the rows a wrong one."""
    rng = np.random.default_rng(0)
    return ["|".join(sorted({str(y), str(rng.integers(3))})) for y in LABELS[:N]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files, of which one is broken, and their table; new ones too."""
    made = tmp_path_factory.mktemp("pictures")
    for row in range(N + 20):
        levels = np.clip(IMAGES[row].reshape(8, 8) * 16, 0, 255).astype(np.uint8)
        Image.fromarray(levels).save(made / f"{row}.png")
    (made / f"{BROKEN}.png").write_text("no picture")
    names = [f"{row}.png" for row in range(N)]
    truth = [str(y) for y in LABELS[:N]]
    table = pa.table({"file": names, "id": [f"digit {row}" for row in range(N)], "truth": truth, "candidates": sets()})
    pa.csv.write_csv(table, made / "table.csv")
    pa.csv.write_csv(pa.table({"file": ["150.png", "7.png", "151.png"]}), made / "new.csv")
    return made


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def run(folder: Path, told: list[str]) -> Run:
    torch.set_num_threads(1)
    return fit_table(folder / "table.csv", folder / "run", SPEC, RunOptions(echo=told.append))


def command(
    *words: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


# -------------------------------------------------------------------------------------------------------- what is learned


def test_a_run_holds_three_networks_and_a_label_for_every_row(run: Run) -> None:
    assert run.metadata["d"] == 64
    assert run.metadata["chosen"][0]["network"] == "lenet"
    (member,) = run.model.members
    assert isinstance(member, ImageNetworks)
    assert member.stack.t == 3
    assert run.model.encoding.pixels == (ImageSpec("file", 1, 8),)
    label = np.array(run.purified["label"].to_pylist())
    readable = np.arange(N) != BROKEN
    assert (label == LABELS[:N].astype(str))[readable].mean() > 0.95
    trained = np.array(run.purified["trained"].to_pylist())
    assert trained[BROKEN] == 0
    assert set(trained[readable]) <= {2, 3}


@pytest.mark.parametrize(("image_model", "processes", "woken"), [(None, 1, 1), ("m.pt", 1, 0), (None, 2, 0)])
def test_the_device_is_woken_before_pictures_are_read_where_this_process_trains_on_them(
    monkeypatch: pytest.MonkeyPatch, folder: Path, image_model: str | None, processes: int, woken: int
) -> None:
    seen: list[torch.device] = []

    def read(*_: object) -> None:
        raise InterruptedError(f"after {len(seen)}")

    monkeypatch.setattr(fitting, "prewarm_gpu", seen.append)
    monkeypatch.setattr(fitting, "dataset_from_table", read)
    spec = replace(SPEC, roles=replace(SPEC.roles, image_model=image_model))
    with pytest.raises(InterruptedError, match=f"after {woken}"):
        fitting.prepare_run(folder / "table.csv", folder / "woken", spec, RunOptions(), processes, None)


def test_nothing_is_said_of_a_broken_picture_but_its_set(run: Run, told: list[str]) -> None:
    assert (
        f"1 of {N} pictures cannot be read; skipped in training and prediction: row {BROKEN}, '{BROKEN}.png': it is no picture of a known kind."
        in told
    )
    row = run.purified.slice(BROKEN, 1).to_pylist()[0]
    assert row["distribution"] == pytest.approx([1 / len(row["original"])] * len(row["original"]))
    assert row["removed"] == []
    assert row["ask"] == (len(row["original"]) > 1)


def test_the_model_read_back_says_the_same(run: Run, folder: Path) -> None:
    encoding = run.model.encoding
    x = encoding.transform(fitting.read_table(folder / "table.csv", SPEC.roles).columns, folder=folder)
    again = Run.open(folder / "run").model
    assert (again.probabilities(x) == run.model.probabilities(x)).all()
    assert (again.probabilities(x).argmax(1) == LABELS[:N]).mean() > 0.9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda facts: facts["members"][0].update(network="wrn"), "must describe model.safetensors"),
        (lambda facts: facts["members"][0].pop("network"), r"members\[0\]\.network is missing"),
        (
            lambda facts: facts["members"][0].update(pixels=[1, 9, 9]),
            r"members\.pixels must be those of encoding\.pixels",
        ),
        (lambda facts: facts["members"][0].update(networks=2), "must describe model.safetensors"),
    ],
)
def test_a_changed_model_is_refused(run: Run, tmp_path: Path, change: Callable[[dict], object], why: str) -> None:
    import json
    import shutil

    from oneof.runs.stored_model import checksum, load_model

    shutil.copytree(run.folder, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "model.json").read_text())
    change(facts)
    facts["checksum"] = checksum(facts)
    (tmp_path / "run" / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=why):
        load_model(tmp_path / "run")


# ------------------------------------------------------------------------------------------------------ what comes of it


def test_new_pictures_get_labels_and_a_broken_one_none(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "said.parquet"
    words = ["predict", run.folder, folder / "new.csv", "--out", out, "--distribution", "--column"]
    code, _, error = command(*words, "file", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "1 of 3 pictures cannot be read" in error
    found = pq.read_table(out).to_pylist()
    assert [row["label"] for row in found] == [str(LABELS[150]), None, str(LABELS[151])]
    assert found[1] == dict.fromkeys(found[1]) | {"file": "7.png"}
    code, _, error = command(*words, "label", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, error.splitlines()[-1]) == (2, f"oneof: column 'label' must be in {folder / 'new.csv'}; it has file.")
    pa.csv.write_csv(pa.table({"file": ["150.png"], "label": ["x"]}), tmp_path / "new.csv")
    (tmp_path / "150.png").write_bytes((folder / "150.png").read_bytes())
    words[2] = tmp_path / "new.csv"
    code, _, error = command(*words, "label", monkeypatch=monkeypatch, capsys=capsys)
    taken = "oneof: --column must not have the name of a column of the result; got 'label'. Leave it out."
    assert (code, error.splitlines()[-1]) == (2, taken)


def test_clean_copies_the_columns_that_are_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.parquet"
    assert command("clean", run.folder, "--out", out, "--column", "id", monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    found = pq.read_table(out)
    assert "file" not in found.column_names
    assert [cell.split()[1] for cell in found["id"].to_pylist()] == [str(row) for row in found["row"].to_pylist()]


def test_the_page_shows_pictures_and_the_review_too(run: Run) -> None:
    table = shown_table(run, ["id"])
    small = table["picture"].to_pylist()
    assert small[BROKEN] is None
    assert sum(one is not None for one in small) == N - 1
    page = render_page(run.metadata, table, run.training, run.rows)
    assert page.count("data:image/jpeg;base64,") >= N - 1
    assert "digit 0" in page
    assert "Settings were chosen by size and device." in page
    assert card(run, Items(run), 0)["pictures"] == ["file"]


def test_the_exported_graph_says_the_same(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    assert export_model(run.model, tmp_path / "model.onnx") < 1e-4


def test_label_studio_opens_no_file_for_others(run: Run) -> None:
    backend = Backend(Review(run.folder), port=0)
    try:
        found = backend.predict({"tasks": [{"id": 1, "data": {"file": "/etc/hostname"}}]})
    finally:
        backend.server_close()
    assert found["results"][0]["result"] == []


def test_people_teach_the_networks_again(run: Run, tmp_path: Path) -> None:
    log = Log(run.folder)
    candidates = tuple(run.purified["original"][3].as_py())
    log.write(Decision(3, "label", ("2",), "me", "run", candidates, "0", id="1", drawn="queue", seconds=1.0))
    try:
        again = fit_again(run.folder, tmp_path / "again")
    finally:
        log.path.unlink()
    assert again.metadata["chosen"][0]["epochs"] == 3
    assert again.decided["label"][3].as_py() == "2"


# ------------------------------------------------------------------------------------------------------- ways to give them


def test_stopped_it_goes_on_where_it_was(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, began = oneof.training.fit._fit_stack, []

    def stopping(*given: object) -> object:
        began.append(1)
        if len(began) == 2:
            raise KeyboardInterrupt
        return train(*given)

    monkeypatch.setattr(oneof.training.fit, "_fit_stack", stopping)
    with pytest.raises(KeyboardInterrupt):
        fit_table(folder / "table.csv", tmp_path / "run", SPEC)
    first = tmp_path / "run" / "checkpoint" / "search" / "pictures" / "stack-1"
    assert list(first.glob("step-000006-*.safetensors"))
    fit_table(folder / "table.csv", tmp_path / "run", SPEC, RunOptions(stream=True))
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


def test_pixels_in_a_file_give_the_same_run_to_the_bit(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        "oneof.learners.images.OnDiskFeatures", lambda path: (seen.append(Path(path)), OnDiskFeatures(path))[1]
    )
    fit_table(folder / "table.csv", tmp_path / "run", SPEC, RunOptions(stream=True))
    assert seen == [tmp_path / "run" / "checkpoint" / "pixels.part"]
    assert not seen[0].exists()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()
    assert Run.open(tmp_path / "run").purified.equals(run.purified)


def test_pixels_are_kept_in_a_file_where_they_take_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = ImageSpec("f", 3, 10)
    monkeypatch.setattr("oneof.runs.read_dataset.free_memory", lambda device: 60_000)
    assert [stays_on_disk(n, pixels, None) for n in (100, 101)] == [False, True]
    assert [stays_on_disk(n, pixels, said) for n, said in ((100, True), (101, False))] == [True, False]


def test_a_folder_of_folders_is_enough(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for row, cell in enumerate(sets()):
        if row != BROKEN:
            (tmp_path / "in" / cell).mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / cell / f"{row}.png").write_bytes((folder / f"{row}.png").read_bytes())
    how = ("--epochs", 3, "--networks", 1, "--augmentation", "none", "--threads", 1)
    code, _, error = command(
        "fit", tmp_path / "in", "--out", tmp_path / "run", *how, monkeypatch=monkeypatch, capsys=capsys
    )
    assert (code, error) == (0, "")
    made = Run.open(tmp_path / "run")
    assert made.metadata["chosen"][0] | {"views": "none", "networks": 1, "epochs": 3} == made.metadata["chosen"][0]
    assert card(made, Items(made), 0)["pictures"] == ["file"]
    new = ("predict", tmp_path / "run", tmp_path / "in", "--out", tmp_path / "said.csv")
    assert command(*new, monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    assert pa.csv.read_csv(tmp_path / "said.csv").num_rows == N - 1


def test_votes_gold_groups_and_bytes_come_along(folder: Path, tmp_path: Path) -> None:
    rows = np.array([row for row in range(N) if row != BROKEN])
    rng, content = np.random.default_rng(0), [(folder / f"{row}.png").read_bytes() for row in rows]
    gold = [str(LABELS[row]) if row % 2 else None for row in rows]
    columns = {"item": rows, "shot": content, "gold": gold, "patient": [f"p{row // 3}" for row in rows]}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    said = [(row, who, str(LABELS[row] if rng.random() < 0.8 else rng.integers(3))) for row in rows for who in "abc"]
    votes = dict(zip(("item", "annotator", "label"), zip(*said, strict=True), strict=True))
    pa.csv.write_csv(pa.table({name: list(cells) for name, cells in votes.items()}), tmp_path / "votes.csv")
    asked = VotesFile(str(tmp_path / "votes.csv"), "item", "annotator", "label")
    roles = ColumnRoles(image=("shot",), gold="gold", group="patient")
    made = fit_table(tmp_path / "table.parquet", tmp_path / "run", replace(SPEC, roles=roles, votes=asked))
    assert made.metadata["people"]["votes"] == len(said)
    assert (np.array(made.purified["label"].to_pylist()) == LABELS[rows].astype(str)).mean() > 0.9
    assert shown_table(made)["picture"].null_count == 0


class StopHere(ValueError):
    """Ends a fit where its networks would be trained."""


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What networks on pictures would be trained with; nothing is trained."""
    asked: list[dict[str, object]] = []

    def note(*_: object, **options: object) -> None:
        asked.append(options | {"threads": torch.get_num_threads()})
        raise StopHere

    monkeypatch.setattr("oneof.learners.images.fit", note)
    return asked


def test_with_votes_networks_train_for_as_many_epochs_as_without(
    folder: Path, tmp_path: Path, trainings: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for row in range(N) if row != BROKEN]
    monkeypatch.setattr("oneof.learners.images.IMAGES_ON_CPU", 10 * len(rows))  # what a CPU can afford in all
    labels = [str(LABELS[row]) for row in rows]
    columns = {"item": rows, "shot": [(folder / f"{row}.png").read_bytes() for row in rows]}
    pq.write_table(pa.table(columns), tmp_path / "voted.parquet")
    pq.write_table(pa.table(columns | {"candidates": labels}), tmp_path / "without.parquet")
    pa.csv.write_csv(pa.table({"item": rows, "annotator": ["a"] * len(rows), "label": labels}), tmp_path / "votes.csv")
    votes = VotesFile(str(tmp_path / "votes.csv"), "item", "annotator", "label")
    on_pixels = FitConfig(images=ImageConfig("lenet"))
    without = FitSpec(ColumnRoles(image=("shot",), ignore=("item",)), config=on_pixels)
    voted = FitSpec(ColumnRoles(image=("shot",)), votes=votes, config=on_pixels)
    for name, task in (("without", without), ("voted", voted)):
        with pytest.raises(StopHere):
            fit_table(tmp_path / f"{name}.parquet", tmp_path / name, task)
    first, second = (one["training"] for one in trainings)
    assert isinstance(first, Training)
    assert isinstance(second, Training)
    assert first.epochs == second.epochs == 10


@pytest.mark.parametrize(("options", "threads"), [((), 1), (("--threads", 2), 2), (("--deterministic",), 1)])
def test_pictures_are_trained_on_with_the_threads_that_the_user_allows(
    options: tuple[object, ...],
    threads: int,
    folder: Path,
    tmp_path: Path,
    trainings: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """OMP_NUM_THREADS is 1 in all tests, and torch has read it; the processors that there are do not overrule it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr("oneof.training.device.torch.use_deterministic_algorithms", lambda mode: None)
    monkeypatch.setattr("oneof.learners.images.BATCH_SIZE", 2**20)
    words = ("fit", folder / "table.csv", "--image", "file", "--ignore", "id", "--ignore", "truth", *options)
    command(*words, "--architecture", "lenet", "--out", tmp_path / "run", monkeypatch=monkeypatch, capsys=capsys)
    assert [one["threads"] for one in trainings] == [threads]


@pytest.mark.parametrize(
    ("task", "how", "why"),
    [
        (replace(SPEC, config=FitConfig(SHORT, ImageConfig("lenet")), roles=ColumnRoles(image=("file",), image_model="m")), {}, "--architecture, --augmentation and --stream are for pictures that a network is trained on"),
        (replace(SPEC, roles=ColumnRoles()), {"stream": True}, "--architecture, --augmentation and --stream are for pictures"),
        (replace(SPEC, config=FitConfig(SHORT, ImageConfig(views="none")), roles=ColumnRoles()), {}, "Use --image COLUMN without --image-model"),
        (replace(SPEC, config=FitConfig(SHORT.without_networks(), ImageConfig("lenet"))), {}, "--learners, --quick and --settings are not for networks on pixels.*--image-model patches"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(folder: Path, tmp_path: Path, task: FitSpec, how: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fit_table(folder / "table.csv", tmp_path / "run", task, RunOptions(**how))
    assert not (tmp_path / "run").exists()


def test_a_time_limit_leaves_fewer_epochs_and_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageLearner, "seconds_per_epoch", lambda *_: 10.0)
    told: list[str] = []
    options = RunOptions(time_limit=40.0, echo=told.append)
    made = fit_table(folder / "table.csv", tmp_path / "run", SPEC, options)
    assert made.metadata["chosen"][0]["epochs"] == 3  # 0.8 of what is left
    assert "--time-limit: networks had 3 of 6 epochs." in told


def test_how_long_networks_take_is_said_before_they_are_trained(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ImageLearner, "seconds_per_epoch", lambda *_: 50.0)
    fit_table(folder / "table.csv", tmp_path / "run", SPEC, RunOptions(progress=True))
    assert "epochs: 6; about 5 min; --time-limit 2m for less" in capsys.readouterr().err


def test_the_time_of_an_epoch_is_measured_on_a_few_batches(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[float] = []

    def note(learner: ImageLearner, *arguments: object) -> float:
        measured.append(measure(learner, *arguments))  # type: ignore[arg-type]
        raise StopHere

    measure = ImageLearner.seconds_per_epoch
    monkeypatch.setattr(ImageLearner, "seconds_per_epoch", note)
    with pytest.raises(StopHere):
        fit_table(folder / "table.csv", tmp_path / "run", SPEC, RunOptions(time_limit=40.0))
    assert 0 < measured[0] < 60


def test_a_way_to_vary_pictures_must_be_known() -> None:
    with pytest.raises(
        ValueError, match=r"views must be one of upright, natural, none; got 'uprigth'\. Did you mean 'upright'\?"
    ):
        ImageConfig(views="uprigth")


@pytest.mark.parametrize(
    ("n", "pixels", "device", "expected"),
    [
        (50_000, ImageSpec("f", 3, 32), "cuda", ("wrn", "upright", 1, 10, 100, 256)),
        (60_000, ImageSpec("f", 1, 28), "cuda", ("lenet", "upright", 1, 10, 100, 256)),
        (60_000, ImageSpec("f", 1, 28), "cpu", ("lenet", "upright", 1, 10, 5, 256)),
        (300, ImageSpec("f", 3, 64), "cpu", ("lenet", "upright", 3, 3, 60, 16)),
    ],
)
def test_the_plan_follows_size_and_device(n: int, pixels: ImageSpec, device: str, expected: tuple) -> None:
    assert plan_images(ImageConfig(), EnsembleConfig(n_folds=None), n, pixels, torch.device(device))[:6] == expected


def test_a_network_of_timm_is_trained_by_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("timm")  # a stand-in
    package.is_model = lambda name: name == "small"  # type: ignore[attr-defined]
    package.create_model = lambda name, *, pretrained, num_classes, in_chans: torch.nn.Conv2d(in_chans, 6, 3)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    how = replace(SPEC, config=FitConfig(EnsembleConfig(epochs=1), ImageConfig("small", "none", 1)))
    made = fit_table(folder / "table.csv", tmp_path / "run", how)
    assert made.metadata["chosen"][0]["network"] == "small"
    assert Run.open(tmp_path / "run").model.members[0].shape == {"networks": 1, "network": "small", "pixels": [1, 8, 8]}
    with pytest.raises(
        ValueError, match=r"network must be one of lenet, wrn, resnet32, or a name that timm knows.*; got 'hf-hub:a/b'"
    ):
        ImageConfig("hf-hub:a/b")
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(ValueError, match="network 'small', not lenet, wrn, resnet32, needs the package timm"):
        Run.open(tmp_path / "run").model  # noqa: B018


def test_pretrained_weights_on_disk_are_fine_tuned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("timm")  # a stand-in, which reads the weights that it is given
    drawn = torch.nn.Conv2d(1, 6, 3)
    torch.nn.init.constant_(drawn.weight, 0.25)
    file = tmp_path / "small.safetensors"
    save_file(drawn.state_dict(), file)
    started: list[bool] = []

    def create_model(
        name: str,
        *,
        pretrained: bool,
        num_classes: int,
        in_chans: int,
        pretrained_cfg_overlay: dict[str, str] | None = None,
    ) -> torch.nn.Module:
        body = torch.nn.Conv2d(in_chans, 6, 3)
        started.append(pretrained)
        if pretrained_cfg_overlay is not None:
            body.load_state_dict(load_file(pretrained_cfg_overlay["file"]))
        return body

    package.is_model = lambda name: name == "small"  # type: ignore[attr-defined]
    package.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    spec = replace(SPEC, config=FitConfig(EnsembleConfig(epochs=1), ImageConfig(str(file), "none", 1)))
    made = fit_table(folder / "table.csv", tmp_path / "run", spec)
    assert any(started)
    chosen = made.metadata["chosen"][0]
    assert chosen["pretrained"]
    assert chosen["lr"] == FINE_TUNING_LR
    file.unlink()  # a run holds its own weights
    started.clear()
    (member,) = Run.open(tmp_path / "run").model.members
    assert member.shape["network"] == "small"
    assert not any(started)
    weight = member.stack.weights["body.0.weight"]
    assert float((weight - 0.25).abs().max()) < 0.2  # an epoch at a low rate leaves it near where it started
    assert float((weight - 0.25).abs().max()) > 0


def test_columns_beside_pictures_are_told(folder: Path) -> None:
    table = pa.table({"file": ["0.png", "1.png"], "weight": [1.0, 2.5], "candidates": ["a|b", "b"]})
    _, said = dataset_from_table(fitting.read_table(table, SPEC.roles), folder)
    (remark,) = said
    assert re.search(r"not learned from: weight\..* --image-model patches", remark)


def test_labels_fall_in_the_last_fifth_of_the_training():
    assert late_pop_schedule(100) == Pop(80, 5, 5, True, 0.95, 0.1, 0.425)
