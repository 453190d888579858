"""Every batched operation against Pillow on the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from oneof.data.augment import draws
from oneof.data.augment.colour import enhance, grey, hue
from oneof.data.augment.geometry import crop, erase, resized_crop
from oneof.data.augment.policies import OPERATIONS, RANDAUGMENT, magnitude, operate, table

torch.set_num_threads(1)

SIDE = 32


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int, ch: int = 3, side: int = SIDE) -> torch.Tensor:
    """Images of several characters: noise, a few levels only, smooth and dim, flat."""
    noise = torch.randint(256, (n, ch, side, side), generator=generator(n + ch), dtype=torch.uint8)
    ramp = torch.arange(side).view(1, 1, side, 1) * 3 + torch.arange(ch).view(1, ch, 1, 1) * 20 + noise // 16
    kinds = torch.stack((noise, noise // 64 * 50 + 7, ramp.to(torch.uint8), torch.full_like(noise, 93)))
    return kinds[torch.arange(n) % 4, torch.arange(n)]


def to_pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(
        image.permute(1, 2, 0).squeeze(2).numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    )


def from_pillow(image: Image.Image) -> torch.Tensor:
    levels = torch.from_numpy(np.array(image))
    return levels[None] if levels.ndim == 2 else levels.permute(2, 0, 1)


def difference(ours: torch.Tensor, theirs: list[Image.Image]) -> torch.Tensor:
    assert ours.dtype == torch.uint8
    return (ours.int() - torch.stack([from_pillow(image) for image in theirs]).int()).abs()


def by_pillow(name: str, image: Image.Image, value: float, fill: int) -> Image.Image:
    """An operation as its Pillow implementations are written."""
    colour = (fill,) * 3 if image.mode == "RGB" else fill
    maps = {
        "shear x": (1, value, 0, 0, 1, 0),
        "shear y": (1, 0, 0, value, 1, 0),
        "translate x": (1, 0, value * SIDE, 0, 1, 0),
        "translate y": (1, 0, 0, 0, 1, value * SIDE),
    }
    if name in maps:
        return image.transform(image.size, Image.Transform.AFFINE, maps[name], fillcolor=colour)
    enhancements = {"brightness": "Brightness", "contrast": "Contrast", "colour": "Color", "sharpness": "Sharpness"}
    if name in enhancements:
        return getattr(ImageEnhance, enhancements[name])(image).enhance(value)
    return {
        "identity": lambda: image,
        "rotate": lambda: image.rotate(value, fillcolor=colour),
        "posterize": lambda: ImageOps.posterize(image, int(value)),
        "solarize": lambda: ImageOps.solarize(image, value),
        "invert": lambda: ImageOps.invert(image),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
    }[name]()


def magnitudes(name: str) -> list[float]:
    """Every level and sign of AutoAugment, and some of RandAugment's range."""
    low, high = RANDAUGMENT.get(name, (0, 1))
    levels = [magnitude(name, level, sign) for level in range(10) for sign in (1, -1)]
    return levels + [low + (high - low) * u for u in (0.03, 0.21, 0.5, 0.77)]


# ------------------------------------------------------------------------------------------------- operations and Pillow


