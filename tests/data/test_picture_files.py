"""Pictures as people have them: sizes, colours, cameras and broken files; folders and bytes."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from oneof.data.augment.views import Pictures, Strong, views
from oneof.data.encode import learn_encoding
from oneof.data.files.columns import open_table
from oneof.data.images import ImageSpec, downsample, learn_image_spec, list_folder, read_pictures
from oneof.data.picture import thumbnail
from oneof.data.roles import ColumnRoles
from oneof.data.table import read_table

GREY, COLOUR = ImageSpec("file", 1, 8), ImageSpec("file", 3, 8)


def halves(size: tuple[int, int] = (8, 8), left: int = 0, right: int = 255) -> np.ndarray:
    """Levels [h, w]: one at the left, another at the right."""
    width, height = size
    return np.where(np.arange(width) < width // 2, left, right).astype(np.uint8) * np.ones((height, 1), np.uint8)


def saved(image: Image.Image, kind: str, **how: object) -> bytes:
    image.save(file := BytesIO(), kind, **how)
    return file.getvalue()


def read_one(content: bytes, pixels: ImageSpec = COLOUR) -> np.ndarray:
    """Levels [channels, side, side] of a picture that must be readable."""
    found = read_pictures([content], pixels, Path())
    assert found.fault is None
    assert found.readable.all()
    return found.levels.reshape(pixels.shape)


# ------------------------------------------------------------------------------------------------------------ kinds


def turned() -> bytes:
    """Stored on its side: the camera says that it was turned by a quarter."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(Image.fromarray(halves()).rotate(90), "PNG", exif=exif)


def with_alpha() -> bytes:
    """Black, and nothing at all at the right, where a viewer shows white."""
    return saved(Image.merge("LA", (Image.new("L", (8, 8)), Image.fromarray(255 - halves()))), "PNG")


def frames() -> bytes:
    first, second = (Image.fromarray(one) for one in (halves(), halves(left=255)))
    return saved(first, "GIF", save_all=True, append_images=[second])


def in_palette() -> bytes:
    image = Image.fromarray(halves() // 255)
    image.putpalette([0, 0, 0, 255, 255, 255])
    return saved(image, "PNG")


def with_a_clear_colour() -> bytes:
    image = Image.fromarray(halves() // 255)
    image.putpalette([0, 0, 0, 9, 9, 9])
    return saved(image, "PNG", transparency=1)


KINDS: dict[str, Callable[[], bytes]] = {
    "grey": lambda: saved(Image.fromarray(halves()), "PNG"),
    "one bit": lambda: saved(Image.fromarray(halves()).convert("1"), "PNG"),
    "16 bits": lambda: saved(Image.fromarray(halves().astype(np.uint16) * 257), "PNG"),
    "CMYK": lambda: saved(Image.fromarray(halves()).convert("CMYK"), "TIFF"),
    "palette": in_palette,
    "alpha": with_alpha,
    "a clear colour": with_a_clear_colour,
    "GIF with frames": frames,
    "turned": turned,
    "bitmap": lambda: saved(Image.fromarray(halves()), "BMP"),
}


@pytest.mark.parametrize("pixels", [GREY, COLOUR])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_levels(kind: str, pixels: ImageSpec) -> None:
    assert (read_one(KINDS[kind](), pixels) == halves()).all()


def test_a_jpeg_in_cmyk_is_near() -> None:
    found = read_one(saved(Image.fromarray(halves()).convert("CMYK"), "JPEG", quality=95))
    assert np.abs(found.astype(int) - halves()).max() <= 6


def test_sixteen_bits_keep_their_levels() -> None:
    assert read_one(saved(Image.fromarray(np.full((8, 8), 1000, np.uint16)), "PNG"), GREY).max() == 1000 >> 8


@pytest.mark.parametrize("size", [(8, 16), (16, 8), (80, 40), (4, 4)])
def test_other_sizes_are_fitted_and_cut_to_the_middle(size: tuple[int, int]) -> None:
    found = read_one(saved(Image.fromarray(halves(size)), "PNG"), GREY)[0]
    assert found[:, 0].max() == 0
    assert found[:, -1].min() == 255


# ---------------------------------------------------------------------------------------------------------- threads


def sides(*given: int) -> list[bytes]:
    return [saved(Image.new("L", (side, side)), "PNG") for side in given]


@pytest.mark.parametrize(
    ("cells", "threads"),
    [
        (sides(32) * 300, 1),
        (sides(64) * 300, 3),
        (sides(512), 20),  # as many as the cores, and four that wait for the disk
        (sides(32) * 150 + sides(256) * 50, 9),  # the mean counts
        ([None, b"broken", *sides(64)], 3),
        ([None, b"broken"], 1),
    ],
)
def test_small_pictures_are_read_by_few_threads(monkeypatch, cells: list[bytes | None], threads: int) -> None:
    asked = []
    monkeypatch.setattr("oneof.data.images.cores", lambda: 16)
    monkeypatch.setattr(
        "oneof.data.images.ThreadPoolExecutor", lambda count: asked.append(count) or ThreadPoolExecutor(2)
    )
    assert len(read_pictures(cells, GREY, Path()).levels) == len(cells)
    if any(cells[2:]):
        learn_image_spec("file", cells, Path())
    assert set(asked) == {threads}


def test_settings_of_pillow_count(monkeypatch) -> None:
    whole = saved(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)), "JPEG")
    cells = [*sides(8, 9), whole[: len(whole) // 2]]
    assert read_pictures(cells, COLOUR, Path()).readable.tolist() == [True, True, False]
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    assert read_pictures(cells, COLOUR, Path()).readable.all()


def test_a_large_picture_is_told_in_our_words_alone() -> None:
    """Not by a warning of Pillow's, which only an attack gets."""
    large = saved(Image.new("1", (10_000, 10_000)), "PNG")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_pictures([*sides(8), large], GREY, Path())
    assert not said
    assert "more than 89,478,485 pixels" in str(found.fault)


# ----------------------------------------------------------------------------------------------------- broken files


def hostile(folder: Path) -> dict[str, str]:
    """Files that are no pictures, and what is said of each."""
    whole = saved(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)), "JPEG")
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("not a picture")
    (folder / "empty.png").touch()
    (folder / "folder.png").mkdir()
    huge = saved(Image.new("1", (8, 8)), "PNG")
    header = huge.index(b"IHDR") + 4
    chunk = b"IHDR" + struct.pack(">II", 20_000, 20_000) + huge[header + 8 : header + 13]
    (folder / "huge.png").write_bytes(
        huge[: header - 4] + chunk + struct.pack(">I", zlib.crc32(chunk)) + huge[header + 17 :]
    )
    Image.fromarray(np.zeros((8, 8), np.float32)).save(folder / "fractions.tiff")
    return {
        "cut.jpg": "truncated",
        "text.png": "it is no picture of a known kind",
        "empty.png": "it is no picture of a known kind",
        "folder.png": "there is no such file",
        "nowhere.png": "there is no such file",
        "huge.png": "it has more than 89,478,485 pixels",
        "fractions.tiff": "its levels are fractions",
    }


