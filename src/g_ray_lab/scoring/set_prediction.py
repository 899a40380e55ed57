"""The prediction of one set of views, at the pixels that are scored, and how it is stored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.reconstruction.set_metrics import SetGeometry
from g_ray_lab.datasets.evaluation_scene import EvaluationView

ROTATION_SLACK = 1e-2
"""Largest entry of RᵀR − 1 of a predicted rotation: networks predict quaternions in float32, some in bfloat16."""


@dataclass(frozen=True, eq=False)
class PredictedView:
    """One view as predicted, at the pixels of its `EvaluationView`."""

    pose: Pose
    """`world_from_cam`, in the model's own world and scale."""
    ray_depth: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]
    """Where there is a prediction."""
    rays: Float[Tensor, "h w 3"] | None = None
    """Unit rays that the model found itself; None: it kept those of the calibration."""
    world_points: Float[Tensor, "h w 3"] | None = None
    """Points of a head of their own; None: pose ∘ (ray · ray_depth)."""

    def get_rays(self, view: EvaluationView) -> Float[Tensor, "h w 3"]:
        """Return the unit rays of the pixels in the camera's frame."""
        return RayMap.from_camera(view.camera).directions if self.rays is None else self.rays

    def get_camera_points(self, view: EvaluationView) -> Float[Tensor, "h w 3"]:
        """Return points in the camera's frame."""
        return self.ray_depth[..., None] * self.get_rays(view)

    def get_world_points(self, view: EvaluationView) -> Float[Tensor, "h w 3"]:
        """Return points in the model's world; those of invalid pixels mean nothing."""
        if self.world_points is not None:
            return self.world_points
        return transform_points(self.get_camera_points(view), self.pose.to(torch.float32))


@dataclass(frozen=True, eq=False)
class PredictedSet:
    """All views of a set in one world; None for a view that the model could not place."""

    views: tuple[PredictedView | None, ...]
    notes: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    """For the prediction, all threads together."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Further metrics of the set, which do not come from comparing views with their truth."""

    @property
    def placed(self) -> tuple[int, ...]:
        """The places of the views that have a prediction."""
        return tuple(place for place, view in enumerate(self.views) if view is not None)

    def select_placed(
        self, views: Sequence[EvaluationView]
    ) -> tuple[list[EvaluationView], list[PredictedView]]:
        """Return the views that have a prediction, and their predictions."""
        pairs = [(view, one) for view, one in zip(views, self.views, strict=True) if one is not None]
        return [view for view, _ in pairs], [one for _, one in pairs]


def stand_still(rays: Float[Tensor, "set view h w 3"]) -> SetGeometry:
    """Predict points at distance 1 along the rays and cameras that do not move: what calibration alone gives."""
    still = torch.eye(4).expand(*rays.shape[:2], 4, 4).to(rays)
    return SetGeometry(rays, rays, rays, Pose(still))


def convert_view(view: ReconstructedView, photo: EvaluationView) -> PredictedView:
    """Bring a reconstructed view to the pixels that are scored; rays are kept only if they are the model's own."""
    full = view.restore_size()
    rays = None
    true_rays = RayMap.from_camera(photo.camera).directions
    predicted_rays = full.rays().to(true_rays.dtype)
    # Cameras that the model was given come back with rounding errors of resizing; a lens of its own is further off.
    if float((predicted_rays - true_rays).norm(dim=-1).max()) > 1e-5:
        rays = predicted_rays
    return PredictedView(full.pose.to(torch.float64), full.ray_depth.float(), full.valid, rays)


def check_prediction(predicted: PredictedSet, views: Sequence[EvaluationView], model: str) -> None:
    """Raise ValueError for predictions that are none: other shapes, not finite, no rotation, negative distances."""
    if len(predicted.views) != len(views):
        raise ValueError(f"{model} returned {len(predicted.views)} views of {len(views)}")
    if not predicted.placed:
        raise ValueError(f"{model} placed none of the {len(views)} views")
    for place in predicted.placed:
        one = predicted.views[place]
        assert one is not None
        wrong = _find_fault(one, views[place])
        if wrong:
            raise ValueError(f"{model} returned {wrong} in view {place} ({views[place].name})")


