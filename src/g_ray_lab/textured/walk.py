"""Walks of a camera through the free space of a textured scene: lenses, and views that overlap and face no wall."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, radians
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.meshes.textured_scene import MeshScene, SurfaceView, spread_over_sphere
from g_ray_lab.sources.random_lenses import draw_fisheye_coefficients, make_fisheyes, make_pinholes

# Lenses


LensKind = Literal["pinhole", "zoom", "fisheye", "mixed"]
PINHOLE_DEG = (30.0, 110.0)
FISHEYE_DEG = (100.0, 200.0)
"""Fields of view along the longer side of the image."""
PANORAMAS = 0.08
"""Share of full panoramas among the views of mixed sets; the others are pinholes or fisheyes, half each."""
SAME_LENS = 0.5
"""Share of pinhole walks with one lens; in the others it varies by up to VARIED about that of the walk."""
VARIED = 1.25
OFF_CENTER = 0.04
"""The principal point is up to this far from the middle, in image sizes."""


def draw_cameras(
    kind: LensKind, random: np.random.Generator, count: int, width: int, height: int
) -> list[Camera]:
    """Draw the camera of each view of a walk."""
    if kind not in get_args(LensKind):
        raise ValueError(f"lenses {kind!r}: choose one of {', '.join(get_args(LensKind))}")
    if kind == "pinhole":
        middle, varied = _draw_angle(PINHOLE_DEG, random), random.random() >= SAME_LENS
        spread = VARIED ** (2 * random.random(count) - 1) if varied else np.ones(count)
        return [_make_pinhole(np.clip(middle * s, *PINHOLE_DEG), random, width, height) for s in spread]
    if kind == "zoom":
        # Stratified, so that every set has long and short focal lengths.
        share = random.permutation((np.arange(count) + random.random(count)) / count)
        low, high = np.log(PINHOLE_DEG)
        return [_make_pinhole(np.exp(low + (high - low) * s), random, width, height) for s in share]
    if kind == "fisheye":
        return [_make_fisheye(random, width, height) for _ in range(count)]
    return [_make_any(random, width, height) for _ in range(count)]


def _make_any(random: np.random.Generator, width: int, height: int) -> Camera:
    choice = random.random()
    if choice < PANORAMAS:
        return Equirectangular.panorama(width, height)
    if choice < (1 + PANORAMAS) / 2:
        return _make_pinhole(_draw_angle(PINHOLE_DEG, random), random, width, height)
    return _make_fisheye(random, width, height)


def _draw_angle(range_deg: tuple[float, float], random: np.random.Generator) -> float:
    low, high = range_deg
    return low + (high - low) * random.random()


def _make_pinhole(fov_deg: float, random: np.random.Generator, width: int, height: int) -> Camera:
    center, zoom = _draw_frame(random, width, height)
    return make_pinholes(torch.tensor(radians(fov_deg)), center, zoom, width, height)


def _make_fisheye(random: np.random.Generator, width: int, height: int) -> Camera:
    fov = torch.tensor(radians(_draw_angle(FISHEYE_DEG, random)))
    k = draw_fisheye_coefficients(torch.from_numpy(random.random(5)).float())
    return make_fisheyes(fov, k, *_draw_frame(random, width, height), width, height)


def _draw_frame(random: np.random.Generator, width: int, height: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Principal point, and the zoom that makes an angle along the width one along the longer side."""
    center = torch.from_numpy(OFF_CENTER * (2 * random.random(2) - 1)).float()
    return center, torch.tensor(max(width, height) / width)


COARSE_PX = 24
"""Longer side of the images by which views are judged before they are rendered."""
CLEARANCE_M = 0.4
"""Free space around every viewpoint."""
SPHERE_RAYS = 48
EYE_HEIGHT_M = (0.6, 2.2)
"""Above the floor."""
ROAM_STEPS = 4
ROAM_M = 10.0
"""Before its first view a walk takes up to ROAM_STEPS steps of up to this length."""
BASELINE = (0.05, 0.6)
"""Steps between views, as shares of the median depth of the view that is left."""
LONGEST_STEP_M = 5.0
ROLL_DEG = 6.0
STARTS, TRIES = 24, 60
"""First views that are tried, and further ones for each place in a walk."""


