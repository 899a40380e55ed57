"""Check whether the calibration fits the photographs: would another lens explain the same tracks better?

Bundle adjustment with the focal length, the center and the distortion free runs on the side, and beside it one with
the lens held. Tracks that neither has used decide. The result of the run does not change: a calibration may be better
than what a handful of photographs can tell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap, camera_to_colmap, import_pycolmap
from g_ray.geometry.pose import Pose
from g_ray.sfm.refinement import (
    MIN_HELD_OUT,
    arrange_frames,
    choose_held_out,
    make_scene_problem,
    measure_held_out,
)
from g_ray.sfm.sfm_options import SfMOptions
from g_ray.sfm.sparse_scene import SparseScene
from g_ray.sfm.workspace import convert_pose

MAX_POINTS = 4000
CLEAR = 0.85
"""Share of the held-out error that a better lens leaves, at most."""
MIN_CHANGE = 0.02
"""Smallest relative change of the focal length, or shift of rays over the focal length, that is worth a warning."""
FREE = {
    "SIMPLE_PINHOLE": (0, 0, 1, 2),
    "PINHOLE": (0, 1, 2, 3),
    "SIMPLE_RADIAL": (0, 0, 1, 2, 3),
    "RADIAL": (0, 0, 1, 2, 3, 4),
}
"""Models that become OPENCV, and which of their parameters its first ones are: distortion may be what is missing."""
EVERYTHING = ("focal_length", "principal_point", "extra_params")


@dataclass(frozen=True)
class LensCheck:
    """Held-out reprojection errors with the lenses as given and with free ones, in pixels."""

    given_px: float
    free_px: float
    held_out: int
    focal_px: float
    """Focal length of the lens that would change most, as given …"""
    better_px: float
    """… and as it would fit."""
    change: float
    """Largest shift of rays of that lens, over the image and less a rotation, relative to the field of view."""

    @property
    def contradicts(self) -> bool:
        """Whether another lens fits clearly better."""
        return self.free_px < CLEAR * self.given_px and self.change > MIN_CHANGE

    @property
    def undecided(self) -> bool:
        """Whether a very different lens fits as well: these photographs cannot tell."""
        return not self.contradicts and abs(math.log(self.better_px / self.focal_px)) > 0.05


def check_lenses(scene: SparseScene, options: SfMOptions) -> LensCheck | None:
    """Compare the given lenses with free ones; None where COLMAP has no such lens, or there are too few tracks."""
    models = [_find_model(camera) for camera in scene.cameras]
    chosen = _thin(scene, options)
    held = choose_held_out(len(chosen.points), 0.2, options.seed)
    if any(model is None for model in models) or int(held.sum()) < MIN_HELD_OUT:
        return None
    fixed = _adjust(chosen, models, held, ())
    try:
        free = _adjust(chosen, models, held, EVERYTHING)
    except ValueError:  # few points at the rim let the distortion fold back
        free = _adjust(chosen, models, held, EVERYTHING[:2])
    given_px, free_px = (_measure(part, held, options) for part in (fixed, free))
    changes = [measure_change(scene.cameras[index], free.cameras[index]) for index in scene.registered]
    most = scene.registered[int(np.argmax(changes))]
    return LensCheck(
        given_px,
        free_px,
        int(held.sum()),
        float(scene.cameras[most].params[0]),
        float(free.cameras[most].params[0]),
        max(changes),
    )


def measure_change(one: Camera, other: Camera) -> float:
    """Return the largest angle between the rays of two lenses of one image size, relative to their largest angle.

    A common rotation does not count: the pose takes it up.
    """
    grid = torch.cartesian_prod(
        *(torch.linspace(0.05, 0.95, 12, dtype=torch.float64) * side for side in (one.width, one.height))
    )
    (rays, valid), (others, seen) = (camera.to(torch.float64).unproject(grid) for camera in (one, other))
    rays, others = rays[valid & seen], others[valid & seen]
    if len(rays) < 3:
        return math.inf
    left, _, right = torch.linalg.svd(others.mT @ rays)
    flip = torch.diag(torch.tensor([1.0, 1.0, float(torch.det(left @ right))], dtype=torch.float64))
    turned = rays @ (left @ flip @ right).mT
    reach = (rays - torch.nn.functional.normalize(rays.mean(0), dim=0)).norm(dim=-1).max()
    return float((turned - others).norm(dim=-1).max() / reach.clamp_min(1e-9))


def _find_model(camera: Camera) -> tuple[str, tuple[float, ...]] | None:
    try:
        model, parameters = camera_to_colmap(camera)
    except ValueError:
        return None
    if model == "EQUIRECTANGULAR":
        return None
    if model in FREE:
        known = [parameters[place] for place in FREE[model]]
        return "OPENCV", tuple(known) + (0.0,) * (8 - len(known))
    return model, tuple(parameters)


def _thin(scene: SparseScene, options: SfMOptions) -> SparseScene:
    """Keep the points with the longest tracks."""
    length = torch.bincount(scene.tracks.point, minlength=len(scene.points))
    kept = torch.argsort(length, descending=True, stable=True)[:MAX_POINTS]
    number = torch.full((len(scene.points),), -1)
    number[kept] = torch.arange(len(kept))
    tracks = scene.tracks.select(number[scene.tracks.point] >= 0)
    tracks = replace(tracks, point=number[tracks.point])
    return replace(scene, points=scene.points[kept], colors=scene.colors[kept], tracks=tracks, rig=None)


def _adjust(
    scene: SparseScene, models: Sequence[Any], held: Bool[Tensor, "point"], free: Sequence[str]
) -> SparseScene:
    """Adjust poses and the points that are not held out, and what is free of the lenses."""
    pycolmap = import_pycolmap()
    model = _build_model(pycolmap, scene, models, held)
    options = pycolmap.BundleAdjustmentOptions()
    for part in EVERYTHING:
        setattr(options, f"refine_{part}", part in free)
    options.print_summary = False
    config = pycolmap.BundleAdjustmentConfig()
    for number in model.images:
        config.add_image(number)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    if not free:
        for number in model.cameras:
            config.set_constant_cam_intrinsics(number)
    pycolmap.create_default_bundle_adjuster(options, config, model).solve()
    cameras, poses = list(scene.cameras), list(scene.poses)
    for index in scene.registered:
        image = model.images[index + 1]
        matrix = torch.from_numpy(np.asarray(image.cam_from_world().matrix(), dtype=np.float64).copy())
        poses[index] = Pose.from_parts(matrix[:, :3], matrix[:, 3]).inverse()
        if free:
            lens = model.cameras[image.camera_id]
            given = scene.cameras[index]
            cameras[index] = camera_from_colmap(
                lens.model_name, given.width, given.height, tuple(lens.params.tolist())
            )
    return replace(scene, cameras=tuple(cameras), poses=tuple(poses))


def _build_model(
    pycolmap: Any, scene: SparseScene, models: Sequence[Any], held: Bool[Tensor, "point"]
) -> Any:
    model = pycolmap.Reconstruction()
    numbers: dict[int, int] = {}
    seen: dict[int, list[tuple[int, int]]] = {}
    for index in scene.registered:
        camera = scene.cameras[index]
        if id(camera) not in numbers:
            numbers[id(camera)] = len(numbers) + 1
            name, parameters = models[index]
            lens = pycolmap.Camera(
                model=name, width=camera.width, height=camera.height, params=list(parameters)
            )
            lens.camera_id = numbers[id(camera)]
            model.add_camera_with_trivial_rig(lens)
        rows = (scene.tracks.view == index) & ~held[scene.tracks.point]
        image = pycolmap.Image(
            name=str(index),
            keypoints=scene.tracks.pixel[rows].numpy(),
            camera_id=numbers[id(camera)],
            image_id=index + 1,
        )
        pose = scene.poses[index]
        assert pose is not None
        model.add_image_with_trivial_frame(image, convert_pose(pycolmap, pose.inverse()))
        for place, point in enumerate(scene.tracks.point[rows].tolist()):
            seen.setdefault(point, []).append((index + 1, place))
    for point, elements in seen.items():
        if len(elements) < 2:
            continue  # says nothing about lenses, and COLMAP refuses it
        track = pycolmap.Track([pycolmap.TrackElement(*element) for element in elements])
        model.add_point3D(scene.points[point].numpy(), track, np.zeros(3, np.uint8))
    return model


def _measure(scene: SparseScene, held: Bool[Tensor, "point"], options: SfMOptions) -> float:
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, options, frames)
    return measure_held_out(scene, scene, problem, frames, held, options)
