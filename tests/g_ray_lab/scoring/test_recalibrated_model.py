"""Models that are given other calibrations: only what they are given changes, and it is scored."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene, EvaluationView
from g_ray_lab.datasets.stored_frames import StoredImage
from g_ray_lab.scoring.calibration_conditions import CONDITIONS
from g_ray_lab.scoring.evaluated_models import StandingModel
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.recalibrated_model import make_recalibration, recalibrate_model
from g_ray_lab.scoring.set_prediction import from_arrays, to_arrays
from g_ray_lab.scoring.set_scoring import score_set

WIDTH, HEIGHT = 24, 16
PINHOLE = Pinhole.make(WIDTH, HEIGHT, fx=20.0, fy=20.0, cx=12.0, cy=8.0)
FISHEYE = OpenCVFisheye.make(WIDTH, HEIGHT, fx=20.0, fy=20.0, cx=12.0, cy=8.0, k1=0.01)

FRAME = EvaluationFrame("a", StoredImage(Path("a.png")), PINHOLE, Pose.identity(dtype=torch.float64))
SCENE = EvaluationScene("room", "eth3d", (FRAME,))


def make_view(name, camera):
    shape = (HEIGHT, WIDTH)
    pose, valid = Pose.identity(dtype=torch.float64), torch.ones(shape, dtype=torch.bool)
    return EvaluationView(name, "", torch.rand(3, *shape), camera, pose, torch.ones(shape), valid)


@pytest.fixture
def views():
    return [make_view("a", PINHOLE), make_view("b", replace(PINHOLE, params=1.25 * PINHOLE.params))]


@pytest.fixture
def anycalib(monkeypatch):
    """AnyCalib's documented interface; it answers twice the true focal length and records what it was asked for."""
    asked = []

    class AnyCalib:
        def __init__(self, model_id):
            pass

        def eval(self):
            return self

        def predict(self, image, cam_id):
            asked.append(cam_id)
            more = {"pinhole": [], "kb:4": [0.0] * 4}[cam_id]
            return {"intrinsics": torch.tensor([40.0, 40.0, 12.0, 11.0, *more])}

    module = ModuleType("anycalib")
    module.AnyCalib = AnyCalib
    monkeypatch.setitem(sys.modules, "anycalib", module)
    return asked


def test_true_calibrations_are_no_change():
    model = StandingModel()
    assert all(recalibrate_model(model, source) is model for source in (None, "truth", "correct"))
    with pytest.raises(
        ValueError, match=r"unknown calibration 'magic': choose among truth, guess, .*shuffled"
    ):
        recalibrate_model(model, "magic")


@pytest.mark.parametrize("source", [name for name in CONDITIONS if name != "correct"])
def test_wrong_rays_are_scored(source, views):
    """A model on wrong rays has the error of these rays, also after it was stored; its images stay."""
    model = recalibrate_model(StandingModel(), source)
    predicted = model.predict(views)
    stored = from_arrays(to_arrays(predicted), len(views))
    protocol = PROTOCOLS["eth3d-fov"]
    right = score_set(protocol, SCENE, views, StandingModel().predict(views))
    wrong = score_set(protocol, SCENE, views, stored)
    assert right["rays_deg"] < 1e-3 < wrong["rays_deg"]
    assert wrong["given_rays_deg"] == pytest.approx(wrong["rays_deg"], rel=0.1)
    assert model.digest() != StandingModel().digest()


def test_estimators_know_the_kind_of_projection(views, anycalib):
    cameras = make_recalibration("anycalib")([views[0], make_view("c", FISHEYE), views[1]])
    assert [camera.NAME for camera in cameras] == ["pinhole", "opencv_fisheye", "pinhole"]
    assert sorted(anycalib) == ["kb:4", "pinhole", "pinhole"]
    predicted = recalibrate_model(StandingModel(), "anycalib").predict(views[:1])
    assert predicted.figures["focal_rel"] == pytest.approx(1.0)
    assert predicted.figures["center_px"] == pytest.approx(3.0)


def test_a_missing_package_ends_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "anycalib", None)
    with pytest.raises(OSError, match="needs the package anycalib"):
        recalibrate_model(StandingModel(), "anycalib")
