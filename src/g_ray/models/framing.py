"""Framing: any image becomes whole patches together with its camera, and results find back to its own pixels."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.rays.resample import Box, compute_resampling_weights, resample

PADDING = 1.0
"""White, as VGGT pads."""


@dataclass(frozen=True)
class Frame:
    """An image as the network sees it, with the camera that takes such images."""

    image: Float[Tensor, "3 h w"]
    camera: Camera
    content: Bool[Tensor, "h w"]
    """False for padding."""
    original: Camera
    """The camera of the image as it was given."""
    box: Box
    """Where the given image lies in this one: left, top, right, bottom in pixels."""

    def restore(
        self, maps: Float[Tensor, "h w channel"], valid: Bool[Tensor, "h w"]
    ) -> tuple[Float[Tensor, "height width channel"], Bool[Tensor, "height width"]]:
        """Resample maps from this frame's pixels to the given image's: bilinear where it is larger, antialiased where
        it is smaller. Invalid pixels have no part in it; where most of a pixel comes from them it is invalid, and 0.
        """
        return restore_maps(maps, valid, self.original.width, self.original.height, self.box)


def restore_maps(
    maps: Float[Tensor, "h w channel"], valid: Bool[Tensor, "h w"], width: int, height: int, box: Box
) -> tuple[Float[Tensor, "height width channel"], Bool[Tensor, "height width"]]:
    """Resample maps to the pixels of a `width` × `height` image that lies at `box` in them (see `Frame.restore`)."""
    left, top, right, bottom = box
    across = compute_resampling_weights(valid.shape[1], width, left, right).to(maps)
    down = compute_resampling_weights(valid.shape[0], height, top, bottom).to(maps)
    share = down @ valid.to(maps) @ across.mT
    planes = torch.where(valid[..., None], maps, 0.0).movedim(-1, 0)
    known = share >= 0.5
    values = (down @ planes @ across.mT) / torch.where(known, share, 1.0)
    return torch.where(known, values, 0.0).movedim(0, -1), known


@dataclass(frozen=True)
class Framing:
    """How images of any size become multiples of the patch; `size` is the long side in pixels.

    "stretch" scales each side to the nearest multiple: aspect ratios change by a few per cent at most and nothing is
    cut or added, and because the camera is scaled alike every pixel keeps its ray. "pad" keeps the aspect ratio and
    fills up to a square, for networks that must see one size.
    """

    size: int
    patch: int
    fit: str = "stretch"

    def __post_init__(self) -> None:
        if self.fit not in ("stretch", "pad"):
            raise ValueError(f"unknown fit {self.fit!r}: choose stretch or pad")
        if self.size < self.patch or self.size % self.patch:
            raise ValueError(
                f"long side {self.size} px is not a multiple of the patch of {self.patch} px: "
                f"choose {max(1, round(self.size / self.patch)) * self.patch}"
            )

    def __call__(self, image: Float[Tensor, "3 height width"], camera: Camera) -> Frame:
        """Frame an image with its camera, a single one of the same size."""
        return self._stretch(image, camera) if self.fit == "stretch" else self._pad(image, camera)

    def compute_stretched_size(self, camera: Camera) -> tuple[int, int]:
        """Compute width and height in whole patches, as near to the camera's aspect ratio as they come."""
        scale = self.size / max(camera.width, camera.height)
        sides = (camera.width, camera.height)
        width, height = (max(1, round(side * scale / self.patch)) * self.patch for side in sides)
        return width, height

    def _stretch(self, image: Tensor, camera: Camera) -> Frame:
        width, height = self.compute_stretched_size(camera)
        small, lens = resample(image, camera, width, height)
        content = torch.ones(height, width, dtype=torch.bool, device=image.device)
        return Frame(small, lens, content, camera, (0.0, 0.0, float(width), float(height)))

    def _pad(self, image: Tensor, camera: Camera) -> Frame:
        scale = self.size / max(camera.width, camera.height)
        width, height = (max(1, round(side * scale)) for side in (camera.width, camera.height))
        small, lens = resample(image, camera, width, height)
        left, top = (self.size - width) // 2, (self.size - height) // 2
        right, bottom = self.size - width - left, self.size - height - top
        content = torch.ones(height, width, dtype=torch.bool, device=image.device)
        return Frame(
            F.pad(small, (left, right, top, bottom), value=PADDING),
            lens.pad(left, top, right, bottom),
            F.pad(content, (left, right, top, bottom), value=False),
            camera,
            (float(left), float(top), float(left + width), float(top + height)),
        )
