"""Depth of rendered scenes, where the truth is known, for every camera model."""

import threading

import pytest
import torch

from g_ray.cameras import CAMERAS, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.stereo import DepthMap, StereoOptions, estimate_depths, sweep_view

from .stereo_scenes import make_lens, make_plane, make_scene, make_view

OPTIONS = StereoOptions(near=0.5, far=8.0)


def share_within(depth, truth, tolerance):
    chosen = depth.valid & (truth > 0)
    error = (depth.ray_depth - truth).abs() / truth.clamp_min(1e-6)
    return float((error < tolerance)[chosen].float().mean()), float(chosen.float().mean())


def poses_along(*places):
    return [Pose.from_parts(torch.eye(3), torch.tensor([float(x), float(y), 0.0])) for x, y in places]


def test_plane_to_a_tenth_of_a_pixel():
    camera = Pinhole.from_fov(60, 120, 90)
    views, truths = make_plane(camera, poses_along((0, 0), (-0.4, 0), (0.4, 0), (0, 0.4)))
    depth = sweep_view(views[0], views[1:], 2.0, 8.0)
    # One pixel of disparity at f = 104 and a baseline of 0.4 is 10 % of the depth.
    within, given = share_within(depth, truths[0], 0.01)
    assert given > 0.9 and within > 0.9


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("role", ["reference", "source"])
def test_every_camera_is_reference_and_source(name, role):
    """The other side is a pinhole; what both see is reconstructed."""
    special = CAMERAS[name].example(4, 128, 96, torch.float32)
    plain = Pinhole.from_fov(80, 128, 96, dtype=torch.float32)
    cameras = [special, plain, plain] if role == "reference" else [plain, special, special]
    views, truths = make_scene([cameras[1], cameras[0], cameras[2]], step=0.25)
    depth = sweep_view(views[1], [views[0], views[2]], 0.5, 8.0)
    # A panorama of 128 pixels resolves no more than this at these baselines, and the pinholes see little of it.
    within, given = share_within(depth, truths[1], 0.1)
    assert given > 0.01 and within > 0.8


def test_mixed_lenses():
    """A pinhole, a 200° fisheye and a panorama see one room; each finds depth by the others."""
    kinds = ("pinhole", "fisheye", "panorama", "pinhole", "fisheye")
    views, truths = make_scene([make_lens(kind, 160) for kind in kinds], step=0.35)
    depths = estimate_depths(views, None, OPTIONS)
    results = [share_within(depth, truth, 0.03) for depth, truth in zip(depths, truths, strict=True)]
    pixels = [given * truth.numel() for (_, given), truth in zip(results, truths, strict=True)]
    total = sum(within * count for (within, _), count in zip(results, pixels, strict=True)) / sum(pixels)
    assert total > 0.9
    assert all(within > 0.84 and given > 0.35 for within, given in results)


def test_views_at_once_give_the_same_depth():
    """Views are swept on threads of their own, which leave the number of threads as it was."""
    views, _ = make_scene([make_lens(kind, 64) for kind in ("pinhole", "fisheye", "pinhole")], step=0.35)
    threads, done = torch.get_num_threads(), []
    swept: dict[int, DepthMap] = {}
    one_by_one = estimate_depths(views, None, OPTIONS, finished=swept)
    stored = {1: swept[1]}
    at_once = estimate_depths(views, None, OPTIONS, done.append, stored, at_once=3)
    assert torch.get_num_threads() == threads
    assert done == [2, 3] and set(stored) == {0, 1, 2}
    for one, other in zip(one_by_one, at_once, strict=True):
        torch.testing.assert_close(one.ray_depth, other.ray_depth, rtol=0, atol=0)


def test_interruption_ends_all_threads():
    views, _ = make_scene([make_lens("pinhole", 64) for _ in range(4)], step=0.35)
    swept, before = [], threading.active_count()

    def stop(done):
        swept.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_depths(views, None, OPTIONS, stop, at_once=2)
    assert swept == [1] and threading.active_count() == before


def test_blank_areas_come_out_empty():
    camera = Pinhole.from_fov(60, 96, 72)
    views, _ = make_plane(camera, poses_along((0, 0), (-0.4, 0), (0.4, 0)))
    blank = []
    for view in views:
        image = view.image.clone()
        image[:, :30] = 0.5
        image += 0.001 * torch.randn(image.shape, generator=torch.Generator().manual_seed(len(blank)))
        blank.append(make_view(image.clamp(0, 1), view.camera, view.pose))
    depth = sweep_view(blank[0], blank[1:], 2.0, 8.0)
    assert depth.valid[:24].float().mean() < 0.05
    assert depth.valid[36:].float().mean() > 0.8