@dataclass(frozen=True)
class ViewLimits:
    """Which views are worth a picture; depths in meters along rays."""

    near_m: float = 0.4
    """Smallest depth of the nearest 5 % of the pixels."""
    median_m: tuple[float, float] = (1.2, 50.0)
    spread: float = 1.6
    """Depth of the farthest 10 % over that of the nearest 10 %, at least: a wall in front has less."""
    flat: float = 0.75
    """Share of pixels whose surfaces have one orientation, at most: a floor alone is no scene."""
    valid: float = 0.65
    """Share of pixels with a surface, at least: the rest is sky."""
    back: float = 0.02
    """Share of pixels that see the back of a surface, at most: behind walls it is most of them."""
    contrast: float = 0.35
    """Standard deviation of log2 luminance, at least."""
    pitch_deg: tuple[float, float] = (-20.0, 20.0)
    """Range of the optical axis, positive upwards."""
    overlap: float = 0.3
    """Mean share of the pixels that a view and the one it left have in common, at least."""


@dataclass(frozen=True, eq=False)
class FreeSpace:
    """A scene and places in it from which its free space can be reached. Meters, z up."""

    scene: MeshScene
    places: Float[np.ndarray, "place 3"]
    limits: ViewLimits = ViewLimits()
    is_inside: Callable[[Float[np.ndarray, "3"]], bool] | None = None
    """Tells whether a camera may be at a place: it might leave a room through a window."""


@dataclass(frozen=True, eq=False)
class _View:
    """A view of the walk at coarse resolution."""

    camera: Camera
    pose: Pose
    eye: Float[np.ndarray, "3"]
    points: Float[Tensor, "h w 3"]
    valid: Bool[Tensor, "h w"]
    median_m: float


def draw_walk(
    space: FreeSpace, cameras: list[Camera], random: np.random.Generator, limits: ViewLimits | None = None
) -> list[Pose] | None:
    """Draw a pose for each camera; None where this walk gets stuck, which another one may not."""
    walk = _Walk(space, random, limits or space.limits)
    first = walk.find_first(space.places, cameras[0])
    views = [] if first is None else [first]
    for camera in cameras[1:]:
        step = walk.find_next(views, camera) if views else None
        if step is None:
            return None
        views.append(step)
    return [view.pose for view in views]