@pytest.mark.parametrize("ch", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_equal_pillow(name, ch):
    values = [value for value in magnitudes(name) for _ in range(4)]
    images = pictures(len(values), ch)
    ours = operate(images, table([OPERATIONS[name](value, SIDE) for value in values]), fill=128)
    theirs = [by_pillow(name, to_pillow(image), value, 128) for image, value in zip(images, values, strict=True)]
    off = difference(ours, theirs)
    # All but these equal Pillow. They cut fractions off, and where the exact result is a whole level, a fused multiply-add
    # (the blends, contrast) or single for Pillow's double precision (autocontrast) may fall on the other side of it.
    assert off.max() <= (name in ("contrast", "colour", "sharpness", "autocontrast"))
    assert (off > 0).float().mean() < (0.2 if name == "autocontrast" else 0.01)


def test_equalize_keeps_a_channel_with_too_few_pixels_below_its_highest_level():
    images = torch.full((2, 1, SIDE, SIDE), 200, dtype=torch.uint8)
    images[0, 0, 0, : 254 % SIDE] = 10  # 30 pixels: step 0
    images[1, 0, :8] = 10  # 256 pixels: step 1
    ours = operate(images, table([OPERATIONS["equalize"](0, SIDE)] * 2), fill=0)
    assert difference(ours, [ImageOps.equalize(to_pillow(image)) for image in images]).max() == 0
    assert ours[0].equal(images[0])
    assert not ours[1].equal(images[1])


def test_each_image_has_its_own_operation_and_rows_do_not_depend_on_the_batch():
    names = list(OPERATIONS)
    images = pictures(len(names))
    rows = table([OPERATIONS[name](magnitude(name, 7, -1), SIDE) for name in names])
    together = operate(images, rows, fill=128)
    for i, name in enumerate(names):
        assert together[i : i + 1].equal(operate(images[i : i + 1], rows[i : i + 1], fill=128)), name
    assert together[names.index("identity")].equal(images[names.index("identity")])


@pytest.mark.parametrize(("ch", "side"), [(1, 28), (3, 32)])
def test_crop_flips_then_pads_by_reflection(ch, side):
    b, pad = 40, 4
    images = pictures(b, ch, side)
    flip, top, left = draws.shift(b, pad, generator())
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    mirrored = np.pad(images.flip(3).numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    ours = crop(images, flip, top, left, pad).numpy()
    for i in range(b):
        y, x, source = int(top[i]), int(left[i]), mirrored if flip[i] else padded
        np.testing.assert_array_equal(ours[i], source[i, :, y : y + side, x : x + side])


def test_cutout_is_clipped_at_the_borders():
    b, side = 60, 16
    images = pictures(b).clamp(min=1)
    rows, columns = draws.cutout(b, side, SIDE, SIDE, generator())
    ours = erase(images, rows, columns, torch.zeros(1, dtype=torch.uint8))
    for i in range(b):
        y, x = int(rows[0][i]) + side // 2, int(columns[0][i]) + side // 2
        assert 0 <= y < SIDE
        assert 0 <= x < SIDE
        expected = images[i].clone()
        expected[:, max(0, y - 8) : y + 8, max(0, x - 8) : x + 8] = 0
        assert ours[i].equal(expected)


def test_the_hole_that_ends_randaugment_is_the_rectangle_that_pillow_draws():
    b, colour = 60, (125, 123, 114)
    images = pictures(b)
    rows, columns = draws.cutout_up_to(b, 0.5, SIDE, SIDE, generator())
    side, y, x = torch.rand((3, b), generator=generator())
    ours = erase(images, rows, columns, torch.tensor(colour, dtype=torch.uint8))
    theirs = []
    for i, image in enumerate(images):
        v = float(side[i] * 0.5 * SIDE)
        x0, y0 = (int(max(0, float(c[i]) * SIDE - v / 2)) for c in (x, y))
        theirs.append(to_pillow(image))
        ImageDraw.Draw(theirs[-1]).rectangle((x0, y0, min(SIDE, x0 + v), min(SIDE, y0 + v)), colour)
    assert difference(ours, theirs).max() == 0


def test_resized_crop_equals_pillow_within_a_level():
    b = 60
    images = pictures(b)
    box, flip = draws.box(b, SIDE, SIDE, generator()), draws.coin(b, generator(1))
    box = tuple(torch.cat((a, torch.tensor([b]))) for a, b in zip(box, (0.0, 0.0, 32.0, 32.0), strict=True))
    images, flip = torch.cat((images, images[:1])), torch.cat((flip, torch.tensor([False])))
    theirs = []
    for i, image in enumerate(images):
        top, left, height, width = (int(side[i]) for side in box)
        cut = to_pillow(image).crop((left, top, left + width, top + height))
        cut = cut.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        theirs.append(ImageOps.mirror(cut) if flip[i] else cut)
    # One level: Pillow's weights have 22 binary places and ours are float32, so halves may round apart.
    off = difference(resized_crop(images, box, flip), theirs)
    assert off.max() <= 1
    assert (off > 0).float().mean() < 0.01
    assert resized_crop(images, box, flip)[-1].equal(images[-1])


@pytest.mark.parametrize(("kind", "name"), [(0, "Brightness"), (1, "Contrast"), (2, "Color")])
def test_jitter_enhances_as_pillow(kind, name):
    factors = torch.linspace(0.6, 1.4, 24)
    images = pictures(24)
    ours = enhance(images, torch.full((24,), kind), factors)
    theirs = [
        getattr(ImageEnhance, name)(to_pillow(im)).enhance(float(f)) for im, f in zip(images, factors, strict=True)
    ]
    off = difference(ours, theirs)
    assert off.max() <= 1
    assert (off > 0).float().mean() < 0.01


def test_hue_turns_as_pillow():
    shifts = torch.cat((torch.arange(26), 256 - torch.arange(1, 26))).float()
    images = pictures(len(shifts))
    theirs = []
    for image, by in zip(images, shifts, strict=True):
        h, s, v = to_pillow(image).convert("HSV").split()
        h = Image.fromarray(np.array(h) + np.uint8(int(by)))
        theirs.append(Image.merge("HSV", (h, s, v)).convert("RGB"))
    off = difference(hue(images, shifts), theirs)
    assert off.max() <= 1
    assert (off > 0).float().mean() < 1e-4


def test_grey_equals_pillow():
    images = pictures(12)
    assert (
        difference(grey(images.float()).to(torch.uint8), [to_pillow(image).convert("L") for image in images]).max() == 0
    )
