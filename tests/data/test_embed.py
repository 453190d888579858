"""The cache of embeddings: kept in pieces, whatever ends the work; damaged, it is made again. Images that cannot be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from io import BytesIO
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.numpy import save

import oneof.data.embed
from oneof.data.embed import Embedder, default_cache, embed_values, open_embedder


class Network:
    """A stand-in that counts what it is asked, and stops at a word."""

    def __init__(self, stop_at: str = "", how: type[BaseException] = KeyboardInterrupt) -> None:
        self.asked: list[str] = []
        self.stop_at, self.how = stop_at, how

    def __call__(self, values: Sequence[str]) -> NDArray[np.float32]:
        if self.stop_at in values:
            raise self.how
        self.asked += values
        return np.array([[len(value), 1] for value in values], dtype=np.float32)


WORDS = [f"{i:03d}" for i in range(10)]


def store(folder: Path) -> Path:
    (found,) = folder.glob("*.safetensors")
    return found


@pytest.mark.parametrize("how", [KeyboardInterrupt, ValueError])
def test_what_was_embedded_before_a_stop_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    monkeypatch.setattr(oneof.data.embed, "_BATCH_SIZE", {"text": 3})
    stopped, again = Network("007", how), Network()
    with pytest.raises(how):
        embed_values(WORDS, Embedder("text", "m", stopped), tmp_path, tmp_path)
    assert stopped.asked == WORDS[:6]
    found = embed_values(WORDS, Embedder("text", "m", again), tmp_path, tmp_path)
    assert again.asked == WORDS[6:]
    assert found.tolist() == [[3, 1]] * 10


def test_pieces_are_written_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oneof.data.embed, "_BATCH_SIZE", {"text": 3})
    monkeypatch.setattr(oneof.data.embed, "_SAVE_INTERVAL", 0.0)
    kept: list[int] = []

    def looking(values: Sequence[str]) -> NDArray[np.float32]:
        kept.append(sum(len(oneof.data.embed._load_vectors(path)) for path in tmp_path.iterdir()))
        return Network()(values)

    embed_values(WORDS, Embedder("text", "m", looking), tmp_path, tmp_path)
    assert kept == [0, 3, 6, 9]
    assert len(oneof.data.embed._load_vectors(store(tmp_path))) == 10
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path) -> None:
    embed_values(WORDS, Embedder("text", "m", Network()), tmp_path, tmp_path)
    before = store(tmp_path).stat().st_mtime_ns
    embed_values(WORDS, Embedder("text", "m", Network()), tmp_path, tmp_path)
    assert store(tmp_path).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x10",
        save({"keys": np.zeros(3, np.uint8)})[:-2],
        save({"keys": np.zeros(3, np.uint8)}),
        save({"keys": np.frombuffer(b"\xff a b", np.uint8), "vectors": np.zeros((3, 2), np.float32)}),
        save({"keys": np.frombuffer(b"a b", np.uint8), "vectors": np.zeros((3, 2), np.float32)}),
    ],
)
def test_a_damaged_cache_is_made_again(tmp_path: Path, content: bytes) -> None:
    embed_values(WORDS, Embedder("text", "m", Network()), tmp_path, tmp_path)
    whole = store(tmp_path).read_bytes()
    store(tmp_path).write_bytes(content)
    network = Network()
    embed_values(WORDS, Embedder("text", "m", network), tmp_path, tmp_path)
    assert network.asked == WORDS
    assert store(tmp_path).read_bytes() == whole


# ----------------------------------------------------------------------------------------------------------------- images


def hub(monkeypatch: pytest.MonkeyPatch, has: Sequence[str] = (), endpoint: str = "http://127.0.0.1:9") -> None:
    """A stand-in for huggingface_hub, which has fetched some repositories before; nobody answers at its address."""
    package, constants = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.constants")
    package.try_to_load_from_cache = lambda name, file: f"/{name}/{file}" if name in has else None  # type: ignore[attr-defined]
    constants.HF_HUB_OFFLINE, constants.ENDPOINT = False, endpoint  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)


def timm(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[object]:
    """A stand-in for timm, whose network takes the mean of each colour, or whose weights cannot be opened; the files that it opened."""
    opened: list[object] = []

    def create_model(name: str, *, pretrained: bool, num_classes: int, pretrained_cfg_overlay: object) -> object:
        opened.append(pretrained_cfg_overlay)
        if error is not None:
            raise error
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    def create_transform(is_training: bool) -> object:
        return lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float()

    package = ModuleType("timm")
    package.create_model = create_model  # type: ignore[attr-defined]
    package.data = SimpleNamespace(  # type: ignore[attr-defined]
        create_transform=create_transform, resolve_model_data_config=lambda network: {}
    )
    package.is_model = lambda name: name in ("m", "n")  # type: ignore[attr-defined]
    package.get_pretrained_cfg = lambda name: SimpleNamespace(hf_hub_id=f"timm/{name}")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    hub(monkeypatch, ["timm/m"])
    return opened


def pictures(folder: Path, n: int) -> list[str]:
    for i in range(n):
        Image.fromarray(np.full((8, 8, 3), i, dtype=np.uint8)).save(folder / f"{i}.png")
    return [f"{i}.png" for i in range(n)]


def test_images_become_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timm(monkeypatch)
    found = embed_values([*pictures(tmp_path, 3), None], open_embedder("image", "m"), tmp_path, tmp_path / "cache")
    assert found.tolist() == [[0] * 3, [1] * 3, [2] * 3, [0] * 3]


def broken(folder: Path, name: str, how: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / name)
    content = (folder / name).read_bytes()
    cut = {"truncated": content[:1500], "empty": b"", "text": b"hello", "chunk": content[:30] + b"\0" * 60}[how]
    (folder / name).write_bytes(cut)


@pytest.mark.parametrize("how", ["truncated", "empty", "text", "chunk"])
def test_a_bad_image_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    timm(monkeypatch)
    monkeypatch.setattr(oneof.data.embed, "_BATCH_SIZE", {"image": 2})
    names = pictures(tmp_path, 6)
    broken(tmp_path, "5.png", how)
    embedder = open_embedder("image", "m")
    message = r"an image must be whole and of a known format; .*5\.png is not \(.+\)\. It is named in row 6\. Replace"
    with pytest.raises(ValueError, match=message) as raised:
        embed_values([None, *names], embedder, tmp_path, tmp_path / "cache")
    assert "\n" not in str(raised.value)
    assert len(oneof.data.embed._load_vectors(store(tmp_path / "cache"))) == 4
    assert embed_values([*names[:5], None], embedder, tmp_path, tmp_path / "cache").shape == (6, 3)


def test_weights_on_this_machine_are_opened_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = timm(monkeypatch)
    file = tmp_path / "n.safetensors"
    file.touch()
    open_embedder("image", "m")
    open_embedder("image", str(file))
    assert opened == [{"file": "/timm/m/model.safetensors"}, {"file": str(file)}]
    with pytest.raises(
        ValueError,
        match=r"the embedder n must be .* from http://127\.0\.0\.1:9; it is not here, and there is no network \(.+\)\. Give --image-model a file",
    ):
        open_embedder("image", "n")
    for name in ("resnet0", str(Path(__file__))):
        with pytest.raises(ValueError, match=r"--image-model must be a network that timm knows, .*; got '.+'\."):
            open_embedder("image", name)


def test_an_absent_image_is_named_with_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timm(monkeypatch)
    with pytest.raises(ValueError, match=r"there is no 'x\.png', which row 2 names\. Add it, or empty the cell"):
        embed_values([*pictures(tmp_path, 2), "x.png"], open_embedder("image", "m"), tmp_path, tmp_path)


@pytest.mark.parametrize("error", [SafetensorError("header too small"), RuntimeError("invalid checkpoint")])
def test_damaged_weights_are_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    timm(monkeypatch, error)
    with pytest.raises(
        ValueError, match=rf"the weights of m must be whole; timm could not open them \({error}\)\. Del"
    ):
        open_embedder("image", "m")


# ------------------------------------------------------------------------------------------------------------------ texts


def sentences(monkeypatch: pytest.MonkeyPatch, has: Sequence[str]) -> list[tuple[str, bool]]:
    """A stand-in for sentence-transformers, which opens what it has; what it was asked for, and whether for local files only."""
    asked: list[tuple[str, bool]] = []

    class SentenceTransformer:
        def __init__(self, model: str, local_files_only: bool = False) -> None:
            asked.append((model, local_files_only))
            if model not in has:
                raise OSError(f"no {model}")

        def encode(self, texts: list[str], show_progress_bar: bool) -> NDArray[np.float32]:
            return Network()(texts)

    package = ModuleType("sentence_transformers")
    package.__spec__ = ModuleSpec("sentence_transformers", None)
    package.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    return asked


def test_texts_are_embedded_by_a_folder_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch)
    asked = sentences(monkeypatch, [str(tmp_path)])
    assert open_embedder("text", str(tmp_path)).embed(["abc"]).tolist() == [[3, 1]]
    assert asked == [(str(tmp_path), True)]


def test_an_absent_embedder_without_a_network_is_one_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch)
    asked = sentences(monkeypatch, [])
    message = r"the embedder a/b must be on this machine or available from .*; it is not here, and there is no network .* Give --text-model a folder, or"
    with pytest.raises(ValueError, match=message):
        open_embedder("text", "a/b")
    assert asked == []
    hub(monkeypatch, ["a/b"])  # fetched before, but not wholly
    with pytest.raises(ValueError, match=message):
        open_embedder("text", "a/b")
    sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"there is no network \(HF_HUB_OFFLINE is set\)"):
        open_embedder("text", "a/b")


def test_the_network_is_asked_for_what_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch)
    monkeypatch.setattr(oneof.data.embed, "urlopen", lambda request, timeout: BytesIO())
    asked = sentences(monkeypatch, [])
    with pytest.raises(ValueError, match=r"the embedder a/b must be a model of sentence_transformers; .* \(no a/b\)"):
        open_embedder("text", "a/b")
    assert asked == [("a/b", True), ("a/b", False)]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "RuntimeError: operator torchvision::nms"),
        ("try:\n    1 / 0\nexcept Exception as error:\n    raise ImportError('lazy') from error", "ZeroDivisionError: division"),
    ],
)  # fmt: skip
def test_a_broken_package_is_told_from_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    (tmp_path / "timm.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ValueError, match=rf"--image needs the package timm; it is installed, but .* \({why}"):
        open_embedder("image", "m")


# -------------------------------------------------------------------------------------------------------- where the cache is


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    found = embed_values(["abc"], Embedder("text", "m", Network()), tmp_path, tmp_path / "file" / "cache")
    assert re.search(r"embeddings could not be kept in .*file.* Give --cache-dir FOLDER", caplog.messages[0])
    assert found.tolist() == [[3, 1]]


def test_the_cache_is_where_the_system_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    embed_values(["abc"], Embedder("text", "m", Network()), tmp_path)
    assert store(tmp_path / "oneof").is_file()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "oneof"
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(
        ValueError, match=r"embeddings need a folder for their cache; there is no home folder\. Give --cache-dir"
    ):
        default_cache()


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_another_network_in_the_same_folder_is_another(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "weights"
    for content in ("a", "ab"):
        weights.write_text(content)
        network = Network()
        embed_values(["abc"], Embedder("text", str(tmp_path / "model"), network), tmp_path, tmp_path / "cache")
        assert network.asked == ["abc"]


def test_processes_that_share_a_cache_keep_what_each_made(tmp_path: Path) -> None:
    other = Embedder("text", "m", lambda words: (embed_values(["b"], mine, tmp_path, tmp_path), Network()(words))[1])
    mine = Embedder("text", "m", Network())
    embed_values(["a"], other, tmp_path, tmp_path)  # while "a" is made, "b" is written
    assert len(oneof.data.embed._load_vectors(store(tmp_path))) == 2
