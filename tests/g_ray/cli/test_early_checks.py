"""What is wrong with a command line is said before anything is computed; what nobody foresaw is still one line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.cli import main as entry
from g_ray.cli.main import main
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.predictor import ScenePrediction
from g_ray.reconstruction.inputs import collect_known
from g_ray.reconstruction.world import find_world
from g_ray.runtime.device import choose_device
from g_ray_lab.tables.synthesis_table import find_lpips

SOURCE = Path(__file__).parents[3] / "src" / "g_ray"


def test_lpips_weights_are_opened_before_the_training(tmp_path):
    (tmp_path / "text").write_text("no weights")
    with pytest.raises((ValueError, OSError), match="text"):
        find_lpips(tmp_path / "text")


def test_a_distance_beside_known_poses():
    camera = Pinhole.from_fov(60.0, 48, 36)
    views = [View(name, camera, Pose(torch.eye(4).double())) for name in ("a", "b")]
    options = {"metric": False, "truth": None, "report": print}
    with pytest.raises(ValueError, match="leave it out, or add --poses ignore"):
        collect_known(views, poses="given", distance=("a", "b", 2.0), **options)
    assert collect_known(views, poses="ignore", distance=("a", "b", 2.0), **options).distance == (0, 1, 2.0)


def test_estimated_poses_have_no_unit_until_a_distance_gives_one():
    camera = Pinhole.from_fov(60.0, 48, 36)
    poses = [Pose(torch.eye(4).double()), Pose.look_at(torch.tensor([4.0, 0, 0]), torch.zeros(3))]
    views = [
        View(name, camera, pose, "estimated by colmap")
        for name, pose in zip(("a", "b", "c"), [*poses, None], strict=True)
    ]
    options = {"poses": "given", "truth": None, "report": print}
    with pytest.raises(ValueError, match="in meters, but they are estimated"):
        collect_known(views, metric=True, distance=None, **options)
    known = collect_known(views, metric=False, distance=("a", "b", 2.0), **options)
    assert known.estimated and known.distance == (0, 1, 2.0) and known.keep_poses and not known.metric
    depth = torch.ones(36, 48)
    kept = [ReconstructedView(view.name, camera, view.pose, depth, depth, depth > 0) for view in views[:2]]
    world = find_world(kept, ScenePrediction(tuple(kept), keeps_poses=True), known.select([0, 1]))
    assert world.unit == "metre" and float(world.similarity.scale) == pytest.approx(0.5)
    moved = world.moved_poses.transform_pose(poses[1])
    torch.testing.assert_close(moved.translation, torch.tensor([2.0, 0, 0]), check_dtype=False)
    torch.testing.assert_close(moved.rotation, poses[1].rotation, check_dtype=False)
    with pytest.raises(ValueError, match="names c, whose pose could not be estimated"):
        collect_known(views, metric=False, distance=("a", "c", 2.0), **options)


@pytest.mark.parametrize("name", ["mps", "meta", "xla", "cuda:99", "cpu:x", "abacus"])
def test_devices(name):
    with pytest.raises(ValueError, match="--device"):
        choose_device(name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "curve", "--batch", "0"], "batch 0: give positive numbers"),
        (["reconstruct", "a", "--calibration", "b", "--out", "c", "--max-memory", "inf"], "--max-memory inf"),
        (
            ["reconstruct", "a", "--calibration", "b", "--out", "c", "--distance", "a", "b", "nan"],
            "--distance nan",
        ),
        (
            ["reconstruct", "a", "--calibration", "b", "--out", "c", "--as-stored", "--resize-calibration"],
            "a: ",
        ),
    ],
)
def test_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_nobody_foresaw(monkeypatch, capsys):
    def fail(arguments):
        raise ZeroDivisionError("once\nmore")

    monkeypatch.setattr(entry, "load_command", fail)
    with pytest.raises(ZeroDivisionError):
        main(["demo"])
    monkeypatch.delenv("G_RAY_TRACEBACK")
    assert main(["demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("g-ray: unexpected ZeroDivisionError: once more") and error.count("\n") == 1
    assert "G_RAY_TRACEBACK=1" in error


def test_names_that_cannot_be_printed(tmp_path):
    command = [sys.executable, "-m", "g_ray", "rays", b"\xff\xe9.json"]
    done = subprocess.run(command, capture_output=True, env={"PYTHONUTF8": "0", "LC_ALL": "C", **_get_path()})
    assert done.returncode == 2 and b"cannot be read" in done.stderr and b"codec" not in done.stderr


def _get_path() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "HOME")}


def test_pillow_is_never_left_to_guess_the_format():
    """It would start Ghostscript for a .png that holds EPS."""
    calls = [
        (path.name, call)
        for path in SOURCE.rglob("*.py")
        for call in re.findall(r"Image\.open\([^\n]*", path.read_text(encoding="utf-8"))
    ]
    assert calls and all("formats=" in call for _, call in calls), calls
