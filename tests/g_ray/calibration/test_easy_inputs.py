"""Inputs that need no preparation: lenses as words, HEIC, rounded poses, photographs that nothing ties in."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.calibration import assign_cameras, find_photos
from g_ray.calibration.estimators import colmap_estimator
from g_ray.calibration.estimators.colmap_estimator import ColmapEstimator
from g_ray.cameras import Pinhole
from g_ray.export.result import group_reasons
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media import images
from g_ray.media.images import read_photo
from g_ray.media.view import View

FOCAL_35MM = 41989


def save(path, size=(64, 48), focal=None):
    exif = Image.Exif()
    if focal:
        exif.get_ifd(34665)[FOCAL_35MM] = focal
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, exif=exif)
    return str(path)


def test_a_panorama_by_its_word(tmp_path):
    photos = find_photos([save(tmp_path / "a.jpg", (64, 32))])
    (view,) = assign_cameras(photos, "panorama")
    assert view.camera.NAME == "equirectangular"
    assert float(view.camera.fov().horizontal_deg) == pytest.approx(360, abs=6)
    with pytest.raises(ValueError, match="64×48 px, and a panorama of 360°×180° is twice as wide"):
        assign_cameras(find_photos([save(tmp_path / "b.jpg")]), "panorama")


def test_a_fisheye_by_its_field_of_view(tmp_path):
    photos = find_photos([save(tmp_path / "a.jpg", (200, 200))])
    (view,) = assign_cameras(photos, ["*.jpg=fisheye:190"])
    rays, valid = view.camera.unproject(torch.tensor([[200.0, 100], [100, 100], [199, 199]]).double())
    assert valid.tolist() == [True, True, False]
    assert math.degrees(math.acos(float(rays[0, 2]))) == pytest.approx(95)
    for word in ("fisheye", "fisheye:wide", "fisheye:400", "fisheye:nan"):
        with pytest.raises(ValueError, match="field of view"):
            assign_cameras(photos, word)


def test_heic_is_read_and_explained_where_it_cannot_be(tmp_path, monkeypatch):
    pillow_heif = pytest.importorskip("pillow_heif")
    pixels = np.full((48, 64, 3), (200, 60, 20), np.uint8)
    pillow_heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "a.heic")
    (photo,) = find_photos([str(tmp_path)])
    assert (photo.width, photo.height) == (64, 48)
    image = read_photo(tmp_path / "a.heic")
    (tmp_path / "renamed.jpg").write_bytes((tmp_path / "a.heic").read_bytes())
    assert torch.equal(read_photo(tmp_path / "renamed.jpg"), image)
    assert torch.allclose(image.mean((1, 2)), torch.tensor([200.0, 60, 20]) / 255, atol=0.02)
    # As if the package were not there.
    monkeypatch.setattr(images, "FORMATS", tuple(name for name in images.FORMATS if name != "HEIF"))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(OSError, match=r"a\.heic: HEIC photographs need pillow-heif: pip install"):
        read_photo(tmp_path / "a.heic")


def test_rounded_rotations_become_the_nearest_ones(tmp_path):
    camera = Pinhole.from_fov(60.0, 64, 48, dtype=torch.float64)
    pose = Pose.look_at([1.0, 0.3, 0.2], [0.0, 0.1, 2.0]).to(torch.float64)
    path = tmp_path / "cameras.json"
    write_cameras(path, [View("a.jpg", camera, pose)])
    document = json.loads(path.read_text())
    rounded = [[round(value, 3) for value in row] for row in document["cameras"][0]["world_from_cam"]]
    document["cameras"][0]["world_from_cam"] = rounded
    path.write_text(json.dumps(document))
    said = []
    (view,) = assign_cameras(find_photos([save(tmp_path / "a.jpg")]), str(path), report=said.append)
    rotation = view.get_pose().rotation
    assert torch.allclose(rotation @ rotation.mT, torch.eye(3, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(rotation, pose.rotation, atol=1e-3)
    assert any("1 rotations are rounded" in text for text in said)
    document["cameras"][0]["world_from_cam"][0][0] += 0.01
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="not a rigid motion"):
        assign_cameras(find_photos([str(tmp_path / "a.jpg")]), str(path))


def test_exif_is_what_is_left_where_nothing_can_be_estimated(tmp_path, monkeypatch):
    """Two photographs that share nothing: COLMAP finds no model."""
    names = [save(tmp_path / name, focal=28) for name in ("a.jpg", "b.jpg")]
    monkeypatch.setattr(ColmapEstimator, "_run_colmap", lambda *given: None)
    said = []
    views = assign_cameras(find_photos(names), "estimate:colmap", report=said.append)
    assert [view.source for view in views] == ["EXIF focal length"] * 2
    assert any("focal lengths of EXIF are used" in text for text in said)
    names.append(save(tmp_path / "c.jpg"))
    with pytest.raises(ValueError, match="found no model"):
        assign_cameras(find_photos(names), "estimate:colmap")


def test_a_lens_that_nothing_ties_in_is_left_out(tmp_path, monkeypatch):
    names = [save(tmp_path / name) for name in ("a.jpg", "b.jpg")]
    names += [save(tmp_path / "exif.jpg", (80, 60), focal=28), save(tmp_path / "lost.jpg", (96, 64))]
    photos = find_photos(names)
    camera = Pinhole.from_fov(60.0, 64, 48, dtype=torch.float64)

    def collect(estimator, groups, model):
        known = {photo.name: estimator.make_calibrated(photo, camera, None) for photo in photos[:2]}
        return known, ["exif.jpg", "lost.jpg"]

    monkeypatch.setattr(ColmapEstimator, "_run_colmap", lambda *given: object())
    monkeypatch.setattr(colmap_estimator, "_collect_views", collect)
    said = []
    views = assign_cameras(photos, "estimate:colmap", report=said.append)
    assert [view.name for view in views] == ["a.jpg", "b.jpg", "exif.jpg"]
    assert any("left out: lost.jpg" in text for text in said)


def test_a_kind_of_problem_is_named_once():
    reasons = [(f"{n}.jpg", f"too few matches (best: {n} with a.jpg)") for n in range(5)] + [
        ("x.jpg", "blank")
    ]
    assert group_reasons(reasons) == [("0.jpg, 1.jpg, 2.jpg, … (5)", "too few matches"), ("x.jpg", "blank")]
    assert group_reasons(reasons[:1]) == [("0.jpg", "too few matches (best: 0 with a.jpg)")]