def _find_fault(one: PredictedView, view: EvaluationView) -> str | None:
    """Say what is wrong with a view, or return None."""
    if one.ray_depth.shape != view.ray_depth.shape or one.valid.shape != view.valid.shape:
        return f"a depth map of shape {tuple(one.ray_depth.shape)} instead of {tuple(view.ray_depth.shape)}"
    if not bool(one.pose.world_from_cam.isfinite().all()):
        return "a pose that is not finite"
    rotation = one.pose.rotation.double()
    if float((rotation.mT @ rotation - torch.eye(3).double()).abs().max()) > ROTATION_SLACK:
        return "a pose that is no rotation and translation"
    if not bool(one.ray_depth[one.valid].isfinite().all()):
        return "depth that is not finite"
    if bool((one.ray_depth[one.valid] < 0).any()):
        return "negative distances"
    points = [maps for maps in (one.rays, one.world_points) if maps is not None]
    if not all(bool(maps[one.valid].isfinite().all()) for maps in points):
        return "rays or points that are not finite"
    return None


# Arrays of 16 bits: depth and points in half precision and in units of the view's median (relative error at most 5e-4),
# unit rays as whole numbers (2e-5 rad).


NOTES, COST, FIGURES = "notes", "cpu_seconds", "figures"
UNIT = "_unit"
"""After the name of an array: the unit of its numbers."""
RAY_STEPS = 2**15 - 1
"""Steps of a coordinate of a unit ray from 0 to 1."""


def to_arrays(predicted: PredictedSet) -> dict[str, np.ndarray]:
    """Return the content of a prediction, by names like "003/ray_depth"."""
    texts = {NOTES: predicted.notes, FIGURES: dict(predicted.figures)}
    arrays = {name: np.array(json.dumps(value)) for name, value in texts.items()}
    arrays[COST] = np.array(predicted.cpu_seconds)
    for place in predicted.placed:
        view = predicted.views[place]
        assert view is not None
        parts: dict[str, Tensor | None] = {
            "world_from_cam": view.pose.world_from_cam.double(),
            "valid": view.valid,
            "rays": None if view.rays is None else (RAY_STEPS * view.rays).round().to(torch.int16),
            **_pack_half("ray_depth", view.ray_depth, view.ray_depth, view.valid),
        }
        if view.world_points is not None:
            sizes = view.world_points.norm(dim=-1)
            parts |= _pack_half("world_points", view.world_points, sizes, view.valid)
        arrays |= {
            f"{place:03d}/{name}": part.numpy(force=True) for name, part in parts.items() if part is not None
        }
    return arrays


def _pack_half(name: str, values: Tensor, sizes: Tensor, valid: Tensor) -> dict[str, Tensor | None]:
    """Return values in half precision and their unit, so that no scale of a scene leaves the range of such numbers."""
    known = sizes[valid & sizes.isfinite() & (sizes > 0)].float()
    unit = known.median() if len(known) else torch.ones(())
    largest = torch.finfo(torch.float16).max
    return {name: (values.float() / unit).clamp(-largest, largest).half(), f"{name}{UNIT}": unit}


def from_arrays(arrays: Mapping[str, np.ndarray], count: int) -> PredictedSet:
    """Make a prediction of `count` views from its arrays; KeyError if parts are missing."""
    views = tuple(
        _view_from_arrays(arrays, f"{place:03d}/") if f"{place:03d}/ray_depth" in arrays else None
        for place in range(count)
    )
    notes, figures = (json.loads(str(arrays[name])) for name in (NOTES, FIGURES))
    return PredictedSet(views, tuple(notes), float(arrays[COST]), figures)


def _view_from_arrays(arrays: Mapping[str, np.ndarray], prefix: str) -> PredictedView:
    def unpack(name: str) -> Tensor:
        return torch.from_numpy(arrays[prefix + name]).float() * float(arrays[prefix + name + UNIT])

    pose, valid = (torch.from_numpy(arrays[prefix + name]) for name in ("world_from_cam", "valid"))
    rays = None
    if prefix + "rays" in arrays:
        rays = torch.nn.functional.normalize(torch.from_numpy(arrays[prefix + "rays"]).float(), dim=-1)
    points = unpack("world_points") if prefix + "world_points" in arrays else None
    return PredictedView(Pose(pose), unpack("ray_depth"), valid, rays, points)
