"""Wrong calibrations: by hand, only what the model is told changes, and a predictor with a known answer."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.predictors.predictor import Cost, ScenePrediction
from g_ray.reconstruction.set_metrics import METRICS, SetGeometry
from g_ray_lab.scoring.analysis import conditioned_sets
from g_ray_lab.scoring.analysis.conditioned_sets import ConditionedSets, compute_changes
from g_ray_lab.scoring.analysis.perturbations import CONDITIONS, distort, scale_focal, shift_center, shuffle
from g_ray_lab.scoring.analysis.predicted_sets import (
    PredictedRun,
    compare_conditions,
    compare_methods,
    score_predictor,
    summarize_predictions,
)
from g_ray_lab.scoring.study import ScoredRun
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.tables.calibration_tables import format_tests

PINHOLE = Pinhole.make(24, 16, fx=20.0, fy=30.0, cx=12.0, cy=7.0)
FISHEYE = OpenCVFisheye.make(24, 16, fx=20.0, fy=20.0, cx=12.0, cy=8.0, k1=0.01)
SIDE = 24


def test_perturbations_by_hand():
    (longer,) = scale_focal([PINHOLE], 1.1)
    assert longer.params[:4].tolist() == pytest.approx([22.0, 33.0, 12.0, 7.0])
    (moved,) = shift_center([PINHOLE], 0.05)
    assert moved.params[:4].tolist() == pytest.approx([20.0, 30.0, 13.2, 7.8])
    (bent,) = distort([PINHOLE], 0.1)
    # At x/z = 0.5 the lens images 0.5 (1 + 0.1 · 0.25).
    pixel, _ = bent.project(torch.tensor([[0.5, 0.0, 1.0]]))
    assert pixel[0].tolist() == pytest.approx([12 + 20 * 0.5 * 1.025, 7.0], abs=1e-4)
    (fisheye,) = distort([FISHEYE], 0.1)
    assert float(fisheye.parameter("k1")) == pytest.approx(0.11)
    assert PINHOLE.params[:4].tolist() == [20.0, 30.0, 12.0, 7.0]


def test_batches_and_shuffling():
    stacked = Pinhole.stack([PINHOLE, longer := scale_focal([PINHOLE], 2.0)[0]])
    for change in (lambda c: scale_focal(c, 1.2), lambda c: shift_center(c, 0.1), lambda c: distort(c, 0.1)):
        whole, single = change([stacked])[0], change([longer])[0]
        assert torch.allclose(whole.params[1], single.params)
    cameras = [PINHOLE, FISHEYE, longer]
    assert shuffle(cameras) == [FISHEYE, longer, PINHOLE]
    with pytest.raises(ValueError, match="2 sizes"):
        shuffle([PINHOLE, PINHOLE.resize(12, 8)])


def test_what_cannot_be_changed_is_refused():
    table = RayMapCamera.from_rays(*PINHOLE.unproject_grid())
    with pytest.raises(ValueError, match="no focal length"):
        scale_focal([table], 1.1)
    with pytest.raises(ValueError, match="k1"):
        distort([table], 0.1)


@pytest.fixture
def rooms(monkeypatch):
    """Rooms in the place of scene folders: exact truth, and the same sets at any size."""

    def build(settings, patch):
        return RoomsReconstruction(
            RoomsViews(settings.width, settings.height, views=(3, 3)), patch=patch, split="test"
        )

    monkeypatch.setattr(conditioned_sets, "ScenesReconstruction", build)
    sets = ConditionedSets.from_folders(
        (conditioned_sets.Path(),), SIDE, 4, CONDITIONS, views=3, sets=2, zoom_max=2.0
    )
    return replace(sets, at_once=2)


def predict_from_told_rays(batch):
    """True distances along the rays that the model is told, from the true poses."""
    rays = batch.rays().directions
    points = rays * batch.ray_depth[..., None]
    world = transform_points(points, batch.poses)
    return SetGeometry(world, points, rays, batch.poses)


def test_only_the_conditioning_changes(rooms):
    scores = rooms.score(predict_from_told_rays)
    assert list(scores) == list(CONDITIONS) and set(scores["correct"]) == set(METRICS)
    assert max(scores["correct"]["points_rel"]) < 1e-4 and max(scores["correct"]["rays_deg"]) < 0.05
    rays = [sum(scores[f"focal +{percent} %"]["rays_deg"]) for percent in (5, 10, 20)]
    assert 0.5 < rays[0] < rays[1] < rays[2]
    for condition, values in scores.items():
        # Distances stay; the unit of length, the mean distance of world points, changes a little with the rays.
        assert max(values["depth_rel"]) < 0.1
        assert condition == "correct" or min(values["points_rel"]) > 1e-3
    alone = rooms.score_calibration()
    assert alone["shuffled"]["rays_deg"] == pytest.approx(scores["shuffled"]["rays_deg"], abs=1e-3)


class KnownPredictor:
    """Answers with the true distances along the rays it is told; fails where `fails` says so."""

    USES: ClassVar[frozenset[str]] = frozenset()
    NAME = "known"

    def __init__(self, batch, fails=()):
        self.batch, self.fails, self.calls = batch, fails, -1

    def estimate_cost(self, scene):
        return Cost(0.0, 0, "")

    def describe_settings(self):
        return {}

    def load_finished(self, scene, work):
        return None

    def predict(self, scene, work=None, progress=None):
        self.calls += 1
        if self.calls in self.fails:
            raise ValueError("nothing\nmatches")
        index = self.calls // len(CONDITIONS)
        views = [
            ReconstructedView(
                view.name,
                view.camera,
                Pose(self.batch.poses.world_from_cam[index, number].double()),
                self.batch.ray_depth[index, number],
                torch.ones_like(self.batch.ray_depth[index, number]),
                self.batch.valid[index, number],
            )
            for number, view in enumerate(scene.views)
        ]
        return ScenePrediction(tuple(views))


def test_a_predictor_with_a_known_answer(rooms):
    (batch,) = replace(
        rooms, views=replace(rooms.views, width=2 * SIDE, height=2 * SIDE), patch=8
    ).make_batches()
    found = score_predictor(rooms, KnownPredictor(batch, fails=(3,)), finer=2)
    assert [len(results) for results in found.values()] == [2] * len(CONDITIONS)
    assert all(one.scores["points_rel"] < 0.03 for one in found["correct"]), "depth is read at other pixels"
    assert found["focal +20 %"][0].reason == "nothing matches" and not found["focal +20 %"][0].scores
    assert found["focal +10 %"][0].scores["rays_deg"] > found["focal +5 %"][0].scores["rays_deg"] > 0.3
    run = PredictedRun("known", 0, {name: [vars(one) for one in group] for name, group in found.items()})
    answered = {row["setting"]: (row["answered"], row["sets"]) for row in summarize_predictions([run])}
    assert answered["correct"] == (2, 2) and answered["focal +20 %"] == (1, 2)
    (nothing,) = summarize_predictions([PredictedRun("known", 0, {"a": [NO_ANSWER]})])
    assert nothing["metrics"] == {} and nothing["reasons"] == ["no"] and nothing["setting"] == "a"


NO_ANSWER = {"scores": {}, "coverage": 0.0, "reason": "no"}


def test_sets_can_be_scored_one_by_one(rooms):
    class Recorder(KnownPredictor):
        def predict(self, scene, work=None, progress=None):
            self.seen = [*getattr(self, "seen", []), scene.views[0].image]
            raise ValueError("no")

    whole, second = Recorder(None), Recorder(None)
    score_predictor(rooms, whole, finer=2)
    found = score_predictor(rooms, second, finer=2, first=1)
    assert [len(results) for results in found.values()] == [1] * len(CONDITIONS)
    assert all(map(torch.equal, second.seen, whole.seen[len(CONDITIONS) :]))


def test_one_set_has_no_interval():
    found = {"correct": [answer(1.0), NO_ANSWER], "wrong": [answer(3.0), answer(1.0)]}
    runs = [PredictedRun("stereo", 0, found)]
    test = {"rows": summarize_predictions(runs), "references": [], "differences": []}
    table = format_tests({"tests": {"photos": {**test, "changes": compare_conditions(runs)}}})
    assert "| stereo | correct | 1.000 | 1.00 |" in table and "1 of 2, 100 % of pixels" in table
    assert "| stereo, change | wrong | 2.000 | 2.00 |" in table
    assert "| stereo | wrong | 2.000 ± " in table


def answer(value):
    return {"scores": dict.fromkeys(METRICS, value), "coverage": 1.0, "reason": None}


def test_only_sets_that_all_networks_answer_are_compared():
    runs = [
        PredictedRun("gray", 0, {"truth": [answer(1.0), answer(5.0)], "guess": [answer(2.0), answer(9.0)]}),
        PredictedRun("gray", 1, {"truth": [answer(3.0), answer(7.0)], "guess": [answer(6.0), NO_ANSWER]}),
        PredictedRun("rope", 0, {"truth": [answer(0.0), answer(0.0)], "guess": [answer(0.0), answer(0.0)]}),
        PredictedRun("rope", 1, {"truth": [answer(2.0), answer(2.0)], "guess": [NO_ANSWER, answer(0.0)]}),
    ]
    gray_truth, gray_guess, *_ = summarize_predictions(runs)
    # Networks of means 3 and 5: Student's 95 % interval of two runs is 12.706 deviations of the mean wide.
    assert gray_truth["metrics"]["rays_deg"]["mean"] == 4.0 and gray_truth["seeds"] == 2
    assert gray_truth["metrics"]["rays_deg"]["high"] == pytest.approx(4.0 + 12.706, abs=1e-3)
    assert gray_guess["metrics"]["rays_deg"]["mean"] == 4.0 and gray_guess["answered"] == 3
    listed = compare_conditions(runs)
    assert [row["answered"] for row in listed] == [2, 2]  # one set by two networks
    changes = {row["method"]: row["metrics"]["rays_deg"]["mean"] for row in listed}
    assert changes == {"gray": pytest.approx((1.0 + 3.0) / 2), "rope": pytest.approx(-1.0)}
    (truth,) = compare_methods(runs, [("gray", "rope")])  # no set is answered by all under the guess
    assert truth["setting"] == "truth" and truth["rays_deg"]["mean"] == pytest.approx(3.0)


def test_changes_are_paired():
    scores = {"correct": {"rays_deg": [1.0, 5.0, 9.0]}, "wrong": {"rays_deg": [2.0, 6.0, 10.0]}}
    (row,) = compute_changes([ScoredRun("gray", 0, 0, 0.0, scores)])
    assert (row["method"], row["setting"]) == ("gray", "wrong")
    assert row["metrics"]["rays_deg"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
