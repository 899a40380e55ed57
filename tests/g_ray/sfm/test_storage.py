"""Scenes that are written and read back."""

from dataclasses import replace

import pytest
import torch

from g_ray.cameras import OpenCV, RayMapCamera
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.pose import Pose
from g_ray.sfm import PoseAgreement, Rig, SparseScene, Tracks, load_scene, save_scene
from g_ray.sfm.structure_from_motion import name_full_disk


def _make_scene() -> SparseScene:
    lenses = (OpenCV.example(0), RayMapCamera.example(1))
    generator = torch.Generator().manual_seed(0)
    tracks = Tracks(
        torch.tensor([0, 1, 0, 1]),
        torch.tensor([0, 0, 1, 1]),
        torch.rand(4, 2, generator=generator, dtype=torch.float64),
        torch.randint(0, 255, (4, 128), generator=generator, dtype=torch.uint8),
    )
    pose = Pose.identity(dtype=torch.float64)
    rig = Rig({"a": pose, "b": pose}, (("a", "1"), ("b", "1"), None))
    return SparseScene(
        names=("x", "y", "z"),
        cameras=(lenses[0], lenses[1], lenses[0]),
        poses=(pose, Pose.look_at([1.0, 0.0, 0.0], [0.0, 0.0, 5.0]).to(torch.float64), None),
        reasons=(None, None, "too dark"),
        points=torch.rand(2, 3, generator=generator, dtype=torch.float64),
        colors=torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8),
        tracks=tracks,
        rig=rig,
        scale=MetricScale("a rig", 1.0, 0.9, 1.1),
        agreement=PoseAgreement(10, 0.5, 1.0, 20, 0.6, 2.0, (0.5, 0.7, float("nan"))),
        notes=("a note",),
    )


def test_scene_comes_back(tmp_path):
    scene = _make_scene()
    save_scene(scene, tmp_path)
    again = load_scene(tmp_path)
    assert (again.names, again.reasons, again.notes) == (scene.names, scene.reasons, scene.notes)
    assert again.cameras[0] is again.cameras[2]
    assert torch.equal(again.points, scene.points) and torch.equal(again.colors, scene.colors)
    for name in ("view", "point", "pixel", "descriptor"):
        assert torch.equal(getattr(again.tracks, name), getattr(scene.tracks, name))
    assert again.poses[2] is None and again.scale == scene.scale
    assert again.poses[1] is not None and scene.poses[1] is not None
    assert torch.equal(again.poses[1].world_from_cam, scene.poses[1].world_from_cam)
    assert again.rig is not None and again.rig.places == (("a", "1"), ("b", "1"), None)
    pixels = torch.tensor([[20.0, 20.0], [31.0, 14.0]], dtype=torch.float64)
    for mine, theirs in zip(again.cameras, scene.cameras, strict=True):
        assert torch.allclose(mine.unproject(pixels)[0], theirs.unproject(pixels)[0])


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no sparse scene that can be read"):
        load_scene(tmp_path)


def test_a_selection_keeps_what_its_views_have():
    """The view without a pose goes; tracks, rig and agreement follow the numbers of the others."""
    scene = replace(_make_scene(), guessed=(1,), groups=((2,),))
    chosen = scene.select([1, 0])
    assert chosen.names == ("y", "x") and chosen.groups == ()
    assert chosen.tracks.view.tolist() == [1, 0, 1, 0] and chosen.guessed == (0,)
    assert chosen.rig is not None and chosen.rig.places == (("b", "1"), ("a", "1"))
    assert chosen.agreement is not None and chosen.agreement.view_shares == (0.7, 0.5)
    with pytest.raises(AssertionError):
        scene.select([0, 2])


def test_a_full_disk_is_named(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as raised, name_full_disk(tmp_path):
        raise RuntimeError("[database_sqlite.cc:1362] SQLite error: database or disk is full")
    assert raised.value.filename == str(tmp_path)
    with pytest.raises(RuntimeError, match="another"), name_full_disk(tmp_path):
        raise RuntimeError("another defect")
