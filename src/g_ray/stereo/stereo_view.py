"""What stereo takes and gives: views with known cameras, sparse points, depth maps."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import resample


@dataclass(frozen=True, eq=False)
class StereoView:
    """A photograph with the camera that took it, at the same resolution, and its pose; of any lens and size."""

    image: Float[Tensor, "3 h w"]  # in [0, 1]
    camera: Camera
    pose: Pose
    mask: Bool[Tensor, "h w"] | None = None  # pixels that may be used; None: all
    """Pixels without a ray (outside the image circle) need not be masked: the camera knows them."""

    def __post_init__(self) -> None:
        size = (self.camera.height, self.camera.width)
        if tuple(self.image.shape[-2:]) != size:
            raise ValueError(
                f"image of {self.image.shape[-1]}×{self.image.shape[-2]} px, but its camera takes "
                f"{size[1]}×{size[0]}: resize them together"
            )
        if self.mask is not None and tuple(self.mask.shape) != size:
            raise ValueError(
                f"mask of shape {tuple(self.mask.shape)} for an image of {size}: give [height, width]"
            )
        if self.camera.batch_shape or self.pose.batch_shape:
            raise ValueError("a stereo view has one camera and one pose: index batches before")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.camera.height, self.camera.width

    @property
    def device(self) -> torch.device:
        return self.image.device

    def to(self, device: Any) -> "StereoView":
        mask = None if self.mask is None else self.mask.to(device)
        return StereoView(self.image.to(device), self.camera.to(device), self.pose.to(device), mask)

    def limit_size(self, long_side: int) -> "StereoView":
        """Reduce image, camera and mask so that the longer side has at most `long_side` pixels."""
        longest = max(self.size)
        if longest <= long_side:
            return self
        height, width = (max(2, round(side * long_side / longest)) for side in self.size)
        image, camera = resample(self.image, self.camera, width, height)
        mask = None
        if self.mask is not None:
            # A pixel that is partly masked out is not used.
            share, _ = resample(self.mask[None].to(self.image), self.camera, width, height)
            mask = share[0] > 0.999
        return StereoView(image.clamp(0, 1), camera, self.pose, mask)


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Points in the world, e.g. of structure from motion, and which views saw them."""

    positions: Float[Tensor, "point 3"]
    visible: Bool[Tensor, "view point"] | None = None
    """None: a point counts as seen wherever it falls into the frame."""


@dataclass(frozen=True, eq=False)
class DepthMap:
    """Distance along the unit ray of every pixel center, in the unit of the poses."""

    ray_depth: Float[Tensor, "h w"]  # 0 where invalid
    confidence: Float[Tensor, "h w"]  # in [0, 1]; 0 where there is neither a depth nor a candidate
    valid: Bool[Tensor, "h w"]
    candidates: Float[Tensor, "h w"] | None = None
    """Distances of further pixels, 0 elsewhere: too uncertain for one view to confirm, but not for two."""

    def merge_candidates(self) -> "DepthMap":
        """Take candidates for depths."""
        if self.candidates is None:
            return self
        merged = torch.where(self.valid, self.ray_depth, self.candidates)
        return DepthMap(merged, self.confidence, merged > 0)