def test_broken_files_are_named_and_stay_blank(tmp_path: Path) -> None:
    for name, why in hostile(tmp_path).items():
        Image.fromarray(halves()).save(tmp_path / "whole.png")
        found = read_pictures(["whole.png", name, None], GREY, tmp_path)
        assert found.readable.tolist() == [True, False, False]
        assert (found.levels[0].reshape(8, 8) == halves()).all()
        assert found.levels[1:].max() == 0
        assert found.fault is not None
        assert f"2 of 3 pictures cannot be read; skipped in training and prediction: row 1, {name!r}: " in found.fault
        assert why in found.fault
        assert found.fault.endswith("; row 2, None: none is named.")


def damaged_avif() -> bytes:
    """Without its picture: Pillow raises RuntimeError."""
    content = saved(Image.fromarray(halves()), "AVIF")
    return content[: content.index(b"mdat") + 4] + bytes(len(content) - content.index(b"mdat") - 4)


def damaged_dds() -> bytes:
    """Pixels of no known format: Pillow raises NotImplementedError."""
    content = bytearray(saved(Image.fromarray(halves()), "DDS"))
    content[80:84] = bytes(4)
    return bytes(content)


@pytest.mark.parametrize("make", [damaged_avif, damaged_dds])
def test_damage_that_pillow_reports_by_rare_errors_is_told(make: Callable[[], bytes]) -> None:
    Image.init()
    kind = make.__name__.removeprefix("damaged_").upper()
    if kind not in Image.SAVE:
        pytest.skip(f"Pillow has no {kind} here")
    read = read_pictures([make()], COLOUR, Path())
    assert not read.readable.any()
    assert read.fault is not None


