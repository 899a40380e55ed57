"""Every dataset of the registry: what is read from its miniature is what the room looks like."""

import pytest
import torch

from g_ray.formats.seven_scenes import COLOR_FROM_DEPTH
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.dataset_registry import DATASETS, open_scene
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.miniatures.miniature_room import make_path

names = pytest.mark.parametrize("name", DATASETS)
with_depth = pytest.mark.parametrize("name", [name for name, one in DATASETS.items() if one.depth != "none"])
MEDIAN = {"dense": 0.005, "sparse": 0.005}
"""Nearest lookups are off by up to a pixel, which is less than a hundredth of a depth at these sizes."""
UNITS_PER_METER = {"m": 1.0, "mm": 1000.0, "none": 1.0}


def frames_of(scene):
    """The first frame and the last one of every device."""
    by_device = {}
    for frame in scene.frames:
        by_device.setdefault(frame.device, []).append(frame)
    return [frame for frames in by_device.values() for frame in (frames[0], frames[-1])]


def frame_view(frame):
    return Framing.fit(frame.camera, 120, 80)


@names
def test_scenes_are_listed_and_read(name, miniature):
    root, _, scene = miniature(name)
    assert DATASETS[name].list_scenes(root) == [scene.name]
    assert (scene.dataset, len(scene.by_name)) == (name, len(scene))
    assert open_scene(name, root, scene.name).fingerprint() == scene.fingerprint()
    assert not list(scene.list_missing_files())


@names
def test_a_scene_that_is_not_there_is_named(name, miniature):
    root, _, _ = miniature(name)
    with pytest.raises(ValueError, match="no scene 'elsewhere'"):
        open_scene(name, root, "elsewhere")


@names
def test_images_show_the_room_through_their_cameras(name, miniature):
    """Colors agree with a rendering through the camera and from the pose that were read."""
    _, room, scene = miniature(name)
    for frame in frames_of(scene):
        view = frame.load_view(frame_view(frame))
        assert view.image.shape == (3, 80, 120)
        color = room.render(view.camera, find_pose(scene, frame)).rgb.movedim(-1, 0)
        assert float((view.image - color).abs().mean()) < 0.03, frame.name


@with_depth
def test_depth_is_that_of_the_room(name, miniature):
    _, room, scene = miniature(name)
    for frame in frames_of(scene):
        view = frame.load_view(frame_view(frame))
        truth = room.render(view.camera, find_pose(scene, frame)).ray_depth
        error = (view.ray_depth / UNITS_PER_METER[scene.unit] / truth - 1).abs()[view.valid]
        assert float(view.valid.float().mean()) > 0.25, frame.name
        assert float(error.median()) < MEDIAN[DATASETS[name].depth], frame.name
        assert float((error > 0.05).float().mean()) < 0.02, frame.name


@with_depth
def test_depth_and_poses_of_two_frames_agree(name, miniature):
    """Points of one frame that another one images lie on the surface that it sees, but for occlusions."""
    _, _, scene = miniature(name)
    first = scene.frames[0]
    same = [frame for frame in scene.frames if frame.device == first.device]
    others = [same[1], *(frame for frame in scene.frames if frame.device != first.device)][:4]
    if first.pose is None:
        pytest.skip("a dataset of depth without poses")
    view = first.load_view(frame_view(first))
    points = view.ray_depth[..., None] * RayMap.from_camera(view.camera).directions
    world = first.pose.apply(points.double())[view.valid]
    compared = 0
    for other in others:
        seen = other.load_view(frame_view(other))
        local = other.get_pose().inverse().apply(world)
        pixels, imaged = seen.camera.project(local.float())
        column, row = pixels.floor().long().unbind(-1)
        inside = imaged & (column >= 0) & (column < 120) & (row >= 0) & (row < 80)
        found = seen.ray_depth[row[inside], column[inside]]
        ratio = local[inside].norm(dim=-1) / found
        ratio = ratio[found > 0]
        if len(ratio) > 100:
            assert float((ratio - 1).abs().median()) < 0.02, other.name
            compared += 1
    assert compared


@names
def test_poses_are_rigid(name, miniature):
    _, _, scene = miniature(name)
    for frame in scene.frames:
        if frame.pose is not None:
            rotation = frame.pose.rotation
            assert torch.allclose(rotation @ rotation.mT, torch.eye(3, dtype=torch.float64), atol=1e-6)
            assert float(torch.linalg.det(rotation)) > 0


def find_pose(scene, frame):
    """The pose in meters: as read, or that of the miniature's path where the dataset has none."""
    path = make_path(len(scene), step_rad=0.05)
    pose = path[scene.by_name[frame.name]] if frame.pose is None else frame.pose
    if scene.dataset == "7scenes-published":  # poses are those of the depth camera
        pose = pose @ Pose(torch.tensor(COLOR_FROM_DEPTH, dtype=torch.float64)).inverse()
    return pose.scale_translation(1 / UNITS_PER_METER[scene.unit]).to(torch.float32)
