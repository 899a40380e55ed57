"""cameras.json: what is written comes back; what is wrong is refused in one line."""

import json

import numpy as np
import pytest
import torch

from g_ray.cameras import CAMERAS, Pinhole
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View


def written(tmp_path, **changes):
    """A good file with one camera, after changes to that camera."""
    entry = {
        "name": "front",
        "model": "pinhole",
        "width": 64,
        "height": 48,
        "params": {"fx": 50.0, "fy": 50, "cx": 32.0, "cy": 24.0},
    }
    entry = {key: value for key, value in {**entry, **changes}.items() if value is not None}
    path = tmp_path / "cameras.json"
    path.write_text(json.dumps({"format": "g-ray-cameras", "version": 1, "cameras": [entry]}))
    return path


def refusal(path) -> str:
    with pytest.raises(ValueError) as caught:
        read_cameras(path)
    message = str(caught.value)
    assert "\n" not in message and path.name in message
    return message


def test_every_model_comes_back(tmp_path):
    pose = Pose.look_at((1.0, 2.0, 3.0), (0.0, 0.0, 0.0)).to(torch.float64)
    cameras = [
        View(name, model.example(i), pose if i % 2 else None)
        for i, (name, model) in enumerate(CAMERAS.items())
    ]
    write_cameras(tmp_path / "cameras.json", cameras)
    again = read_cameras(tmp_path / "cameras.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "cameras.json",
        f"cameras.rays{list(CAMERAS).index('ray_map')}.npy",
    ]
    for before, after in zip(cameras, again, strict=True):
        assert (before.name, type(before.camera)) == (after.name, type(after.camera))
        assert (before.pose is None) == (after.pose is None)
        for ours, theirs in zip(before.camera.unproject_grid(), after.camera.unproject_grid(), strict=True):
            torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(again[1].pose.world_from_cam, pose.world_from_cam)


def test_distortion_may_be_left_out(tmp_path):
    camera = read_cameras(written(tmp_path))[0].camera
    assert isinstance(camera, Pinhole) and camera.params.tolist() == [50, 50, 32, 24, 0]
    assert camera.dtype == torch.float64


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "camera 'front', colour: unknown key"),
        ({"width": 0}, "camera 'front', width"),
        ({"width": "64"}, "camera 'front', width"),
        ({"name": None}, "camera number 0, name"),
        ({"model": "magic"}, "unknown model 'magic'"),
        ({"params": {"fx": -1.0, "fy": 1.0, "cx": 0.0, "cy": 0.0}}, "fx = -1"),
        ({"params": {"fx": 1.0, "fy": 1.0, "cx": 0.0, "cy": 0.0, "k7": 0.0}}, "unknown parameter k7"),
        ({"params": {"fx": 1.0}}, "fy, cx, cy is missing"),
        ({"world_from_cam": [[1.0, 0, 0]]}, "world_from_cam"),
        ({"world_from_cam": np.diag([2.0, 1, 1, 1]).tolist()}, "not a rigid motion"),
        ({"table": "rays.npy"}, "'table' goes with model ray_map"),
        ({"model": "ray_map"}, "'table' goes with model ray_map"),
        ({"model": "ray_map", "table": "../rays.npy"}, "inside the folder"),
        ({"model": "ray_map", "table": "/etc/rays.npy"}, "inside the folder"),
        ({"model": "ray_map", "table": "absent.npy"}, "cannot be read"),
    ],
)
def test_refusals(tmp_path, changes, said):
    assert said in refusal(written(tmp_path, **changes))


def test_files_that_are_no_camera_files(tmp_path):
    path = tmp_path / "cameras.json"
    assert "cannot be read" in refusal(path)
    path.write_text("{")
    assert "not JSON" in refusal(path)
    for content in ([], {"format": "g-ray-cameras", "version": 2, "cameras": []}, {"cameras": []}):
        path.write_text(json.dumps(content))
        refusal(path)


def test_names_are_unique(tmp_path):
    path = tmp_path / "cameras.json"
    camera = Pinhole.from_fov(60.0, 8, 6)
    write_cameras(path, [View("a", camera), View("a", camera)])
    assert "used twice" in refusal(path)


def test_tables_are_arrays_not_pickles(tmp_path):
    np.save(tmp_path / "rays.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "cannot be read as .npy" in refusal(written(tmp_path, model="ray_map", table="rays.npy"))
    np.save(tmp_path / "rays.npy", np.ones((4, 4)))
    assert "[rows, columns, 3]" in refusal(written(tmp_path, model="ray_map", table="rays.npy"))


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = written(tmp_path)
    before = path.read_bytes()
    batch = Pinhole.stack([Pinhole.from_fov(60.0, 8, 6)] * 2)
    with pytest.raises(ValueError, match="batch"):
        write_cameras(path, [View("many", batch)])
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
