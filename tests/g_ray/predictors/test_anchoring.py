"""Known poses, matches and the true lenses around a peer's result, on a rendered room with exact truth."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_to_poses
from g_ray.media.view import View
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.predictors import ModelSettings, make_predictor
from g_ray.predictors.anchoring import (
    keep_given_poses,
    measure_factors,
    place_by_matches,
    refine_views,
)
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import SceneInput
from g_ray.sfm import SfMOptions

WIDTH, HEIGHT, VIEWS = 240, 180, 5
FACTORS = (0.5, 0.7, 1.1, 0.6, 0.9)
"""By which a peer's depth is wrong, per view."""
OPTIONS = {"options": SfMOptions(threads=1), "work": None, "progress": lambda stage, share: None}


@pytest.fixture(scope="module")
def truth():
    """Photographs with true poses, and what a perfect peer would say of them."""
    room = make_random_room(0, solids=6, dtype=torch.float32)
    lenses = [
        Pinhole.make(WIDTH, HEIGHT, fx=170.0, fy=170.0, cx=120.0, cy=90.0),
        OpenCVFisheye.make(WIDTH, HEIGHT, fx=110.0, fy=110.0, cx=121.0, cy=89.0, k1=0.01),
    ]
    views, perfect = [], []
    for number in range(VIEWS):
        turn = 0.15 * number - 0.4
        eye = torch.tensor([1.3 * math.sin(turn), -0.1, -1.2 - 0.8 * math.cos(turn)])
        pose = Pose.look_at(eye=eye, target=torch.tensor([0.2 * math.sin(1.3 * number), 0.3, 1.0]))
        camera = lenses[number % 2]
        shot = room.render(camera, pose, antialias=2)
        name = f"v{number}.png"
        views.append(View(name, camera, pose.to(torch.float64), "test", shot.rgb.movedim(-1, 0)))
        valid = torch.isfinite(shot.ray_depth)
        perfect.append(
            ReconstructedView(name, camera, pose, shot.ray_depth, torch.ones_like(shot.ray_depth), valid)
        )
    return views, perfect


def spoil(perfect, poses=None):
    """Scale the depth of every view, and give it another pose."""
    poses = poses or [Pose.identity()] * len(perfect)
    return [
        replace(view, ray_depth=factor * view.ray_depth, pose=pose)
        for view, factor, pose in zip(perfect, FACTORS, poses, strict=True)
    ]


def measure_depth_errors(views, perfect):
    return [
        float((view.ray_depth / true.ray_depth - 1).abs()[true.valid].median())
        for view, true in zip(views, perfect, strict=True)
    ]


def test_known_poses_fix_the_scale_of_every_view(truth):
    views, perfect = truth
    wrong = [Pose(view.pose.world_from_cam).scale_translation(0.3) for view in perfect]
    anchored = keep_given_poses(spoil(perfect, wrong), SceneInput(views), placed=True, **OPTIONS)
    for view, given in zip(anchored.views, views, strict=True):
        torch.testing.assert_close(
            view.pose.world_from_cam.double(), given.pose.world_from_cam, atol=1e-6, rtol=0
        )
    assert max(measure_depth_errors(anchored.views, perfect)) < 0.03
    assert anchored.sparse is not None and anchored.figures["points"] > 50


def test_single_views_are_placed_in_the_unit_of_their_depth(truth):
    views, perfect = truth
    scene = SceneInput([replace(view, pose=None) for view in views])
    anchored = place_by_matches(spoil(perfect), scene, placed=False, **OPTIONS)
    assert all(view is not None for view in anchored.views)
    found = Pose(torch.stack([view.pose.world_from_cam.double() for view in anchored.views]))
    true = Pose(torch.stack([view.pose.world_from_cam for view in views]))
    similarity = fit_similarity_to_poses(found, true)
    off = (similarity.apply(found.translation) - true.translation).norm(dim=-1)
    assert float(off.max()) < 0.1
    # The median factor of the depth maps is that of the world. The maps, off by factors from 0.5 to 1.1, agree then.
    assert 1 / float(similarity.scale) == pytest.approx(sorted(FACTORS)[2], rel=0.1)
    ratios = [
        float((view.ray_depth / true.ray_depth)[true.valid].median())
        for view, true in zip(anchored.views, perfect, strict=True)
    ]
    assert max(ratios) / min(ratios) < 1.15


