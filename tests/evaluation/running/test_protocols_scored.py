"""From files to tables through the command: the truth has no error on any protocol, a known error is what comes out."""

from functools import partial

import pytest

from g_ray.evaluation.protocols.registry import PROTOCOLS
from g_ray.evaluation.running import models
from g_ray.evaluation.running.models import TruthModel
from g_ray.evaluation.running.scoring import SCORERS

SCORED = [name for name, protocol in PROTOCOLS.items() if protocol.alignment in SCORERS]
FULL = {"points_inlier", "depth_inlier", "coverage", "delta_1.25", "delta_1.25_shift"}


def choose_sets(name):
    """One set of four views, where a protocol has several."""
    return ("--limit", 1, *(() if len(PROTOCOLS[name].view_counts) == 1 else ("--views", 4)))


@pytest.mark.parametrize("name", SCORED)
def test_the_truth_has_no_error(name, evaluate):
    code, result = evaluate(name, "--model", "truth", *choose_sets(name))
    assert code == 0, result and result["problems"]
    (row,) = result["rows"]
    means = {metric: value["mean"] for metric, value in row["metrics"].items()}
    assert set(PROTOCOLS[name].metrics) <= set(means)
    for metric, value in means.items():
        if metric in FULL:
            assert value == 1, metric
        elif metric != "valid_pixels":
            # A thousand published steps of Adam do not reach the exact shift.
            assert value == pytest.approx(0, abs=1e-3 if metric.endswith("_shift") else 2e-5), metric
    assert any(phrase.startswith("images 98 px wide") for phrase in result["partial"])


@pytest.fixture
def wrong(monkeypatch):
    """`wrong(**errors)`: make `--model truth` wrong by a known amount."""

    def set_errors(**errors):
        monkeypatch.setitem(models.REFERENCES, "truth", partial(TruthModel, **errors))

    return set_errors


def score(evaluate, name):
    code, result = evaluate(name, "--model", "truth", *choose_sets(name))
    assert code == 0
    return {metric: value["mean"] for metric, value in result["rows"][0]["metrics"].items()}


def test_depth_that_is_too_large_moves_cameras_together(evaluate, wrong):
    """Twice the depth between the same cameras is the same depth between cameras half as far apart."""
    wrong(depth_factor=2.0)
    scores = score(evaluate, "eth3d-native")
    assert scores["depth_rel"] < 0.2  # the mean distance of points changes a little with the cameras
    assert scores["pose_ate"] > 0.01
    assert scores["rays_deg"] == pytest.approx(0, abs=1e-4)


def test_one_factor_of_all_depths_is_no_error_of_video_depth(evaluate, wrong):
    wrong(depth_factor=3.0)
    assert score(evaluate, "kitti-depth")["abs_rel"] == pytest.approx(0, abs=1e-5)


def test_turned_cameras_have_that_relative_error(evaluate, wrong):
    """Every second camera is turned by 4°: each step between neighbors is wrong by exactly that."""
    wrong(turn_deg=4.0)
    scores = score(evaluate, "sintel-pose")
    assert scores["rpe_rot_deg"] == pytest.approx(4.0, rel=1e-6)
    assert scores["ate"] == pytest.approx(0, abs=1e-9)