def test_masked_pixels_have_no_depth_and_no_influence():
    camera = Pinhole.from_fov(60, 96, 72)
    views, truths = make_plane(camera, poses_along((0, 0), (-0.4, 0), (0.4, 0)))
    mask = torch.ones(72, 96, dtype=torch.bool)
    mask[20:40, 20:50] = False
    masked = []
    for number, view in enumerate(views):
        noise = torch.rand(3, 72, 96, generator=torch.Generator().manual_seed(number))
        masked.append(make_view(torch.where(mask, view.image, noise), view.camera, view.pose, mask))
    depth = sweep_view(masked[0], masked[1:], 2.0, 8.0)
    assert not depth.valid[~mask].any()
    within, given = share_within(depth, truths[0], 0.03)
    assert given > 0.6 and within > 0.9


def test_deterministic_and_half_resolution_agrees():
    camera = Pinhole.from_fov(60, 160, 120)
    views, truths = make_plane(camera, poses_along((0, 0), (-0.4, 0), (0.4, 0)))
    small = StereoOptions(full_volume=0)
    first, again = (sweep_view(views[0], views[1:], 2.0, 8.0, small) for _ in range(2))
    assert torch.equal(first.ray_depth, again.ray_depth)
    within, given = share_within(first, truths[0], 0.02)
    assert given > 0.85 and within > 0.95


def test_confidence_tells_good_from_bad():
    views, truths = make_scene([make_lens("pinhole", 160)] * 3, step=0.2)
    depth = sweep_view(
        views[1], [views[0], views[2]], 0.5, 8.0, StereoOptions(min_support=-1.0, min_score=-1.0)
    )
    error = (depth.ray_depth - truths[1]).abs() / truths[1]
    order = depth.confidence.flatten().argsort()
    parts = error.flatten()[order].tensor_split(5)
    wrong = [float((part > 0.03).float().mean()) for part in parts]
    assert wrong[0] > 2 * wrong[2] and wrong[4] <= wrong[2] + 0.01 and wrong[4] < 0.1


def test_a_gradient_without_texture_gives_no_candidates():
    """A sky brightens evenly: a patch of it correlates with the same patch at every distance."""
    camera = Pinhole.from_fov(60, 96, 72)
    views, _ = make_plane(camera, poses_along((0, 0), (-0.4, 0), (0.4, 0)))
    sky = torch.linspace(0.7, 0.75, 36)[:, None].expand(36, 96)
    cloudy = [
        make_view(torch.cat([sky.expand(3, 36, 96), view.image[:, 36:]], 1), view.camera, view.pose)
        for view in views
    ]
    depth = sweep_view(cloudy[0], cloudy[1:], 2.0, 8.0)
    assert depth.candidates is not None
    assert not depth.candidates[:33].any() and not depth.confidence[:33][~depth.valid[:33]].any()
    assert depth.valid[39:].float().mean() > 0.8


def test_scale_of_the_world_does_not_matter():
    camera = Pinhole.from_fov(60, 80, 60)
    views, _ = make_plane(camera, poses_along((0, 0), (-0.4, 0)))
    large = [make_view(v.image, v.camera, v.pose.scale_translation(1000.0)) for v in views]
    one, thousand = sweep_view(views[0], views[1:], 2.0, 8.0), sweep_view(large[0], large[1:], 2000.0, 8000.0)
    both = one.valid & thousand.valid
    assert both.float().mean() > 0.95 * one.valid.float().mean()
    torch.testing.assert_close(thousand.ray_depth[both] / 1000, one.ray_depth[both], rtol=5e-3, atol=0)


def test_refusals():
    view = make_plane(Pinhole.from_fov(60, 32, 24), poses_along((0, 0)))[0][0]
    with pytest.raises(ValueError, match="at least one other view"):
        sweep_view(view, [], 1.0, 2.0)
    with pytest.raises(ValueError, match="near < far"):
        sweep_view(view, [view], 3.0, 2.0)
    with pytest.raises(ValueError, match="at least two views"):
        estimate_depths([view])
    with pytest.raises(ValueError, match="no parallax"):
        estimate_depths([view, view])
    with pytest.raises(ValueError, match="its camera takes"):
        make_view(torch.zeros(3, 10, 10), view.camera, view.pose).load_image()
    with pytest.raises(ValueError, match="odd side"):
        StereoOptions(window=4)
    with pytest.raises(ValueError, match="not below far"):
        StereoOptions(near=2.0, far=1.0)
