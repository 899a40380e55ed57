"""Damaged datasets: the file is named in one line."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.evaluation_scene import Framing


@pytest.fixture
def copy(miniature, tmp_path):
    """`copy(name)`: a copy of a miniature that may be damaged, and its first scene's name."""

    def make(name):
        root, _, scene = miniature(name)
        shutil.copytree(root, tmp_path / "copy")
        return tmp_path / "copy", scene.name

    return make


def load(name, root, scene, frame=0):
    one = DATASETS[name].read(root, scene).frames[frame]
    return one.load_view(Framing.fit(one.camera, 30, 20))


def test_pandaset_with_a_pose_that_is_nan(copy):
    root, scene = copy("pandaset")
    path = root / scene / "camera" / "left_camera" / "poses.json"
    poses = json.loads(path.read_text())
    poses[1]["position"]["x"] = float("nan")
    path.write_text(json.dumps(poses))
    with pytest.raises(ValueError, match=r"left_camera/poses\.json: pose 1 is not a rotation and a position"):
        load("pandaset", root, scene)


def test_pandaset_with_a_missing_image(copy):
    root, scene = copy("pandaset")
    (root / scene / "camera" / "left_camera" / "02.jpg").unlink()
    with pytest.raises(ValueError, match=r"left_camera/poses\.json: not one pose for each of the 3 images"):
        load("pandaset", root, scene)


def test_pandaset_with_a_table_of_something_else(copy):
    root, scene = copy("pandaset")
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"label": [1, 2]}).to_pickle(root / scene / "lidar" / "00.pkl.gz")
    with pytest.raises(OSError, match=r"00\.pkl\.gz: no columns x, y, z but label"):
        load("pandaset", root, scene)


def test_eth3d_with_a_truncated_depth_map(copy):
    root, scene = copy("eth3d")
    name = DATASETS["eth3d"].read(root, scene).frames[0].name
    path = root / scene / "ground_truth_depth" / "dslr_images" / name
    path.write_bytes(path.read_bytes()[:-8])
    for dataset in ("eth3d", "eth3d-raw"):
        with pytest.raises(OSError, match=r"DSC_0709\.JPG: 38392 bytes, but 120×80 numbers take 38400"):
            load(dataset, root, scene)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("eth3d-raw", "images/dslr_images/DSC_0709.JPG"),
        ("scannetpp-mixed", "dslr/resized_images/DSC00000.JPG"),
        ("scannetpp-undistorted", "dslr/resized_images/DSC00000.JPG"),
    ],
)
def test_an_image_of_another_size(copy, name, place):
    root, scene = copy(name)
    (path,) = root.glob(f"**/{scene}/{place}")
    Image.fromarray(np.zeros((60, 90, 3), np.uint8)).save(path)
    with pytest.raises(ValueError, match="is 90×60 px, but its camera takes 120×80"):
        load(name, root, scene)


def test_scannetpp_without_its_mesh(copy):
    root, scene = copy("scannetpp-mixed")
    (root / "data" / scene / "scans" / "mesh_aligned_0.05.ply").unlink()
    with pytest.raises(OSError, match=r"mesh_aligned_0\.05\.ply: no such mesh"):
        load("scannetpp-mixed", root, scene)


def test_scannetpp_does_not_read_the_permuted_transforms(copy):
    root, scene = copy("scannetpp-mixed")
    before = DATASETS["scannetpp-mixed"].read(root, scene).fingerprint()
    (root / "data" / scene / "dslr" / "nerfstudio" / "transforms.json").write_text("{}")
    assert DATASETS["scannetpp-mixed"].read(root, scene).fingerprint() == before


def test_scannetpp_with_nan_poses(copy):
    root, scene = copy("scannetpp-mixed")
    path = root / "data" / scene / "iphone" / "colmap" / "images.txt"
    lines = path.read_text().splitlines()
    words = lines[4].split()
    lines[4] = " ".join([words[0], "nan", *words[2:]])
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"the pose of video/frame_000000\.jpg is not one"):
        load("scannetpp-mixed", root, scene)