class _Walk:
    def __init__(self, space: FreeSpace, random: np.random.Generator, limits: ViewLimits) -> None:
        self.scene, self.is_inside = space.scene, space.is_inside
        self.random, self.limits = random, limits

    # Positions

    def find_first(self, places: Float[np.ndarray, "place 3"], camera: Camera) -> _View | None:
        for _ in range(STARTS):
            eye = self._roam(places[self.random.integers(len(places))])
            if eye is None:
                continue
            yaw = self.random.uniform(0, 2 * pi)
            low, high = np.radians(self.limits.pitch_deg)
            pitch = (low + high) / 2 + (high - low) * self.random.uniform(-0.25, 0.25)
            view = self._judge(camera, self._make_pose(eye, _point(yaw, pitch)))
            if view is not None:
                return view
        return None

    def find_next(self, views: list[_View], camera: Camera) -> _View | None:
        for _ in range(TRIES):
            # Mostly on from the last view, sometimes from an earlier one: sets are trees and not only paths.
            left = views[-1] if self.random.random() < 0.6 else views[self.random.integers(len(views))]
            eye = self._step_from(left)
            if eye is None:
                continue
            view = self._judge(camera, self._make_pose(eye, self._choose_direction(left, eye)))
            if view is not None and self._measure_overlap(view, left) >= self.limits.overlap:
                return view
        return None

    def _roam(self, place: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"] | None:
        eye = place
        for _ in range(self.random.integers(ROAM_STEPS + 1)):
            direction = _point(self.random.uniform(0, 2 * pi), 0.0)
            free = min(self._measure_free(eye, direction) - CLEARANCE_M, ROAM_M)
            if free > 0:
                eye = eye + free * self.random.uniform(0.2, 1) * direction
        return self._settle(eye)

    def _settle(self, eye: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"] | None:
        """Move to an eye's height above the floor, below the ceiling; None if there is too little room."""
        floor = self._measure_free(eye, np.array([0.0, 0.0, -1.0]))
        height = self.random.uniform(*EYE_HEIGHT_M)
        above = self._measure_free(eye, np.array([0.0, 0.0, 1.0]))
        if floor < 3 * EYE_HEIGHT_M[1]:
            room = floor + above
            eye = eye + np.array([0.0, 0.0, min(height, room - CLEARANCE_M) - floor])
        return eye if self._is_free(eye) else None

    def _step_from(self, left: _View) -> Float[np.ndarray, "3"] | None:
        length = min(left.median_m * self.random.uniform(*BASELINE), LONGEST_STEP_M)
        direction = _point(self.random.uniform(0, 2 * pi), radians(15) * self.random.uniform(-1, 1))
        length = min(length, self._measure_free(left.eye, direction) - CLEARANCE_M)
        eye = left.eye + length * direction
        return eye if length > 0 and self._is_free(eye) else None

    def _measure_free(self, eye: np.ndarray, direction: np.ndarray) -> float:
        hits = self.scene.cast(eye, direction[None].astype(np.float32))
        return float(hits.distance[0]) if len(hits.ray) else 0.0

    def _is_free(self, eye: Float[np.ndarray, "3"]) -> bool:
        """Whether nothing is near, surfaces show their fronts, and no ray leaves the scene."""
        if self.is_inside is not None and not self.is_inside(eye):
            return False
        rays = spread_over_sphere(SPHERE_RAYS).astype(np.float32)
        hits = self.scene.cast(eye, rays)
        if len(hits.ray) < 0.9 * len(rays) or hits.distance.min() < CLEARANCE_M:
            return False
        return self.scene.measure_back_share(hits, rays) <= 0.1

    # Views

    def _choose_direction(self, left: _View, eye: np.ndarray) -> Float[np.ndarray, "3"]:
        """Look at something that the other view sees, but only half as far up or down: cameras are held level."""
        rows, columns = left.valid.nonzero(as_tuple=True)
        one = int(self.random.integers(len(rows)))
        toward = left.points[rows[one], columns[one]].double().numpy() - eye
        yaw = np.arctan2(toward[1], toward[0])
        pitch = np.arctan2(toward[2], np.hypot(toward[0], toward[1]))
        low, high = np.radians(self.limits.pitch_deg)
        return _point(yaw, float(np.clip((pitch + (low + high) / 2) / 2, low, high)))

    def _make_pose(self, eye: np.ndarray, direction: np.ndarray) -> Pose:
        level = Pose.look_at(
            torch.from_numpy(eye), torch.from_numpy(eye + direction), torch.tensor([0.0, 0.0, -1.0]).double()
        )
        roll = radians(ROLL_DEG) * self.random.normal() / 2
        cos, sin = np.cos(roll), np.sin(roll)
        turn = torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        return Pose.from_parts(level.rotation @ turn, level.translation)

    def _judge(self, camera: Camera, pose: Pose) -> _View | None:
        """Return the view if it is within the limits."""
        scale = COARSE_PX / max(camera.width, camera.height)
        small = camera.resize(round(camera.width * scale), round(camera.height * scale))
        pose = pose.to(torch.float32)
        rays = RayMap.from_camera(small)
        surface = self.scene.view(small, pose)
        if not self._is_good(surface, rays.valid):
            return None
        points = pose.apply(rays.directions * surface.ray_depth[..., None])
        median = float(surface.ray_depth[surface.valid].median())
        return _View(small, pose, pose.translation.double().numpy(), points, surface.valid, median)

    def _is_good(self, surface: SurfaceView, has_ray: Bool[Tensor, "h w"]) -> bool:
        limits = self.limits
        if float(surface.valid.sum() / has_ray.sum()) < limits.valid or surface.back_share > limits.back:
            return False
        near, tenth, median, most = np.percentile(surface.ray_depth[surface.valid].numpy(), (5, 10, 50, 90))
        luminance = surface.light[surface.valid].mean(-1)
        contrast = float(torch.log2(luminance + 1e-4).std())
        # Parallel surfaces fall into one of a few cells of the normal's rounded components.
        cells = torch.unique((2 * surface.normals[surface.valid]).round(), dim=0, return_counts=True)[1]
        flat = float(cells.max() / cells.sum())
        return bool(
            near >= limits.near_m
            and limits.median_m[0] <= median <= limits.median_m[1]
            and most / tenth >= limits.spread
            and contrast >= limits.contrast
            and flat <= limits.flat
        )

    def _measure_overlap(self, a: _View, b: _View) -> float:
        return (self._measure_visible(a, b) + self._measure_visible(b, a)) / 2

    def _measure_visible(self, a: _View, b: _View) -> float:
        """Share of a's surface points that b sees, too: in its frame, and with nothing in between."""
        points = a.points[a.valid]
        pixels, imaged = b.camera.project(b.pose.inverse().apply(points))
        inside = (imaged & b.camera.contains(pixels)).numpy()
        if not inside.any():
            return 0.0
        rays = points.numpy()[inside] - b.eye.astype(np.float32)
        distance = np.linalg.norm(rays, axis=-1)
        hits = self.scene.cast(b.eye, rays / distance[:, None])
        near = hits.distance > 0.98 * distance[hits.ray] - 0.02
        return float(near.sum()) / max(1, len(points))


def _point(yaw: float, pitch: float) -> Float[np.ndarray, "3"]:
    return np.array([np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)])
