"""A photograph is decoded once to be checked, once for features, depth and the report, and once for the mesh."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from PIL import ImageFile

from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.demo.room import make_random_room
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo, find_photos
from g_ray.media.view import View

VIEWS = 5
MAX_DECODES = 15


@pytest.fixture
def decodes(monkeypatch):
    """How often Pillow has decoded each file since the test began."""
    counts: Counter[str] = Counter()
    load = ImageFile.ImageFile.load

    def count(image):
        if image.tile:  # empty once the pixels are there
            counts[image.fp.name] += 1
        return load(image)

    monkeypatch.setattr(ImageFile.ImageFile, "load", count)
    return counts


@pytest.fixture(scope="module", params=["png", "jpg"])
def capture(request, tmp_path_factory):
    """photos/ of a room, and lenses.json."""
    folder = tmp_path_factory.mktemp("decodes")
    (folder / "photos").mkdir()
    room = make_random_room(0, solids=6, dtype=torch.float32)
    camera = Pinhole.make(200, 150, fx=140.0, fy=140.0, cx=100.0, cy=75.0)
    names = [f"v{view}.{request.param}" for view in range(VIEWS)]
    for view, name in enumerate(names):
        turn = 0.15 * view - 0.4
        eye = torch.tensor([1.3 * math.sin(turn), -0.1, -1.2 - 0.8 * math.cos(turn)])
        pose = Pose.look_at(eye=eye, target=torch.tensor([0.2 * math.sin(1.3 * view), 0.3, 1.0]))
        pixels = (255 * room.render(camera, pose, antialias=2).rgb).round().byte().numpy()
        Image.fromarray(pixels).save(folder / "photos" / name)
    write_cameras(folder / "lenses.json", [View(name, camera) for name in names])
    return folder


def test_five_photographs_are_decoded_fifteen_times(capture, tmp_path, decodes):
    words = ["reconstruct", str(capture / "photos"), "--calibration", str(capture / "lenses.json")]
    assert main([*words, "--out", str(tmp_path / "out"), "--size", "100"]) == 0
    assert len(list((tmp_path / "out" / "images").iterdir())) == VIEWS
    assert sum(decodes.values()) <= MAX_DECODES, decodes


def test_copies_are_made_once_and_released(capture, decodes):
    (photo, *_) = find_photos([capture / "photos"])
    photo.copies.expect(50)
    photo.copies.expect(50)
    full = photo.load()
    first, second = photo.load_copy(50), photo.load_copy(50)
    assert full.shape == (3, 150, 200) and first.shape == (3, 38, 50) and first is second
    assert sum(decodes.values()) == 1
    assert photo.copies.take(50) is None
    assert torch.equal(photo.load_copy(50), first) and sum(decodes.values()) == 2


def test_a_turned_photograph_has_copies_of_its_own():
    photo = Photo("a.jpg", Path("a.jpg"), 40, 30, orientation=6)
    assert photo.turn(upright=False).copies is not photo.copies
