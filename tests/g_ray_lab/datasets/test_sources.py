"""Parts that readers share: tables without pickle's dangers, hidden points, turned cameras, undistortion."""

import gzip
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from g_ray.cameras import OpenCV, OpenCVFisheye, Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import resample
from g_ray_lab.datasets.eth3d import turn_camera, turn_pose
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.datasets.pandas_pickle import read_table
from g_ray_lab.datasets.pandaset import OcclusionWindow, find_unhidden
from g_ray_lab.datasets.stored_frames import splat_depth
from g_ray_lab.datasets.undistortion import choose_benchmark_pinhole, choose_inner_pinhole, locate_pixels
from g_ray_lab.miniatures.colmap_miniatures import make_fisheye, make_phone
from g_ray_lab.miniatures.pandaset_miniature import write_sweep

POINTS = np.random.default_rng(0).normal(size=(50, 3))


# Tables


def test_a_sweep_is_what_pandas_reads(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "00.pkl.gz"
    write_sweep(path, POINTS, 12.5)
    theirs, ours = pandas.read_pickle(path), read_table(path)
    assert list(theirs.columns) == list("xyzitd")
    for column in theirs:
        assert np.array_equal(ours[column], theirs[column].to_numpy())
    assert np.array_equal(np.stack([ours[axis] for axis in "xyz"], -1), POINTS)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("suffix", [".pkl", ".pkl.gz"])
def test_tables_of_todays_pandas_are_read(tmp_path, protocol, suffix):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": POINTS[:, 0], "d": np.arange(50), "y": POINTS[:, 1].astype(np.float32)})
    table.to_pickle(tmp_path / f"a{suffix}", protocol=protocol)
    columns = read_table(tmp_path / f"a{suffix}")
    assert all(np.array_equal(columns[name], table[name].to_numpy()) for name in table)


class Harmful:
    def __init__(self, call, *args):
        self.call = call, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.system, "touch harm"), "system"),
        ((eval, "1"), "eval"),
        ((getattr, str, "join"), "getattr"),
        ((np.load, "a.npy"), "load"),
    ],
)
def test_a_pickle_with_foreign_names_is_refused(tmp_path, call, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pkl.gz").write_bytes(gzip.compress(pickle.dumps(Harmful(*call))))
    with pytest.raises(OSError, match=rf"a\.pkl\.gz: not read: it names \w+\.[\w.]*{name}"):
        read_table(tmp_path / "a.pkl.gz")
    assert not (tmp_path / "harm").exists()


def test_names_of_pandas_call_nothing(tmp_path):
    """A pickle may name any function of pandas; here it becomes a record, and pandas is not even imported."""
    (tmp_path / "a.pkl").write_bytes(b"\x80\x03cpandas\nread_pickle\n(X\x05\x00\x00\x00b.pkltR.")
    with pytest.raises(OSError, match="it holds no table but read_pickle"):
        read_table(tmp_path / "a.pkl")


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_sweep_is_named(tmp_path, keep):
    write_sweep(tmp_path / "00.pkl.gz", POINTS, 0.0)
    content = (tmp_path / "00.pkl.gz").read_bytes()
    (tmp_path / "00.pkl.gz").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(OSError, match=r"00\.pkl\.gz: .*(ends too early|cannot be unpacked)"):
        read_table(tmp_path / "00.pkl.gz")


# Points


def test_a_point_behind_a_nearer_neighbor_is_hidden():
    camera = Pinhole.make(1920, 1080, fx=1000.0, fy=1000.0, cx=960.0, cy=540.0, dtype=torch.float64)
    near = [0.0, 0.0, 5.0]
    beside = [10 * 4 / 1000, 0.0, 10.0]  # four pixels to the right
    aside = [10 * 40 / 1000, 0.0, 10.0]  # forty
    slanted = [5.2 * 4 / 1000, 0.0, 5.2]  # four pixels, but hardly farther
    behind, outside = [0.0, 0.0, -5.0], [100.0, 0.0, 5.0]
    points = torch.tensor([near, beside, aside, slanted, behind, outside], dtype=torch.float64)
    assert find_unhidden(camera, points, OcclusionWindow()).tolist() == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    depth = splat_depth(camera, points)
    assert float(depth[540, 960]) == 5.0
    assert int((depth > 0).sum()) == 3  # two of them in one pixel


def test_a_large_photograph_is_shrunk_before_it_is_undistorted(miniature):
    """The result is that of undistorting at full size."""
    _, _, scene = miniature("scannetpp-high-resolution")
    frame = scene.frames[0]
    framing = Framing.fit(frame.camera, 30, 20, zoom=1.25)
    shrunk = frame.image.load_framed(frame.camera, framing)
    full = resample(frame.image.load(), frame.camera, 30, 20, framing.box)[0]
    assert float((shrunk - full).abs().mean()) < 0.004
    assert float((shrunk - full).abs().max()) < 0.08


# Cameras


@pytest.mark.parametrize("kind", [Pinhole, OpenCV, ThinPrismFisheye])
@pytest.mark.parametrize("turns", [1, 2, 3, -1])
def test_a_turned_camera_sees_the_same_rays(kind, turns):
    """A pixel of the turned image has the ray of the pixel that it came from, about the turned axes."""
    camera = kind.example(4, 60, 40)
    if kind is Pinhole:
        camera = Pinhole.make(60, 40, fx=50.0, fy=48.0, cx=31.0, cy=18.0, dtype=torch.float64)
    turned = turn_camera(camera, turns)
    pose = Pose.look_at((0.3, -0.2, 1.0), (0.0, 0.5, 0.2)).to(torch.float64)
    rays, valid = camera.unproject_grid()
    expected = torch.rot90(pose.rotate(rays), -turns, (0, 1))
    rays, turned_valid = turned.unproject_grid()
    assert torch.equal(turned_valid, torch.rot90(valid, -turns, (0, 1)))
    error = (turn_pose(pose, turns).rotate(rays) - expected)[turned_valid]
    assert float(error.abs().max()) < 1e-9


def test_turning_a_skewed_pinhole_is_refused():
    with pytest.raises(ValueError, match="skew"):
        turn_camera(Pinhole.make(6, 4, fx=5.0, fy=5.0, cx=3.0, cy=2.0, skew=0.1), 1)


def test_turning_a_lens_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="opencv_fisheye cannot be turned"):
        turn_camera(OpenCVFisheye.example(0), 1)


