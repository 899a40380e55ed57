"""How peers resize photographs: rules that place each image of a scene on the network's canvas.

Photographs are resized to whole pixels, then cropped or padded with white; cameras go the same way, so every pixel
keeps its ray. Results are cut back to the resized photograph, of which cropped parts have no depth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera

Size = tuple[int, int]
"""Width and height in pixels."""
Filter = Literal["bicubic", "lanczos", "lanczos_or_bicubic", "area"]
"""Pillow's; lanczos_or_bicubic: Lanczos if shrinking, bicubic if enlarging; area: OpenCV's INTER_AREA if shrinking."""
WHITE = 1.0
MIN_SHARE = 0.999
"""Share of a photograph on the canvas, below which a warning is issued."""
MAX_STRETCH = 0.1
"""Log change of the aspect ratio beyond which a warning is issued; rounding to whole patches changes it by less."""


@dataclass(frozen=True)
class Placement:
    """A photograph resized to `width` × `height`, with its corner at (left, top) of the canvas, or outside of it."""

    width: int
    height: int
    left: int
    top: int
    canvas: Size

    @property
    def skipped(self) -> Size:
        """Columns and rows of the photograph left of and above the canvas."""
        return max(0, -self.left), max(0, -self.top)

    @property
    def corner(self) -> Size:
        """Where the visible part begins on the canvas."""
        return max(0, self.left), max(0, self.top)

    @property
    def visible(self) -> Size:
        """Size of the part of the photograph that is on the canvas."""
        (x, y), (left, top) = self.skipped, self.corner
        return min(self.width - x, self.canvas[0] - left), min(self.height - y, self.canvas[1] - top)

    @property
    def share(self) -> float:
        """Share of the photograph that is on the canvas."""
        return self.visible[0] * self.visible[1] / (self.width * self.height)

    def describe_losses(self, name: str, size: Size) -> list[str]:
        """Say how much of a photograph of this size is cropped, and whether it is visibly stretched."""
        notes = []
        if self.share < MIN_SHARE:
            notes.append(f"{1 - self.share:.0%} of {name} are cropped and have no depth")
        stretch = abs(math.log(self.width * size[1] / (self.height * size[0])))
        if stretch > MAX_STRETCH:
            notes.append(
                f"{name} is stretched by {math.expm1(stretch):.0%} to the shape that the network sees"
            )
        return notes

    def place_image(self, image: Float[Tensor, "c height width"]) -> Float[Tensor, "c canvas_h canvas_w"]:
        """Crop and pad a resized photograph to the canvas."""
        (x, y), (left, top), (width, height) = self.skipped, self.corner, self.visible
        part = image[:, y : y + height, x : x + width]
        right, bottom = self.canvas[0] - left - width, self.canvas[1] - top - height
        return F.pad(part, (left, right, top, bottom), value=WHITE)

    def place_camera(self, camera: Camera) -> Camera:
        """Make the camera of the canvas from that of the photograph, of any size."""
        (x, y), (left, top), (width, height) = self.skipped, self.corner, self.visible
        right, bottom = self.canvas[0] - left - width, self.canvas[1] - top - height
        small = camera.resize(self.width, self.height)
        return small.crop(x, y, width, height).pad(left, top, right, bottom)

    def restore_map(
        self, values: Float[Tensor, "canvas_h canvas_w"]
    ) -> tuple[Float[Tensor, "height width"], Bool[Tensor, "height width"]]:
        """Cut a map of the canvas to the resized photograph; false, and 0, where the photograph was cropped."""
        (x, y), (left, top), (width, height) = self.skipped, self.corner, self.visible
        result = values.new_zeros(self.height, self.width)
        inside = torch.zeros(self.height, self.width, dtype=torch.bool)
        result[y : y + height, x : x + width] = values[top : top + height, left : left + width]
        inside[y : y + height, x : x + width] = True
        return result, inside

    def restore_camera(self, camera: Camera) -> Camera:
        """Make the camera of the resized photograph from that of the canvas; inverse of `place_camera`."""
        (x, y), (left, top), (width, height) = self.skipped, self.corner, self.visible
        right, bottom = self.width - x - width, self.height - y - height
        return camera.crop(left, top, width, height).pad(x, y, right, bottom)


def resize_image(
    image: Float[Tensor, "3 h w"], width: int, height: int, filter: Filter
) -> Float[Tensor, "3 height width"]:
    """Resize with 8 bits, as the loaders of peers do."""
    if (image.shape[-1], image.shape[-2]) == (width, height):
        return image
    shrinks = width <= image.shape[-1] and height <= image.shape[-2]
    if filter == "area" and shrinks:
        across = compute_area_weights(image.shape[-1], width).to(image)
        down = compute_area_weights(image.shape[-2], height).to(image)
        return (255 * (down @ image.clamp(0, 1) @ across.mT)).round() / 255
    pixels = (255 * image.clamp(0, 1)).round().to(torch.uint8).movedim(0, -1).numpy(force=True)
    sharp = filter == "lanczos" or (filter == "lanczos_or_bicubic" and shrinks)
    kind = Image.Resampling.LANCZOS if sharp else Image.Resampling.BICUBIC
    small = np.asarray(Image.fromarray(pixels).resize((width, height), kind))
    return torch.from_numpy(small.copy()).movedim(-1, 0).float() / 255


def compute_area_weights(source: int, target: int) -> Float[Tensor, "target source"]:
    """Compute which share of each target pixel every source pixel covers, along one axis."""
    step = source / target
    start = torch.arange(target, dtype=torch.float64)[:, None] * step
    pixel = torch.arange(source, dtype=torch.float64)
    overlap = torch.minimum(start + step, pixel + 1) - torch.maximum(start, pixel)
    return overlap.clamp(min=0) / step


# Rules: from the sizes of all images of a scene to their places.


def fit_width(sizes: Sequence[Size], side: int, multiple: int) -> list[Placement]:
    """All get one width; what is taller than wide is cropped to a square in the middle (VGGT's "crop")."""
    places = []
    for width, height in sizes:
        tall = _round(height * (side / width), multiple)
        seen = min(tall, side)
        places.append(Placement(side, tall, 0, -((tall - seen) // 2), (side, seen)))
    return pad_to_common(places)


def fit_square(sizes: Sequence[Size], side: int, multiple: int) -> list[Placement]:
    """All of a photograph in the middle of a white square (VGGT's "pad")."""
    places = []
    for width, height in sizes:
        scale = side / max(width, height)
        w, h = (_round(n * scale, multiple) for n in (width, height))
        places.append(Placement(w, h, (side - w) // 2, (side - h) // 2, (side, side)))
    return places


def fit_long_side(sizes: Sequence[Size], side: int, multiple: int) -> list[Placement]:
    """The long side of each is `side`; different shapes are cropped to the smallest in the middle (DA3)."""
    places = []
    for width, height in sizes:
        scale = side / max(width, height)
        # Halves go up here, as DA3 rounds; elsewhere to the even number, as Python does.
        w, h = (
            max(1, (2 * round(n * scale) + multiple) // (2 * multiple)) * multiple for n in (width, height)
        )
        places.append(Placement(w, h, 0, 0, (w, h)))
    smallest = min(place.width for place in places), min(place.height for place in places)
    return [center_on(place, smallest) for place in places]


def fit_tokens(sizes: Sequence[Size], side: int, multiple: int) -> list[Placement]:
    """(side/multiple)² patches, stretched to whole ones; beyond 1:2 and 2:1 the middle is kept (VGGT-Omega)."""
    places = []
    for width, height in sizes:
        kept = min(width, 2 * height), min(height, 2 * width)
        across = math.sqrt((side // multiple) ** 2 * kept[0] / kept[1])
        down = (side // multiple) ** 2 / across
        shape = max(1, round(across)) * multiple, max(1, round(down)) * multiple
        # The whole photograph at the scale, on each axis, that brings the kept part to the shape.
        w, h = (round(n * new / old) for n, new, old in zip((width, height), shape, kept, strict=True))
        places.append(center_on(Placement(w, h, 0, 0, shape), shape))
    return pad_to_common(places)


def fit_first(sizes: Sequence[Size], pixels: int, multiple: int) -> list[Placement]:
    """Stretch all to one size: the shape of the first, with at most `pixels` pixels (π³)."""
    width, height = sizes[0]
    scale = math.sqrt(pixels / (width * height))
    across, down = round(width * scale / multiple), round(height * scale / multiple)
    while across * down * multiple**2 > pixels:
        if across * height > down * width:
            across -= 1
        else:
            down -= 1
    size = max(1, across) * multiple, max(1, down) * multiple
    return [Placement(*size, 0, 0, size) for _ in sizes]


def fit_shapes(sizes: Sequence[Size], shapes: Sequence[Size]) -> list[Placement]:
    """All fill the shape that is nearest to their mean aspect ratio, cropped in the middle (MapAnything)."""
    mean = sum(width / height for width, height in sizes) / len(sizes)
    shape = min(shapes, key=lambda shape: abs(shape[0] / shape[1] - mean))
    return [_cover(size, shape) for size in sizes]


def limit_long_side(sizes: Sequence[Size], side: int) -> list[Placement]:
    """Keep sizes, or shrink to a long side of `side` if it is longer: for networks that resize by themselves."""
    places = []
    for width, height in sizes:
        scale = min(1.0, side / max(width, height))
        w, h = (max(1, round(n * scale)) for n in (width, height))
        places.append(Placement(w, h, 0, 0, (w, h)))
    return places


def pad_to_common(places: Sequence[Placement]) -> list[Placement]:
    """Put all on canvases as large as the largest, in the middle."""
    largest = max(place.canvas[0] for place in places), max(place.canvas[1] for place in places)
    return [_recenter(place, largest) for place in places]


def center_on(place: Placement, canvas: Size) -> Placement:
    """Put a photograph in the middle of another canvas."""
    left, top = (-((n - c) // 2) for n, c in zip((place.width, place.height), canvas, strict=True))
    return replace(place, left=left, top=top, canvas=canvas)


def _recenter(place: Placement, canvas: Size) -> Placement:
    """Move a canvas with its photograph to the middle of a larger one.

    Rules crop along a side only where their canvas is the longest that they make, so no cropped side gets room here.
    """
    right, down = ((new - old) // 2 for new, old in zip(canvas, place.canvas, strict=True))
    return replace(place, left=place.left + right, top=place.top + down, canvas=canvas)


def _cover(size: Size, shape: Size) -> Placement:
    """Scale an image so that it covers a shape, and keep the middle."""
    scale = max(new / old for new, old in zip(shape, size, strict=True))
    width, height = (max(new, math.floor(old * (scale + 1e-8))) for new, old in zip(shape, size, strict=True))
    return center_on(Placement(width, height, 0, 0, shape), shape)


def _round(length: float, multiple: int) -> int:
    return max(1, round(length / multiple)) * multiple
