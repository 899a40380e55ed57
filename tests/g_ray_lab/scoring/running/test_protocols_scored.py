"""From files to tables through the command: the truth has no error on any protocol, a known error is what comes out."""

from dataclasses import replace
from functools import partial

import pytest

from g_ray_lab.scoring import evaluated_models as models
from g_ray_lab.scoring import set_scoring as clouds
from g_ray_lab.scoring.evaluated_models import TruthModel
from g_ray_lab.scoring.protocol_registry import PROTOCOLS

SHARES = {"points_inlier", "depth_inlier", "coverage", "delta_1.25", "delta_1.25_shift", "auc_3", "auc_30"}
NORMALS = {"nc", "nc_median"}
SURFACE = {"acc", "comp", "overall", "precision", "recall", "f_score"}
ABSENT = {"da3-eth3d": {"f_score"}, "da3-dtu": {"acc", "comp", "overall"}}
"""Two views in the miniature fix no similarity; DTU's truth is a scan, so that there is no true depth to predict."""


@pytest.fixture(autouse=True)
def coarse_volumes(monkeypatch):
    """Voxels of 12 cm: a miniature has images of 98 px."""
    for name, settings in clouds.DA3_BENCH.items():
        coarse = replace(
            settings, voxel=0.12, truncation=0.36, threshold=0.25, scoring_voxel=0.12, samples=20_000
        )
        monkeypatch.setitem(clouds.DA3_BENCH, name, coarse)


def choose_sets(name):
    """One set of four views, where a protocol has several."""
    return ("--limit", 1, *(() if len(PROTOCOLS[name].view_counts) == 1 else ("--views", 4)))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_truth_has_no_error(name, evaluate):
    code, result = evaluate(name, "--model", "truth", *choose_sets(name))
    assert code == 0, result and result["problems"]
    (row,) = result["rows"]
    means = {metric: value["mean"] for metric, value in row["metrics"].items()}
    assert set(PROTOCOLS[name].metrics) - set(means) == ABSENT.get(name, set())
    for metric, value in means.items():
        if PROTOCOLS[name].alignment == "scale" and metric != "coverage":
            # The truth at 98 px, enlarged to the size of the true depth, is wrong at edges.
            assert value > 0.97 if metric in SHARES else value < (0.02 if "rel" in metric else 0.3), metric
        elif metric in SHARES:
            assert value == 1, metric
        elif metric in NORMALS:
            assert value == pytest.approx(1, abs=1e-5), metric
        elif name.startswith("da3") and metric in SURFACE:
            # The miniature's mesh is a whole room, of which four views see a part: what they see is right.
            assert metric != "precision" or value > 0.99
        else:
            # A thousand published steps of Adam do not reach the exact shift; DTU is in millimeters.
            slack = 1e-3 if metric.endswith("_shift") or name == "dtu" else 2e-5
            assert value == pytest.approx(0, abs=slack), metric
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
    right = score(evaluate, "kitti-depth")["abs_rel"]
    wrong(depth_factor=3.0)
    assert score(evaluate, "kitti-depth")["abs_rel"] == pytest.approx(right, abs=1e-5)


def test_turned_cameras_have_that_relative_error(evaluate, wrong):
    """Every second camera is turned by 4°: each step between neighbors is wrong by exactly that."""
    wrong(turn_deg=4.0)
    scores = score(evaluate, "sintel-pose")
    assert scores["rpe_rot_deg"] == pytest.approx(4.0, rel=1e-6)
    assert scores["ate"] == pytest.approx(0, abs=1e-9)


def test_published_numbers_stand_beside_ours(evaluate, tmp_path):
    _, result = evaluate("da3-scannetpp", "--model", "truth")
    assert result["published"]["DA3-Giant"]["auc_3"] == 0.847
    assert (
        "| DA3-Giant, published |  | – | – | – | 0.847 | 0.983 | 78.3 |"
        in (tmp_path / "out" / "table.md").read_text()
    )
