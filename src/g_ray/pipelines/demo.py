"""Reconstruct a room from a pinhole, fisheyes and a tele lens for the demo, and compare the result with the truth."""

from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.cameras.base import Camera
from g_ray.data.reconstruction import ReconstructionBatch
from g_ray.data.reconstruction_settings import RoomsViews
from g_ray.data.rooms.reconstruction import RoomsReconstruction
from g_ray.export.reconstruction import Reconstruction
from g_ray.metrics.reconstruction import ReconstructionScores, SetGeometry, relative_error, score_sets
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.pipelines.reconstruction import WEIGHTS, KnownGeometry, load_network, reconstruct
from g_ray.viewer.colors import color_depth
from g_ray.viewer.table_figures import draw_contact_sheet
from g_ray.viewer.theme import LIGHT, write_png

SIDE = 192
ROOM = 2
"""Of the test split: no training run sees it."""


@dataclass(frozen=True, eq=False)
class ReconstructionDemo:
    """The stored reconstruction and its scores."""

    result: Reconstruction
    scores: dict[str, float]
    """The network's six metrics over the photographs' own pixels, depth along the ray."""


def make_cameras() -> dict[str, Camera]:
    """Return the cameras by the names of the photographs."""
    middle = {"cx": SIDE / 2, "cy": SIDE / 2}
    fisheyes = {
        "b_fisheye.png": (96.0, 0.02, -0.005),
        "d_fisheye.png": (110.0, -0.01, 0.002),
    }
    cameras: dict[str, Camera] = {
        "a_pinhole.png": Pinhole.from_fov(75.0, SIDE, SIDE),
        "c_tele.png": Pinhole.from_fov(40.0, SIDE, SIDE),
    }
    for name, (focal, k1, k2) in fisheyes.items():
        cameras[name] = OpenCVFisheye.make(SIDE, SIDE, fx=focal, fy=focal, **middle, k1=k1, k2=k2)
    return dict(sorted(cameras.items()))


def render_room(cameras: dict[str, Camera]) -> ReconstructionBatch:
    """Render photographs of one room with exact depth and poses."""
    rooms = RoomsReconstruction(RoomsViews(SIDE, SIDE), patch=4, split="test")
    batched: list[Camera] = [add_batch_axis(camera) for camera in cameras.values()]
    return rooms.make_sets(range(ROOM, ROOM + 1), views=len(cameras), cameras=batched)


def add_batch_axis(camera: Camera) -> Camera:
    """Return the camera as a batch of one."""
    return type(camera)(camera.params[None].to(torch.float32), camera.width, camera.height)


def write_reconstruction_demo(folder: Path, weights: str = WEIGHTS) -> ReconstructionDemo:
    """Reconstruct the room's photographs into `folder`, align the scene to the true poses, and score it."""
    cameras = make_cameras()
    truth = render_room(cameras)
    model = load_network(weights, "cpu")
    images = list(truth.images[0])
    scene = reconstruct(
        images,
        list(cameras.values()),
        weights=model,
        device="cpu",
        names=list(cameras),
        sources=["the demo's own lenses"] * len(cameras),
        known=KnownGeometry([truth.poses[0, view] for view in range(len(cameras))], metric=True),
    )
    answer = predict_geometry(model, truth, cameras)
    scores = {name: float(values) for name, values in score_geometry(answer, truth).rows().items()}
    scene.metrics.update({f"{name} (network against truth)": value for name, value in scores.items()})
    result = scene.save(folder, images, settings={"weights": weights, "method": model.config.method})
    write_png(draw_depths(answer, truth, cameras), folder / "depths.png", dpi=160)
    return ReconstructionDemo(result, scores)


def predict_geometry(
    model: ReconstructionModel, truth: ReconstructionBatch, cameras: dict[str, Camera]
) -> SetGeometry:
    """Return the network's own geometry, before calibration and alignment, at the photographs' own pixels."""
    inference = run_inference(
        model, list(truth.images[0]), list(cameras.values()), size=model.config.long_side
    )
    maps = [view.maps for view in inference.to_original().views]
    poses = [view.poses.world_from_cam for view in maps]
    return SetGeometry.from_points(
        torch.stack([view.world_points for view in maps])[None],
        torch.stack([view.camera_points for view in maps])[None],
        type(truth.poses)(torch.stack(poses)[None]),
    )


def score_geometry(predicted: SetGeometry, truth: ReconstructionBatch) -> ReconstructionScores:
    rays = truth.rays()
    exact = SetGeometry(truth.world_points, truth.camera_points, rays.directions, truth.poses)
    return score_sets(exact, predicted, truth.valid, depth_kind="ray", known_rays=rays.valid)


def draw_depths(predicted: SetGeometry, truth: ReconstructionBatch, cameras: dict[str, Camera]) -> Figure:
    """Draw a column per lens: photograph, true depth along the ray, and the network's at one scale for all views."""
    exact, valid = truth.ray_depth[0], truth.valid[0]
    predicted_depth = predicted.camera_points[0].norm(dim=-1)
    predicted_depth = predicted_depth * ((exact * valid).sum() / (predicted_depth * valid).sum())
    rows = (
        truth.images[0],
        color_depth(exact / exact.max(), valid),
        color_depth(predicted_depth / exact.max(), valid),
    )
    error = relative_error(exact[..., None], predicted_depth[..., None], valid)
    columns, labels = [], {}
    for view, (name, camera) in enumerate(cameras.items()):
        title = f"{name.split('_')[1].removesuffix('.png')}, {float(camera.fov().horizontal_deg):.0f}°"
        columns.append((title, torch.stack([row[view] for row in rows])))
        labels[title] = ["", "true depth", f"found, off by {error[view]:.0%}"]
    return draw_contact_sheet(columns, labels, LIGHT)
