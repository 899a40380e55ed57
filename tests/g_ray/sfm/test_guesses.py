"""Guessed poses for photographs that matching cannot place, against exact poses."""

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.sfm import Rig, load_scene, model_choice, reconstruct_cameras, save_scene
from g_ray.sfm import structure_from_motion as sfm_reconstruction
from g_ray.sfm.bundle import exponentiate
from g_ray.sfm.localization import align_guesses
from g_ray.sfm.workspace import prepare_views

from .sfm_views import make_views

VIEWS = 6
ELSEWHERE = Similarity(
    torch.tensor(3.7, dtype=torch.float64),
    Pose.look_at([0.0, 0.0, 0.0], [0.3, -0.5, 1.0]).rotation.double(),
    torch.tensor([4.0, -2.0, 9.0], dtype=torch.float64),
)
"""From the true world to that of the guesses."""


def guess(truth, noise=0.0):
    """True poses in another world, each turned and shifted at random."""
    torch.manual_seed(0)
    moved = Pose(
        truth.world_from_cam @ exponentiate(noise * torch.randn(len(truth.world_from_cam), 6).double())
    )
    return [ELSEWHERE.transform_pose(moved)[index] for index in range(len(truth.world_from_cam))]


@pytest.fixture
def room(photograph_room):
    return photograph_room(("double_sphere", "ray_map", "opencv"), VIEWS)


@pytest.mark.parametrize("known", [2, 4])
def test_guesses_are_brought_to_the_world_of_the_others(room, known):
    """Two cameras suffice: their orientations and their distance fix the similarity."""
    images, cameras, truth = room
    poses = [truth[index] if index < known else None for index in range(VIEWS)]
    scene = sfm_reconstruction.make_empty_scene(prepare_views(make_views(images, cameras)), poses, ())
    aligned = align_guesses(scene, guess(truth))
    for index in range(VIEWS):
        assert torch.allclose(aligned[index].world_from_cam, truth[index].world_from_cam, atol=1e-6)
    assert aligned[0] is poses[0]


def test_a_photograph_without_matches_takes_its_guess(room, compare_poses, tmp_path):
    images, cameras, truth = room
    images = [*images[:-1], torch.full_like(images[-1], 0.5)]
    alone = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path / "work")
    assert alone.registered == tuple(range(VIEWS - 1)) and alone.guessed == ()
    scene = reconstruct_cameras(
        make_views(images, cameras), work_folder=tmp_path / "work", guess_poses=lambda: guess(truth)
    )
    assert scene.registered == tuple(range(VIEWS)) and scene.guessed == (VIEWS - 1,)
    assert scene.reasons == (None,) * VIEWS
    position, angle_deg = compare_poses(scene, truth)
    assert position < 0.03 and angle_deg < 2.0
    assert "guessed poses of 1 photographs" in scene.notes[-1]
    save_scene(scene, tmp_path / "stored")
    assert load_scene(tmp_path / "stored").guessed == scene.guessed


def test_guesses_are_adjusted_to_the_matches_that_there_are(room, compare_poses, tmp_path, monkeypatch):
    """Where mapping cannot start, noisy guesses do, and matches make them better."""
    images, cameras, truth = room
    noisy = guess(truth, 0.03)
    monkeypatch.setattr(model_choice, "map_views", lambda space, report: [])
    with pytest.raises(ValueError, match="no two photographs can be oriented"):
        reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    scene = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path, guess_poses=lambda: noisy)
    assert scene.guessed == tuple(range(VIEWS)) and len(scene.points) > 50
    before = compare_poses(sfm_reconstruction.replace(scene, poses=tuple(noisy)), truth)
    after = compare_poses(scene, truth)
    assert after[0] < 0.5 * before[0] and after[1] < 0.5 * before[1]


def test_without_any_match_guesses_stay_as_they_are(room, tmp_path):
    images, cameras, truth = room
    torch.manual_seed(0)
    blurred = [torch.rand(3, *image.shape[-2:]) for image in images]
    given = guess(truth)
    scene = reconstruct_cameras(make_views(blurred, cameras), work_folder=tmp_path, guess_poses=lambda: given)
    assert scene.guessed == tuple(range(VIEWS)) and not len(scene.points)
    for found, pose in zip(scene.poses, given, strict=True):
        assert found is not None and torch.equal(found.world_from_cam, pose.world_from_cam)


def test_a_guess_is_asked_for_only_where_it_is_needed(room, tmp_path):
    images, cameras, _ = room

    def never():
        raise AssertionError

    assert reconstruct_cameras(make_views(images, cameras), guess_poses=never).guessed == ()


def test_a_rig_and_guesses_exclude_each_other(room):
    images, cameras, truth = room
    rig = Rig({"a": truth[0]}, tuple(("a", str(index)) for index in range(VIEWS)))
    with pytest.raises(ValueError, match="ignore the rig"):
        reconstruct_cameras(make_views(images, cameras), rig=rig, guess_poses=lambda: guess(truth))
