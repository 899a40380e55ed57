"""Rendered objects are read as they were written: Blender axes, pixels, images; what is broken is named."""

import json

import pytest
import torch

from g_ray_lab.datasets.objaverse import NAMES, find_objects, read_cameras, read_image


@pytest.fixture
def folder(tmp_path, write_objects):
    return write_objects(tmp_path, ["ball"], 32) / "ball"


def test_a_pixel_shows_the_point_that_its_camera_says(folder):
    """Colours of the ball are its points: project points by the cameras that were read, and look at the images."""
    read = read_cameras(folder)
    assert read.cameras.batch_shape == (len(NAMES),) == (24,)
    for index, name in enumerate(NAMES):
        camera, pose = read.cameras[index], read.poses[index]
        centre = pose.translation
        near = torch.nn.functional.normalize(
            centre + torch.randn(200, 3, dtype=centre.dtype) * 0.2 * centre.norm(), dim=-1
        )
        points = 0.4 * near
        facing = ((centre - points) * near).sum(-1) > 0.3 * centre.norm()
        pixels, valid = camera.project(pose.inverse().apply(points))
        keep = facing & valid & camera.contains(pixels)
        u, v = pixels[keep].long().clamp(max=31).unbind(-1)
        colours = read_image(folder / "views" / name)[:, v, u].T / 255
        assert keep.sum() > 20
        # A point lies up to half a pixel beside the center whose color it is compared with, and JPEG adds its own.
        errors = (colours - (points[keep] * 1.25 + 0.5)).abs()
        assert errors.mean() < 0.03 and errors.max() < 0.15, name


def test_kinds_share_what_they_should(folder):
    read = read_cameras(folder)
    centre = read.poses.translation.unflatten(0, (8, 3))
    focal = read.cameras.parameter("fx").unflatten(0, (8, 3))
    assert torch.equal(centre[:, 0], centre[:, 1]) and torch.equal(focal[:, 0], focal[:, 2])
    assert not torch.isclose(centre[:, 0], centre[:, 2]).all(-1).any()
    assert not torch.isclose(focal[:, 0], focal[:, 1]).any()


def test_objects_are_the_folders_with_cameras(folder, write_objects):
    root = folder.parent
    write_objects(root, ["aaa"], 8)
    (root / "half" / "views").mkdir(parents=True)
    assert find_objects(root) == ["aaa", "ball"]
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        find_objects(root / "nowhere")


def spoil(change):
    def spoilt(folder):
        path = folder / "cameras.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return spoilt


def opencv_axes(document):
    for entry in document["cameras"]:
        rows = entry["extrinsics"]["camera_to_world"]
        entry["extrinsics"]["camera_to_world"] = [[x, -y, -z, t] for x, y, z, t in rows]


def stretched(document):
    document["cameras"][5]["extrinsics"]["camera_to_world"][0][0] *= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document["cameras"].pop(3), "no camera for 001_0.jpg"),
        (lambda document: document["cameras"][0].pop("intrinsics"), "'intrinsics' is missing"),
        (lambda document: document.pop("cameras"), "'cameras' is missing"),
        (opencv_axes, "must have Blender axes"),
        (stretched, "not a rotation"),
        (
            lambda document: document["cameras"][0]["intrinsics"].update(image_size=[9, 9]),
            "different sizes",
        ),
    ],
)
def test_broken_cameras_are_refused_by_name(folder, change, words):
    spoil(change)(folder)
    with pytest.raises(ValueError, match=words) as caught:
        read_cameras(folder)
    assert str(folder / "cameras.json") in str(caught.value) and "\n" not in str(caught.value)


def test_broken_images_are_refused_by_name(folder):
    path = folder / "views" / NAMES[0]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(OSError, match=r"000_0\.jpg"):
        read_image(path)
    with pytest.raises(OSError, match=r"none\.jpg"):
        read_image(folder / "none.jpg")
