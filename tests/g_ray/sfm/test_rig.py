"""Rigs: readers against COLMAP's, names, and what is refused."""

import json

import numpy as np
import pycolmap
import pytest
import torch

from g_ray.formats.aria import AriaSource
from g_ray.geometry.pose import Pose
from g_ray.sfm import Rig, read_kalibr_rig, read_rig_cameras, read_rig_config

LEFT = Pose.identity(dtype=torch.float64)
RIGHT = Pose.from_parts(torch.eye(3, dtype=torch.float64), torch.tensor([0.2, 0.0, 0.0], dtype=torch.float64))


def test_rig_config_reads_as_in_colmap(tmp_path):
    path = tmp_path / "rig_config.json"
    cameras = [
        {"image_prefix": "rig/left/", "ref_sensor": True},
        {
            "image_prefix": "rig/right/",
            "cam_from_rig_rotation": [0.9, 0.1, -0.3, 0.3],
            "cam_from_rig_translation": [-0.2, 0.01, 0.03],
        },
    ]
    path.write_text(json.dumps([{"cameras": cameras}]))
    ours = read_rig_config(path)
    (theirs,) = pycolmap.read_rig_config(str(path))
    assert list(ours) == ["rig/left", "rig/right"]
    matrix = np.asarray(theirs.cameras[1].cam_from_rig.matrix())
    assert torch.allclose(ours["rig/right"].inverse().world_from_cam[:3], torch.from_numpy(matrix), atol=1e-9)


def test_kalibr_chain_is_followed(tmp_path):
    path = tmp_path / "camchain.yaml"
    turn = [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]]
    rows = "\n".join(f"  - {row}" for row in turn)
    path.write_text(
        f"cam0:\n  camera_model: pinhole\ncam1:\n  T_cn_cnm1:\n{rows}\ncam2:\n  T_cn_cnm1:\n{rows}\n"
    )
    rig = read_kalibr_rig(path)
    step = torch.tensor(turn, dtype=torch.float64)
    assert torch.allclose(rig["cam2"].inverse().world_from_cam, step @ step)


def test_cameras_of_a_long_kalibr_chain_follow_their_numbers(tmp_path):
    """Every camera is one meter further than the last; by their letters cam10 would come before cam2."""
    step = np.eye(4)
    step[0, 3] = -1.0
    rows = {"T_cn_cnm1": step.tolist()}
    path = tmp_path / "camchain.yaml"
    path.write_text(
        json.dumps({"cam0": {"camera_model": "pinhole"}} | {f"cam{number}": rows for number in range(1, 12)})
    )
    rig = read_kalibr_rig(path)
    assert [round(float(pose.translation[0])) for pose in rig.values()] == list(range(12))
    places = Rig.from_names(["cam1/7.png", "cam10/7.png", "cam11/7.png"], rig).places
    assert places == (("cam1", "7"), ("cam10", "7"), ("cam11", "7"))
    path.write_text(json.dumps({"cam0": {}, "cam1": []}))
    with pytest.raises(ValueError, match="cam1 has no T_cn_cnm1"):
        read_kalibr_rig(path)


def test_aria_cameras_stand_where_the_device_has_them(tmp_path):
    """A quarter turn about z, by hand: the camera's x axis is the device's y axis."""
    path = AriaSource.example(tmp_path).path
    document = json.loads(path.read_text())
    half = 0.5**0.5
    place = {"Translation": [0.1, 0.02, -0.003], "UnitQuaternion": [half, [0.0, 0.0, half]]}
    entry = document["CameraCalibrations"][0]
    path.write_text(
        json.dumps(
            {"CameraCalibrations": [entry, entry | {"Label": "camera-slam-left", "T_Device_Camera": place}]}
        )
    )
    rig = read_rig_cameras(path)
    assert list(rig) == ["camera-rgb", "camera-slam-left"]
    turned = [[0.0, -1, 0, 0.1], [1, 0, 0, 0.02], [0, 0, 1, -0.003], [0, 0, 0, 1]]
    assert torch.allclose(rig["camera-slam-left"].world_from_cam, torch.tensor(turned, dtype=torch.float64))
    places = Rig.from_names(["camera-rgb/7.jpg", "camera-slam-left/7.jpg"], rig).places
    assert places == (("camera-rgb", "7"), ("camera-slam-left", "7"))
    cameras = json.loads(path.read_text())["CameraCalibrations"]
    path.write_text(json.dumps({"CameraCalibrations": str(cameras)}))  # as MPS wrote it before June 2023
    assert list(read_rig_cameras(path)) == ["camera-rgb", "camera-slam-left"]
    path.write_text(json.dumps({"CameraCalibrations": [{"Label": "camera-rgb"}]}))
    with pytest.raises(ValueError, match=r"not a rig of Project Aria \('T_Device_Camera' is missing\)"):
        read_rig_cameras(path)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("left/0001.jpg", ("left", "0001")),
        ("a/0001_left.jpg", ("left", "a/0001_")),
        ("right-17.png", ("right", "-17")),
        ("alone.png", None),
    ],
)
def test_names_say_camera_and_instant(name, place):
    rig = Rig.from_names([name, "left/x.png"], {"left": LEFT, "right": RIGHT})
    assert rig.places[0] == place


def test_pattern_says_camera_and_instant():
    pattern = r"(?P<instant>\d+)(?P<camera>[lr])"
    rig = Rig.from_names(["12l.png", "12r.png", "x.png"], {"l": LEFT, "r": RIGHT}, pattern)
    assert rig.places == (("l", "12"), ("r", "12"), None)
    assert rig.baseline == pytest.approx(0.2)


def test_impossible_rigs_are_refused():
    with pytest.raises(ValueError, match="two photographs at instant 1"):
        Rig({"left": LEFT}, (("left", "1"), ("left", "1")))
    with pytest.raises(ValueError, match="camera front at instant 1 has no pose"):
        Rig({"left": LEFT}, (("front", "1"),))
    with pytest.raises(ValueError, match="not a rotation"):
        Rig({"left": Pose(2 * torch.eye(4, dtype=torch.float64))}, ())
    with pytest.raises(ValueError, match="no photograph is named after"):
        Rig.from_names(["a.png"], {"left": LEFT})