def test_the_benchmark_pinhole_is_opencvs():
    cv2 = pytest.importorskip("cv2")
    lens = make_fisheye(1752)
    ours = choose_benchmark_pinhole(lens)
    fx, fy, cx, cy, *k = lens.params.tolist()
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    theirs = cv2.fisheye.estimateNewCameraMatrixForUndistortRectify(
        matrix, np.array(k[:4]), (1752, 1168), np.eye(3), balance=0.0
    )
    assert ours.params[:4].tolist() == pytest.approx([theirs[0, 0], theirs[1, 1], 876.0, 584.0])


@pytest.mark.parametrize("k1", [-0.2, 0.08])
def test_the_inner_pinhole_has_no_empty_pixel_and_is_the_widest(k1):
    phone = make_phone(192)
    values = dict(zip(phone.PARAMETERS, phone.params.tolist(), strict=True)) | {"k1": k1, "k2": 0.0}
    phone = OpenCV.make(192, 144, **values, dtype=torch.float64)
    pinhole = choose_inner_pinhole(phone)
    assert bool(locate_pixels(phone, RayMap.from_camera(pinhole))[1].all())
    wider = replace(pinhole, params=pinhole.params * torch.tensor([0.97, 0.97, 1, 1, 1], dtype=torch.float64))
    assert not bool(locate_pixels(phone, RayMap.from_camera(wider))[1].all())
