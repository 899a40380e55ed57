"""Rigid motion of a camera, stored as ``world_from_cam``, and rotations as quaternions."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pose:
    """An element of SE(3): X_world = R X_cam + t.

    The camera frame is OpenCV's (x right, y down, z forward); the last column holds the camera center.
    """

    world_from_cam: Float[Tensor, "*batch 4 4"]

    def __post_init__(self) -> None:
        shape = tuple(self.world_from_cam.shape)
        if shape[-2:] != (4, 4):
            raise ValueError(f"Pose: world_from_cam has shape {shape}; give 4x4 matrices [*batch, 4, 4]")

    # Factories

    @staticmethod
    def identity(*batch: int, dtype: torch.dtype | None = None, device: Any = None) -> "Pose":
        return Pose(torch.eye(4, dtype=dtype, device=device).expand(*batch, 4, 4))

    @staticmethod
    def from_parts(rotation: Float[Tensor, "*batch 3 3"], translation: Float[Tensor, "*batch 3"]) -> "Pose":
        top = torch.cat([rotation, translation[..., None]], -1)
        bottom = top.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(*top.shape[:-2], 1, 4)
        return Pose(torch.cat([top, bottom], -2))

    @staticmethod
    def look_at(
        eye: Float[Tensor, "*batch 3"] | Sequence[float | int],
        target: Float[Tensor, "*batch 3"] | Sequence[float | int],
        down: Float[Tensor, "*batch 3"] | Sequence[float | int] = (0.0, 1.0, 0.0),
    ) -> "Pose":
        """Make the pose of a camera at ``eye``: z axis to ``target``, y axis towards ``down``."""
        eye, target, down = _broadcast_vectors(eye, target, down)
        forward = torch.nn.functional.normalize(target - eye, dim=-1)
        right = torch.linalg.cross(down, forward)
        # A camera that looks along `down` may roll freely about its axis: no choice of x would be better than another.
        if bool((torch.linalg.vector_norm(right, dim=-1) < 1e-6).any()):
            raise ValueError(
                "Pose.look_at: the viewing direction is zero or parallel to `down`; pass another target or `down`"
            )
        right = torch.nn.functional.normalize(right, dim=-1)
        # Columns are the camera's axes in the world, so that R maps the unit vectors of the camera to them.
        rotation = torch.stack([right, torch.linalg.cross(forward, right), forward], -1)
        return Pose.from_parts(rotation, eye)

    # Accessors

    @property
    def rotation(self) -> Float[Tensor, "*batch 3 3"]:
        return self.world_from_cam[..., :3, :3]

    @property
    def translation(self) -> Float[Tensor, "*batch 3"]:
        """The camera center in the world."""
        return self.world_from_cam[..., :3, 3]

    @property
    def cam_from_world(self) -> Float[Tensor, "*batch 4 4"]:
        return self.inverse().world_from_cam

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.world_from_cam.shape[:-2])

    @property
    def dtype(self) -> torch.dtype:
        return self.world_from_cam.dtype

    @property
    def device(self) -> torch.device:
        return self.world_from_cam.device

    def to(self, *args: Any, **kwargs: Any) -> "Pose":
        return Pose(self.world_from_cam.to(*args, **kwargs))

    def __getitem__(self, index: Any) -> "Pose":
        index = index if isinstance(index, tuple) else (index,)
        return Pose(self.world_from_cam[(*index, ..., slice(None), slice(None))])

    # Operations

    def inverse(self) -> "Pose":
        """Invert, in closed form: (R, t)⁻¹ = (Rᵀ, −Rᵀ t)."""
        transposed = self.rotation.mT
        return Pose.from_parts(transposed, -(transposed @ self.translation[..., None])[..., 0])

    def compose(self, other: "Pose") -> "Pose":
        """Compose motions: a.compose(b) applies b first."""
        return Pose(self.world_from_cam @ other.world_from_cam)

    def __matmul__(self, other: "Pose") -> "Pose":
        return self.compose(other)

    def apply(self, points: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*out 3"]:
        """Transform camera points [*batch, *n, 3] to world points: R X + t."""
        return self.rotate(points) + self._align(self.translation, points, 1)

    def rotate(self, directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*out 3"]:
        """Rotate camera directions [*batch, *n, 3] to world directions: R d."""
        return (self._align(self.rotation, directions, 2) @ directions[..., None])[..., 0]

    def relative_to_first(self, dim: int = -1) -> "Pose":
        """Express all poses along batch axis ``dim`` in the camera frame of the first one."""
        if not self.batch_shape:
            raise ValueError(
                "Pose.relative_to_first: a single pose has no batch axis; stack poses to [views, 4, 4] first"
            )
        axis = dim if dim >= 0 else dim + len(self.batch_shape)
        first = Pose(self.world_from_cam.narrow(axis, 0, 1))
        return first.inverse() @ self

    def scale_translation(self, scale: float | int | Tensor) -> "Pose":
        """Keep rotations and multiply translations by ``scale`` (a number or [*batch])."""
        factor = torch.as_tensor(scale, dtype=self.dtype, device=self.device)
        return Pose.from_parts(self.rotation, self.translation * factor[..., None])

    def _align(self, part: Tensor, points: Tensor, part_dims: int) -> Tensor:
        extra = points.ndim - 1 - len(self.batch_shape)
        if extra < 0:
            raise ValueError(
                f"Pose: points of shape {tuple(points.shape)} do not start with the batch shape {self.batch_shape}"
            )
        # Axes of size 1 go between batch and matrix, not in front: broadcasting would align the last axes otherwise.
        return part.reshape((*self.batch_shape, *(1,) * extra, *part.shape[part.ndim - part_dims :]))


def _broadcast_vectors(*vectors: Any) -> list[Tensor]:
    tensors = [v for v in vectors if isinstance(v, Tensor)]
    like = tensors[0] if tensors else torch.empty(0)
    return list(
        torch.broadcast_tensors(*(torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in vectors))
    )


# The world that encodings which compare poses expect.


LARGE_TRANSLATION = 5.0
"""Between cameras: above it, attention of GTA and PRoPE collapses onto few keys, and RayRoPE's centers alias."""


