"""DTU's comparison with a scan: distances by hand, MATLAB files written by SciPy."""

import numpy as np
import pytest
from scipy.io import savemat

from g_ray_lab.datasets.dtu import VolumeFiles
from g_ray_lab.metrics.point_cloud import score_scan


@pytest.fixture
def files(tmp_path):
    """3×3×3 voxels with centers from 0 to 20 mm, of which the last layer in x was not observed; z > 1 is above."""
    observed = np.ones((3, 3, 3), np.uint8)
    observed[2] = 0
    corners = np.array([[0.0, 0.0, 0.0], [20.0, 20.0, 20.0]])
    savemat(tmp_path / "ObsMask1_10.mat", {"ObsMask": observed, "BB": corners, "Res": 10.0})
    savemat(tmp_path / "Plane1.mat", {"P": np.array([[0.0], [0.0], [1.0], [-1.0]])})
    return VolumeFiles(tmp_path / "ObsMask1_10.mat", tmp_path / "Plane1.mat")


def test_distances_by_hand(files):
    scan = np.array([[0.0, 0.0, 5.0], [10.0, 10.0, 5.0], [0.0, 0.0, 0.0]])  # the last one lies on the table
    points = np.array(
        [
            [0.0, 3.0, 5.0],  # 3 mm off
            [10.0, 10.0, 6.0],  # 1 mm off
            [19.0, 10.0, 5.0],  # 9 mm off, where nothing was observed
            [0.0, 0.0, -70.0],  # too far away to be looked at
        ]
    )
    scores = score_scan(points, scan, files.load())
    assert scores == pytest.approx({"acc": 2.0, "comp": 2.0, "overall": 2.0})


def test_points_that_were_not_observed_complete_the_scan(files):
    scan = np.array([[12.0, 10.0, 5.0]])
    points = np.array([[0.0, 10.0, 5.0], [16.0, 10.0, 5.0]])
    scores = score_scan(points, scan, files.load())
    assert scores == pytest.approx({"acc": 12.0, "comp": 4.0, "overall": 8.0})


def test_outliers_are_not_counted(files):
    scan = np.array([[0.0, 0.0, 5.0], [10.0, 10.0, 50.0]])
    points = np.array([[0.0, 0.0, 6.0], [0.0, 0.0, 22.0]])
    assert score_scan(points, scan, files.load())["acc"] == pytest.approx((1.0 + 17.0) / 2)
    assert score_scan(points, scan, files.load())["comp"] == pytest.approx(1.0)


def test_nothing_to_compare(files):
    assert score_scan(np.full((4, 3), 900.0), np.array([[0.0, 0.0, 5.0]]), files.load()) == {}


def test_files_that_cannot_be_used(files, tmp_path):
    files.plane.write_bytes(b"no MATLAB file at all" * 20)
    with pytest.raises(OSError, match=r"Plane1\.mat: no MATLAB file"):
        files.load()
    savemat(files.plane, {"Q": 1.0})
    with pytest.raises(OSError, match="are not the masks of a scan of DTU"):
        files.load()
    files.mask.unlink()
    with pytest.raises(OSError, match=r"ObsMask1_10\.mat is not there"):
        files.load()
