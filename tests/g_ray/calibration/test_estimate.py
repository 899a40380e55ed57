"""Estimators: COLMAP on real photos, the others against fakes that have exactly their documented faces."""

import math
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.calibration.estimators import ESTIMATORS, choose_estimator
from g_ray.calibration.estimators.colmap_estimator import ColmapEstimator, group_by_device, is_likely
from g_ray.calibration.estimators.estimator import Estimator
from g_ray.cameras import OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.media.photos import find_photos
from g_ray.models.vggt import EncodedCameras


@pytest.fixture
def photos(shoot):
    return find_photos([shoot("a.png", (640, 480)), shoot("b.png", (640, 480))])


@pytest.fixture
def fake(monkeypatch):
    """`fake("a.b", Name=object)` puts a module where `import a.b` finds it."""

    def put(name: str, **contents: object) -> None:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            if part not in sys.modules:
                monkeypatch.setitem(sys.modules, part, ModuleType(part))
        for key, value in contents.items():
            monkeypatch.setattr(sys.modules[name], key, value, raising=False)

    return put


class Network:
    """What the peers' networks have in common."""

    training = True

    def eval(self):
        self.training = False
        return self


# Names


@pytest.mark.parametrize(
    ("text", "name", "fisheye"),
    [
        ("estimate", "colmap", False),
        ("estimate:fisheye", "colmap", True),
        ("estimate:anycalib", "anycalib", False),
        ("estimate:anycalib:fisheye", "anycalib", True),
    ],
)
def test_names(text, name, fisheye):
    estimator = choose_estimator(text)
    assert (estimator.NAME, estimator.fisheye) == (name, fisheye)


@pytest.mark.parametrize(
    "text", ["estimate:", "estimate:x", "estimate:vggt:geocalib", "estimate:fisheye:fisheye"]
)
def test_wrong_names(text):
    with pytest.raises(ValueError, match=", ".join(ESTIMATORS)):
        choose_estimator(text)


@pytest.mark.parametrize("name", ["anycalib", "geocalib", "unik3d"])
def test_a_package_that_is_not_there(name, photos, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OSError, match=f"estimate:{name} needs the package {name}.*pip install") as raised:
        assign_cameras(photos, f"estimate:{name}")
    assert "\n" not in str(raised.value)


# AnyCalib


def anycalib(intrinsics, success=True):
    class AnyCalib(Network):
        def __init__(self, *, model_id="anycalib_pinhole"):
            assert model_id in ("anycalib_pinhole", "anycalib_gen", "anycalib_dist", "anycalib_edit")

        def predict(self, im, cam_id):
            assert not self.training and im.ndim == 3 and im.shape[0] == 3 and 0 <= im.min() <= im.max() <= 1
            values = torch.tensor(intrinsics[cam_id], dtype=torch.float32)
            return {
                "intrinsics": values,
                "rays": torch.zeros(102400, 3),
                "pred_size": (280, 364),
                "success": torch.tensor(success),
            }

    return AnyCalib


INTRINSICS = {
    "radial:2": [500.0, 501.0, 320.0, 240.0, -0.1, 0.02],
    "kb:4": [300.0, 300.0, 321.0, 239.0, 0.02, 0, 0, 0],
    "pinhole": [505.0, 506.0, 322.0, 238.0],
}


def test_anycalib(fake, photos):
    fake("anycalib", AnyCalib=anycalib(INTRINSICS))
    first, second = assign_cameras(photos, "estimate:anycalib")
    assert first.camera.NAME == "opencv" and first.camera.params[:6].tolist() == pytest.approx(
        INTRINSICS["radial:2"]
    )
    assert first.source == second.source == "estimated by anycalib" and first.pose is None
    fisheye = assign_cameras(photos, "estimate:anycalib:fisheye")[0].camera
    assert isinstance(fisheye, OpenCVFisheye) and fisheye.params.tolist() == pytest.approx(INTRINSICS["kb:4"])


def test_a_model_for_each_photo(fake, photos):
    fake("anycalib", AnyCalib=anycalib(INTRINSICS))
    first, *_ = [photo.name for photo in photos]
    views = assign_cameras(photos, [f"{first}=estimate:anycalib:pinhole", "estimate:anycalib:fisheye"])
    assert [view.camera.NAME for view in views] == ["pinhole", "opencv_fisheye"]
    assert views[0].camera.params[:4].tolist() == pytest.approx(INTRINSICS["pinhole"])
    with pytest.raises(ValueError, match="use estimate:anycalib"):
        choose_estimator("estimate:vggt:pinhole")


