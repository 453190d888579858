"""Change grey levels: tables of levels, blends, hue; each image with its own parameters.

All take and give uint8 images [b, ch, h, w], ch 1 or 3. Brightness, contrast, posterize, solarize, invert, autocontrast
and equalize are functions of a pixel's level alone once the image's statistics are known: one table [b, ch, 256] per image
and one gather does them all. Saturation and sharpness blend the image with a degenerate form of itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# ITU-R 601-2 in units of 1/65536, as Pillow has it; sums of levels have at most 24 bits, exact in float32.
LUMA = (19595 / 65536, 38470 / 65536, 7471 / 65536)


def grey(pixels: Tensor) -> Tensor:
    """Return the grey levels [b, 1, h, w] of float pixels [b, ch, h, w] that hold whole levels."""
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.tensor_split(3, 1)
    weighted = torch.add(torch.add(red * LUMA[0], green, alpha=LUMA[1]), blue, alpha=LUMA[2])
    return (weighted + 0.5).floor()


def mean_level(levels: Tensor) -> Tensor:
    """Return the mean of grey levels [b, 1, h, w], to the nearest whole level, [b, 1, 1, 1]."""
    return (levels.mean((2, 3), keepdim=True) + 0.5).floor()


def smooth(pixels: Tensor) -> Tensor:
    """Apply Pillow's SMOOTH: every pixel weighs 5 and its eight neighbours 1; the outermost frame stays."""
    total = F.avg_pool2d(pixels, 3, stride=1, divisor_override=1).add(pixels[..., 1:-1, 1:-1], alpha=4)
    smoothed = pixels.clone()
    smoothed[..., 1:-1, 1:-1] = (total / 13).round()  # never a half
    return smoothed


def blend(degenerate: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    """Return uint8 of degenerate + factor (pixels - degenerate), clipped and cut off as Pillow's blend; factor 1 is exact."""
    return torch.addcmul(degenerate, pixels - degenerate, factor).clamp(0, 255).to(torch.uint8)


def tone(images: Tensor, levels: Tensor, parameters: Tensor) -> Tensor:
    """Return float pixels after a table of levels [b, ch, 256]; `levels` [b, 1, h, w] is the images' grey."""
    # The rows of `parameters` [6, b] are the fields of `policies.Operation` from `factor` to `equalize`.
    values = images.flatten(2).long()
    mean = mean_level(levels)[..., 0]
    factor, contrast, threshold, step, stretch, equalize = (value[:, None, None] for value in parameters)
    old = torch.arange(256, device=values.device, dtype=torch.float32)
    lowest, highest = values.aminmax(dim=2, keepdim=True)
    low = lowest.float()
    high = highest.float()
    spread = (high - low) * stretch  # 0 where not asked for; a flat channel stays as it is
    stretched = spread > 0
    slope = torch.where(stretched, 255 / spread, factor)
    pivot = contrast * mean
    new = torch.addcmul(pivot, old - torch.where(stretched, low, pivot), slope).clamp(0, 255)
    new = new.div(step, rounding_mode="floor") * step
    new = torch.where(old >= threshold, 255 - old, new)
    # Pillow's equalizing table where it is requested and the channel has levels enough for it:
    # width = (pixels below the highest level) // 255,   new(i) = (width // 2 + pixels below i) // width
    ones = torch.ones((), device=values.device).expand(values.shape)
    histogram = torch.zeros((*values.shape[:2], 256), device=values.device).scatter_add_(2, values, ones)
    below = histogram.cumsum(2) - histogram
    width = (below.gather(2, high.long()) * equalize).div(255, rounding_mode="floor")
    half = width.div(2, rounding_mode="floor")
    new = torch.where(width > 0, (below + half).div(width, rounding_mode="floor").clamp(max=255), new)
    return new.gather(2, values).view(images.shape)


def enhance(images: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    """Change brightness (kind 0), contrast (1) or saturation (2) by `factor`, [b] each; three-channel images."""
    pixels = images.float()
    levels = grey(pixels)
    kind = kind[:, None, None, None]
    degenerate = torch.where(kind == 2, levels, mean_level(levels) * (kind == 1))
    return blend(degenerate, pixels, factor[:, None, None, None])


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of three-channel images by `shift` [b] of its 256 steps, through Pillow's 8-bit HSV."""
    pixels = images.float()
    value = pixels.amax(1)
    spread = value - pixels.amin(1)
    # In double, as Pillow: k/255 in single precision may lie a hair below, and one step of hue is six grey levels.
    saturation = ((spread / value.clamp(min=1)).double() * 255).floor().float()
    red, green, _ = pixels.unbind(1)
    from_red, from_green, from_blue = ((value[:, None] - pixels) / spread.clamp(min=1)[:, None]).double().unbind(1)
    from_others = torch.where(green == value, 2 + from_red - from_blue, 4 + from_green - from_red)
    sixth = torch.where(red == value, from_blue - from_green, from_others)
    # As a share of the circle; 0 for greys.
    circle = torch.where(spread > 0, torch.remainder(sixth.float().double() / 6 + 1, 1).float(), 0)
    angle = torch.remainder((circle.double() * 255).floor().float() + shift[:, None, None], 256)
    return _rgb(angle, saturation, value).to(torch.uint8)


def _rgb(angle: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Return pixels [b, 3, h, w] from 8-bit hue, saturation and value [b, h, w]."""
    # A channel falls from `value` by the share of saturation that its distance to the hue on the colour wheel asks for.
    sixth = angle * 6 / 255
    offset = torch.arange(5, 0, -2, device=angle.device)  # red, green, blue; made there, since copying would wait
    distance = torch.remainder(sixth[:, None] + offset[:, None, None], 6)
    share = torch.minimum(distance, 4 - distance).clamp(0, 1)
    return (value[:, None] * (1 - share * (saturation / 255)[:, None]) + 0.5).floor()
