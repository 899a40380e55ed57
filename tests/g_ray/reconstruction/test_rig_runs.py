"""Rigs at one instant, with hardly any overlap, and rigs that mapping does not finish with: never a refusal."""

import json
import math
import time

import pytest
import torch

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.demo.room import make_random_room
from g_ray.export.export_options import ExportOptions
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import reconstruct_views
from g_ray.runtime.interruptible import run_interruptibly
from g_ray.sfm import Rig, mapping, reconstruct_cameras
from g_ray.stereo import StereoOptions

FLOAT64 = torch.float64


def turn(yaw_deg: float, place: list[float]) -> Pose:
    sine, cosine = math.sin(math.radians(yaw_deg)), math.cos(math.radians(yaw_deg))
    rotation = torch.tensor([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]], dtype=FLOAT64)
    return Pose.from_parts(rotation, torch.tensor(place, dtype=FLOAT64))


def photograph(mounts: dict[str, Pose], instants: list[Pose], fov_deg: float) -> tuple[list[View], Rig]:
    room = make_random_room(1, solids=8, dtype=torch.float32)
    camera = Pinhole.from_fov(fov_deg, 160, 100, dtype=FLOAT64)
    views, places = [], []
    for instant, rig in enumerate(instants):
        for label, mount in mounts.items():
            pose = (rig @ mount).to(torch.float32)
            seen = room.render(camera.to(dtype=torch.float32), pose)
            views.append(View(f"{label}/{instant}.png", camera, image=seen.rgb.movedim(-1, 0)))
            places.append((label, str(instant)))
    return views, Rig(mounts, tuple(places))


def make_ring(fov_deg: float) -> tuple[list[View], Rig]:
    """Six cameras of a car, 60° apart, at one instant."""
    angles = {f"cam{k}": math.radians(60 * k) for k in range(6)}
    mounts = {
        name: turn(math.degrees(a), [0.3 * math.sin(a), 0, 0.3 * math.cos(a)]) for name, a in angles.items()
    }
    return photograph(mounts, [turn(0, [0.0, 0, 0])], fov_deg)


@pytest.mark.parametrize(("fov_deg", "overlap"), [(85.0, True), (40.0, False)])
def test_one_instant_has_the_poses_of_the_rig(fov_deg, overlap, tmp_path):
    """Without overlap the result has poses and no depth, and all files are written."""
    views, rig = make_ring(fov_deg)
    predictor = StereoPredictor(stereo=StereoOptions(long_side=64))
    result = reconstruct_views(SceneInput(views, rig), predictor)
    assert [view.name for view in result.views] == [view.name for view in views]
    for view, mount in zip(result.views, rig.rig_from_cam.values(), strict=True):
        torch.testing.assert_close(view.pose.world_from_cam, mount.world_from_cam)
    assert result.unit == "metre" and result.quality["grade"] != "good"
    assert any("one instant" in note for note in result.notes)
    assert (result.quality["share_with_depth"] > 0) == overlap
    stored = result.save(tmp_path / "out", [view.image for view in views], ExportOptions())
    assert stored.finished and (tmp_path / "out" / "report.html").is_file()
    assert (result.quality["share_with_depth"] > 0) == any(bool(view.valid.any()) for view in stored.views)


def test_known_poses_without_matches_are_not_refused(tmp_path):
    views, rig = make_ring(40.0)
    known = KnownGeometry(list(rig.rig_from_cam.values()), metric=True)
    predictor = StereoPredictor(stereo=StereoOptions(long_side=64, near=0.5, far=8.0))
    result = reconstruct_views(SceneInput(views), predictor, known=known)
    assert len(result.views) == 6 and result.quality["share_with_depth"] == 0
    assert result.unit == "metre" and result.quality["grade"] == "poor"
    assert (
        result.quality["limit"] == "No feature is seen from two places: only depth has checked the cameras."
    )
    result.save(tmp_path / "out", [view.image for view in views], ExportOptions())
    text = (tmp_path / "out" / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["quality"]["relative_error"] is None


def test_the_distance_range_is_an_option(capsys):
    settings = ModelSettings(near=0.5, far=8.0)
    options = StereoPredictor.from_settings(settings).stereo
    assert (options.near, options.far) == (0.5, 8.0)
    assert main(["reconstruct", "a.png", "--out", "o", "--near", "3", "--far", "2"]) == 2
    assert "--near 3.0 is not below --far 2.0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--near and --far are for --model stereo"):
        settings.adapt_to("network")


def test_a_rig_that_takes_too_long_is_left_out(monkeypatch):
    """The limit is set to nothing: the same photographs are mapped without the rig, with a note."""
    mounts = {"left": turn(0, [0.0, 0, 0]), "right": turn(0, [0.15, 0, 0])}
    views, rig = photograph(mounts, [turn(4.0 * i, [0.1 * i, 0, -1.2]) for i in range(3)], 70.0)
    monkeypatch.setattr(mapping, "RIG_SECONDS", 0.0)
    monkeypatch.setattr("g_ray.runtime.interruptible.POLL_S", 0.0)
    scene = reconstruct_cameras(views, rig=rig)
    assert len(scene.registered) >= 2 and scene.rig is None and scene.scale is None
    assert any("the rig is not used (no result after" in note for note in scene.notes)


def test_calls_end_at_their_limit():
    def compute() -> None:
        while not stop:
            sum(range(1000))

    stop: list[int] = []
    began = time.process_time()
    with pytest.raises(TimeoutError, match="CPU seconds"):
        run_interruptibly(compute, lambda: stop.append(1), 0.05)
    assert time.process_time() - began < 5
    assert run_interruptibly(lambda: 3) == 3
    with pytest.raises(KeyError):
        run_interruptibly(lambda: {}[1])
