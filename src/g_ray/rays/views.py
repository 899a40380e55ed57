"""Views: what each image was taken with and from where, and the tokens it is cut into."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.parameters import checks_enabled
from g_ray.geometry.pose import Pose
from g_ray.rays.layout import Layout, Segment
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.device import disable_autocast

Samples = tuple[tuple[float, float], ...]
"""Positions (x, y) inside a patch, in units of the patch."""

CENTER: Samples = ((0.5, 0.5),)
"""The patch center: what the paper samples."""

CORNERS: Samples = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Three corners of the patch: what RayRoPE samples."""


@dataclass(frozen=True)
class Views:
    """One camera per view, of any model and size, and optionally their poses `world_from_cam` [(batch) view].

    The frames of a video are views, each with a camera of its own (a zoom changes it) and a time; without `times`
    they are numbered 0, 1, 2, … Rays are cast once: a network uses those of a view several times in one pass (key
    mask, phases, input channels).
    """

    cameras: Sequence[Camera]
    poses: Pose | None = None
    times: Float[Tensor, "*batch view"] | None = field(default=None, kw_only=True)
    # By camera (cameras are hashed by identity) and by the samples; parts of these views share it.
    casts: dict[Hashable, RayMap] = field(default_factory=dict, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.cameras:
            raise ValueError("no cameras: Views needs one camera per view")
        for index, camera in enumerate(self.cameras):
            if len(camera.batch_shape) > 1:
                raise ValueError(
                    f"camera of view {index} has batch shape {tuple(camera.batch_shape)}: "
                    "pass one camera per view, each alone or with one batch axis"
                )
        devices = sorted({str(camera.device) for camera in self.cameras})
        if len(devices) > 1:
            raise ValueError(
                f"cameras lie on different devices {devices}: move them to one with camera.to(device)"
            )
        sizes = {size for camera in self.cameras for size in camera.batch_shape}
        if self.poses is not None:
            shape = self.poses.world_from_cam.shape[:-2]
            if len(shape) not in (1, 2) or shape[-1] != len(self.cameras):
                raise ValueError(
                    f"{len(self.cameras)} cameras but poses of shape {tuple(shape)}: "
                    "poses must be [view] or [batch, view], one per camera"
                )
            sizes |= set(shape[:-1])
            matrices = self.poses.world_from_cam
            # A tensor on the meta device has a shape and no values.
            if checks_enabled() and not matrices.is_meta and not bool(matrices.isfinite().all()):
                raise ValueError("a pose has numbers that are not finite: give every view a rigid 4×4 matrix")
        if self.times is not None:
            shape = self.times.shape
            if len(shape) not in (1, 2) or shape[-1] != len(self.cameras):
                raise ValueError(
                    f"{len(self.cameras)} cameras but times of shape {tuple(shape)}: "
                    "times must be [view] or [batch, view], one per camera"
                )
            sizes |= set(shape[:-1])
        if len(sizes - {1}) > 1:
            raise ValueError(
                f"cameras, poses and times have different batch sizes {sorted(sizes)}: make them equal or 1"
            )

    @classmethod
    def from_frames(
        cls, camera: Camera, poses: Pose | None = None, *, times: Float[Tensor, "*batch view"] | None = None
    ) -> "Views":
        """Make the views of a video from one camera whose last batch axis is the frame: parameters [(batch) frame]."""
        if not camera.batch_shape:
            raise ValueError(
                "one camera without a frame axis: give it parameters [(batch), frame, parameter]"
            )
        leading = (slice(None),) * (len(camera.batch_shape) - 1)
        frames = [camera[(*leading, frame)] for frame in range(camera.batch_shape[-1])]
        return cls(frames, poses, times=times)

    def __len__(self) -> int:
        return len(self.cameras)

    def __getitem__(self, index: slice) -> "Views":
        """Select some of the views, e.g. `views[:2]`. They keep their times, also those that were not given."""
        poses = None if self.poses is None else self.poses[..., index]
        return Views(self.cameras[index], poses, times=self.get_times()[..., index], casts=self.casts)

    def __add__(self, other: "Views") -> "Views":
        """Join these views and the others."""
        if (self.poses is None) != (other.poses is None):
            raise ValueError("views with poses and views without: give poses to all of them or to none")
        cameras = [*self.cameras, *other.cameras]
        casts = {**self.casts, **other.casts}
        times = None
        # Views without times are numbered anew, all together.
        if self.times is not None or other.times is not None:
            times = _join(self.get_times(), other.get_times(), 1)
        if self.poses is None or other.poses is None:
            return Views(cameras, times=times, casts=casts)
        poses = Pose(_join(self.poses.world_from_cam, other.poses.world_from_cam, 3))
        return Views(cameras, poses, times=times, casts=casts)

    def to(self, *args: Any, **kwargs: Any) -> "Views":
        """Move cameras and poses to a device or a floating dtype, as `Tensor.to`."""
        poses = None if self.poses is None else self.poses.to(*args, **kwargs)
        cameras = [camera.to(*args, **kwargs) for camera in self.cameras]
        # Only to the device: frame 257 is not a number of bfloat16.
        times = None if self.times is None else self.times.to(cameras[0].device)
        return Views(cameras, poses, times=times)

    @property
    def batch(self) -> int:
        sizes = [size for camera in self.cameras for size in camera.batch_shape]
        if self.poses is not None:
            sizes += self.poses.world_from_cam.shape[:-3]
        if self.times is not None:
            sizes += self.times.shape[:-1]
        return max(sizes, default=1)

    @property
    def dtype(self) -> torch.dtype:
        """The most precise of cameras and poses, and at least float32."""
        dtypes = [camera.dtype for camera in self.cameras] + (
            [] if self.poses is None else [self.poses.dtype]
        )
        # Starting from float32: cameras in half precision (a network cast as a whole) must not round their rays.
        return reduce(torch.promote_types, dtypes, torch.float32)

    def get_times(self) -> Float[Tensor, "*batch view"]:
        """Return the time of each view, or its number where none was given."""
        if self.times is None:
            return torch.arange(len(self), dtype=self.dtype, device=self.cameras[0].device)
        return self.times.to(self.cameras[0].device, self.dtype)

    def cam_from_world(self, encoding_name: str) -> Float[Tensor, "batch view 4 4"]:
        """Return the poses for an encoding that compares them; its name is for the error message."""
        if self.poses is None:
            raise ValueError(
                f"{encoding_name} compares camera poses, but the views have none: pass Views(cameras, poses)"
            )
        with disable_autocast(self.poses.world_from_cam):
            matrices = self.poses.cam_from_world
        return matrices.to(self.cameras[0].device, self.dtype).expand(self.batch, len(self), 4, 4)

    def intrinsics(self) -> Float[Tensor, "batch view 3 3"]:
        """Compute central pinholes in units of the image: fx/W, fy/H, cx/W − ½, cy/H − ½ (no skew, as in the hosts)."""
        with disable_autocast(self.cameras[0].params):
            matrices = [_normalize_intrinsics(camera).expand(self.batch, 3, 3) for camera in self.cameras]
        return torch.stack([matrix.to(self.dtype) for matrix in matrices], 1)

    def cast_pixel_rays(self, view: int) -> RayMap:
        """Cast the camera-local rays of all pixel centers of one view: [*batch h w], with the batch of its camera."""
        camera = self.cameras[view]
        return self._cast_once(camera, "pixels", lambda: RayMap.from_camera(camera))

    def cast_patch_rays(self, view: int, rows: int, columns: int, samples: Samples) -> RayMap:
        """Cast the camera-local rays of some positions inside every patch of one view: [*batch patch sample]."""
        camera = self.cameras[view]

        def cast() -> RayMap:
            grid = Layout((Segment(view, rows, columns),))
            patches = grid.compute_grid_positions(samples, normalized=True, device=camera.device)
            size = patches.new_tensor([camera.width, camera.height])
            # From u/W − ½ to pixels with a corner origin: patch i of p pixels has its center at p·i + p/2.
            pixels = ((patches + 0.5) * size).to(camera.dtype).expand(*camera.batch_shape, -1, -1, -1)
            return RayMap(*camera.unproject(pixels))

        return self._cast_once(camera, (rows, columns, samples), cast)

    def _cast_once(self, camera: Camera, what: Hashable, cast: Callable[[], RayMap]) -> RayMap:
        if (camera, what) in self.casts:
            return self.casts[camera, what]
        with disable_autocast(camera.params):
            rays = cast()
        # Rays with a gradient belong to one backward pass, rays of inference mode to none.
        if not (torch.compiler.is_compiling() or camera.requires_grad or rays.directions.is_inference()):
            self.casts[camera, what] = rays
        return rays

    def tokens(
        self,
        patch: int | tuple[int, int] = 16,
        *,
        special: int = 0,
        leading: int = 0,
        trailing: int = 0,
        layout: Layout | None = None,
    ) -> "Tokens":
        """Cut every view into patches of `patch` pixels (or height, width): row by row, view by view.

        `special`, `leading` and `trailing` count extra tokens (see `Layout.from_grids`); a `layout` places the
        segments in any other order.
        """
        grids = [_compute_grid(camera, patch, view) for view, camera in enumerate(self.cameras)]
        layout = layout or Layout.from_grids(grids, special=special, leading=leading, trailing=trailing)
        layout_grids = [(s.view, (s.rows, s.columns)) for s in layout.segments if s.is_patches]
        if sorted(layout_grids, key=str) != sorted(enumerate(grids), key=str):
            raise ValueError(
                f"the layout places patch grids {layout_grids}, but the views have {list(enumerate(grids))}"
            )
        if layout.view_count > len(self):
            raise ValueError(
                f"the layout names view {layout.view_count - 1}, but there are {len(self)} views"
            )
        return Tokens(self, layout)


@dataclass(frozen=True)
class Tokens:
    """The sequence that attention sees: patches of views, and special tokens."""

    views: Views
    layout: Layout

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def device(self) -> torch.device:
        return self.views.cameras[0].device

    def rays(self, samples: Samples = CENTER) -> RayMap:
        """Cast camera-local unit rays [batch token sample 3] of some positions inside every patch (eq:camera_ray).

        Special tokens look along the optical axis and are not valid: encodings leave them unrotated.
        """
        parts = [self._cast_rays(segment, samples) for segment in self.layout.segments]
        directions = torch.cat([part.directions.to(self.views.dtype) for part in parts], 1)
        return RayMap(directions, torch.cat([part.valid for part in parts], 1))

    def valid(self) -> Bool[Tensor, "batch token"]:
        """Mark tokens whose center a ray reaches, and all special tokens: a key mask for attention."""
        return self.rays().valid[..., 0] | ~self.layout.get_patch_mask(self.device)

    def select(self, views: Sequence[int]) -> "Tokens":
        """Select the tokens of some views, e.g. of the targets whose output is wanted. Views keep their numbers."""
        unknown = [view for view in views if not 0 <= view < len(self.views)]
        if unknown or not views:
            raise ValueError(f"cannot select views {list(views)}: there are views 0 to {len(self.views) - 1}")
        return replace(self, layout=self.layout.select(views))

    def _cast_rays(self, segment: Segment, samples: Samples) -> RayMap:
        if segment.view is None or not segment.is_patches:
            shape = (self.views.batch, segment.count, len(samples))
            forward = torch.tensor([0.0, 0.0, 1.0], device=self.device)
            return RayMap(forward.expand(*shape, 3), torch.zeros(shape, dtype=torch.bool, device=self.device))
        rays = self.views.cast_patch_rays(segment.view, segment.rows, segment.columns, samples)
        return rays.expand_to_batch(self.views.batch, 2)


def _join(first: Tensor, second: Tensor, dims: int) -> Tensor:
    """Join along the view axis, the first of the last `dims`; a batch of one serves every scene of the other."""
    batch = torch.broadcast_shapes(first.shape[:-dims], second.shape[:-dims])
    return torch.cat([part.expand(*batch, *part.shape[-dims:]) for part in (first, second)], -dims)


def _compute_grid(camera: Camera, patch: int | tuple[int, int], view: int) -> tuple[int, int]:
    high, wide = (patch, patch) if isinstance(patch, int) else patch
    if high < 1 or wide < 1:
        raise ValueError(f"patch size {patch} must be positive")
    if camera.height % high or camera.width % wide:
        raise ValueError(
            f"view {view} is {camera.width}×{camera.height} px, not a multiple of the {wide}×{high} patch: "
            "resize, crop or pad image and camera together"
        )
    return camera.height // high, camera.width // wide


def _normalize_intrinsics(camera: Camera) -> Float[Tensor, "*batch 3 3"]:
    matrix = camera.central_intrinsics()
    normalized = torch.zeros_like(matrix)
    # In units of the image, as PRoPE's and RayRoPE's code takes K: the same numbers at any resolution.
    normalized[..., 0, 0] = matrix[..., 0, 0] / camera.width
    normalized[..., 1, 1] = matrix[..., 1, 1] / camera.height
    normalized[..., 0, 2] = matrix[..., 0, 2] / camera.width - 0.5
    normalized[..., 1, 2] = matrix[..., 1, 2] / camera.height - 0.5
    normalized[..., 2, 2] = 1.0
    return normalized
