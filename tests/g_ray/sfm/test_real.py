"""Real photographs: a castle with the lens of its COLMAP model, and a kitchen with poses from depth."""

from pathlib import Path

import numpy as np
import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.formats.colmap.colmap_scene import read_colmap
from g_ray.geometry.pose import Pose
from g_ray.media.images import read_photo
from g_ray.rays.resample import resample
from g_ray.sfm import SfMOptions, reconstruct_cameras, refine, triangulate

from .sfm_views import make_views

SMALL = 480
"""Longer side, in pixels, of the castle's photographs in tests."""


@pytest.fixture(scope="module")
def castle(shared_data: Path):
    scene = read_colmap(shared_data / "sceaux")
    parts = []
    lenses = {}
    for path, camera in zip(scene.images, scene.cameras, strict=True):
        height = round(SMALL * camera.height / camera.width)
        image, small = resample(read_photo(path), camera, SMALL, height)
        parts.append((image, lenses.setdefault(id(camera), small)))
    images, cameras = zip(*parts, strict=True)
    return images, cameras, scene.poses


def test_castle_is_registered(castle, compare_poses):
    images, cameras, truth = castle
    scene = reconstruct_cameras(make_views(images, cameras), options=SfMOptions(max_features=2000))
    assert len(scene.registered) == 11
    position, angle_deg = compare_poses(scene, truth)
    assert position < 0.01
    assert angle_deg < 0.3
    assert scene.compute_statistics()["mean_error_px"] < 0.8


@pytest.fixture(scope="module")
def kitchen(shared_data: Path):
    files = sorted((shared_data / "7scenes_redkitchen100").glob("*.color.jpg"))[::10]
    matrices = [np.loadtxt(str(file).replace("color.jpg", "pose.txt")) for file in files]
    lens = Pinhole.make(640, 480, fx=525.0, fy=525.0, cx=320.0, cy=240.0, dtype=torch.float64)
    return files, [lens] * len(files), Pose(torch.from_numpy(np.stack(matrices)))


def test_kitchen_is_registered_and_agrees_with_its_poses(kitchen, tmp_path, compare_poses):
    files, cameras, truth = kitchen
    scene = reconstruct_cameras(make_views(files, cameras), work_folder=tmp_path)
    assert len(scene.registered) == 10
    assert compare_poses(scene, truth)[0] < 0.05
    given = triangulate(make_views(files, cameras, [truth[i] for i in range(10)]), work_folder=tmp_path)
    assert given.agreement is not None and given.agreement.share > 0.7
    # The poses come from a depth camera; the pictures know better where the color camera was.
    better = refine(given)
    assert better.kept and better.after_px < 0.6 * better.before_px
    with pytest.raises(ValueError, match="contradict the pictures"):
        triangulate(make_views(files, cameras, [truth[i].inverse() for i in range(10)]), work_folder=tmp_path)
