"""Rendering from photographs: consistent sizes, frames and units, whatever camera is asked for."""

import pytest
import torch

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import fit_box, resample
from g_ray.rays.views import Views
from g_ray.synthesis.synthesizer import Synthesizer, choose_working_size, load_network
from g_ray.synthesis.trajectories import PATHS, rotation_from_vector
from g_ray_lab.recipes.nvs_recipes import scene


@pytest.fixture(scope="module")
def network(room_scenes, tmp_path_factory):
    return load_network(room_scenes.write_weights(tmp_path_factory.mktemp("weights") / "model.safetensors"))


@pytest.fixture(scope="module")
def views(room_scenes):
    return room_scenes.shots(4, ("pinhole", "fisheye"), 60, 48)


def staged(network, views, baseline=None, motion=None, scale=1.0):
    poses = Pose(torch.stack([v.pose.world_from_cam for v in views])).scale_translation(
        torch.full((len(views),), scale)
    )
    poses = poses if motion is None else Pose(motion.world_from_cam @ poses.world_from_cam)
    images = [torch.from_numpy(v.pixels).movedim(-1, 0) / 255 for v in views[:2]]
    stage = Synthesizer(network, images, [v.camera for v in views[:2]], poses[:2], baseline)
    return stage, poses[2]


FISHEYE = OpenCVFisheye.make(90, 90, fx=24.0, fy=24.0, cx=45.0, cy=45.0, k1=-0.02, dtype=torch.float64)


@pytest.mark.parametrize("width", [12, 36, 60, 640, 4000])
@pytest.mark.parametrize("height", [12, 36, 48, 480, 4000])
@pytest.mark.parametrize(("tokens", "patch"), [(36, 6), (1024, 8)])
def test_working_sizes_are_whole_patches_near_shape_and_count(width, height, tokens, patch):
    wide, high = choose_working_size(width, height, tokens, patch)
    assert wide % patch == high % patch == 0 and min(wide, high) > 0
    assert tokens / 2 <= wide * high / patch**2 <= tokens * 2
    if max(width / height, height / width) < 2:
        assert wide / high == pytest.approx(width / height, rel=0.15)


def test_the_training_size_is_its_own_working_size():
    assert choose_working_size(360, 360, 36, 6) == (36, 36) and choose_working_size(512, 288, 576, 8) == (
        256,
        144,
    )


def test_it_is_the_network_on_images_and_cameras_resized_together(network, views):
    stage, pose = staged(network, views)
    assert stage.size == (48, 36) and stage.choose_target_size(FISHEYE) == (42, 42)
    pairs = [
        resample(torch.from_numpy(v.pixels).movedim(-1, 0) / 255, v.camera, 48, 36, fit_box(60, 48, 48, 36))
        for v in views[:2]
    ]
    poses = Pose(torch.stack([views[i].pose.world_from_cam for i in (0, 1, 2)])).relative_to_first()
    seen = Views([camera for _, camera in pairs], poses[:2]).to(torch.float32)
    asked = Views([FISHEYE.resize(42, 42)], poses[2:]).to(torch.float32)
    with torch.no_grad():
        expected = network.model(torch.stack([i for i, _ in pairs])[None].float(), seen, asked)[0, 0]
    valid = RayMap.from_camera(FISHEYE.resize(42, 42).to(torch.float32)).valid
    assert torch.allclose(stage.render(FISHEYE, pose), expected * valid, atol=1e-6)


@pytest.mark.parametrize(
    "camera",
    [
        FISHEYE,
        Pinhole.from_fov(40.0, 64, 20),
        Equirectangular.panorama(96, 48),
        Pinhole.from_fov(90.0, 37, 53),
    ],
    ids=lambda camera: camera.NAME,
)
def test_any_target_camera_at_the_networks_size_or_its_own(network, views, camera):
    stage, pose = staged(network, views)
    small, large = stage.render(camera, pose), stage.render(camera, pose, full_size=True)
    assert small.shape == (3, *stage.choose_target_size(camera)[::-1])
    assert large.shape == (3, camera.height, camera.width)
    assert small.min() >= 0 and small.max() <= 1


