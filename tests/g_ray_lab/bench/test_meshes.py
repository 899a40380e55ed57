"""The benchmark of meshes: its scores where they are known by hand, and one small scene from end to end."""

import json

import numpy as np
import pytest
import torch

from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.mesh.surface_mesh import SurfaceMesh
from g_ray_lab.bench import bench_meshes
from g_ray_lab.bench.bench_meshes import Subject, benchmark_meshes, score_surface
from g_ray_lab.bench.verdict_cases import LENSES

SQUARE = np.stack([*np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101)), np.zeros((101, 101))], -1)


def make_square(height: float, width: float = 1.0) -> SurfaceMesh:
    corners = np.array([[0, 0, height], [width, 0, height], [width, 1, height], [0, 1, height]], float)
    return SurfaceMesh(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32))


@pytest.mark.parametrize(
    ("height", "width", "precision", "recall"),
    [(0.0, 1.0, 1, 1), (0.05, 1.0, 0, 0), (0.0, 0.5, 1, 0.51)],
)
def test_surface_by_hand(height, width, precision, recall):
    points = SQUARE.reshape(-1, 3)
    scores = score_surface(make_square(height, width), points, points, 1.0)
    assert scores["precision"] == pytest.approx(precision, abs=0.01)
    assert scores["recall"] == pytest.approx(recall, abs=0.02)
    if height:
        assert scores["chamfer"] == pytest.approx(height, rel=0.05)


def photograph(camera, count=5):
    """Photographs of a room from places a hand's breadth apart."""
    views = []
    for number in range(count):
        eye = torch.tensor([1.0 + 0.12 * number, -0.2, 1.5 - 0.05 * number], dtype=torch.float64)
        pose = Pose.look_at(eye, torch.tensor([-0.6, 0.4, -0.6], dtype=torch.float64))
        seen = make_random_room(1).render(camera.to(torch.float32), pose.to(torch.float32))
        views.append(
            View("", camera, pose, "", seen.rgb.permute(2, 0, 1).float(), depth=seen.ray_depth.float())
        )
    return views


def test_a_warp_with_the_true_depth_shows_the_photograph():
    one, other = photograph(LENSES["fisheye"].resize(120, 90), 2)
    picture, seen = bench_meshes._warp(one, other)
    assert float(seen.float().mean()) > 0.7
    assert bench_meshes._measure_psnr(picture, one.load_image().movedim(0, -1), seen) > 22
    assert bench_meshes._measure_psnr(picture, picture, seen & False) == -np.inf


def test_a_small_scene(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_meshes, "SIDE", 96)
    small = LENSES["pinhole"].resize(96, 72)
    monkeypatch.setattr(
        bench_meshes, "list_subjects", lambda _: [Subject("small", lambda: photograph(small))]
    )
    said = []
    benchmark_meshes(tmp_path, None, said.append)
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert row["reference"]["f_score"] > 0.8 > row["surface"]["f_score"] > 0.1  # 96 px are few for stereo
    assert row["psnr"] > 15 and row["warp_psnr"] > 15 and 0.1 < row["share"] <= 1
    assert (tmp_path / "table.md").read_text().splitlines()[2:] == said
    benchmark_meshes(tmp_path, None, said.append)
    assert len(said) == 1  # what is finished is not run again