def normalize_poses(poses: Pose, *, radius: float = 1.0) -> tuple[Pose, Float[Tensor, "*batch"]]:
    """Make the first camera of [*batch, view] the world, and scale it such that the farthest camera is `radius` away.

    Returns the poses and the scale s of every batch. Depths and points in a camera's frame have to be multiplied by s
    to stay in the same world; intrinsics, rays and angles do not change. Cameras in one place keep s = 1.
    """
    # In float64: the difference of two large coordinates (meters in a national grid) is what remains.
    relative = poses.to(torch.float64).relative_to_first()
    reach = relative.translation.norm(dim=-1).amax(-1)
    scale = torch.where(reach > 1e-12, radius / reach.clamp(min=1e-12), 1.0)
    normalized = relative.scale_translation(scale[..., None])
    return normalized.to(poses.dtype), scale.to(poses.dtype)


def warn_of_large_translations(poses: Pose, encoding_name: str) -> None:
    """Warn when cameras [*batch, view] are too far apart for an encoding that compares poses."""
    centers = poses.translation.detach()
    reach = float((centers - centers[..., :1, :]).norm(dim=-1).max())
    if reach > LARGE_TRANSLATION:
        warnings.warn(
            f"{encoding_name}: cameras are {reach:.3g} apart, and pose-based encodings need about 1 "
            f"(at most {LARGE_TRANSLATION:g}): poses, scale = g_ray.normalize_poses(poses), depth = scale * depth",
            stacklevel=3,
        )


# Rotations as unit quaternions (x, y, z, w), the real part last (as VGGT, SciPy and ROS).


def rotation_from_quaternion(quaternion: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    """Compute R of q/‖q‖, so that any non-zero output of a network is a rotation; q and −q give the same one."""
    x, y, z, w = torch.nn.functional.normalize(quaternion, dim=-1).unbind(-1)
    rows = [
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    ]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def quaternion_from_rotation(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    """Compute the unit quaternion of R with w ≥ 0.

    Row i of the matrix below is 4 qᵢ q: the one with the largest diagonal, 4 qᵢ² ≥ 1, loses no digits.
    """
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = rotation.flatten(-2).unbind(-1)
    rows = [
        (1 + m00 - m11 - m22, m10 + m01, m20 + m02, m21 - m12),
        (m10 + m01, 1 - m00 + m11 - m22, m21 + m12, m02 - m20),
        (m20 + m02, m21 + m12, 1 - m00 - m11 + m22, m10 - m01),
        (m21 - m12, m02 - m20, m10 - m01, 1 + m00 + m11 + m22),
    ]
    outer = torch.stack([torch.stack(row, -1) for row in rows], -2)
    best = outer.diagonal(dim1=-2, dim2=-1).argmax(-1)
    row = outer.gather(-2, best[..., None, None].expand(*best.shape, 1, 4))[..., 0, :]
    quaternion = torch.nn.functional.normalize(row, dim=-1)
    # q and −q are one rotation; a fixed sign makes a loss on quaternions well defined.
    return torch.where(quaternion[..., 3:] < 0, -quaternion, quaternion)