def test_poses_of_a_peer_are_refined(truth):
    views, perfect = truth
    generator = torch.Generator().manual_seed(0)
    shaken = []
    for view in perfect:
        noise = 0.05 * torch.randn(3, generator=generator)
        shaken.append(Pose.from_parts(view.pose.rotation, view.pose.translation + noise))
    scene = SceneInput([replace(view, pose=None) for view in views])
    anchored = refine_views(spoil(perfect, shaken), scene, **OPTIONS)
    assert anchored.figures["held_out_px_after"] < anchored.figures["held_out_px_before"]
    assert anchored.notes[0].startswith("refinement kept")
    # Poses are the refined ones, and the depth of every view meets the points that they triangulate.
    for view, pose in zip(anchored.views, anchored.sparse.poses, strict=True):
        torch.testing.assert_close(view.pose.world_from_cam, pose.world_from_cam.float())
    factors = [factor for factor in measure_factors(anchored.views, anchored.sparse) if factor is not None]
    assert len(factors) >= 3 and all(factor == pytest.approx(1, abs=1e-3) for factor in factors)


def test_depth_bends_to_the_points(truth):
    """A smooth error of depth across the photograph is gone where there are points, and no pixel gets much worse."""
    views, perfect = truth
    scene = SceneInput([replace(view, pose=None) for view in views])
    slope = torch.exp(0.5 * (torch.arange(WIDTH) / WIDTH - 0.5))
    tilted = [replace(view, ray_depth=slope * view.ray_depth) for view in perfect]
    anchored = place_by_matches(tilted, scene, placed=True, **OPTIONS)
    found = Pose(torch.stack([view.pose.world_from_cam.double() for view in anchored.views]))
    true = Pose(torch.stack([view.pose.world_from_cam for view in views]))
    scale = float(fit_similarity_to_poses(found, true).scale)
    straight = [replace(view, ray_depth=scale * view.ray_depth) for view in anchored.views]
    before, after = measure_depth_errors(tilted, perfect), measure_depth_errors(straight, perfect)
    assert sum(after) < 0.7 * sum(before)
    assert all(bool((view.ray_depth[view.valid] > 0).all()) for view in straight)


def test_a_network_without_poses_is_placed_by_matches(truth):
    """Even the poses of an untrained network do no harm, where photographs match."""
    views, _ = truth
    network = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")).eval()
    predictor = NetworkPredictor(network, 48, place_by="matches", sfm=SfMOptions(threads=1))
    scene = SceneInput([replace(view, pose=None) for view in views])
    prediction = predictor.predict(scene)
    found = Pose(torch.stack([view.pose.world_from_cam.double() for view in prediction.views]))
    true = Pose(torch.stack([view.pose.world_from_cam for view in views]))
    off = fit_similarity_to_poses(found, true).apply(found.translation) - true.translation
    assert float(off.norm(dim=-1).max()) < 0.1
    assert prediction.sparse is not None and prediction.figures["points"] > 50
    assert "pairs" in predictor.estimate_cost(scene).text


def test_photographs_that_cannot_be_matched_keep_the_poses_of_the_network(truth):
    views, _ = truth
    network = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")).eval()
    same = SceneInput([replace(views[0], name=f"{number}.png", pose=None) for number in range(3)])
    alone = NetworkPredictor(network, 48).predict(same)
    found = NetworkPredictor(network, 48, place_by="matches").predict(same)
    assert found.sparse is None and "identical" in found.notes[-1]
    for one, other in zip(alone.views, found.views, strict=True):
        assert torch.equal(one.pose.world_from_cam, other.pose.world_from_cam)


def test_settings_that_a_model_does_not_have_are_refused():
    with pytest.raises(ValueError, match="--place-by is for --model network"):
        make_predictor("stereo", ModelSettings(place_by="network"))
    with pytest.raises(ValueError, match="--refine is for other models"):
        make_predictor("network", ModelSettings(refine=True))
