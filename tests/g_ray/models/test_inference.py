"""Photos of any sizes and calibrations in, typed results at their own pixels out; nothing given is ignored."""

from dataclasses import replace

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_config import ReconstructionConfig
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

CAMERAS = [
    Pinhole.make(60, 40, fx=50.0, fy=50.0, cx=31.0, cy=20.0, dtype=torch.float64),
    OpenCVFisheye.make(48, 64, fx=20.0, fy=20.0, cx=24.0, cy=32.0, k1=0.01),
    Pinhole.make(33, 31, fx=70.0, fy=70.0, cx=16.0, cy=15.0),
]
IMAGES = [torch.rand(3, c.height, c.width, generator=torch.Generator().manual_seed(9)) for c in CAMERAS]


def network(method="gray") -> ReconstructionModel:
    torch.manual_seed(0)
    return ReconstructionModel(
        ReconstructionConfig(method, "patch", 24, 1, 1, 7, (0, 0, 0, 0), 8, (4, 4, 8, 8), 12, layer_scale=1.0)
    )


@pytest.mark.parametrize("fit", ["stretch", "pad"])
def test_every_output_is_at_the_original_pixels_on_request(fit):
    result = run_inference(network(), IMAGES, CAMERAS, size=28, fit=fit)
    sizes = {(view.camera.width, view.camera.height) for view in result.views}
    assert len(sizes) == (3 if fit == "stretch" else 1)
    for view, camera in zip(result.to_original().views, CAMERAS, strict=True):
        assert view.camera is camera
        shape = (camera.height, camera.width)
        maps = view.maps
        for points in (maps.world_points, maps.camera_points, maps.rays):
            assert points.shape == (*shape, 3) and points.isfinite().all()
        for values in (
            maps.world_confidence,
            maps.camera_confidence,
            maps.ray_depth,
            maps.z_depth,
            view.valid,
        ):
            assert values.shape == shape
        assert view.valid.all() and min(maps.world_confidence.min(), maps.camera_confidence.min()) > 0.999
        assert maps.poses.batch_shape == ()
        assert view.to_original() is view


def test_the_calibration_used_is_on_record():
    result = run_inference(network(), IMAGES, CAMERAS, size=28)
    assert [one.model for one in result.calibrations] == ["pinhole", "opencv_fisheye", "pinhole"]
    first = result.calibrations[0]
    assert (first.width, first.height, first.network_size, first.used_by) == (60, 40, (28, 21), "attention")
    assert first.parameters == {"fx": 50.0, "fy": 50.0, "cx": 31.0, "cy": 20.0, "skew": 0.0}
    doors = {
        m: run_inference(network(m), IMAGES, CAMERAS, size=28)[0].calibration.used_by
        for m in ("rope", "camray")
    }
    assert doors == {"rope": "nothing", "camray": "input"}


def test_a_ray_map_is_all_it_needs():
    maps = [RayMap.from_camera(camera.to(dtype=torch.float32)) for camera in CAMERAS]
    given = run_inference(network(), IMAGES, maps, size=28)
    known = run_inference(network(), IMAGES, Views(CAMERAS), size=28)
    assert [one.model for one in given.calibrations] == ["ray_map"] * 3
    for a, b in zip(given.views, known.views, strict=True):
        assert (a.maps.world_points - b.maps.world_points).abs().max() < 2e-3


def test_savers_change_little_or_nothing():
    whole = run_inference(network(), IMAGES, CAMERAS, size=28)
    chunked = run_inference(network(), IMAGES, CAMERAS, size=28, query_chunk=3)
    rough = run_inference(network(), IMAGES, CAMERAS, size=28, precision="bf16")
    for a, b, c in zip(whole.views, chunked.views, rough.views, strict=True):
        assert torch.allclose(a.maps.world_points, b.maps.world_points, atol=1e-5)
        assert torch.allclose(a.maps.world_points, c.maps.world_points, atol=0.1)


def test_pixels_without_a_ray_are_marked():
    circle = OpenCVFisheye.make(60, 60, fx=6.0, fy=6.0, cx=30.0, cy=30.0, k1=-0.01)
    result = run_inference(network(), [torch.rand(3, 60, 60)], [circle], size=28)
    truth = RayMap.from_camera(circle).valid
    found = result.to_original()[0].valid
    assert 0.2 < truth.float().mean() < 0.9
    assert (found != truth).float().mean() < 0.05


def test_nothing_is_ignored():
    net = network()
    poses = Pose.identity(3)
    with pytest.raises(ValueError, match="poses were given, but reconstruction finds poses itself"):
        run_inference(net, IMAGES, Views(CAMERAS, poses), size=28)
    with pytest.raises(ValueError, match="2 images but 3 calibrations"):
        run_inference(net, IMAGES[:2], CAMERAS, size=28)
    with pytest.raises(ValueError, match="image 0 has 48×64 px, but its calibration is for 60×40"):
        run_inference(net, [IMAGES[1], IMAGES[0]], CAMERAS[:2], size=28)
    with pytest.raises(ValueError, match=r"image 1 has values outside of \[0, 1\]: divide bytes by 255"):
        run_inference(net, [IMAGES[0], 255 * IMAGES[1]], CAMERAS[:2], size=28)
    rays = RayMap.from_camera(CAMERAS[1])
    moved = RayMap(rays.directions, rays.valid, torch.zeros_like(rays.directions))
    with pytest.raises(ValueError, match="ray map of view 0 has origins"):
        run_inference(net, IMAGES[1:2], [moved], size=28)
    batched = Pinhole.make(60, 40, fx=torch.tensor([50.0, 60.0]), fy=50.0, cx=31.0, cy=20.0)
    with pytest.raises(ValueError, match=r"camera of view 0 is a batch \(2,\)"):
        run_inference(net, IMAGES[:1], [batched], size=28)


def test_the_pose_is_fitted_to_the_points():
    """A fifth of the points is far off and the pose head knows nothing: the pose is found all the same."""
    view = run_inference(network(), IMAGES, CAMERAS, size=28)[1]
    random = torch.Generator().manual_seed(4)
    depth = 1 + torch.rand(view.valid.shape, generator=random)
    rays = RayMap.from_camera(view.camera.to(torch.float32)).directions
    true = Pose.look_at((1.0, -0.5, 0.3), (0.2, 0.1, 2.0))
    world = (rays * depth[..., None]) @ true.rotation.mT + true.translation
    far = torch.rand(view.valid.shape, generator=random) < 0.2
    world = torch.where(far[..., None], world + 3, world)
    # The predicted directions are wrong too: the calibration is what counts.
    maps = replace(view.maps, camera_points=rays.flip(1) * depth[..., None], world_points=world)
    found = replace(view, maps=maps).fit_pose()
    torch.testing.assert_close(found.world_from_cam, true.world_from_cam, atol=2e-3, rtol=0)
    blind = replace(view, maps=maps, valid=torch.zeros_like(view.valid))
    assert torch.equal(blind.fit_pose().world_from_cam, maps.poses.world_from_cam)
