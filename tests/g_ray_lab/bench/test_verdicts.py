"""Cases of the benchmark of verdicts, and how its table counts them."""

import math

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray_lab.bench.bench_verdicts import (
    collect_reliability,
    compare_depth,
    draw_reliability,
    format_counts,
    format_reliability,
    format_verdicts,
    is_false_alarm,
    is_false_good,
)
from g_ray_lab.bench.verdict_cases import LENSES, WRONG_LENSES, disturb_poses, list_cases

ROW = {
    "name": "pinhole, room 1",
    "kind": "right",
    "chosen_on": False,
    "flawed": False,
    "wrong_lens": False,
    "grade": "good",
    "limit": "Nothing.",
    "cpu_s": 2.0,
    "placed": 1.0,
    "share_with_depth": 0.5,
    "expected_error": 0.01,
    "true_error": 0.01,
    "verdict": [],
}


def test_there_are_sixty_cases_without_real_photographs_and_some_choose_limits():
    cases = list(list_cases(None))
    assert len(cases) >= 60 and len({case.name for case in cases}) == len(cases)
    assert 0 < sum(case.chosen_on for case in cases) < len(cases) / 2
    assert {case.kind for case in cases} >= {
        "right",
        "parallax",
        "wrong lens",
        "given poses",
        "mixture",
        "mirrored",
    }


@pytest.mark.parametrize("name", WRONG_LENSES)
def test_wrong_lenses_are_wrong(name):
    camera = LENSES["pinhole"]
    wrong = WRONG_LENSES[name](camera)
    pixels = torch.tensor([[20.0, 30.0], [300.0, 200.0]], dtype=torch.float64)
    turned = (camera.unproject(pixels)[0] * wrong.unproject(pixels)[0]).sum(-1).clamp(max=1).acos()
    assert math.degrees(float(turned.max())) > 2 and (wrong.width, wrong.height) == (
        camera.width,
        camera.height,
    )


def test_poses_are_disturbed_by_as_much_as_is_asked():
    poses = [Pose.identity(dtype=torch.float64)] * 200
    for degrees in (0.0, 2.0):
        moved = torch.stack([pose.world_from_cam for pose in disturb_poses(poses, degrees)])
        cosine = (moved[:, :3, :3].diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        rms = cosine.clamp(max=1).acos().rad2deg().square().mean().sqrt()
        assert float(rms) == pytest.approx(degrees, rel=0.1, abs=1e-4)


def test_false_verdicts_are_counted():
    rows = [
        ROW,
        {**ROW, "name": "wrong", "true_error": 0.08},
        {**ROW, "name": "lens", "flawed": True, "wrong_lens": True},
        {**ROW, "name": "alarm", "grade": "partial", "chosen_on": True},
        {**ROW, "name": "poor", "grade": "poor", "true_error": 0.3},
        {**ROW, "name": "few", "grade": "partial", "share_with_depth": 0.1},
    ]
    assert [is_false_good(row) for row in rows] == [False, True, True, False, False, False]
    assert [is_false_alarm(row) for row in rows] == [False, False, False, True, False, False]
    text = format_counts(rows)
    assert "| limits chosen on | 1 | 0 | 1 | 1 | 2 |" in text and "| others | 5 | 2 | 1 | 0 | 10 |" in text
    text = format_verdicts(rows)
    assert "good **(false)**" in text and "partial (false alarm)" in text


def test_depth_is_compared_after_one_scale_and_errors_are_binned(tmp_path):
    camera, size = Pinhole.from_fov(60, 20, 16), (8, 10)
    depth = 2 + torch.rand(16, 20, generator=torch.Generator().manual_seed(0))
    depth[:2] = 0  # unknown
    ours = torch.full(size, 1.0)
    small = depth[1::2, 1::2]
    view = ReconstructedView(
        "a.png",
        camera.resize(10, 8),
        Pose.identity(),
        torch.where(small > 0, 3 * small, ours),
        ours,
        torch.ones(size, dtype=torch.bool),
        expected_error=torch.full(size, 0.02),
    )
    error, samples = compare_depth([view], {"a.png": View("a.png", camera, depth=depth)})
    # A quarter of the true pixels is exactly that of the estimate.
    assert 0 < error < 0.3 and min(pair[1] for pair in samples) < 1e-4
    assert all(pair[0] == pytest.approx(0.02) for pair in samples)
    row = {**ROW, "samples": samples}
    ((expected, true, count),) = collect_reliability([row, {**row, "flawed": True}])
    assert (expected, count) == (pytest.approx(0.02), len(samples)) and true == pytest.approx(error, abs=0.01)
    assert "| rooms | 2 % |" in format_reliability([row])
    draw_reliability([row], tmp_path / "reliability.png")
    assert (tmp_path / "reliability.png").stat().st_size > 1000
