"""From files to scores: a perfect prediction has no error on every protocol of the main table, a wrong one its own."""

from dataclasses import replace

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.reconstruction.set_metrics import SetGeometry, score_sets
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.scoring.protocol import ImageSize, ViewSet, draw_zooms
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.set_scoring import build_truth
from g_ray_lab.scoring.view_index import load_views

MAIN = [name for name, protocol in PROTOCOLS.items() if "points_rel" in protocol.metrics]


@pytest.fixture(scope="module")
def truth_of(miniature_root):
    def get(name):
        protocol = replace(PROTOCOLS[name], size=ImageSize(48, 32))
        root = miniature_root(protocol.dataset)
        scene = DATASETS[protocol.dataset].read(root, DATASETS[protocol.dataset].list_scenes(root)[0])
        names = (*(frame.name for frame in scene.frames[:2]), scene.frames[-1].name, scene.frames[0].name)
        zooms = draw_zooms(scene.name, 4, 0, protocol.zoom_max, 0) if protocol.zoom_max > 1 else ()
        return protocol, build_truth(load_views(protocol, scene, ViewSet(names, zooms)))

    return get


def move(geometry, scale):
    """The same geometry in another world, at another scale."""
    pose = Pose.look_at((0.3, -0.2, 1.0), (0.0, 0.5, 0.2))
    world = scale * pose.apply(geometry.world_points)
    poses = (pose @ geometry.poses).scale_translation(scale)
    return SetGeometry(world, scale * geometry.camera_points, geometry.rays, poses)


@pytest.mark.parametrize("name", MAIN)
def test_a_perfect_prediction_has_no_error(name, truth_of):
    protocol, truth = truth_of(name)
    scores = score_sets(
        truth.geometry,
        move(truth.geometry, 2.5),
        truth.valid,
        depth_kind=protocol.depth,
        known_rays=truth.known_rays,
    )
    assert not scores.unscored
    for metric, expected in (("points_rel", 0), ("rays_deg", 0), ("depth_rel", 0), ("pose_ate", 0)):
        assert float(getattr(scores, metric)) == pytest.approx(expected, abs=2e-5), metric
    assert float(scores.points_inlier) == float(scores.depth_inlier) == 1


def test_a_known_error_is_scored_as_it_is(truth_of):
    """Rays that are turned by one degree about the optical axis of each camera, and nothing else."""
    protocol, truth = truth_of("scannetpp-mixed")
    angle = torch.deg2rad(torch.tensor(1.0))
    turn = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0], [0, 0, 1.0]])
    wrong = replace(truth.geometry, rays=truth.geometry.rays @ turn.mT)
    scores = score_sets(
        truth.geometry, wrong, truth.valid, depth_kind=protocol.depth, known_rays=truth.known_rays
    )
    sine = truth.geometry.rays[..., :2].norm(dim=-1)
    expected = torch.rad2deg(2 * torch.asin(sine * torch.sin(angle / 2))).mean()
    assert float(scores.rays_deg) == pytest.approx(float(expected), rel=1e-3)
    assert float(scores.points_rel) < 2e-5


def test_sets_without_poses_or_of_two_sizes_are_refused(miniature):
    _, _, scene = miniature("kitti")
    frame = scene.frames[0]
    small, large = (frame.load_view(Framing.fit(frame.camera, *size)) for size in ((30, 20), (60, 40)))
    with pytest.raises(ValueError, match="views of 2 sizes"):
        build_truth([small, large])
    with pytest.raises(ValueError, match="has no pose"):
        build_truth([small])
