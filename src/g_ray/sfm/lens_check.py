"""Check whether the calibration fits the photographs: would another lens explain the same tracks better?

Bundle adjustment with parts of the lens free runs on the side, and beside it one with the lens held, on either half of
the tracks. The tracks of the other half, which the adjustment has not used, decide: by how much their error falls, and
whether it falls for so many of them that it is no chance. The result of the run does not change: a calibration may be
better than what a handful of photographs can tell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap, camera_to_colmap, import_pycolmap
from g_ray.geometry.pose import Pose
from g_ray.sfm.refinement import arrange_frames, choose_held_out, make_scene_problem, retriangulate
from g_ray.sfm.sfm_options import SfMOptions
from g_ray.sfm.sparse_scene import SparseScene
from g_ray.sfm.workspace import convert_pose

MAX_POINTS, MAX_OBSERVATIONS = 2000, 8000
"""Those with the longest tracks are enough: with all, the check of fifty photographs takes longer than mapping them."""
MIN_POINTS = 40
"""Fewest points from which lenses can be judged."""
CLEAR = 0.86
"""Share of the error that a better lens leaves, at most …"""
CERTAIN = 3.0
"""… and how many standard errors the mean improvement of a track is above 0, at least."""
MIN_CHANGE = 0.04
"""Smallest shift of rays, relative to the field of view, that is worth a warning."""
MIN_DEVIATION, MAX_DISAGREEMENT, MIN_CERTAINTY = 0.09, 0.4, -0.5
"""A focal length is also wrong if both halves find one on the same side of it, by the logarithm at least so far away,
and differ by at most this share of that distance, and the errors are not larger."""
TELLING = 0.1
"""Largest relative difference of focal lengths that fit equally well, if photographs can tell the focal length."""
CLIP_PX = 4.0
"""Larger errors count as this much: these are wrong matches."""
LOSS_PX = 1.0
FREE = {
    "SIMPLE_PINHOLE": (0, 0, 1, 2),
    "PINHOLE": (0, 1, 2, 3),
    "SIMPLE_RADIAL": (0, 0, 1, 2, 3),
    "RADIAL": (0, 0, 1, 2, 3, 4),
}
"""Models that become OPENCV, and which of their parameters its first ones are: distortion may be what is missing."""
PARTS = ("focal_length", "principal_point", "extra_params")
HYPOTHESES = (PARTS[:1], ("focal_length", "extra_params"), PARTS[:2], PARTS)
"""Parts of a lens that are free, from simple to general: few photographs tell one number, but not eight."""


@dataclass(frozen=True)
class LensCheck:
    """Errors of tracks that an adjustment has not used, with the lenses as given and with free ones, in pixels."""

    given_px: float
    free_px: float
    tracks: int
    certainty: float
    """Mean improvement of a track's error, in standard errors of that mean."""
    focal_px: float
    """Focal length of the lens that would change most, as given …"""
    better_px: float
    """… and as it would fit."""
    change: float
    """Largest shift of rays of that lens, over the image and less a rotation, relative to the field of view."""
    spread: float
    """Largest ratio of focal lengths that fit equally well."""
    contradicts: bool
    """Whether another lens fits clearly better."""

    @property
    def undecided(self) -> bool:
        """Whether a different focal length fits as well: these photographs cannot tell."""
        return not self.contradicts and self.spread > 1 + TELLING


@dataclass(frozen=True, eq=False)
class _Fit:
    """Lenses that fit each half of the tracks, and the errors of each half's points with those of the other one."""

    free: Sequence[str]
    lenses: tuple[tuple[Camera, ...], tuple[Camera, ...]]
    errors_px: Float[Tensor, "held"]

    def compare(self, scene: SparseScene, given: "_Fit", spread: float) -> LensCheck:
        """Compare with the lenses as given."""
        gain = given.errors_px - self.errors_px
        given_px, free_px = float(given.errors_px.mean()), float(self.errors_px.mean())
        certainty = float(gain.mean() / gain.std().clamp_min(1e-9)) * math.sqrt(len(gain))
        # Photographs by one lens: any of them stands for it.
        chosen = list({scene.cameras[index].compute_digest(): index for index in scene.registered}.values())
        changes = [
            min(measure_change(scene.cameras[index], lenses[index]) for lenses in self.lenses)
            for index in chosen
        ]
        most = chosen[int(np.argmax(changes))]
        focal = float(scene.cameras[most].params[0])
        off = [math.log(max(float(lenses[most].params[0]), 1e-9) / focal) for lenses in self.lenses]
        better = free_px < CLEAR * given_px and certainty > CERTAIN and max(changes) > MIN_CHANGE
        # Distortion may take the place of a focal length, so that two halves agree by chance.
        found = "extra_params" not in self.free and certainty > MIN_CERTAINTY and _agree(*off)
        return LensCheck(
            given_px,
            free_px,
            len(gain),
            certainty,
            focal,
            focal * math.exp(sum(off) / 2),
            max(changes),
            max(spread, math.exp(max(*off, 0.0) - min(*off, 0.0)) if len(self.free) == 1 else 1.0),
            better or found,
        )


