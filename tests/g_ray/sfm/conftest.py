"""Rooms photographed through any lens, small enough for tests, with exact poses, and errors of estimated ones."""

import math

import pytest
import torch

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from g_ray.cameras import DoubleSphere, Equirectangular, OpenCV, OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_to_poses

FLOAT64 = torch.float64


def _make_fisheye200():
    focal = 130 / math.radians(100)
    return OpenCVFisheye.make(260, 260, fx=focal, fy=focal, cx=130.0, cy=130.0, dtype=FLOAT64)


def _make_ray_map():
    lens = OpenCVFisheye.make(320, 240, fx=150.0, fy=151.0, cx=161.0, cy=119.0, k1=0.02, dtype=FLOAT64)
    return RayMapCamera.from_rays(*lens.unproject_grid())


LENSES = {
    "pinhole": lambda: Pinhole.make(320, 240, fx=230.0, fy=230.0, cx=160.0, cy=120.0, dtype=FLOAT64),
    "opencv": lambda: OpenCV.make(
        320, 240, fx=200.0, fy=201.0, cx=161.0, cy=118.0, k1=-0.2, k2=0.03, dtype=FLOAT64
    ),
    "double_sphere": lambda: DoubleSphere.make(
        320, 240, fx=130.0, fy=130.0, cx=160.0, cy=120.0, xi=-0.2, alpha=0.57, dtype=FLOAT64
    ),
    "fisheye200": _make_fisheye200,
    "panorama": lambda: Equirectangular.panorama(480, 240, dtype=FLOAT64),
    "ray_map": _make_ray_map,
}


@pytest.fixture(scope="session")
def compare_poses():
    """A function of a scene and true poses: largest position error over the extent of the true positions, and largest
    rotation error in degrees, after a similarity."""

    def compare(scene, truth: Pose) -> tuple[float, float]:
        target = truth.to(torch.float64)[torch.tensor(scene.registered)]
        moved = fit_similarity_to_poses(scene.stack_poses(), target).transform_pose(scene.stack_poses())
        centers = target.translation
        offset = torch.linalg.vector_norm(moved.translation - centers, dim=-1)
        between = moved.rotation.mT @ target.rotation
        cosine = (between.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        angle_deg = torch.rad2deg(torch.acos(cosine.clamp(-1, 1)))
        return float(offset.max() / torch.cdist(centers, centers).max()), float(angle_deg.max())

    return compare


@pytest.fixture(scope="session")
def photograph_room():
    """A function of the names of lenses and a number of views: images, cameras and true poses, rendered once."""
    cache = {}

    def photograph(lenses: tuple[str, ...], count: int, seed: int = 0, still: bool = False):
        key = (lenses, count, seed, still)
        if key not in cache:
            cache[key] = _photograph(lenses, count, seed, still)
        return cache[key]

    return photograph


def _photograph(lenses, count, seed, still):
    room = make_random_room(seed, solids=6, dtype=torch.float32)
    cameras = {name: LENSES[name]() for name in lenses}
    images, used, poses = [], [], []
    for index in range(count):
        pose = _place_camera(index, count, still)
        camera = cameras[lenses[index % len(lenses)]]
        rendering = room.render(camera.to(dtype=torch.float32), pose.to(torch.float32), antialias=2)
        images.append(rendering.rgb.movedim(-1, 0))
        used.append(camera)
        poses.append(pose)
    return images, used, Pose(torch.stack([pose.world_from_cam for pose in poses]))


@pytest.fixture(scope="session")
def photograph_rig():
    """Two lenses on one rig at four instants: images, cameras, names, rig_from_cam and true poses."""
    room = make_random_room(1, solids=7, dtype=torch.float32)
    lenses = {"left": LENSES["opencv"](), "right": LENSES["double_sphere"]()}
    ahead = Pose.look_at([0.0, 0.0, 0.0], [0.17, 0.0, 1.0]).rotation.double()
    mounts = {
        "left": Pose.identity(dtype=FLOAT64),
        "right": Pose.from_parts(ahead, torch.tensor([0.25, 0.0, 0.02], dtype=FLOAT64)),
    }
    images, cameras, names, poses = [], [], [], []
    for index in range(4):
        for label, lens in lenses.items():
            pose = _place_camera(index, 4, still=False) @ mounts[label]
            rendering = room.render(lens.to(dtype=torch.float32), pose.to(torch.float32), antialias=2)
            images.append(rendering.rgb.movedim(-1, 0))
            cameras.append(lens)
            names.append(f"{label}/{index:03d}.png")
            poses.append(pose.world_from_cam)
    return images, cameras, names, mounts, Pose(torch.stack(poses))


def _place_camera(index, count, still):
    turn = 0.0 if still else 1.2 * index / count - 0.6
    eye = torch.tensor(
        [1.3 * math.sin(turn), -0.1 * math.cos(2 * turn), -1.2 - 0.8 * math.cos(turn)]
    ).double()
    target = torch.tensor([0.2 * math.sin(1.3 * index), 0.3, 1.0], dtype=FLOAT64)
    if still:
        target = torch.tensor([0.25 * index, 0.3 + 0.05 * index, 1.0], dtype=FLOAT64)
    return Pose.look_at(eye, target)