def test_pixels_without_a_ray_are_black(network, views):
    circular = OpenCVFisheye.make(60, 60, fx=8.0, fy=8.0, cx=30.0, cy=30.0)
    stage, pose = staged(network, views)
    picture = stage.render(circular, pose, full_size=True)
    valid = RayMap.from_camera(circular).valid
    assert 0.2 < valid.float().mean() < 0.95
    assert (picture[:, ~valid] == 0).all() and (picture[:, valid] > 0).all()


def test_the_choice_of_world_changes_nothing(network, views):
    turn = rotation_from_vector(torch.tensor([0.3, -1.1, 0.7], dtype=torch.float64))
    motion = Pose.from_parts(turn, torch.tensor([3.0, -2.0, 5.0], dtype=torch.float64))
    (here, pose), (there, moved) = staged(network, views), staged(network, views, motion=motion)
    assert torch.allclose(here.render(FISHEYE, pose), there.render(FISHEYE, moved), atol=1e-5)


def test_with_a_baseline_the_unit_changes_nothing_and_without_one_it_does(network, views):
    (here, pose), (there, far) = staged(network, views, 0.7), staged(network, views, 0.7, scale=40.0)
    assert there.scale == pytest.approx(here.scale / 40)
    assert here.contexts.poses.translation[1].norm().item() == pytest.approx(0.7)
    assert torch.allclose(here.render(FISHEYE, pose), there.render(FISHEYE, far), atol=1e-5)
    (plain, pose), (huge, far) = staged(network, views), staged(network, views, scale=40.0)
    assert plain.scale == huge.scale == 1.0
    assert not torch.allclose(plain.render(FISHEYE, pose), huge.render(FISHEYE, far), atol=1e-3)


def test_networks_of_scenes_bring_their_baseline(room_scenes, tmp_path):
    network = load_network(room_scenes.write_weights(tmp_path / "a.safetensors", scene()))
    assert network.baseline == 0.7 and network.size == (48, 36) and network.tokens == 48


def test_one_context_is_enough_and_counts_must_agree(network, views):
    pose = Pose(views[0].pose.world_from_cam[None])
    image = torch.from_numpy(views[0].pixels).movedim(-1, 0) / 255
    assert Synthesizer(network, [image], [views[0].camera], pose, 0.7).scale == 1.0
    with pytest.raises(ValueError, match="one each per context"):
        Synthesizer(network, [image, image], [views[0].camera], pose)


def test_weights_that_are_no_synthesis_network_are_refused(room_scenes, tmp_path):
    path = room_scenes.write_weights(tmp_path / "a.safetensors")
    with pytest.raises(OSError, match="no such file"):
        load_network(tmp_path / "b.safetensors")
    with pytest.raises(OSError, match="no weights named 'nvs-castles' come with g-ray"):
        load_network("nvs-castles")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="is not a safetensors file"):
        load_network(path)


# Paths


def test_a_zoom_narrows_the_lens_where_it_stands(views):
    poses = Pose(torch.stack([v.pose.world_from_cam for v in views[:2]]))
    shots = list(PATHS["zoom"].frames(poses, views[0].camera, 5, 2.5))
    angles = [camera.fov().horizontal_deg.item() for camera, _ in shots]
    assert angles == sorted(angles, reverse=True)
    focal = [camera.parameter("fx").item() / views[0].camera.parameter("fx").item() for camera, _ in shots]
    assert focal == pytest.approx([2.5 ** (i / 4) for i in range(5)])
    assert all(torch.equal(pose.world_from_cam, views[0].pose.world_from_cam) for _, pose in shots)
    with pytest.raises(ValueError, match="shows nothing new"):
        list(PATHS["zoom"].frames(poses, views[0].camera, 5, 1.0))
