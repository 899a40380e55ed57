"""Results of reconstruction with exact depth and poses, from rooms; for tests."""

from functools import cache
from pathlib import Path

import torch

from g_ray.cameras.camera import Camera
from g_ray.demo.room import make_random_room
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction
from g_ray.geometry.pose import Pose
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction


@cache
def mixed(size: int = 70) -> tuple[tuple[ReconstructedView, ...], tuple[torch.Tensor, ...]]:
    """Views and photographs: pinholes and fisheyes by turns, each with a lens of its own."""
    data = RoomsReconstruction(RoomsViews(size, size, 1, step_m=0.5), lens="mixed")
    batch = data.make_sets(range(1))
    views = tuple(
        view(
            f"{camera.NAME}/view {i}.png",
            camera[0],
            batch.poses[0, i],
            batch.ray_depth[0, i],
            batch.valid[0, i],
        )
        for i, camera in enumerate(batch.views.cameras)
    )
    return views, tuple(batch.images[0])


def seen_through(
    cameras: list[Camera], seed: int = 4
) -> tuple[tuple[ReconstructedView, ...], tuple[torch.Tensor, ...]]:
    """One room through any lenses, from places beside each other."""
    room, views, images = make_random_room(seed, coarse=True), [], []
    for number, camera in enumerate(cameras):
        eye = torch.tensor([0.25 * number - 0.3, 0.1, -1.2])
        pose = Pose.look_at(eye, torch.tensor([0.1, 0.2, 1.0]))
        seen = room.render(camera.to(torch.float32), pose)
        views.append(view(f"{number:02d}_{camera.NAME}.png", camera, pose, seen.ray_depth, seen.valid))
        images.append(seen.rgb.movedim(-1, 0))
    return tuple(views), tuple(images)


def view(
    name: str, camera: Camera, pose: Pose, depth: torch.Tensor, valid: torch.Tensor
) -> ReconstructedView:
    """Sure of what is near; confidence in (0, 1]."""
    confidence = torch.exp(-0.2 * depth)
    return ReconstructedView(name, camera, pose, depth * valid, confidence, valid, "rendered", true_pose=pose)


def result(folder: Path, views: tuple[ReconstructedView, ...]) -> Reconstruction:
    metrics = {"points_rel": 0.031, "per view": {"a": 1.5}}
    return Reconstruction(views, folder, "metre", metrics, {"weights": "none", "device": "cpu"})