def test_masked_pixels_are_not_scored(miniature):
    _, _, scene = miniature("scannetpp-mixed")
    frame = scene["dslr/DSC00000.JPG"]
    view = frame.load_view(Framing.whole(frame.camera, 120, 80))
    assert not bool(view.valid[:10, :15].any())
    assert bool(view.valid[12:, 18:].all())
    _, _, scene = miniature("pandaset")
    frame = scene["back_camera/00"]
    view = frame.load_view(Framing.whole(frame.camera, frame.camera.width, frame.camera.height))
    rows = round(frame.camera.height * 820 / 1080)
    assert bool(view.valid[:rows].any())
    assert not bool(view.valid[rows:].any())


# Recordings


@pytest.mark.parametrize(
    ("name", "pattern", "change", "message"),
    [
        (
            "sintel",
            "depth/*/frame_0001.dpt",
            lambda old: old[:-4],
            r"frame_0001\.dpt: 24476 bytes of depth for 120×51",
        ),
        ("sintel", "camdata_left/*/frame_0001.cam", lambda old: old[:-8], r"frame_0001\.cam: 164 bytes"),
        (
            "sintel",
            "camdata_left/*/frame_0001.cam",
            lambda old: b"x" + old[1:],
            "does not begin with Sintel's tag",
        ),
        ("tum", "*/groundtruth.txt", lambda old: old[:-20], "not a time and 7 values"),
        ("tum", "*/groundtruth.txt", lambda old: old.replace(b" 0.", b" nan."), "is not made of numbers"),
        (
            "nrgbd",
            "*/poses.txt",
            lambda old: old[: old.rindex(b"\n", 0, -1)],
            "15 rows of 4, but 4 images take 16",
        ),
        (
            "nrgbd",
            "*/poses.txt",
            lambda old: b"nan nan nan nan\n" * 16,
            r"poses\.txt: pose 0 is not a rotation",
        ),
        ("nrgbd", "*/depth/depth0.png", lambda old: old[:300], r"depth0\.png: cannot be read"),
        (
            "dtu",
            "*/cams/00000000_cam.txt",
            lambda old: old.replace(b"intrinsic", b"inside"),
            "not a camera of MVSNet",
        ),
        (
            "dtu",
            "*/depths/00000000.npy",
            lambda old: old[:-4],
            r"00000000\.npy: cannot be read as numpy array",
        ),
        ("kitti", "*/calib_cam_to_cam.txt", lambda old: b"", "no P_rect_02 in it"),
        ("7scenes", "*/*/frame-000000.pose.txt", lambda old: b"1 2 3", "not a 4×4 matrix of numbers"),
    ],
)
def test_a_damaged_recording_is_named(copy, name, pattern, change, message):
    root, scene = copy(name)
    path = sorted(root.glob(f"**/{pattern}"))[0]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises((ValueError, OSError), match=message) as caught:
        load(name, root, scene)
    assert "\n" not in str(caught.value)


def test_kitti_with_a_depth_map_without_image(copy):
    root, scene = copy("kitti")
    next(root.glob(f"*/{scene}/image_02/data/0000000006.png")).unlink()
    with pytest.raises(ValueError, match=r"0000000006\.png: no image for a depth map"):
        load("kitti", root, scene)


@pytest.mark.parametrize("name", ["tum", "nrgbd", "dtu", "sintel"])
def test_a_recording_with_an_image_of_another_size(copy, name):
    root, scene = copy(name)
    frame = DATASETS[name].read(root, scene).frames[1]
    (path,) = frame.image.list_files()
    Image.fromarray(np.zeros((33, 22, 3), np.uint8)).save(path)
    with pytest.raises((ValueError, OSError), match=r"22×33|principal point"):
        load(name, root, scene, frame=1)