@pytest.mark.parametrize(
    ("values", "success"), [([1.0] * 6, False), ([1.0] * 6, True), (INTRINSICS["radial:2"], False)]
)
def test_a_fit_of_anycalib_that_failed(fake, photos, values, success):
    fake("anycalib", AnyCalib=anycalib({"radial:2": values}, success))
    with pytest.raises(
        ValueError, match=r"a.png: AnyCalib could not fit radial:2 to it; try estimate:anycalib:fisheye"
    ):
        assign_cameras(photos, "estimate:anycalib")


def test_a_fit_that_no_lens_is_like(fake, photos):
    fake("anycalib", AnyCalib=anycalib({"radial:2": [3.0, 3.0, 320.0, 240.0, 0, 0]}))
    with pytest.raises(ValueError, match=r"a.png: estimate:anycalib failed: fx = 3"):
        assign_cameras(photos, "estimate:anycalib")


# GeoCalib


def test_geocalib(fake, photos):
    @dataclass
    class SimpleRadial:
        """Batched, as TensorWrapper's: [1, 2] focal lengths, [1] or [1, 1] distortion."""

        f: torch.Tensor
        c: torch.Tensor
        size: torch.Tensor
        k1: torch.Tensor

    class GeoCalib(Network):
        def __init__(self, weights="pinhole"):
            assert weights in ("pinhole", "distorted")
            self.weights = weights

        def calibrate(self, img, camera_model="pinhole", priors=None, shared_intrinsics=False):
            assert img.ndim == 3 and camera_model in (
                "pinhole",
                "simple_radial",
                "radial",
                "simple_divisional",
            )
            assert (camera_model == "pinhole") == (self.weights == "pinhole")
            h, w = img.shape[-2:]
            size = torch.tensor([[w, h]], dtype=torch.float32)
            camera = SimpleRadial(torch.tensor([[510.0, 510.0]]), size / 2, size, torch.tensor([-0.07]))
            return {"camera": camera, "gravity": None, "covariance": torch.eye(4)[None]}

    fake("geocalib", GeoCalib=GeoCalib)
    view, _ = assign_cameras(photos, "estimate:geocalib")
    assert view.camera.params[:5].tolist() == pytest.approx([510.0, 510.0, 320.0, 240.0, -0.07])
    with pytest.raises(ValueError, match="has no fisheye model"):
        assign_cameras(photos, "estimate:geocalib:fisheye")


# UniK3D


def unik3d(rays):
    class UniK3D(Network):
        @classmethod
        def from_pretrained(cls, name):
            assert name in ("lpiccinelli/unik3d-vits", "lpiccinelli/unik3d-vitb", "lpiccinelli/unik3d-vitl")
            return cls()

        def infer(self, rgb, camera=None, rays=None, normalize=True):
            assert not self.training and rgb.max() > 1 and rgb.shape == (3, 480, 640)
            return {"rays": given, "distance": None, "points": None, "confidence": None}

    given = rays
    return UniK3D


def test_unik3d(fake, photos):
    lens = OpenCVFisheye.make(640, 480, fx=280.0, fy=280.0, cx=320.0, cy=240.0, k1=0.01)
    rays = lens.unproject_grid()[0]
    fake("unik3d.models", UniK3D=unik3d(rays.movedim(-1, 0)[None]))
    view, _ = assign_cameras(photos, "estimate:unik3d")
    assert isinstance(view.camera, RayMapCamera)
    assert torch.allclose(view.camera.unproject_grid()[0], rays, atol=1e-5)
    fake("unik3d.models", UniK3D=unik3d(torch.zeros(1, 3, 24, 32)))
    with pytest.raises(ValueError, match="UniK3D gave 32×24 rays for 640×480"):
        assign_cameras(photos, "estimate:unik3d")


# VGGT


