"""7-Scenes: two cameras of one Kinect, and depth moved from one to the other."""

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.formats import read_scene
from g_ray.formats.seven_scenes import COLOR_FROM_DEPTH, KinectDepthFile, register_depth
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile

COLOR = Pose(torch.tensor(COLOR_FROM_DEPTH, dtype=torch.float64))


def make_kinect(focal):
    return Pinhole.make(640, 480, fx=focal, fy=focal, cx=320.0, cy=240.0, dtype=torch.float64)


@pytest.fixture(scope="module")
def room():
    return make_random_room(4, dtype=torch.float64)


@pytest.fixture(scope="module")
def poses():
    """Of the depth camera."""
    eyes = torch.tensor([[0.0, -0.2, -1.5], [0.3, -0.3, -1.3]], dtype=torch.float64)
    return [Pose.look_at(eye, [0.2, 0.3, 1.0]) for eye in eyes]


@pytest.fixture(scope="module")
def depths(room, poses):
    """In millimeters, from the depth camera."""
    maps = [room.render(make_kinect(585.0), pose).z_depth for pose in poses]
    return [Image.fromarray((depth.numpy() * 1000).round().astype(np.uint16)) for depth in maps]


@pytest.fixture
def folder(tmp_path, poses, depths):
    """Frames as a Kinect takes them, without colors."""
    for number, (pose, depth) in enumerate(zip(poses, depths, strict=True)):
        stem = tmp_path / f"frame-{number:06d}"
        Image.new("RGB", (640, 480)).save(f"{stem}.color.png")
        depth.save(f"{stem}.depth.png")
        np.savetxt(f"{stem}.pose.txt", pose.world_from_cam.numpy())
    return tmp_path


def test_color_camera_poses_and_depth_agree_with_the_room(folder, room, poses):
    """What the reader gives is what the color camera would have measured, but at depth's edges."""
    scene = read_scene(folder)
    assert scene.cameras[0].params.tolist() == [525.0, 525.0, 320.0, 240.0, 0.0]
    (note,) = scene.notes
    assert "f = 525 px" in note and "2 depth maps are registered" in note
    for view, pose in enumerate(poses):
        expected_pose = pose @ COLOR.inverse()
        torch.testing.assert_close(
            scene.poses[view].world_from_cam, expected_pose.world_from_cam, atol=1e-9, rtol=0
        )
        file = scene.depth[view]
        assert isinstance(file, KinectDepthFile)
        depth = file.read()
        truth = room.render(make_kinect(525.0), expected_pose).z_depth
        known = depth > 0
        assert 0.75 < float(known.double().mean()) < 0.85, "the color camera sees (585/525)² more"
        error = (depth / truth - 1).abs()[known]
        assert float(error.median()) < 2e-3
        assert float((error < 0.02).double().mean()) > 0.97


def test_the_matrix_file_is_the_depth_camera(folder):
    without = read_scene(folder)
    (folder / "camera-intrinsics.txt").write_text("585 0 320\n0 585 240\n0 0 1\n")
    scene = read_scene(folder)
    assert torch.equal(scene.cameras[0].params, without.cameras[0].params)
    assert scene.notes == without.notes


def test_another_recorder_has_one_camera(folder, poses):
    (folder / "camera-intrinsics.txt").write_text("577 0 319.5\n0 578 239.5\n0 0 1\n")
    scene = read_scene(folder)
    assert scene.cameras[0].params[:4].tolist() == [577.0, 578.0, 319.5, 239.5]
    assert type(scene.depth[0]) is DepthFile
    torch.testing.assert_close(scene.poses[0].world_from_cam, poses[0].world_from_cam, atol=1e-9, rtol=0)
    assert "taken as registered" in scene.notes[0]


def test_registered_depth_comes_first(folder):
    Image.fromarray(np.full((480, 640), 1500, np.uint16)).save(folder / "frame-000001.depth.proj.png")
    scene = read_scene(folder)
    assert isinstance(scene.depth[0], KinectDepthFile) and type(scene.depth[1]) is DepthFile
    assert float(scene.depth[1].read().median()) == pytest.approx(1.5)
    assert "1 depth maps are registered to it; 1 depth maps are in it already" in scene.notes[0]


