"""What the verdict says, and what it counts as evidence."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.media.view import View
from g_ray.predictors.predictor import Cost, Prior, SceneInput, ScenePrediction
from g_ray.reconstruction.verdict import judge
from g_ray.reconstruction.world import WorldFrame
from g_ray.sfm.sparse_scene import SparseScene, Tracks

SIDE, VIEWS = 16, 3
CAMERA = Pinhole.from_fov(60.0, SIDE, SIDE)


class Silent:
    """A predictor that only has a name."""

    USES: ClassVar[frozenset[Prior]] = frozenset()
    NAME = "network"

    def describe_settings(self):
        return {}

    def estimate_cost(self, scene):
        return Cost(0.0, 0, "")

    def predict(self, scene, work=None, progress=lambda stage, share: None):
        raise NotImplementedError

    def load_finished(self, scene, work):
        return None


def make_views():
    """Cameras side by side before a wall at z = 5, with exact depth: all views agree."""
    rays = CAMERA.unproject_grid()[0]
    depth, everywhere = 5 / rays[..., 2], torch.ones(SIDE, SIDE, dtype=torch.bool)
    poses = [Pose.from_parts(torch.eye(3), torch.tensor([0.3 * i, 0.0, 0.0])) for i in range(VIEWS)]
    return tuple(
        ReconstructedView(f"v{i}.png", CAMERA, pose, depth.float(), torch.ones(SIDE, SIDE), everywhere)
        for i, pose in enumerate(poses)
    )


def make_sparse(views):
    """One point per view pair, seen without any error."""
    points = torch.tensor([[0.1 * i, 0.0, 5.0] for i in range(20)], dtype=torch.float64)
    view, point, pixel = [], [], []
    for index, one in enumerate(views):
        local = one.pose.to(torch.float64).inverse().apply(points)
        pixel.append(CAMERA.to(torch.float64).project(local)[0])
        view.append(torch.full((len(points),), index))
        point.append(torch.arange(len(points)))
    tracks = Tracks(
        torch.cat(view),
        torch.cat(point),
        torch.cat(pixel),
        torch.zeros(len(points) * len(views), 128, dtype=torch.uint8),
    )
    return SparseScene(
        tuple(one.name for one in views),
        (CAMERA,) * len(views),
        tuple(one.pose.to(torch.float64) for one in views),
        (None,) * len(views),
        points,
        torch.zeros(len(points), 3, dtype=torch.uint8),
        tracks,
    )


def ask(prediction):
    scene = SceneInput([View(one.name, CAMERA) for one in prediction.views])
    same = Similarity.identity()
    return judge(scene, prediction, prediction.views, WorldFrame(same, same), Silent())


def test_agreement_of_a_network_with_itself_is_no_confirmation():
    verdict = ask(ScenePrediction(make_views()))
    assert verdict["agreeing_share"] > 0.5 and verdict["grade"] == "unverified"
    said = " ".join(verdict["verdict"])
    assert "agree among the views" in said and "does not show that they are right" in said
    assert "confirm" not in said


@pytest.mark.parametrize(("checked", "grade"), [(True, "good"), (False, "poor")])
def test_only_depth_that_was_checked_with_the_pictures_counts(checked, grade):
    """Same views and tracks; the sweep's share of depths makes the difference, not the model's own agreement."""
    views = make_views()
    sparse = make_sparse(views)
    figures = {**sparse.compute_statistics(), "long_side_px": float(SIDE)}
    if checked:
        figures["share_with_depth"] = 0.9
    assert ask(ScenePrediction(views, sparse=sparse, figures=figures))["grade"] == grade


def test_views_that_a_network_placed_are_named_and_do_not_count_as_placed():
    views = make_views()
    sparse = make_sparse(views)
    figures = {
        **sparse.compute_statistics(),
        "long_side_px": float(SIDE),
        "share_with_depth": 0.9,
        "placed_by_network": ["v2.png"],
    }
    placed = (*views[:2], replace(views[2], pose_guessed=True))
    verdict = ask(ScenePrediction(placed, sparse=sparse, figures=figures))
    assert verdict["grade"] == "partial"
    assert any("because matching could not: v2.png" in sentence for sentence in verdict["verdict"])


@pytest.mark.parametrize(
    ("lens", "grade", "words"),
    [
        ({}, "good", "The calibration fits the photographs, which do not show whether they are mirrored."),
        (
            {"contradicts": True, "better_px": 531.0, "free_px": 0.3},
            "partial",
            "does not fit these photographs: a focal length of 531 px instead of 400 would (error of features not",
        ),
        (
            {"contradicts": True, "better_px": 402.0, "change": 0.2, "free_px": 0.3},
            "poor",
            "another center or distortion would",
        ),
        (
            {"contradicts": True, "better_px": 531.0, "free_px": 0.5},
            "partial",
            "(both halves of the features find it)",
        ),
        (
            {"undecided": True, "spread": 1.3, "better_px": 531.0},
            "partial",
            "cannot tell the focal length: 531 px instead of 400",
        ),
    ],
    ids=["fits", "focal", "distortion", "halves", "undecided"],
)
def test_it_says_whether_the_lens_fits(lens, grade, words):
    views = make_views()
    sparse = make_sparse(views)
    figures = {**sparse.compute_statistics(), "long_side_px": float(SIDE), "share_with_depth": 0.9}
    figures["lens"] = {
        "given_px": 0.5, "free_px": 0.5, "focal_px": 400.0, "better_px": 400.0, "change": 0.1,
        "contradicts": False, "undecided": False, **lens,
    }  # fmt: skip
    found = ask(ScenePrediction(views, sparse=sparse, figures=figures))
    assert found["grade"] == grade and words in " ".join(found["verdict"])


def test_given_poses_that_fit_worse_are_reported():
    views = make_views()
    sparse = make_sparse(views)
    figures = {**sparse.compute_statistics(), "long_side_px": float(SIDE), "share_with_depth": 0.9}
    for excess, grade in ((0.0, "good"), (0.003 * SIDE, "partial"), (0.02 * SIDE, "poor")):
        found = ask(ScenePrediction(views, sparse=sparse, figures=figures | {"pose_excess_px": excess}))
        assert found["grade"] == grade
        assert ("--poses align" in " ".join(found["verdict"])) == (excess > 0)
