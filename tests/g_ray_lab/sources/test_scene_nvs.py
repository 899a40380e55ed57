"""Batches from a user's scene: pure in (seed, step, rank), true to the lenses, held-out views never seen."""

import itertools
import pickle

import pytest
import torch

from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import fit_box
from g_ray_lab.metrics.image_metrics import psnr
from g_ray_lab.sources.draws import scale_to_baseline
from g_ray_lab.sources.nvs_settings import SceneData
from g_ray_lab.sources.scenes_nvs import SceneNVS


def make_source(*folders, size=24, seed=0, **settings):
    return SceneNVS(SceneData(size, size, folder=folders, **settings), seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, room_scenes):
    """Twelve views: pinholes and fisheyes in turn."""
    place = tmp_path_factory.mktemp("scene")
    room_scenes.write_nerfstudio(place, room_scenes.shots(12, ("pinhole", "fisheye"), 96, 72))
    return place


def views_of(batch):
    return {name for line in batch.names for name in line.split(": ")[1].split()}


def test_a_batch_depends_on_seed_step_and_rank_alone(folder):
    data, again = (make_source(folder, batch=3, seed=5) for _ in range(2))
    for step, rank in ((0, 0), (7, 0), (7, 3)):
        one, other = data.make_batch(step, rank), again.make_batch(step, rank)
        assert one.names == other.names and torch.equal(one.target_images, other.target_images)
    names = [data.make_batch(step, rank).names for step, rank in itertools.product(range(3), range(2))]
    assert len(set(names)) == len(names)
    assert make_source(folder, batch=3, seed=6).make_batch(0).names != data.make_batch(0).names
    assert pickle.loads(pickle.dumps(data)).make_batch(7).names == data.make_batch(7).names


def test_held_out_views_are_never_trained_on(folder):
    data = make_source(folder, batch=4, hold_out=4)
    held_out = data.make_held_out()
    targets = {name.split()[-1] for name in held_out.names}
    assert targets and targets <= {f"images/view_{i:02d}.png" for i in (0, 4, 8)}
    for step in range(25):
        assert not views_of(data.make_batch(step)) & {f"images/view_{i:02d}.png" for i in (0, 4, 8)}
    contexts = {n for line in held_out.names for n in line.split(": ")[1].split()[:-1]}
    assert not contexts & targets


def test_lenses_stay_what_they_are_and_match_within_a_batch(folder):
    data, seen = make_source(folder, batch=4), set()
    for step in range(20):
        batch = data.make_batch(step)
        cameras = [*batch.contexts.cameras, *batch.targets.cameras]
        seen |= {camera.NAME for camera in cameras}
        assert all((c.width, c.height, c.batch_shape) == (24, 24, (4,)) for c in cameras)
        used = [line.split(": ")[1].split() for line in batch.names]
        assert all(len(set(names)) == 3 for names in used), "a view twice in a sample"
        for slot, camera in enumerate(cameras):
            odd = {int(names[slot][-6:-4]) % 2 for names in used}
            assert odd == {int(camera.NAME == "opencv_fisheye")}
    assert seen == {"pinhole", "opencv_fisheye"}


def test_pictures_are_what_their_cameras_see(folder):
    """The room, ray cast through the batch's own camera, is the photograph after cropping and resizing."""
    data = make_source(folder, size=36, batch=1)
    scene, room = data.scenes[0], make_random_room(3, coarse=True)
    for step in range(4):
        batch = data.make_batch(step)
        for slot, name in enumerate(batch.names[0].split(": ")[1].split()):
            view = scene.find_index(name)
            camera = scene.cameras[view].resize(36, 36, fit_box(96, 72, 36, 36)).to(torch.float32)
            views = [*batch.contexts.cameras, *batch.targets.cameras]
            assert torch.allclose(views[slot].params[0], camera.params)
            truth = room.render(camera, scene.poses[view].to(torch.float32), antialias=4).rgb.movedim(-1, 0)
            shown = torch.cat([batch.context_images, batch.target_images], 1)[0, slot]
            assert psnr(truth[None, None], shown[None, None]).item() > 33


def test_poses_are_relative_and_in_baselines(folder):
    data = make_source(folder, batch=2, baseline=0.7)
    scene, batch = data.scenes[0], data.make_batch(3)
    poses = Pose(torch.cat([batch.contexts.poses.world_from_cam, batch.targets.poses.world_from_cam], 1))
    assert torch.allclose(poses.world_from_cam[:, 0], torch.eye(4).expand(2, 4, 4), atol=1e-6)
    assert torch.allclose(poses.translation[:, 1].norm(dim=-1), torch.tensor(0.7))
    for number, line in enumerate(batch.names):
        given = Pose(scene.poses.world_from_cam[[scene.find_index(n) for n in line.split(": ")[1].split()]])
        relative = given.relative_to_first()
        assert torch.allclose(poses.rotation[number].double(), relative.rotation, atol=1e-6)
        scale = 0.7 / relative.translation[1].norm()
        assert torch.allclose(poses.translation[number].double(), relative.translation * scale, atol=1e-5)


def test_contexts_at_one_place_are_not_scaled():
    poses = Pose.identity(3, dtype=torch.float64).world_from_cam.clone()
    poses[2, 0, 3] = 5.0
    assert scale_to_baseline(Pose(poses), 2, 1.0).translation[2, 0] == 5.0
    assert scale_to_baseline(Pose(poses), 3, 1.0).translation[2, 0] == 1.0


def test_several_folders_and_a_broken_photograph(folder, tmp_path, room_scenes):
    room_scenes.write_colmap(tmp_path / "other", room_scenes.shots(6, ("pinhole",), 32, 24, seed=4))
    data = make_source(folder, tmp_path / "other", batch=4)
    assert {line.split(":")[0] for step in range(12) for line in data.make_batch(step).names} == {
        folder.name,
        "other",
    }
    for path in (tmp_path / "other" / "images").glob("*.png"):
        path.write_bytes(path.read_bytes()[:200])
    broken = make_source(tmp_path / "other", batch=1)
    with pytest.raises(OSError, match=r"other/images/view_0\d.png: cannot be read as an image"):
        broken.make_batch(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contexts": 0}, "give positive numbers"),
        ({"hold_out": 1}, "hold out every 2nd view at most"),
        ({"baseline": 0.0}, "give positive numbers"),
        ({"near": 1}, "1 near views are too few"),
        ({"contexts": 11, "near": 12}, "12 images leave 10 to train on"),
    ],
)
def test_impossible_settings_are_refused(folder, change, message):
    with pytest.raises(ValueError, match=message):
        make_source(folder, **change)


def test_no_folder_is_refused():
    with pytest.raises(ValueError, match="no scene"):
        make_source()
