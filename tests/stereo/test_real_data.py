"""Depth of real photographs; skipped where the folder of real data is absent."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import OpenCV, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.stereo import (
    SparsePoints,
    StereoOptions,
    StereoView,
    choose_range,
    choose_sources,
    estimate_depths,
    sweep_view,
)


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
        view = StereoView(pixels.double(), camera, Pose(torch.tensor(np.linalg.inv(matrix)))).limit_size(480)
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


def make_pair(left, right):
    """A rectified pair with f = width and baseline 1, so that disparity = width / z."""
    height, width = left.shape[1:]
    camera = Pinhole.make(
        width, height, fx=float(width), fy=float(width), cx=width / 2, cy=height / 2, dtype=torch.float64
    )
    beside = torch.eye(4, dtype=torch.float64)
    beside[0, 3] = 1
    return [
        StereoView(left, camera, Pose.identity(dtype=torch.float64)),
        StereoView(right, camera, Pose(beside)),
    ]


def match_with_opencv(left, right, count):
    """OpenCV's semi-global matcher with all eight directions, as its documentation suggests."""
    cv2 = pytest.importorskip("cv2")
    count = (count + 15) // 16 * 16
    matcher = cv2.StereoSGBM_create(
        0, count, 5, 8 * 3 * 25, 32 * 3 * 25, 1, 0, 10, 100, 2, cv2.STEREO_SGBM_MODE_HH
    )
    images = [
        np.ascontiguousarray((image.permute(1, 2, 0).numpy()[..., ::-1] * 255).round().astype(np.uint8))
        for image in (left, right)
    ]
    padded = [cv2.copyMakeBorder(image, 0, 0, count, 0, cv2.BORDER_REPLICATE) for image in images]
    return torch.tensor(matcher.compute(*padded)[:, count:] / 16.0).float()


@pytest.mark.parametrize("name", ["barn2", "tsukuba", "cones"])
def test_no_more_bad_pixels_than_semi_global_block_matching(shared_data, name):
    folder = shared_data / "stereo_disparity"
    words = ElementTree.parse(folder / "datasets.xml").getroot()[0].text.split()
    scale = float(words[words.index(name) + 1].strip('"'))
    left, right = read_image(folder / name / "im2.png"), read_image(folder / name / "im6.png")
    truth = torch.tensor(np.asarray(Image.open(folder / name / "disp2.png").convert("L")) / scale).float()
    known, width = truth > 0, left.shape[-1]
    views, largest = make_pair(left, right), int(truth.max()) + 4
    options = StereoOptions(
        long_side=width,
        near=width / (largest + 1),
        far=width / max(float(truth[known].min()) - 2, 0.5),
        min_score=-1.0,
        min_support=-1.0,
        min_views=0,
    )
    depth = estimate_depths(views, None, options)[0]
    theirs = match_with_opencv(left, right, largest)
    matched = known & (theirs > 0)
    # The same number of pixels, the most confident ones.
    order = torch.where(known, depth.confidence, -1.0).flatten().argsort(descending=True, stable=True)
    chosen = torch.zeros(known.numel(), dtype=torch.bool)
    chosen[order[: int(matched.sum())]] = True
    chosen = chosen.reshape(known.shape)
    rays = views[0].camera.unproject_grid()[0].float()
    ours = width / (depth.ray_depth * rays[..., 2]).clamp_min(1e-6)
    for tolerance in (1, 2):
        mine = ((ours - truth).abs() > tolerance)[chosen].float().mean()
        other = ((theirs - truth).abs() > tolerance)[matched].float().mean()
        assert mine <= other, tolerance
