"""A result's folder: what was written is read, half of it never looks finished, and no name leads out of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import CAMERAS, Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction, finish_reconstruction, read_reconstruction, write_views
from g_ray.export.result_paths import get_depth_path, get_image_path
from g_ray.formats.cameras_json import read_cameras
from g_ray.geometry.pose import Pose


def plain(name="a.png", camera=None, **more):
    camera = camera or Pinhole.from_fov(60.0, 8, 6)
    depth = torch.rand(camera.height, camera.width) + 1
    return ReconstructedView(name, camera, Pose.identity(), depth, depth, depth > 0, "test", **more)


def photo(view):
    return torch.rand(3, view.camera.height, view.camera.width)


def finished(folder, *views):
    write_views(folder, views, [photo(view) for view in views])
    finish_reconstruction(Reconstruction(views, folder, "metre", {"x": 1.5}, {"seed": 3}, ("a note",)))


def test_points_project_to_their_pixels(room_results):
    for view in room_results.mixed()[0]:
        points = view.pose.inverse().apply(view.points().flatten(0, 1).to(view.camera.dtype))
        pixels, seen = view.camera.project(points)
        u, v = np.meshgrid(np.arange(view.camera.width) + 0.5, np.arange(view.camera.height) + 0.5)
        error = np.abs(pixels.numpy() - np.stack([u, v], -1).reshape(-1, 2)).max(-1)
        assert seen.all() and error[view.valid.flatten()].max() < 2e-3
        assert torch.allclose(view.z_depth(), points[:, 2].reshape(view.z_depth().shape), atol=1e-4)


def test_what_was_written_is_read(tmp_path, room_results):
    views, images = room_results.mixed()
    write_views(tmp_path, views, images)
    written = room_results.result(tmp_path, views)
    assert not written.finished
    finish_reconstruction(replace(written, notes=("a note",)))
    read = read_reconstruction(str(tmp_path))
    assert read.finished and (read.unit, read.metrics, read.settings) == (
        "metre",
        written.metrics,
        written.settings,
    )
    assert read.notes == ("a note",) and len(read.views) == len(views) == len(read.poses())
    for index, (one, other) in enumerate(zip(views, read.views, strict=True)):
        assert (one.name, one.calibration, one.camera.NAME) == (
            other.name,
            other.calibration,
            other.camera.NAME,
        )
        assert torch.equal(one.camera.params.double(), other.camera.params)
        assert torch.equal(one.pose.world_from_cam.double(), other.pose.world_from_cam)
        assert torch.equal(one.true_pose.world_from_cam.double(), other.true_pose.world_from_cam)
        for name in ("ray_depth", "confidence", "valid"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        with np.load(tmp_path / "depth" / f"{one.name}.npz") as stored:
            assert np.allclose(stored["z_depth"], one.z_depth().numpy(), atol=1e-6)
        stored = np.asarray(Image.open(read.get_image_path(one.name))) / 255
        assert np.abs(stored - images[index].movedim(0, -1).numpy()).max() < 0.003
    assert [view.name for view in read.views[1:3]] == [view.name for view in views[1:3]]
    assert [named.source for named in read_cameras(tmp_path / "cameras.json")] == ["rendered"] * 4


@pytest.mark.parametrize("name", CAMERAS)
def test_every_camera_model_survives(tmp_path, name):
    view = plain(camera=CAMERAS[name].example(seed=1, width=16, height=12))
    finished(tmp_path, view)
    (read,) = read_reconstruction(tmp_path).views
    assert name == read.camera.NAME
    assert torch.allclose(read.points(), view.points(), atol=1e-9)


def test_an_unfinished_folder_is_read_with_what_is_there(tmp_path):
    first, second = plain("deep/er/a.jpg"), plain("b.dng")
    write_views(tmp_path, [first], [photo(first)])
    assert [view.name for view in read_reconstruction(tmp_path).views] == ["deep/er/a.jpg"]
    write_views(tmp_path, [second], [photo(second)])
    read = read_reconstruction(tmp_path)
    assert not read.finished and [view.name for view in read.views] == ["deep/er/a.jpg", "b.dng"]
    assert (tmp_path / "images" / "deep" / "er" / "a.jpg").is_file()
    assert read.get_image_path("b.dng") == tmp_path / "images" / "b.dng.png"
    get_depth_path(tmp_path, "b.dng").unlink()
    assert len(read_reconstruction(tmp_path).views) == 1


def test_writing_again_unfinishes_and_forgets_what_is_gone(tmp_path):
    old, new = plain("old.png"), plain("new.png")
    finished(tmp_path, old)
    write_views(tmp_path, [new], [photo(new)])
    assert not read_reconstruction(tmp_path).finished
    finish_reconstruction(Reconstruction((new,), tmp_path))
    assert [view.name for view in read_reconstruction(tmp_path).views] == ["new.png"]


def test_a_failure_leaves_no_half_file(tmp_path, monkeypatch):
    view = plain()
    monkeypatch.setattr(
        np.lib.format, "write_array", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        finished(tmp_path, view)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.png"]
    with pytest.raises(ValueError, match="is no reconstruction"):
        read_reconstruction(tmp_path)


def test_a_photograph_is_copied_bit_by_bit_or_encoded(tmp_path):
    view = plain("a.jpg")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    for name, copied in (("a.jpg", True), ("a.png", False)):
        Image.fromarray(pixels).save(tmp_path / name)
        write_views(tmp_path / "out", [view], [tmp_path / name])
        same = (tmp_path / "out" / "images" / "a.jpg").read_bytes() == (tmp_path / name).read_bytes()
        assert same is copied
    tag = Image.Exif()
    tag[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=tag)
    with pytest.raises(ValueError, match="stored turned"):
        write_views(tmp_path / "out", [view], [tmp_path / "turned.jpg"])
    with pytest.raises(ValueError, match=r"5×6 px, but its camera takes 8×6"):
        write_views(tmp_path / "out", [view], [torch.rand(3, 6, 5)])


@pytest.mark.parametrize(
    "name",
    ["../a.png", "/a.png", "a/../../b.png", "C:\\a.png", "a\\b.png", "", ".", "a//b.png", "./a.png", "a\0b"],
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    for place in (get_image_path, get_depth_path):
        with pytest.raises(ValueError, match=r"path|name of a file"):
            place(tmp_path, name)
    with pytest.raises(ValueError, match=r"path|name of a file"):
        write_views(tmp_path, [plain(name)], [photo(plain())])


def without(*files):
    def prepare(folder):
        finished(folder, plain())
        for file in files:
            (folder / file).unlink() if (folder / file).is_file() else (folder / file).rmdir()

    return prepare


def with_result(change):
    def prepare(folder):
        finished(folder, plain())
        path = folder / "result.json"
        text = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
        path.write_text(text)

    return prepare


DEPTH = "depth/a.png.npz"
BROKEN = {
    "no folder": (lambda folder: None, "no such folder"),
    "an empty folder": (lambda folder: folder.mkdir(), "is no reconstruction"),
    "cameras alone": (without(DEPTH, "depth"), "is no reconstruction"),
    "nothing is finished": (without("result.json", DEPTH), "no view is finished"),
    "a lost depth map": (without(DEPTH), "a.png.npz is missing"),
    "no JSON": (with_result("{"), "result.json cannot be read"),
    "a list": (with_result("[]"), "result.json cannot be read"),
    "another version": (with_result({"version": 2}), "must be g-ray-result version 1"),
    "another unit": (with_result({"unit": "mile"}), "result.json cannot be read"),
    "other views": (with_result({"views": ["b"]}), "name different views"),
    "notes that are no text": (with_result({"notes": [["x"]]}), "notes must be sentences"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_folder_that_is_none_is_refused_in_one_line(tmp_path, case):
    prepare, message = BROKEN[case]
    prepare(tmp_path / "r")
    with pytest.raises(ValueError, match=message) as caught:
        read_reconstruction(tmp_path / "r")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text"])
def test_a_broken_depth_map_is_named(tmp_path, content):
    finished(tmp_path, plain())
    (tmp_path / "depth" / "a.png.npz").write_bytes(content)
    read = read_reconstruction(tmp_path)
    with pytest.raises(ValueError, match=r"a\.png\.npz cannot be read") as caught:
        read.views[0]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("depth", [-1.0, 0.0, float("nan")])
def test_depth_that_is_none_is_refused(tmp_path, depth):
    finished(tmp_path, plain())
    path = tmp_path / "depth" / "a.png.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{**arrays, "ray_depth": np.full_like(arrays["ray_depth"], depth)})
    with pytest.raises(ValueError, match="valid pixels is not"):
        read_reconstruction(tmp_path).views[0]


def test_depth_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"depth of 5×4 px, but its camera takes 8×6"):
        ReconstructedView(
            "a.png", Pinhole.from_fov(60.0, 8, 6), Pose.identity(), torch.ones(4, 5), torch.ones(4, 5),
            torch.ones(4, 5) > 0, "test",
        )  # fmt: skip
