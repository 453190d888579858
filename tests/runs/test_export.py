"""Export: the graph gives what the networks give, ranks and scaling included."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from sklearn.naive_bayes import GaussianNB
from stages import context_for, hard_targets, make_dataset

from oneof import PartialLabelClassifier
from oneof.cli import main
from oneof.data.encode import Encoding
from oneof.data.images import ImageSpec
from oneof.data.with_ranks import fit_quantiles
from oneof.ensemble.model import Model
from oneof.learners.boosting import BoostingLearner
from oneof.learners.config import BoostingConfig, TreesConfig
from oneof.learners.kernel_ensemble import fit_kernels
from oneof.learners.network_models import ImageNetworks, TableNetworks
from oneof.learners.sklearn_classifier import SklearnLearner
from oneof.learners.trees import TreeLearner
from oneof.networks import MLP
from oneof.networks.named import network_of
from oneof.runs.export import export_model
from oneof.runs.export_module import codes, normal_quantile, normal_scores
from oneof.training.stack import Stack

pytestmark = pytest.mark.usefixtures("small_forests")

RNG = np.random.default_rng(0)
X = np.stack([RNG.normal(1000, 50, 300), RNG.integers(3, size=300), RNG.exponential(size=300)], axis=1).astype(
    np.float32
)


TARGETS = hard_targets((X[:, 0] > 1000) * 2 + (X[:, 2] > 1), 4)
TABLE = make_dataset(X, TARGETS.sets)
CONTEXT = context_for(TABLE)
LEARNERS = {
    "trees": lambda: TreeLearner(TreesConfig(count=20)).fit(TABLE, TARGETS, CONTEXT).model,
    "boosting": lambda: BoostingLearner(BoostingConfig(rounds=20)).fit(TABLE, TARGETS, CONTEXT).model,
    "kernel": lambda: fit_kernels(TABLE, TARGETS.sets, ["feature", "both"], CONTEXT).learner(2, TARGETS.sets).model,
}


def model(ranks: bool = True) -> Model:
    width = 6 if ranks else 3
    torch.manual_seed(0)
    stack = Stack([MLP((8,))((width,), 4) for _ in range(3)])
    shift, scale = torch.rand(3, 1, width), torch.rand(3, 1, width) * 0.01
    member = TableNetworks(stack, shift, scale, None, fit_quantiles(X) if ranks else None)
    plain = TableNetworks(Stack([MLP(())((3,), 4)]), None, None, np.array([1000.0, 0.0, 0.0]), None)
    return Model(list("abcd"), Encoding(("x", "y", "z"), (0.0,) * 3, (), {}, ()), (member, plain), {})


def test_scores_are_those_of_the_ranks():
    ranks = fit_quantiles(X)
    ours = normal_scores(ranks, torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(ours, ranks(X)[:, 3:], atol=1e-4)


def test_learners_that_are_hardly_trusted_are_exported_so(tmp_path: Path):
    doubted = model().trusted(0.1)
    assert export_model(doubted, tmp_path / "m.pt2") < 1e-4
    np.testing.assert_allclose(doubted.probabilities(X), 0.1 * model().probabilities(X) + 0.9 / 4, atol=1e-6)


def test_the_quantile_is_the_inverse_of_the_normal_distribution():
    level = torch.linspace(0.0063, 0.9937, 101)
    np.testing.assert_allclose(normal_quantile(level).numpy(), ndtri(level.numpy()), atol=2e-5)


@pytest.mark.parametrize("ranks", [True, False])
def test_onnxruntime_finds_the_same_probabilities(tmp_path: Path, ranks: bool):
    onnx = pytest.importorskip("onnx", reason="the extra 'export' is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
    whole = model(ranks)
    assert export_model(whole, tmp_path / "m.onnx") < 1e-4
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for n in (1, 300):
        found, label = session.run(None, {"numbers": X[:n]})
        assert label.tolist() == ["abcd"[j] for j in found.argmax(1)]
        np.testing.assert_allclose(found, whole.probabilities(X[:n]), atol=1e-4)
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert told == {"classes": "a\nb\nc\nd", "numbers": "x\ny\nz"}


def test_torch_finds_the_same_probabilities(tmp_path: Path):
    whole = model()
    assert export_model(whole, tmp_path / "m.pt2") < 1e-4
    found = torch.export.load(tmp_path / "m.pt2").module()(numbers=torch.from_numpy(X))
    np.testing.assert_allclose(found.detach().numpy(), whole.probabilities(X), atol=1e-4)


def test_a_graph_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
    monkeypatch.setattr("oneof.runs.export.TOLERANCE", -1.0)
    with pytest.raises(ValueError, match="the exported model must give the model's probabilities"):
        export_model(model(), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        ValueError, match=r"export needs the package onnx; it is not installed\. Run: pip install onnx\."
    ):
        export_model(model(), tmp_path / "m.onnx")


@pytest.mark.parametrize("kinds", [("trees",), ("boosting",), ("kernel",), ("networks", "trees", "boosting", "kernel")])
def test_trees_and_kernels_are_exported(tmp_path: Path, kinds: tuple[str, ...]):
    runtime = pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
    others = tuple(LEARNERS[kind]() for kind in kinds if kind in LEARNERS)
    networks = model().members if "networks" in kinds else ()
    parts = len(networks) + len(others)
    whole = replace(
        model(), members=networks, others=others, shares=tuple(np.arange(1, parts + 1) / sum(range(parts + 1)))
    )
    assert export_model(whole, tmp_path / "m.onnx") < 1e-4
    found, _ = runtime.InferenceSession(tmp_path / "m.onnx").run(None, {"numbers": X})
    np.testing.assert_allclose(found, whole.probabilities(X), atol=1e-4)


def test_a_classifier_of_ones_own_is_not_exported(tmp_path: Path):
    own = SklearnLearner(GaussianNB()).fit(TABLE, TARGETS, CONTEXT).model
    with pytest.raises(ValueError, match="learners must be oneof's own to be exported; GaussianNB is"):
        export_model(replace(model(), others=(own,), shares=(0.3, 0.3, 0.4)), tmp_path / "m.onnx")


def test_the_graph_takes_a_table_as_it_stands_gaps_and_categories_included(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("onnx", reason="the extra 'export' is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=150)
    table = pandas.DataFrame(
        {
            "size": np.where(rng.random(150) < 0.1, np.nan, truth + rng.normal(size=150) / 3),
            "hue": pandas.Categorical([("red", "blue", None)[(y + (rng.random() < 0.2)) % 3] for y in truth]),
            "length": rng.normal(size=150),
        }
    )
    clf = PartialLabelClassifier(quick=True, random_state=0).fit(table, [[y, (y + 1) % 3] for y in truth.tolist()])
    export_model(clf.model_, tmp_path / "m.onnx")
    new = table.head(20).astype({"hue": object})
    new.loc[0, "hue"], new.loc[1, "length"] = "mauve", np.nan  # training had no such value, and no such gap
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    meta = session.get_modelmeta().custom_metadata_map
    numbers, words = (new[meta[name].split("\n")] for name in ("numbers", "categories"))
    said = {"numbers": numbers.to_numpy(np.float32), "categories": words.fillna("").to_numpy(object)}
    found, label = session.run(None, said)
    new["hue"] = new["hue"].astype("category")
    expected = clf.predict_proba(new)
    assert "'mauve'" in caplog.text
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [int(one) for one in label] == clf.classes_[expected.argmax(1)].tolist()
    export_model(clf.model_, tmp_path / "m.pt2")
    facts = {"oneof.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=facts).module()
    told = json.loads(facts["oneof.json"])
    assert (told["classes"], told["numbers"]) == (["0", "1", "2"], ["size", "length"])
    assert told["categories"] == {"hue": ["", "blue", "red"]}
    places = codes(clf.model_.encoding, said["categories"])
    assert places[0, 0] == -1
    same = program(numbers=torch.from_numpy(said["numbers"]), categories=torch.from_numpy(places))
    np.testing.assert_allclose(same.detach().numpy(), expected, atol=1e-5)


def on_pictures(name: str) -> Model:
    torch.manual_seed(0)
    stack = Stack([network_of(name)((3, 16, 16), 4) for _ in range(2)])
    member = ImageNetworks(stack, name, (3, 16, 16), torch.tensor([0.01, 0.02, 0.03]), torch.tensor([-1.0, -2.0, 0.5]))
    return Model(list("abcd"), Encoding((), (), (), {}, (), pixels=(ImageSpec("file", 3, 16),)), (member,), {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrn", "resnet32"])
def test_deeper_networks_as_programs_of_torch(tmp_path: Path, name: str):
    assert export_model(on_pictures(name), tmp_path / "m.pt2") < 1e-5


def test_a_program_of_torch_takes_pixels_where_oneof_is_not_installed(tmp_path: Path):
    whole = on_pictures("lenet")
    assert export_model(whole, tmp_path / "m.pt2") < 1e-5
    np.save(tmp_path / "x.npy", RNG.integers(0, 256, (3, 3 * 16 * 16)).astype(np.float32))
    script = """if True:
        import sys
        sys.modules["oneof"] = None
        import numpy, torch
        program = torch.export.load("m.pt2").module()
        x = torch.from_numpy(numpy.load("x.npy"))
        said = [program(vectors=some).detach() for some in (x[:1], x[1:])]
        numpy.save("said.npy", torch.cat(said).numpy())
    """
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_allclose(
        np.load(tmp_path / "said.npy"), whole.probabilities(np.load(tmp_path / "x.npy")), atol=1e-5
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "export needs --onnx FILE, --torch FILE, --hugging-face FOLDER or --mlflow FOLDER; got none. Give one of them.",
        ),
        (["--torch", "m.onnx"], "out must end in .pt2; got 'm.onnx'."),
    ],
)
def test_what_the_command_refuses(monkeypatch: pytest.MonkeyPatch, capsys, words: list[str], message: str):
    monkeypatch.setattr(sys, "argv", ["oneof", "export", "run", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert message in capsys.readouterr().err


def test_the_metadata_say_how_numbers_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    weight = rng.normal(50, 10, 60).round(2)
    moment = pandas.Timestamp("2024-05-01") + pandas.to_timedelta(rng.permutation(60), "min")
    frame = pandas.DataFrame({"weight": [f"{one} kg" for one in weight], "score": [-999, 1, 2, 3] * 15, "when": moment})
    clf = PartialLabelClassifier(learners=("kernel",), random_state=0).fit(frame, (weight > 50).astype(int))
    assert "-999" in caplog.text
    export_model(clf.model_, tmp_path / "m.pt2")
    extra = {"oneof.json": ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    lines = json.loads(extra["oneof.json"])["read"]
    assert lines[0].startswith("weight: numbers with 'kg'")
    assert lines[1] == "score: NaN in place of -999"
    assert lines[2].startswith("when: minus 198")
    clf.save(tmp_path / "run")
    restored = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_allclose(restored.predict_proba(frame), clf.predict_proba(frame), atol=1e-6)
