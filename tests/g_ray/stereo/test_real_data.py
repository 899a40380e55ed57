"""Depth of real photographs; skipped where the folder of real data is absent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import OpenCV
from g_ray.geometry.pose import Pose
from g_ray.stereo import (
    SparsePoints,
    choose_range,
    choose_sources,
    sweep_view,
)
from g_ray_lab.bench.bench_opencv import compare_pair, read_pairs

from .stereo_scenes import make_view


def read_image(path):
    return torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).copy()).permute(2, 0, 1).float() / 255


@pytest.fixture(scope="module")
def castle(shared_data):
    """Views of the castle, the points of its COLMAP model, and where each view saw which."""
    pycolmap = pytest.importorskip("pycolmap")
    folder = shared_data / "sceaux"
    model = pycolmap.Reconstruction(str(folder / "sparse"))
    numbers = {point: i for i, point in enumerate(sorted(model.points3D))}
    positions = torch.tensor(np.array([model.points3D[point].xyz for point in numbers])).float()
    images = sorted(model.images.values(), key=lambda image: image.name)
    visible, features, views = torch.zeros(len(images), len(numbers), dtype=torch.bool), [], []
    for row, image in enumerate(images):
        lens = model.cameras[image.camera_id]
        focal, cx, cy, k1 = lens.params
        camera = OpenCV.make(
            lens.width, lens.height, fx=focal, fy=focal, cx=cx, cy=cy, k1=k1, dtype=torch.float64
        )
        matrix = np.vstack([image.cam_from_world().matrix(), [0, 0, 0, 1]])
        pixels = read_image(folder / "images" / image.name)
        view = make_view(pixels.double(), camera, Pose(torch.tensor(np.linalg.inv(matrix)))).limit_size(480)
        views.append(replace(view, image=view.image.float()))
        seen = [(point.xy, numbers[point.point3D_id]) for point in image.points2D if point.has_point3D()]
        places = torch.tensor(np.array([xy for xy, _ in seen])) * view.size[1] / lens.width
        features.append((places, torch.tensor([number for _, number in seen])))
        visible[row, features[-1][1]] = True
    return views, SparsePoints(positions, visible), features


@pytest.mark.slow
def test_castle_at_the_points_of_its_model(castle):
    views, points, features = castle
    index = 4
    sources = choose_sources(views, points)[index]
    depth = sweep_view(views[index], [views[j] for j in sources], *choose_range(views, points, index))
    places, numbers = features[index]
    column, row = places.long().unbind(-1)
    truth = (points.positions[numbers] - views[index].pose.translation.float()).norm(dim=-1)
    given = depth.valid[row, column]
    error = ((depth.ray_depth[row, column] - truth).abs() / truth)[given]
    assert given.float().mean() > 0.9
    assert (error < 0.01).float().mean() > 0.95
    assert error.mean() < 0.005


@pytest.mark.parametrize("name", ["barn2", "tsukuba", "cones"])
def test_no_more_bad_pixels_than_semi_global_block_matching(shared_data, name):
    pytest.importorskip("cv2")
    (pair,) = [pair for pair in read_pairs(shared_data / "stereo_disparity") if pair.name == name]
    row = compare_pair(pair)
    for tolerance in ("1px", "2px"):
        assert 0 < row[f"bad_{tolerance}"] <= row[f"bad_{tolerance}_sgbm"], row