@pytest.fixture
def vggt(monkeypatch):
    """Field of view 60° × 46.8°, and a second camera one unit to the right."""

    def predict(images):
        assert images.ndim == 5 and all(side % 14 == 0 for side in images.shape[-2:])
        assert max(images.shape[-2:]) == 518
        code = torch.tensor([0.0, 0, 0, 0, 0, 0, 1, np.radians(46.8), np.pi / 3]).repeat(
            1, images.shape[1], 1
        )
        code[0, :, 0] = -torch.arange(images.shape[1])
        return SimpleNamespace(cameras=EncodedCameras(code.float()))

    def load(name):
        assert name == "facebook/VGGT-1B"
        return SimpleNamespace(eval=lambda: predict)

    monkeypatch.setattr("g_ray.calibration.estimators.vggt_estimator.load_vggt", load)


def test_vggt(vggt, photos, shoot):
    first, second = assign_cameras(photos, "estimate:vggt")
    expected = Pinhole.from_fov(60.0, 640, 480, dtype=torch.float64).params
    assert first.camera.params[[0, 2, 3]].tolist() == pytest.approx(expected[[0, 2, 3]].tolist(), rel=1e-5)
    assert first.camera.params[1] == pytest.approx(240 / np.tan(np.radians(23.4)), rel=1e-5)
    assert second.pose is not None and second.pose.translation.tolist() == [1.0, 0.0, 0.0]
    said = []
    mixed = find_photos([photo.path for photo in photos] + [shoot("c.png", (480, 640))])
    views = assign_cameras(mixed, "estimate:vggt", report=said.append)
    assert [view.name for view in views] == ["a.png", "b.png", "c.png"] and views[0].pose is None
    assert "photos of 2 sizes" in said[0]
    with pytest.raises(ValueError, match="knows pinholes only"):
        assign_cameras(photos, "estimate:vggt:fisheye")


# COLMAP


def test_photos_of_one_device_share_a_camera(shoot, tmp_path):
    phone, zoomed = {272: "Phone", 37386: 4.2}, {272: "Phone", 37386: 9.0}
    for name, tags in {
        "x/1.jpg": phone, "y/2.jpg": phone, "x/3.jpg": zoomed, "x/4.jpg": None, "y/5.jpg": None, "y/6.jpg": None,
    }.items():  # fmt: skip
        shoot(name, (64, 48), tags)
    shoot("y/7.jpg", (48, 64))
    groups = group_by_device(find_photos([tmp_path / "photos"]))
    names = [[photo.name for photo in group] for group in groups]
    assert sorted(names) == [
        ["x/1.jpg", "y/2.jpg"],
        ["x/3.jpg"],
        ["x/4.jpg"],
        ["y/5.jpg", "y/6.jpg"],
        ["y/7.jpg"],
    ]


def test_a_photo_without_a_place_has_its_devices_camera(photos):
    pycolmap = pytest.importorskip("pycolmap")
    from g_ray.calibration.estimators.colmap_estimator import _collect_views

    camera = pycolmap.Camera(model="SIMPLE_RADIAL", width=320, height=240, params=[250.0, 160.0, 120.0, -0.1])
    rigid = SimpleNamespace(matrix=lambda: np.eye(4)[:3])
    image = SimpleNamespace(image_id=2, has_pose=True, camera=camera, cam_from_world=lambda: rigid)
    views, lost = _collect_views(ColmapEstimator(), [photos], SimpleNamespace(images={1: image}))
    assert lost == ["a.png"] and views["a.png"].pose is None and views["b.png"].pose is not None
    assert views["a.png"].camera.params[:5].tolist() == pytest.approx([500.0, 500.0, 320.0, 240.0, -0.1])


def test_the_first_guess_is_exifs_or_a_fisheyes(shoot):
    pycolmap = pytest.importorskip("pycolmap")
    (photo,) = find_photos([shoot("a.jpg", (640, 480), {41989: 28})])
    camera = ColmapEstimator(longer=320)._make_camera(pycolmap, 1, photo)
    assert camera.params[0] == pytest.approx(28 * 400 / np.hypot(36, 24)) and camera.has_prior_focal_length
    fisheye = ColmapEstimator(fisheye=True)._make_camera(pycolmap, 1, photo)
    assert len(fisheye.params) == 8
    (bare,) = find_photos([shoot("b.jpg", (640, 480))])
    guess = ColmapEstimator()._make_camera(pycolmap, 1, bare)
    assert guess.params[0] == 1.2 * 640 and not guess.has_prior_focal_length