def test_no_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow recognises PostScript by its content, whatever the file is called, and starts Ghostscript for it."""
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args, **how: pytest.fail("Ghostscript was started"))
    (tmp_path / "harmless.png").write_bytes(saved(Image.fromarray(halves()), "EPS"))
    read = read_pictures(["harmless.png"], GREY, tmp_path)
    assert "harmless.png': it is EPS, which another program would draw; save it as PNG" in (read.fault or "")


def test_few_of_many_broken_files_are_named(tmp_path: Path) -> None:
    found = read_pictures([f"{i}.png" for i in range(20)], GREY, tmp_path)
    assert found.fault is not None
    assert found.fault.count("there is no such file") == 5
    assert found.fault.endswith("; and 15 more.")


def test_pictures_of_which_none_can_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"column 'file' must hold pictures below .*; none of 2 can be read \('a\.png': there is no such file\)\.",
    ):
        learn_image_spec("file", ["a.png", None], tmp_path)


# ----------------------------------------------------------------------------------------------------- side, channels


def levels_of(*sizes: tuple[int, int], colour: bool = False) -> list[bytes]:
    made = [Image.fromarray(halves(size)).convert("RGB") for size in sizes]
    if colour:
        made[0].putpixel((0, 0), (255, 0, 0))
    return [saved(image, "PNG") for image in made]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (levels_of((28, 28), (28, 28)), (1, 28)),
        (levels_of((32, 32), (32, 32), colour=True), (3, 32)),
        (levels_of((30, 45), (33, 40), (31, 70)), (1, 28)),  # a multiple of four where they differ
        (levels_of((300, 200), (400, 500)), (1, 64)),
        (levels_of((3, 3)), (1, 8)),
    ],
)
def test_side_and_channels_come_from_the_pictures(cells: list[bytes], expected: tuple[int, int]) -> None:
    assert learn_image_spec("file", [None, b"broken", *cells], Path()) == ImageSpec("file", *expected)


def test_coarse_pictures_are_means_of_squares() -> None:
    x = np.arange(28 * 28, dtype=np.uint8).reshape(1, -1)
    square = x.reshape(28, 28)[:2, :2].mean() / 255
    assert downsample(x, ImageSpec("file", 1, 28))[0, 0] == pytest.approx(square)


def test_a_thumbnail_is_a_small_jpeg(tmp_path: Path) -> None:
    Image.fromarray(halves((300, 200))).save(tmp_path / "a.png")
    found = thumbnail("a.png", tmp_path)
    assert found is not None
    assert found.startswith("data:image/jpeg;base64,")
    assert len(found) < 3000
    assert thumbnail("b.png", tmp_path) is None


# ------------------------------------------------------------------------------------------------- folders and tables


def test_a_folder_is_a_table_and_names_may_come_twice(tmp_path: Path) -> None:
    for place in ("cat|fox/1.png", "dog/1.png", "dog/old/2.PNG", "top.png"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(halves()).save(tmp_path / place)
    (tmp_path / "dog" / "notes.txt").touch()
    assert list_folder(tmp_path).to_pydict() == {
        "file": ["cat|fox/1.png", "dog/1.png", "dog/old/2.PNG", "top.png"],
        "candidates": ["cat|fox", "dog", "dog", None],
    }
    assert open_table(tmp_path).name == str(tmp_path)
    table = read_table(tmp_path, ColumnRoles(image=("file",), empty="unlabelled"))
    assert table.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert table.candidates.mask.sum(1).tolist() == [2, 1, 1, 3]
    encoding = learn_encoding(table.columns, table.roles, folder=tmp_path)
    assert encoding.transform(table.columns, folder=tmp_path).shape == (4, 64)


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a folder must hold pictures \(.*\), in subfolders named by their candidates.*has none"
    ):
        list_folder(tmp_path)


@pytest.mark.parametrize("wrapped", [False, True])
def test_bytes_in_a_column_are_pictures(wrapped: bool) -> None:
    content = saved(Image.fromarray(halves()), "PNG")
    cells = [{"bytes": content, "path": "a.png"}, {"bytes": None, "path": None}] if wrapped else [content, None]
    table = read_table(pa.table({"shot": cells, "candidates": ["a|b", "b"]}), ColumnRoles(image=("shot",)))
    encoding = learn_encoding(table.columns, table.roles)
    assert encoding.pixels == (ImageSpec("shot", 1, 8),)
    found = encoding.pictures(table.columns, Path())
    assert found.readable.tolist() == [True, False]
    assert encoding.derived_features == ["shot[0] to shot[63] are made of the picture's levels 0 to 255, (1, 8, 8)"]


def test_pictures_are_learned_from_alone() -> None:
    cells = {"shot": levels_of((8, 8)), "note": ["a"], "candidates": ["a|b"]}
    table = read_table(pa.table(cells), ColumnRoles(image=("shot",), text=("note",)))
    with pytest.raises(
        ValueError,
        match=r"must learn from one column of them alone; the table has note in addition to 'shot'\. .*--image-model NAME",
    ):
        learn_encoding(table.columns, table.roles)


# ------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 8), (1, 20), (3, 64)])
@pytest.mark.parametrize("recipe", ["plain", "pop", "upright"])
def test_views_are_for_any_side_and_channels(recipe: str, channels: int, side: int) -> None:
    made = views(recipe, Pictures(side, (0.5,) * channels, (0.2,) * channels))
    images = torch.randint(256, (3, channels, side, side), dtype=torch.uint8)
    seen = made(images, torch.Generator().manual_seed(0))
    assert seen.shape == (made.count, 3, channels, side, side)
    torch.testing.assert_close(seen[0], (images / 255 - 0.5) / 0.2)
    assert made.smallest <= side
    strong = [view for view, _ in made.kinds if isinstance(view, Strong)]
    assert all((view.policy is not None) == (channels == 3) and view.hole <= side // 2 for view in strong)
