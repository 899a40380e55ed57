"""The shipped weights of learned stereo: depth at every pixel through mixed lenses, and what confidence means."""

import pytest
import torch

pytest.importorskip("g_ray_weights")

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.models.weights import read_card
from g_ray.predictors.sweep_weights import STEREO_WEIGHTS, load_sweep_network
from g_ray.stereo.learned_depth import LearnedStereo


@pytest.fixture(scope="module")
def room():
    """Four photographs of a room that is not in the training data, in the materials of the demo, and true distances."""
    scene, views, depths = make_random_room(11, solids=6), [], []
    focal = {"fx": 60.0, "fy": 60.0, "cx": 64.0, "cy": 64.0, "dtype": torch.float32}
    lenses = (OpenCVFisheye.make(128, 128, **focal), Pinhole.from_fov(80, 128, 96, dtype=torch.float32))
    for number in range(4):
        eye = (-0.3 + 0.2 * number, -0.2 + 0.1 * (number % 2), -1.4)
        camera, pose = lenses[number % 2], Pose.look_at(eye, (0.1, 0.2, 1.0))
        shot = scene.render(camera, pose, antialias=2)
        views.append(View(str(number), camera, pose, image=shot.rgb.movedim(-1, 0).contiguous()))
        depths.append(shot.ray_depth)
    return views, depths


@pytest.mark.parametrize("reference", [0, 1], ids=["fisheye", "pinhole"])
def test_depth_and_confidence(room, reference):
    views, depths = room
    sources = [index for index in range(4) if index != reference]
    learned = LearnedStereo.prepare(load_sweep_network(), views)
    found = learned.estimate(reference, sources, 0.5, 8.0, views[reference].size)
    known = depths[reference] > 0
    truth = depths[reference][known]
    error = (1 / found.inverse[known] / truth - 1).abs()
    constant = (truth.median() / truth - 1).abs()
    assert float(error.mean()) < 0.5 * float(constant.mean())
    assert float((error < 0.1).float().mean()) > 0.6
    confidence = found.confidence[known]
    sure = confidence >= confidence.median()
    right = (error < 0.03).float()
    assert float(right[sure].mean()) > float(right[~sure].mean()) + 0.1


def test_card():
    card = read_card(STEREO_WEIGHTS)
    assert card["bytes"] <= 2_000_000
    for lens in ("narrow", "pinhole", "fisheye", "panorama", "mixed"):
        scores = card["scores"][lens]
        assert scores["network"]["error"] < scores["one distance"]["error"]
        assert scores["network"]["within 3 %"] > scores["one distance"]["within 3 %"]
    for confidence, right, share in card["scores"]["reliability"]:
        assert share < 0.02 or abs(confidence - right) < 0.12
