"""EXIF orientation: one rule for photographs with a calibration and for scene folders."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from g_ray.calibration.assign import assign_cameras
from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.formats import CALIBRATIONS, SCENES, read_scene
from g_ray.formats.cameras_json import write_cameras
from g_ray.media.photos import Photo, find_photos, orient_photo
from g_ray.media.view import View

STORED, UPRIGHT = (64, 48), (48, 64)
TRANSPOSED, HALF_TURN = 6, 3


def camera_file(path, size):
    lens = Pinhole.from_fov(60.0, *size, dtype=torch.float64)
    write_cameras(path, [View("camera", lens)])
    return str(path)


def nerfstudio_scene(folder, name, size):
    """A scene of one frame whose camera takes images of this size."""
    width, height = size
    frame = {"file_path": name, "transform_matrix": np.eye(4).tolist()}
    document = {"fl_x": 60.0, "w": width, "h": height, "frames": [frame]}
    (folder / "transforms.json").write_text(json.dumps(document))
    return folder


def expected_pixels(path, upright):
    with Image.open(path) as image:
        pixels = np.asarray(ImageOps.exif_transpose(image) if upright else image)
    return torch.from_numpy(pixels.copy()).movedim(-1, 0) / 255


@pytest.mark.parametrize(("size", "upright"), [(UPRIGHT, True), (STORED, False)])
def test_the_size_of_the_camera_decides(tmp_path, shoot, size, upright):
    path = shoot("a.png", STORED, {274: TRANSPOSED})
    reports = []
    (view,) = assign_cameras(
        find_photos([path]), camera_file(tmp_path / "c.json", size), report=reports.append
    )
    assert (view.camera.width, view.camera.height) == size
    assert torch.equal(view.load_image(), expected_pixels(path, upright))
    assert bool(reports) is not upright and all("used as stored" in report for report in reports)
    scene = read_scene(nerfstudio_scene(path.parent, path.name, size))
    assert torch.equal(scene.views[0].load_image(), expected_pixels(path, upright))


def test_where_the_size_cannot_tell_photos_are_upright_and_scene_folders_as_stored(tmp_path, shoot):
    path = shoot("a.png", STORED, {274: HALF_TURN})
    reports = []
    (view,) = assign_cameras(
        find_photos([path]), camera_file(tmp_path / "c.json", STORED), report=reports.append
    )
    assert torch.equal(view.load_image(), expected_pixels(path, upright=True))
    assert "turned upright according to EXIF" in reports[0]
    folder = nerfstudio_scene(path.parent, path.name, STORED)
    stored = expected_pixels(path, upright=False)
    assert torch.equal(read_scene(folder).views[0].load_image(), stored)
    (view,) = assign_cameras(find_photos([path]), str(folder), report=reports.append)
    assert torch.equal(view.load_image(), stored) and "used as stored" in reports[1]


def test_a_calibration_of_stored_pixels_without_a_size_is_not_taken_for_a_turned_photo(tmp_path, shoot):
    path = shoot("a.png", STORED, {274: TRANSPOSED})
    (tmp_path / "c.json").write_text(json.dumps({"K": [[60.0, 0, 31.5], [0, 60.0, 23.5], [0, 0, 1]]}))
    with pytest.raises(ValueError, match="far from the middle of 48×64"):
        assign_cameras(find_photos([path]), str(tmp_path / "c.json"))
    (view,) = assign_cameras(find_photos([path], upright=False), str(tmp_path / "c.json"))
    assert (view.camera.width, view.camera.height) == STORED


def test_as_stored_is_as_stored(tmp_path, shoot):
    path = shoot("a.png", STORED, {274: HALF_TURN})
    photos = find_photos([path], upright=False)
    (view,) = assign_cameras(photos, camera_file(tmp_path / "c.json", STORED))
    assert torch.equal(view.load_image(), expected_pixels(path, upright=False))
    turned = find_photos([shoot("b.png", STORED, {274: TRANSPOSED})], upright=False)
    with pytest.raises(ValueError, match="turned by 90°"):
        assign_cameras(turned, camera_file(tmp_path / "d.json", UPRIGHT))


def test_colmap_ignores_exif(shoot):
    """Why cameras of scene folders are taken to be of stored pixels."""
    pycolmap = pytest.importorskip("pycolmap")
    path = shoot("a.jpg", STORED, {274: TRANSPOSED})
    assert pycolmap.Bitmap.read(str(path), True).to_array().shape[:2] == STORED[::-1]
    assert CALIBRATIONS["colmap"].IGNORES_EXIF and not CALIBRATIONS["opencv"].IGNORES_EXIF


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(64, 48), (50, 50)])
def test_turning_back_and_forth_changes_nothing(tmp_path, orientation, size):
    photo = Photo("a.png", tmp_path / "a.png", *size, orientation)
    assert photo.turn(False).turn(True) == photo
    assert orient_photo(photo, (photo.width, photo.height)) == photo
    stored = photo.turn(False)
    assert orient_photo(stored, None) == stored


def test_reconstruct_writes_stored_pixels_without_their_tag(tmp_path, shoot):
    """A copied tag would turn them again in every program that opens them."""
    paths = [shoot(f"{name}.jpg", STORED, {274: TRANSPOSED}) for name in "ab"]
    words = ["reconstruct", *map(str, paths), "--calibration", camera_file(tmp_path / "c.json", STORED)]
    assert main([*words, "--as-stored", "--model", "network", "--out", str(tmp_path / "out")]) == 0
    with Image.open(tmp_path / "out" / "images" / "a.jpg") as image:
        assert image.size == STORED and 274 not in image.getexif()


# Scene formats


def test_every_scene_format_has_a_title_of_its_own(tmp_path):
    assert len({one.title for one in SCENES.values()}) == len(SCENES)
    assert not any(one.recognizes(tmp_path) for one in SCENES.values())
    with pytest.raises(ValueError) as caught:
        read_scene(tmp_path)
    assert all(one.marker in str(caught.value) for one in SCENES.values())