@pytest.mark.slow
def test_colmap_calibrates_real_photos(shared_data):
    """Sceaux at 640 px: focal length within 2 % and distortion within 0.03 of the full-size model, poses within 1°."""
    pytest.importorskip("pycolmap")
    photos = find_photos([shared_data / "sceaux" / "images"])
    truth = assign_cameras(photos, str(shared_data / "sceaux"))
    views = ColmapEstimator(longer=640, threads=1).estimate(photos, lambda sentence: None)
    assert len(views) == 11 and len({id(view.camera) for view in views}) == 1
    camera, known = views[0].camera, truth[0].camera
    assert (camera.width, camera.height) == (2832, 2128)
    assert abs(camera.params[0] / known.params[0] - 1) < 0.02
    assert abs(camera.params[4] - known.params[4]) < 0.03
    ours = Pose(torch.stack([view.pose.world_from_cam for view in views])).relative_to_first()
    theirs = Pose(torch.stack([view.pose.world_from_cam for view in truth])).relative_to_first()
    trace = (ours.rotation * theirs.rotation).sum((-1, -2))
    assert torch.rad2deg(torch.acos(((trace - 1) / 2).clamp(-1, 1))).max() < 1.0
    scale = theirs.translation.norm(dim=-1).mean() / ours.translation.norm(dim=-1).mean()
    error = (ours.translation * scale - theirs.translation).norm(dim=-1).mean()
    assert error < 0.02 * theirs.translation.norm(dim=-1).max()


def test_few_photos_without_exif(shared_data):
    """COLMAP's own start ends at 19° and a distortion of 2.8 here; the lens has 63°."""
    pytest.importorskip("pycolmap")
    photos = find_photos([shared_data / "slambook2_rgbd" / "ch5" / "rgbd" / "color"])
    said = []
    views = ColmapEstimator(threads=1).estimate(photos, said.append)
    assert not said and all(view.pose is not None for view in views)
    focal = float(views[0].camera.parameter("fx"))
    # Distortion and focal length make up for each other; at f = 518 px the edge is at 31.7°.
    edge = math.degrees(
        math.acos(float(views[0].camera.unproject(torch.tensor([639.5, 240.0]).double())[0][2]))
    )
    assert focal == pytest.approx(518, rel=0.25) and edge == pytest.approx(31.7, abs=5)


@pytest.mark.parametrize(
    ("focal", "distortion", "likely"),
    [(320.0, -0.2, True), (2000.0, 0.0, False), (60.0, 0.0, False), (320.0, 2.8, False)],
)
def test_unlikely_lenses(focal, distortion, likely):
    pycolmap = pytest.importorskip("pycolmap")
    lens = pycolmap.Camera(model="SIMPLE_RADIAL", width=320, height=240, params=[focal, 160, 120, distortion])
    assert is_likely(SimpleNamespace(cameras={1: lens})) == likely
    lens.has_prior_focal_length = True  # by EXIF, which may be of a telescope
    assert is_likely(SimpleNamespace(cameras={1: lens})) == (abs(distortion) < 1)


def test_photos_that_do_not_overlap(photos):
    pytest.importorskip("pycolmap")
    with pytest.raises(ValueError, match=r"found no model of a.png, b.png"):
        ColmapEstimator(longer=160, threads=1).estimate(photos, lambda sentence: None)


class PosedEstimator(Estimator):
    """Estimates a pose for every photo, in a world of its own."""

    NAME = "posed"

    def estimate(self, photos, report):
        lens = Pinhole.from_fov(60.0, photos[0].width, photos[0].height, dtype=torch.float64)
        return [self.make_calibrated(photo, lens, Pose(torch.eye(4).double())) for photo in photos]


def test_poses_of_separate_estimates_are_not_mixed(monkeypatch, imagine):
    monkeypatch.setitem(ESTIMATORS, "posed", PosedEstimator)
    photos = [imagine("dslr/a.jpg"), imagine("phone/b.jpg")]
    assert all(view.pose is not None for view in assign_cameras(photos, "estimate:posed"))
    views = assign_cameras(photos, ["dslr/*=estimate:posed", "phone/*=estimate:posed"])
    assert all(view.is_estimated and view.pose is None for view in views)
