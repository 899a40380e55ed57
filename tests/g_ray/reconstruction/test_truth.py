"""Scored with what is known: exact results have no error, changed ones the error that was put in."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from room_results import mixed, view
from room_scenes import (
    Shot,
    shots,
    write_colmap_dense,
    write_nerfstudio_depth,
    write_seven_scenes,
    write_wai,
)

from g_ray.cli.main import main
from g_ray.export.export_options import ExportOptions
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction
from g_ray.export.write_files import write_reconstruction
from g_ray.reconstruction.score import SCORES, read_truth, score_views

FORMATS = {
    "seven_scenes": write_seven_scenes,
    "nerfstudio": write_nerfstudio_depth,
    "colmap": write_colmap_dense,
    "wai": partial(write_wai, covisibility=False),
}


def found(shot: Shot, name: str) -> ReconstructedView:
    depth = torch.from_numpy(shot.ray_depth)
    return view(name, shot.camera, shot.pose, depth, torch.ones_like(depth, dtype=torch.bool))


@pytest.mark.parametrize("name", FORMATS)
def test_depth_maps_of_every_format(name, tmp_path):
    taken = shots(4)
    FORMATS[name](tmp_path / "scene", taken)
    names = [f"frame-{i:06d}.color.png" if name == "seven_scenes" else s.name for i, s in enumerate(taken)]
    views = [found(shot, called) for shot, called in zip(taken, names, strict=True)]
    truth = read_truth(tmp_path / "scene", names, [shot.camera for shot in taken])
    assert score_views(views, truth) == {
        **dict.fromkeys((f"{title}, against truth" for title in SCORES.values()), pytest.approx(0, abs=2e-3)),
        "points within 3 %, against truth": pytest.approx(1),
        "depth within 3 %, against truth": pytest.approx(1),
        "pixels with known depth": 4 * 48 * 36,
    }


@pytest.fixture(scope="module")
def with_points(tmp_path_factory) -> tuple[Path, tuple[ReconstructedView, ...]]:
    """A COLMAP model whose points lie exactly where the views see them; pinholes and fisheyes."""
    folder = tmp_path_factory.mktemp("points")
    views, images = mixed()
    write_reconstruction(Reconstruction(views, folder), images, ExportOptions())
    return folder / "colmap", views


def test_points_of_a_colmap_model(with_points):
    folder, views = with_points
    truth = read_truth(folder, [one.name for one in views], [one.camera for one in views])
    scores = score_views(views, truth)
    assert 100 < scores["pixels with known depth"] < sum(int(one.valid.sum()) for one in views)
    assert scores["depth along the ray (relative error), against truth"] < 5e-3
    assert scores["points (relative error), against truth"] < 5e-3


def test_an_error_that_was_put_in_is_found(with_points):
    """One of four views 10 % too far: depth is wrong there by about a tenth, and elsewhere by what the scale moves."""
    folder, views = with_points
    truth = read_truth(folder, [one.name for one in views], [one.camera for one in views])
    wrong = (replace(views[0], ray_depth=1.1 * views[0].ray_depth), *views[1:])
    scores = score_views(wrong, truth)
    assert 0.02 < scores["depth along the ray (relative error), against truth"] < 0.08
    bigger = [
        replace(one, ray_depth=3 * one.ray_depth, pose=one.pose.scale_translation(torch.tensor(3.0)))
        for one in views
    ]
    assert score_views(bigger, truth)["points (relative error), against truth"] < 5e-3


def test_views_that_the_scene_does_not_know_are_left_out(tmp_path):
    taken = shots(3)
    write_nerfstudio_depth(tmp_path, taken)
    names = [taken[0].name, "other.png", taken[2].name]
    truth = read_truth(tmp_path, names, [shot.camera for shot in taken])
    assert [one is None for one in truth] == [False, True, False]
    assert (
        score_views([found(s, n) for s, n in zip(taken, names, strict=True)], truth)[
            "pixels with known depth"
        ]
        == 2 * 48 * 36
    )


def test_the_command_scores_with_truth(tmp_path, capsys):
    write_seven_scenes(tmp_path / "scene", shots(3))
    scene = str(tmp_path / "scene")
    words = ["reconstruct", f"{scene}/*.color.png", "--calibration", scene, "--out", str(tmp_path / "out")]
    words += ["--model", "network"]
    assert main([*words, "--truth", scene]) == 0
    said = capsys.readouterr().out
    assert "knows depth of 3 of 3 views" in said
    assert all(f"{title}, against truth: " in said for title in SCORES.values())


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), "no scene folder"),
        (
            lambda folder: write_colmap_dense(folder, shots(2, width=64)),
            "score photographs of the scene's own size",
        ),
        (lambda folder: write_seven_scenes(folder, shots(1)), "fewer than two"),
    ],
)
def test_useless_truth_is_refused(spoil, expected, tmp_path):
    spoil(tmp_path / "scene")
    taken = shots(2)
    with pytest.raises(ValueError, match=expected):
        read_truth(tmp_path / "scene", [shot.name for shot in taken], [shot.camera for shot in taken])
