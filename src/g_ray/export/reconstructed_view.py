"""One photograph of a reconstruction: its camera, its pose and its depth."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.media.photos import Photo

SAME_SURFACE = 0.03
"""Relative difference of two adjacent depths between which depth is interpolated."""


@dataclass(frozen=True, eq=False)
class ReconstructedView:
    """Pose and depth of one view. World points re-project to their pixels exactly: they lie on the camera's rays."""

    name: str
    """Unique posix path relative to the photographs' common folder, e.g. "dslr/a.jpg"."""
    camera: Camera
    """Takes images of exactly the pixels of the maps below."""
    pose: Pose
    ray_depth: Float[Tensor, "h w"]
    """Along the unit ray; 0 where not valid."""
    confidence: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]
    calibration: str = "unknown"
    """Where the camera came from, e.g. "fisheye.json" or "EXIF focal length"."""
    true_pose: Pose | None = None
    """Known pose, if the calibration had one."""
    photo_camera: Camera | None = None
    """Camera of the photograph; None: the maps have its size."""
    filled: Bool[Tensor, "h w"] | None = None
    """Pixels whose depth is not the model's own but was filled in; None: none."""
    pose_guessed: bool = False
    """The pose started as a network's guess, because matching could not place the photograph."""
    expected_error: Float[Tensor, "h w"] | None = None
    """Error to expect relative to the depth, the median of its absolute value; 0 where unknown. None: not known."""
    photo: Photo | None = None
    """The photograph on disk, while the run that reconstructs it lasts; stored results have a copy."""

    @property
    def original_camera(self) -> Camera:
        """The camera at the size of the photograph."""
        return self.photo_camera or self.camera

    def __post_init__(self) -> None:
        camera, shape = self.camera, tuple(self.ray_depth.shape)
        if camera.batch_shape or self.pose.batch_shape:
            raise ValueError(f"view {self.name!r}: camera and pose must be single ones, not batches")
        if shape != (camera.height, camera.width):
            raise ValueError(
                f"view {self.name!r}: depth of {shape[1]}×{shape[0]} px, but its camera takes "
                f"{camera.width}×{camera.height}; bring depth to the camera's pixels"
            )

    def rays(self) -> Float[Tensor, "h w 3"]:
        """Return unit rays of all pixels in the camera's frame."""
        return self.camera.unproject_grid()[0]

    def z_depth(self) -> Float[Tensor, "h w"]:
        """Return the distance from the camera's plane; negative behind it, 0 where not valid."""
        return self.ray_depth * self.rays()[..., 2].to(self.ray_depth.dtype)

    def points(self) -> Float[Tensor, "h w 3"]:
        """Return world points of all pixels, pose ∘ (ray · ray_depth); those of invalid pixels mean nothing."""
        rays = self.rays()
        return transform_points(rays * self.ray_depth[..., None].to(rays.dtype), self.pose.to(rays.dtype))

    def sample(
        self, pixels: Float[Tensor, "n 2"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Bool[Tensor, "n"]]:
        """Return ray depth, confidence and validity at pixels of the photograph.

        Inverse depth is interpolated between the four nearest centers, of which those are used that lie on the same
        surface as the nearest one: depth is never mixed across edges.
        """
        height, width = self.ray_depth.shape
        original = self.original_camera
        scale = pixels.new_tensor([width / original.width, height / original.height])
        place = pixels * scale - 0.5
        column, row = (
            axis.round().long().clamp(0, size - 1)
            for axis, size in zip(place.unbind(-1), (width, height), strict=True)
        )
        nearest, valid = (
            self.ray_depth[row, column],
            self.valid[row, column] & (self.ray_depth[row, column] > 0),
        )
        corner = place.floor()
        total, weight = torch.zeros_like(nearest), torch.zeros_like(nearest)
        for across, down in ((0, 0), (1, 0), (0, 1), (1, 1)):
            x, y = corner[:, 0] + across, corner[:, 1] + down
            share = (1 - (place[:, 0] - x).abs()) * (1 - (place[:, 1] - y).abs())
            at = y.long().clamp(0, height - 1), x.long().clamp(0, width - 1)
            depth = self.ray_depth[at]
            near = self.valid[at] & (depth > 0) & ((depth - nearest).abs() <= SAME_SURFACE * nearest)
            share = torch.where(near, share, 0.0).to(total)
            total, weight = total + share / depth.clamp_min(1e-12), weight + share
        inside = (pixels >= 0).all(-1) & (pixels[:, 0] <= original.width) & (pixels[:, 1] <= original.height)
        sampled = torch.where(valid & (weight > 1e-3), weight / total.clamp_min(1e-12), nearest)
        return sampled, self.confidence[row, column], valid & inside

    def restore_size(self) -> "ReconstructedView":
        """Return the view with maps at the pixels of its photograph; depth is not mixed across edges."""
        camera = self.original_camera
        if (camera.width, camera.height) == (self.camera.width, self.camera.height):
            return self
        rows, columns = torch.meshgrid(
            torch.arange(camera.height) + 0.5, torch.arange(camera.width) + 0.5, indexing="ij"
        )
        shape = (camera.height, camera.width)
        parts = [self.sample(torch.stack([columns[row], rows[row]], -1)) for row in range(camera.height)]
        depth, confidence, valid = (torch.cat(part).reshape(shape) for part in zip(*parts, strict=True))
        valid = valid & camera.unproject_grid()[1]
        filled = None
        if self.filled is not None:
            filled = torch.nn.functional.interpolate(self.filled[None, None].float(), shape)[0, 0] > 0
        error = None
        if self.expected_error is not None:
            error = torch.nn.functional.interpolate(self.expected_error[None, None], shape)[0, 0] * valid
        return replace(
            self,
            camera=camera,
            ray_depth=depth * valid,
            confidence=confidence * valid,
            valid=valid,
            filled=filled,
            expected_error=error,
        )

    def transform(self, similarity: Similarity) -> "ReconstructedView":
        """Return the view in another world: the pose moves, and depth is scaled."""
        depth = self.ray_depth * similarity.scale.to(self.ray_depth.dtype)
        return replace(self, pose=similarity.transform_pose(self.pose), ray_depth=depth)
