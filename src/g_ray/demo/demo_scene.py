"""Reconstruct a room from a pinhole, fisheyes and a tele lens for the demo, and compare the result with the truth."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.cameras.camera import Camera
from g_ray.demo.room import OBJECT_COLORS, Room, make_random_room
from g_ray.demo.textures import PATTERNS
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.model_settings import ROOMS_WEIGHTS
from g_ray.reconstruction.reconstruct import KnownGeometry, reconstruct
from g_ray.reconstruction.score import SCORES, score_views
from g_ray.viewer.colors import color_depth
from g_ray.viewer.theme import LIGHT, draw_contact_sheet, write_png

SIDE = 192
"""Pixels of the photographs: small, so that the demo takes seconds on a CPU."""
ROOM = 5
SOLIDS = 5
TEXTURE_M = 0.35
"""Size of the walls' pattern: stereo compares patches of five pixels, of which each needs something to see."""
WEIGHTS_ABOUT = "network, trained on rooms through pinholes"
STILL = "standing still, constant depth"


@dataclass(frozen=True, eq=False)
class DemoScene:
    """Photographs of a room with exact depth and poses."""

    images: list[torch.Tensor]
    """[3, h, w] in [0, 1]."""
    cameras: dict[str, Camera]
    """By the names of the photographs."""
    truth: list[View]


@dataclass(frozen=True, eq=False)
class ReconstructionDemo:
    """The stored reconstruction, and the scores of all models that were compared."""

    result: Reconstruction
    scores: dict[str, dict[str, float]]
    """By model: positions off, of their extent; rotations between views off, in degrees; share of pixels with depth;
    and over these the relative error of depth along the ray and the share within 3 %."""


def make_cameras() -> dict[str, Camera]:
    """Return the cameras by the names of the photographs."""
    middle = {"cx": SIDE / 2, "cy": SIDE / 2}
    narrow = OpenCVFisheye.make(SIDE, SIDE, fx=96.0, fy=96.0, **middle, k1=0.02, k2=-0.005)
    wide = OpenCVFisheye.make(SIDE, SIDE, fx=72.0, fy=72.0, **middle, k1=-0.01, k2=0.002)
    return {
        "a_pinhole.png": Pinhole.from_fov(75.0, SIDE, SIDE),
        "b_fisheye.png": narrow,
        "c_fisheye.png": wide,
        "d_fisheye.png": narrow,
        "e_tele.png": Pinhole.from_fov(45.0, SIDE, SIDE),
    }


def make_room() -> Room:
    """Make a furnished room with veins of color on every surface: blank walls would have no depth."""
    room = make_random_room(ROOM, SOLIDS)
    materials = room.materials
    count = len(materials.size)
    size = torch.full_like(materials.size, TEXTURE_M)
    size[-SOLIDS:] *= 0.7
    colors = [OBJECT_COLORS[surface % len(OBJECT_COLORS)] for surface in range(count)]
    marble = replace(
        materials,
        pattern=torch.full((count,), list(PATTERNS).index("marble")),
        colors=torch.tensor(colors, dtype=materials.colors.dtype),
        size=size,
    )
    return replace(room, materials=marble, shadows=False)  # shadows would be most of the time of rendering


def place_camera(number: int, count: int) -> Pose:
    """Return a place on an arc around the middle of the room, looking there."""
    angle = 0.15 * (number - (count - 1) / 2)
    eye = (1.8 * math.sin(angle), -0.2 + 0.12 * (number % 2), 1.8 * math.cos(angle))
    return Pose.look_at(eye, (0.1, 0.2, -0.3))


def photograph_room() -> DemoScene:
    """Render the photographs of the room, with exact depth."""
    room, cameras = make_room(), make_cameras()
    images, truth = list[torch.Tensor](), list[View]()
    for number, (name, camera) in enumerate(cameras.items()):
        pose = place_camera(number, len(cameras))
        rendering = room.render(camera.to(dtype=torch.float32), pose.to(torch.float32), antialias=2)
        images.append(rendering.rgb.movedim(-1, 0).contiguous())
        truth.append(View(name, camera, pose, depth=torch.where(rendering.valid, rendering.ray_depth, 0)))
    return DemoScene(images, cameras, truth)


