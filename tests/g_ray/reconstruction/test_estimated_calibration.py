"""Estimated calibrations: errors by hand, and a model that is exact but for the camera that it is given."""

from math import atan, degrees
from typing import ClassVar

import pytest
import torch
from room_results import view
from room_scenes import shots, write_nerfstudio_depth

from g_ray.cameras import OpenCV, Pinhole
from g_ray.predictors.predictor import Cost, ScenePrediction
from g_ray_lab.scoring.estimated_calibration import (
    CalibrationScene,
    camera_from_values,
    camera_to_values,
    estimate_all,
    estimate_cameras,
    score_calibration,
    score_reconstructions,
)
from g_ray_lab.scoring.recalibrated_model import guess_camera, score_camera
from g_ray_lab.scoring.store import Store
from g_ray_lab.tables.calibration_tables import format_accuracy

SHOTS = shots(5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene") / "room"
    write_nerfstudio_depth(folder, SHOTS)
    return CalibrationScene.read(folder, views=3, sets=2)


def test_errors_of_a_camera_by_hand():
    true = Pinhole.make(640, 480, fx=500.0, fy=500.0, cx=320.0, cy=240.0, dtype=torch.float64)
    wrong = Pinhole.make(640, 480, fx=550.0, fy=600.0, cx=323.0, cy=244.0, dtype=torch.float64)
    scores = score_camera(true, wrong)
    assert scores["focal_rel"] == pytest.approx(0.15) and scores["center_px"] == pytest.approx(5.0)
    assert score_camera(true, true) == {"rays_deg": 0.0, "focal_rel": 0.0, "center_px": 0.0}
    # One row of pixels through the principal point: the angle between the rays at x is atan(x/500) − atan(x/600).
    row = Pinhole.make(64, 1, fx=50.0, fy=50.0, cx=32.0, cy=0.5, dtype=torch.float64)
    longer = Pinhole.make(64, 1, fx=60.0, fy=60.0, cx=32.0, cy=0.5, dtype=torch.float64)
    places = [column + 0.5 - 32 for column in range(64)]
    angles = [degrees(abs(atan(x / 50) - atan(x / 60))) for x in places]
    assert score_camera(row, longer)["rays_deg"] == pytest.approx(sum(angles) / 64, rel=1e-6)


def test_a_guess_knows_the_size_alone():
    camera = guess_camera(640, 480)
    assert camera.params[:4].tolist() == [768.0, 768.0, 320.0, 240.0]


def test_cameras_survive_as_values():
    camera = OpenCV.make(64, 48, fx=50.0, fy=51.0, cx=31.0, cy=25.0, k1=-0.1, dtype=torch.float64)
    again = camera_from_values(camera_to_values(camera))
    assert type(again) is OpenCV and torch.equal(again.params, camera.params) and again.width == 64


def test_sets_are_neighbors(scene):
    assert scene.list_sets() == [[0, 1, 2], [2, 3, 4]] and len(scene.list_photos()) == 5
    with pytest.raises(ValueError, match="5 photographs, but sets of 6"):
        CalibrationScene.read(scene.scene.folder, views=6, sets=1)


class ExactModel:
    """True poses and distances, along the rays of the cameras that it is given."""

    USES: ClassVar[frozenset[str]] = frozenset()
    NAME = "exact"

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def estimate_cost(self, scene):
        return Cost(0.0, 0, "")

    def describe_settings(self):
        return {}

    def load_finished(self, scene, work):
        return None

    def predict(self, scene, work=None, progress=None):
        if self.fails:
            raise ValueError("no feature\nmatches")
        known = {shot.name: shot for shot in SHOTS}
        return ScenePrediction(tuple(_make_view(one, known) for one in scene.views))


def _make_view(given, known):
    (shot,) = [shot for name, shot in known.items() if given.name.endswith(name)]
    depth = torch.from_numpy(shot.ray_depth)
    return view(given.name, given.camera, shot.pose, depth, torch.ones_like(depth, dtype=torch.bool))


def test_reconstruction_is_as_wrong_as_its_camera(scene):
    true = estimate_cameras(scene, "truth", print)
    exact = score_reconstructions(scene, true, ExactModel())
    assert len(exact) == 2 and all(one.metrics["coverage"] == pytest.approx(1.0) for one in exact)
    assert all(one.metrics["points_rel"] < 2e-3 and one.metrics["rays_deg"] < 1e-3 for one in exact)
    guessed = estimate_cameras(scene, "guess", print)
    wrong = score_reconstructions(scene, guessed, ExactModel())
    expected = score_calibration(scene, guessed)["rays_deg"]
    assert expected > 2 and all(one.metrics["points_rel"] > 0.02 for one in wrong)
    assert wrong[0].metrics["rays_deg"] == pytest.approx(expected, rel=0.05)
    failed = score_reconstructions(scene, true, ExactModel(fails=True))
    assert [one.message for one in failed] == ["no feature matches"] * 2


def test_what_is_not_available_is_listed(scene, tmp_path):
    cameras, rows = estimate_all(scene, ("truth", "guess", "anycalib"), Store(tmp_path), print)
    assert list(cameras) == ["truth", "guess"]
    assert (
        rows[0]["scores"]["rays_deg"] == 0
        and rows[2]["scores"] == {}
        and "not available" in rows[2]["reason"]
    )
    table = format_accuracy(rows)
    assert "| room | truth | 0.00 | 0.0 | 0.0 |" in table and "| room | anycalib | not available" in table
