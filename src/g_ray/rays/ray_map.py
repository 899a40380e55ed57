"""RayMap: unit rays and where they are valid. It is all that G-ray needs to know of a camera."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose


@dataclass(frozen=True, eq=False)
class RayMap:
    """Unit rays r (eq:camera_ray) of any arrangement of samples, with a mask and, if known, where they start.

    Directions are camera-local unless the map came from `to_world`. Invalid directions are finite but mean
    nothing.
    """

    directions: Float[Tensor, "*shape 3"]
    valid: Bool[Tensor, "*shape"]
    origins: Float[Tensor, "*shape 3"] | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.directions.shape)
        if shape[-1:] != (3,) or tuple(self.valid.shape) != shape[:-1]:
            raise ValueError(
                f"RayMap: directions {shape} and valid {tuple(self.valid.shape)} do not match; "
                "give [*shape, 3] and [*shape]"
            )
        if self.origins is not None and tuple(self.origins.shape) != shape:
            raise ValueError(f"RayMap: origins {tuple(self.origins.shape)} do not match directions {shape}")

    @staticmethod
    def from_camera(camera: Camera) -> "RayMap":
        """Cast rays through all pixel centers: [*batch, height, width]."""
        return RayMap(*camera.unproject_grid())

    def expand_to_batch(self, batch: int, dims: int) -> "RayMap":
        """Repeat the rays for every scene of a batch, without a copy; the last `dims` axes are those of one scene."""
        assert self.origins is None
        directions = self.directions.expand(batch, *self.directions.shape[-dims - 1 :])
        return RayMap(directions, self.valid.expand(batch, *self.valid.shape[-dims:]))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.valid.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.directions.dtype

    @property
    def device(self) -> torch.device:
        return self.directions.device

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "RayMap":
        origins = None if self.origins is None else self.origins.to(device=device, dtype=dtype)
        return RayMap(self.directions.to(device=device, dtype=dtype), self.valid.to(device=device), origins)

    def to_world(self, pose: Pose) -> "RayMap":
        """Rotate camera-local rays [*batch, *n] into the world and let them start at the camera center."""
        origins = pose.apply(torch.zeros_like(self.directions) if self.origins is None else self.origins)
        return RayMap(pose.rotate(self.directions), self.valid, origins)