def write_reconstruction_demo(folder: Path, weights: str = ROOMS_WEIGHTS) -> ReconstructionDemo:
    """Reconstruct the room by stereo into `folder`, and compare its scores with the network and static cameras.

    The lenses are given, the poses are not: they are estimated, and the known ones only score them.
    """
    scene = photograph_room()
    poses = [view.pose for view in scene.truth]
    known = KnownGeometry(poses, metric=True, truth=scene.truth, keep_poses=False)
    names = list(scene.cameras)
    common = {"names": names, "sources": ["the demo's own lenses"] * len(names), "known": known}
    cameras = list(scene.cameras.values())
    stereo = reconstruct(scene.images, cameras, model="stereo", device="cpu", **common)
    network = reconstruct(scene.images, cameras, weights=weights, place_by="network", device="cpu", **common)
    scores = {
        "stereo": collect_scores(stereo, scene),
        WEIGHTS_ABOUT: collect_scores(network, scene),
        STILL: score_standing_still(stereo, scene),
    }
    result = stereo.save(folder, scene.images, settings={"model": "stereo"})
    write_png(draw_depths(scene, {"stereo": stereo, "network": network}), folder / "depths.png", dpi=160)
    return ReconstructionDemo(result, scores)


def collect_scores(result: Reconstruction, scene: DemoScene) -> dict[str, float]:
    """Return the scores of a reconstruction of the demo's photographs, see `ReconstructionDemo`."""
    with_depth = [sample_depth(view, scene)[1].float().mean() for view in result.views]
    return {
        "positions": result.quality["position_error_of_extent"],
        "rotations_deg": result.quality["rotation_between_views_deg"],
        "with_depth": float(sum(with_depth)) / len(scene.images),
        **{name: result.metrics[f"{SCORES[name]}, against truth"] for name in ("depth_rel", "depth_inlier")},
    }


def score_standing_still(result: Reconstruction, scene: DemoScene) -> dict[str, float]:
    """Return the scores of a guess that needs no photographs: one place and direction, and one depth for all pixels."""
    here = Pose.identity()
    views = [
        ReconstructedView(true.name, true.camera, here, torch.ones(known.shape), known.float(), known)
        for true, known in ((true, true.load_ray_depth() > 0) for true in scene.truth)
    ]
    scores = score_views(views, scene.truth)
    return {
        "positions": 1.0,  # all at the mean of the true positions
        "rotations_deg": result.quality["rotation_standing_still_deg"],
        "with_depth": 1.0,
        **{name: scores[f"{SCORES[name]}, against truth"] for name in ("depth_rel", "depth_inlier")},
    }


def sample_depth(view: ReconstructedView, scene: DemoScene) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ray depth and validity [h, w] at the pixels of a photograph, whatever the size of the depth map."""
    full = view.restore_size()
    true = scene.truth[list(scene.cameras).index(view.name)]
    return full.ray_depth, full.valid & (true.load_ray_depth() > 0)


def draw_depths(scene: DemoScene, results: dict[str, Reconstruction]) -> Figure:
    """Draw a column per lens: photograph, true depth along the ray, and each model's; black where there is none."""
    far = max(float(true.load_ray_depth().max()) for true in scene.truth)
    columns, labels = [], {}
    for number, (name, camera) in enumerate(scene.cameras.items()):
        true_depth = scene.truth[number].load_ray_depth()
        title = f"{name.removesuffix('.png').replace('_', ' ')}, {float(camera.fov().horizontal_deg):.0f}°"
        pictures = [scene.images[number], color_depth(true_depth / far, true_depth > 0)]
        texts = ["", "true depth"]
        for model, result in results.items():
            view = next((view for view in result.views if view.name == name), None)
            if view is None:
                pictures.append(torch.zeros_like(scene.images[number]))
                texts.append(f"{model}: not placed")
                continue
            depth, valid = sample_depth(view, scene)
            depth = depth * fit_scale(depth, true_depth, valid)
            error = ((depth - true_depth).abs() / true_depth.clamp_min(1e-6))[valid].mean()
            pictures.append(color_depth(depth / far, valid))
            texts.append(f"{model}: off by {float(error):.1%}")
        columns.append((title, torch.stack(pictures)))
        labels[title] = texts
    return draw_contact_sheet(columns, labels, LIGHT)


def fit_scale(depth: torch.Tensor, true_depth: torch.Tensor, valid: torch.Tensor) -> float:
    """Return the factor that brings depth to the median of the true depth; 1 if there is none."""
    if not bool(valid.any()):
        return 1.0
    return float(true_depth[valid].median() / depth[valid].median().clamp_min(1e-12))
