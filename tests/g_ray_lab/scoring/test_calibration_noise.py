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
from g_ray_lab.scoring.averages import SetRow
from g_ray_lab.scoring.calibration_conditions import (
    CONDITIONS,
    distort,
    scale_focal,
    shift_center,
    shuffle,
)
from g_ray_lab.scoring.calibration_noise import (
    ConditionedRooms,
    list_condition_changes,
    predict_static,
    score_predictor,
)
from g_ray_lab.scoring.scored_runs import ScoredRun, compute_changes, compute_differences, make_rows
from g_ray_lab.scoring.table_writer import format_conditions

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
def rooms():
    """Two sets with exact truth."""
    return replace(ConditionedRooms.from_side(SIDE, 4, CONDITIONS, views=3, sets=2), at_once=2)


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
    alone = rooms.score(predict_static)
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
    assert all(one.metrics["points_rel"] < 0.03 for one in found["correct"]), "depth is read at other pixels"
    assert found["focal +20 %"][0].message == "nothing matches" and not found["focal +20 %"][0].metrics
    assert found["focal +10 %"][0].metrics["rays_deg"] > found["focal +5 %"][0].metrics["rays_deg"] > 0.3
    rows = make_rows([ScoredRun("known", 0, found)])
    answered = {row["setting"]: (row["answered"], row["sets"]) for row in rows}
    assert answered["correct"] == (2, 2) and answered["focal +20 %"] == (1, 2)
    (nothing,) = make_rows([make_run("known", 0, a=[None])])
    assert nothing["metrics"] == {} and nothing["reasons"] == ["no"] and nothing["setting"] == "a"


def make_run(method, seed, **values):
    """A run with the same value of every metric in a set; None for a set without an answer."""
    return ScoredRun(method, seed, {name: [*map(answer, range(9), given)] for name, given in values.items()})


def answer(number, value):
    if value is None:
        return SetRow("", "", str(number), str(number), 3, "failed", "no")
    metrics = {**dict.fromkeys(METRICS, value), "coverage": 1.0}
    return SetRow("", "", str(number), str(number), 3, "scored", metrics=metrics)


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
    runs = [make_run("stereo", 0, correct=[1.0, None], wrong=[3.0, 1.0])]
    test = {"rows": make_rows(runs), "references": [], "differences": []}
    table = format_conditions({"photos": {**test, "changes": list_condition_changes(runs)}})
    assert "| stereo | correct | 1.000 | 1.00 |" in table and "1 of 2, 100 % of pixels" in table
    assert "| stereo, change | wrong | 2.000 | 2.00 |" in table
    assert "| stereo | wrong | 2.000 ± " in table


def test_only_sets_that_all_networks_answer_are_compared():
    runs = [
        make_run("gray", 0, truth=[1.0, 5.0], guess=[2.0, 9.0]),
        make_run("gray", 1, truth=[3.0, 7.0], guess=[6.0, None]),
        make_run("rope", 0, truth=[0.0, 0.0], guess=[0.0, 0.0]),
        make_run("rope", 1, truth=[2.0, 2.0], guess=[None, 0.0]),
    ]
    gray_truth, gray_guess, *_ = make_rows(runs)
    # Networks of means 3 and 5: Student's 95 % interval of two runs is 12.706 deviations of the mean wide.
    assert gray_truth["metrics"]["rays_deg"]["mean"] == 4.0 and gray_truth["seeds"] == 2
    assert gray_truth["metrics"]["rays_deg"]["high"] == pytest.approx(4.0 + 12.706, abs=1e-3)
    assert gray_guess["metrics"]["rays_deg"]["mean"] == 4.0 and gray_guess["answered"] == 3
    listed = compute_changes(runs)
    assert [row["answered"] for row in listed] == [2, 2]  # one set by two networks
    changes = {row["method"]: row["metrics"]["rays_deg"]["mean"] for row in listed}
    assert changes == {"gray": pytest.approx((1.0 + 3.0) / 2), "rope": pytest.approx(-1.0)}
    (truth,) = compute_differences(runs, [("gray", "rope")])  # no set is answered by all under the guess
    assert truth["setting"] == "truth" and truth["rays_deg"]["mean"] == pytest.approx(3.0)


def test_changes_are_paired():
    scores = {"correct": {"rays_deg": [1.0, 5.0, 9.0]}, "wrong": {"rays_deg": [2.0, 6.0, 10.0]}}
    (row,) = compute_changes([ScoredRun.from_scores("gray", 0, scores)])
    assert (row["method"], row["setting"]) == ("gray", "wrong")
    assert row["metrics"]["rays_deg"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