def test_frames_of_another_size_need_a_matrix(tmp_path):
    Image.new("RGB", (320, 240)).save(tmp_path / "frame-000000.color.png")
    np.savetxt(tmp_path / "frame-000000.pose.txt", np.eye(4))
    with pytest.raises(
        ValueError, match=r"camera-intrinsics.txt is missing, and frame-000000.color.png is not 640×480"
    ):
        read_scene(tmp_path)


def test_registration_onto_the_same_camera_changes_nothing():
    camera = Pinhole.from_fov(60.0, 40, 30, dtype=torch.float64)
    depth = torch.rand(30, 40, dtype=torch.float64) + 1
    depth[3:9, 5:9] = 0
    torch.testing.assert_close(
        register_depth(depth, camera, camera, Pose.identity(dtype=torch.float64)), depth
    )


def test_the_nearest_surface_wins_and_pinpricks_are_closed():
    """A wall at 2 m with a slab at 1 m: seen from the left, the slab covers wall, and uncovers nothing on its left."""
    camera = Pinhole.make(200, 50, fx=100.0, fy=100.0, cx=100.0, cy=25.0, dtype=torch.float64)
    depth = torch.full((50, 200), 2.0, dtype=torch.float64)
    depth[:, 80:120] = 1.0
    shift = Pose.from_parts(
        torch.eye(3, dtype=torch.float64), torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)
    )
    moved = register_depth(depth, camera, camera, shift)  # slab moves by 10 px, wall by 5
    assert moved[25, 90:130].tolist() == pytest.approx([1.0] * 40)
    assert moved[25, 85:90].tolist() == [0.0] * 5
    assert moved[25, 130:].tolist() == pytest.approx([2.0] * 70)
    # 5 % magnification would leave every twentieth pixel empty.
    finer = Pinhole.make(210, 50, fx=105.0, fy=105.0, cx=105.0, cy=25.0, dtype=torch.float64)
    magnified = register_depth(depth, camera, finer, Pose.identity(dtype=torch.float64))
    assert ((magnified[5:45, 2:82] - 2.0).abs() < 1e-9).all()


def test_registration_into_any_lens(room, poses):
    source = make_kinect(585.0)
    target = OpenCVFisheye.make(200, 150, fx=120.0, fy=120.0, cx=100.0, cy=75.0, k1=0.02, dtype=torch.float64)
    depth = register_depth(room.render(source, poses[0]).z_depth, source, target, COLOR)
    truth = room.render(target, poses[0] @ COLOR.inverse()).z_depth
    error = (depth / truth - 1).abs()[depth > 0]
    assert float(error.median()) < 0.01


# Real frames


def correlate_colors(views, pairs):
    """Correlation between the gray values of a frame and of another where its depth says that they show the same."""
    values = []
    for i, j in pairs:
        (camera, pose, depth, gray), (_, other_pose, _, other_gray) = views[i], views[j]
        rays, _ = camera.unproject_grid()
        points = pose.apply((rays / rays[..., 2:] * depth[..., None])[depth > 0])
        pixels, ahead = camera.project(other_pose.inverse().apply(points))
        inside = ahead & camera.contains(pixels)
        place = 2 * pixels[inside] / torch.tensor([camera.width, camera.height]) - 1
        seen = torch.nn.functional.grid_sample(
            other_gray[None, None], place[None, None], align_corners=False
        )[0, 0, 0]
        values.append(float(torch.corrcoef(torch.stack([gray[depth > 0][inside], seen]))[0, 1]))
    return float(np.mean(values))


def test_real_frames_agree_in_color(shared_data):
    """Frames about a second apart: registered depth and 525 px explain more than one camera of 585 px for both."""
    scene = read_scene(shared_data / "7scenes_redkitchen100", check=False)
    frames = range(0, 100, 3)
    grays = {
        i: torch.from_numpy(np.asarray(Image.open(scene.images[i]).convert("L"), dtype=np.float64))
        for i in frames
    }
    pairs = list(zip(frames[::4], frames[1::4], strict=False))
    after = {
        i: (scene.cameras[i], scene.poses[i], scene.depth[i].read().double(), grays[i])
        for pair in pairs
        for i in pair
    }
    before = {
        i: (
            make_kinect(585.0),
            scene.poses[i] @ COLOR,
            DepthFile(scene.depth[i].path, "z", 1e-3, 65535.0).read().double(),
            grays[i],
        )
        for i in after
    }
    assert correlate_colors(before, pairs) + 0.03 < correlate_colors(after, pairs)
    assert correlate_colors(after, pairs) > 0.9