def _agree(one: float, other: float) -> bool:
    """Whether logarithmic deviations of the focal length are far from 0, and close to each other."""
    nearest, middle = min(abs(one), abs(other)), abs(one + other) / 2
    return one * other > 0 and nearest > MIN_DEVIATION and abs(one - other) <= MAX_DISAGREEMENT * middle


def check_lenses(scene: SparseScene, options: SfMOptions) -> LensCheck | None:
    """Compare the given lenses with free ones; None where COLMAP has no such lens, or there are too few tracks."""
    models = [_find_model(camera) for camera in scene.cameras]
    chosen = _thin(scene)
    if any(model is None for model in models) or len(chosen.points) < MIN_POINTS:
        return None
    half = choose_held_out(len(chosen.points), 0.5, options.seed)
    given = _fit(chosen, models, half, (), options)
    if given is None:
        return None
    checks: list[LensCheck] = []
    for parts in HYPOTHESES:
        if (fit := _fit(chosen, models, half, parts, options)) is not None:
            checks.append(fit.compare(scene, given, checks[0].spread if checks else 1.0))
    # The most certain lens that contradicts is named, else the simplest.
    contradicting = [check for check in checks if check.contradicts]
    return (
        max(contradicting, key=lambda check: check.certainty) if contradicting else next(iter(checks), None)
    )


def _fit(
    scene: SparseScene,
    models: Sequence[Any],
    half: Bool[Tensor, "point"],
    free: Sequence[str],
    options: SfMOptions,
) -> _Fit | None:
    """Adjust to either half of the tracks and measure the other one; None if a lens comes out impossible."""
    lenses, errors = [], []
    for held in (half, ~half):
        try:
            adjusted = _adjust(scene, models, held, free)
            errors.append(_measure(adjusted, held, options))
        except ValueError:  # few points at the rim let the distortion fold back
            return None
        lenses.append(adjusted.cameras)
    return _Fit(free, (lenses[0], lenses[1]), torch.cat(errors))


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


def _thin(scene: SparseScene) -> SparseScene:
    """Keep the points with the longest tracks."""
    length = torch.bincount(scene.tracks.point, minlength=len(scene.points))
    kept = torch.argsort(length, descending=True, stable=True)
    kept = kept[length[kept].cumsum(0) <= MAX_OBSERVATIONS][:MAX_POINTS]
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
    for part in PARTS:
        setattr(options, f"refine_{part}", part in free)
    options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    options.ceres.loss_function_scale = LOSS_PX
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
    numbers: dict[str, int] = {}  # by lens: photographs of one camera share it
    seen: dict[int, list[tuple[int, int]]] = {}
    for index in scene.registered:
        camera = scene.cameras[index]
        key = camera.compute_digest()
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            name, parameters = models[index]
            lens = pycolmap.Camera(
                model=name, width=camera.width, height=camera.height, params=list(parameters)
            )
            lens.camera_id = numbers[key]
            model.add_camera_with_trivial_rig(lens)
        rows = (scene.tracks.view == index) & ~held[scene.tracks.point]
        image = pycolmap.Image(
            name=str(index),
            keypoints=scene.tracks.pixel[rows].numpy(),
            camera_id=numbers[key],
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


def _measure(scene: SparseScene, held: Bool[Tensor, "point"], options: SfMOptions) -> Float[Tensor, "held"]:
    """Return the mean error of each held-out point that two views or more observe, triangulated again."""
    frames = arrange_frames(scene)
    rows = held[scene.tracks.point]
    problem = make_scene_problem(scene, options, frames).select(rows)
    chosen = retriangulate(replace(scene, tracks=scene.tracks.select(rows)), problem, frames, options)
    errors = chosen.compute_errors_px().clamp(max=CLIP_PX)
    count = torch.bincount(chosen.tracks.point, minlength=len(scene.points))
    total = torch.zeros(len(scene.points), dtype=errors.dtype).index_add_(0, chosen.tracks.point, errors)
    return (total / count.clamp_min(1))[count > 1]
