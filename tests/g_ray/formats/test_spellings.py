"""Names and layouts that scripts and tools use for the same lens: all are read alike, and as their writer projects."""

import gzip
import json

import numpy as np
import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.cameras import Fisheye624, OpenCVFisheye
from g_ray.formats import open_calibration
from g_ray.formats.nerfstudio import read_nerfstudio

K = [[520.0, 0.0, 318.2], [0.0, 523.0, 243.7], [0.0, 0.0, 1.0]]
D = [-0.21, 0.06, 0.0012, -0.0007, 0.01]
SIZE = {"image_width": 640, "image_height": 480}
EYE = np.eye(4).tolist()


@pytest.fixture
def points():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.uniform(-0.5, 0.5, (300, 2)), np.ones((300, 1))], -1)


def read(tmp_path, imagine, document, name="c.json", photo="a.png"):
    (tmp_path / name).write_text(document if isinstance(document, str) else json.dumps(document))
    (view,) = assign_cameras([imagine(photo)], str(tmp_path / name))
    return view.camera


def check_opencv(camera, points, distortion, fisheye=False):
    cv2 = pytest.importorskip("cv2")
    zero, k = np.zeros(3), np.array(distortion)
    if fisheye:
        theirs, _ = cv2.fisheye.projectPoints(points[:, None], zero, zero, np.array(K), k)
    else:
        theirs, _ = cv2.projectPoints(points, zero, zero, np.array(K), k)
    ours, valid = camera.project(torch.from_numpy(points))
    assert valid.all() and np.abs(ours.numpy() - 0.5 - theirs[:, 0]).max() < 1e-6


@pytest.mark.parametrize(
    "matrix", ["camera_matrix", "cameraMatrix", "Camera_Matrix", "K", "mtx", "camera-matrix"]
)
@pytest.mark.parametrize(
    "name",
    [
        *(
            "distortion_coefficients",
            "dist_coeff",
            "dist_coefs",
            "distortion_vector",
            "distortionCoefficients",
        ),
        *("dist", "distCoeffs", "D", "distortion", "dist_coeffs", "DistortionCoeff"),
    ],
)
def test_names_of_matrix_and_distortion(tmp_path, imagine, points, matrix, name):
    check_opencv(read(tmp_path, imagine, {**SIZE, matrix: K, name: [D]}), points, D)


def test_coefficients_of_their_own(tmp_path, imagine, points):
    named = dict(zip(("k1", "k2", "p1", "p2", "k3"), D, strict=True))
    check_opencv(read(tmp_path, imagine, {**SIZE, "K": K, **named}), points, D)
    check_opencv(
        read(tmp_path, imagine, {**SIZE, "K": K, "k1": 0.1, "k5": 0.02}), points, [0.1, *[0.0] * 5, 0.02, 0.0]
    )


@pytest.mark.parametrize("flag", [{"fisheye_model": 1}, {"fisheye": True}, {"model": "kannala_brandt"}])
def test_names_of_a_fisheye(tmp_path, imagine, points, flag):
    k = [0.02, -0.006, 0.001, -0.0002]
    check_opencv(read(tmp_path, imagine, {**SIZE, "K": K, "D": k, **flag}), points, k, fisheye=True)


def test_what_calibration_tools_write_beside_a_lens_is_accepted(tmp_path, imagine, points):
    beside = {
        "calibration_time": "Tue",
        "nframes": 3,
        "nr_of_frames": 3,
        "board_width": 9,
        "board_height": 6,
        "square_size": 25.0,
        "flags": 0,
        "avg_reprojection_error": 0.3,
        "per_view_reprojection_errors": [0.1],
        "extrinsic_parameters": [[0.0] * 6],
        "image_points": [],
        "rms": 0.2,
        "rvecs": [],
        "tvecs": [],
        "P": [0.0] * 12,
        "fisheye_model": 0,
        "grid_points": [],
        "camera_name": "left",
        "aspectRatio": 1.0,
        "newcameramtx": K,
    }
    check_opencv(
        read(tmp_path, imagine, {**SIZE, "camera_matrix": K, "distortion_coefficients": D, **beside}),
        points,
        D,
    )


@pytest.mark.parametrize(("matrix", "vector"), [("M", "D"), ("K", "D"), ("cameraMatrix", "distCoeffs")])
def test_a_pair_of_cameras(tmp_path, imagine, points, matrix, vector):
    """As OpenCV's stereo sample writes it; R, T, P1, P2, Q beside it are not of the lens."""
    other = [[500.0, 0, 320.0], [0, 500.0, 240.0], [0, 0, 1]]
    document = {f"{matrix}1": other, f"{vector}1": [0.0] * 5, f"{matrix}2": K, f"{vector}2": D}
    (tmp_path / "intrinsics.json").write_text(
        json.dumps(document | {"R": K, "T": [1, 0, 0], "P1": K, "P2": K, "Q": K})
    )
    source = open_calibration(tmp_path / "intrinsics.json")
    assert [lens.label for lens in source.lenses] == ["1", "2"]
    with pytest.raises(ValueError, match="which camera took"):
        source.find_camera(imagine("a.png"))
    view = source.find_camera(imagine("a.png"), label="2")
    assert view is not None
    check_opencv(view.camera, points, D)


def test_omnidir(tmp_path, imagine, points):
    """cv2.omnidir: a point on the unit sphere, moved by xi, distorted, scaled by K."""
    xi, (k1, k2, p1, p2) = 0.9, (-0.1, 0.02, 0.001, -0.0005)
    matrix = [[700.0, 0, 322.0], [0, 701.0, 238.0], [0, 0, 1]]
    camera = read(tmp_path, imagine, {**SIZE, "K": matrix, "D": [k1, k2, p1, p2], "xi": [[xi]]})
    unit = points / np.linalg.norm(points, axis=-1, keepdims=True)
    x, y = unit[:, 0] / (unit[:, 2] + xi), unit[:, 1] / (unit[:, 2] + xi)
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2**2
    expected = np.stack(
        [
            700.0 * (x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)) + 322.0,
            701.0 * (y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y) + 238.0,
        ],
        -1,
    )
    inside = (np.abs(expected - [320, 240]) < [310, 230]).all(-1)
    ours, valid = camera.project(torch.from_numpy(points[inside]).to(camera.dtype))
    assert valid.all() and inside.sum() > 200
    assert (
        np.abs(ours.numpy() - 0.5 - expected[inside]).max() < 2e-2
    )  # a table of rays, bilinear between pixels


def test_a_compressed_file(tmp_path, imagine, points):
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "c.yml.gz"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    for name, value in (("camera_matrix", np.array(K)), ("distortion_coefficients", np.array(D))):
        storage.write(name, value)
    storage.release()
    (view,) = assign_cameras([imagine("a.png")], str(path))
    check_opencv(view.camera, points, D)
    with gzip.open(tmp_path / "bomb.yml.gz", "wb", compresslevel=9) as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match="larger than 64 MiB"):
        assign_cameras([imagine("a.png")], str(tmp_path / "bomb.yml.gz"))


# nerfstudio and instant-ngp


def transforms(**changes):
    affine = {"fl_x": 520.0, "fl_y": 523.0, "cx": 318.7, "cy": 244.2, "w": 640, "h": 480}
    return {**affine, "frames": [{"file_path": "a.png", "transform_matrix": EYE}], **changes}


def test_a_fisheye_of_instant_ngp(tmp_path, imagine, points):
    k = [0.02, -0.006, 0.001, -0.0002]
    named = dict(zip(("k1", "k2", "k3", "k4"), k, strict=True))
    camera = read(tmp_path, imagine, transforms(is_fisheye=True, p1=0, p2=None, **named), "transforms.json")
    assert isinstance(camera, OpenCVFisheye)
    check_opencv(camera, points, k, fisheye=True)
    assert isinstance(read(tmp_path, imagine, transforms(is_fisheye=True), "transforms.json"), OpenCVFisheye)


def test_a_vector_of_nerfstudio(tmp_path, imagine, points):
    """Its order is k1 k2 k3 k4 p1 p2."""
    vector = [D[0], D[1], D[4], 0.0, D[2], D[3]]
    check_opencv(read(tmp_path, imagine, transforms(distortion_params=vector), "transforms.json"), points, D)


def test_fisheye624_of_nerfstudio(tmp_path, imagine, points):
    values = [-0.02, 0.09, -0.06, 0.02, -0.004, 0.0003, 0.0007, -0.0004, 0.001, -0.0003, 0.0006, 0.0002]
    document = transforms(camera_model="FISHEYE624", distortion_params=values)
    camera = read(tmp_path, imagine, document, "transforms.json")
    assert isinstance(camera, Fisheye624)
    pycolmap = pytest.importorskip("pycolmap")
    params = [520.0, 523.0, 318.7, 244.2, *values]
    theirs = pycolmap.Camera(model="RAD_TAN_THIN_PRISM_FISHEYE", width=640, height=480, params=params)
    ours, _ = camera.project(torch.from_numpy(points))
    assert np.abs(ours.numpy() - theirs.img_from_cam(points)).max() < 1e-6


def test_windows_paths_byte_order_marks_and_nulls(tmp_path, imagine):
    frame = {"file_path": "images\\a.png", "transform_matrix": EYE}
    text = "\ufeff" + json.dumps(transforms(k1=None, p2=None, frames=[frame]))
    assert read(tmp_path, imagine, text, "transforms.json", "images/a.png").NAME == "pinhole"


def test_paths_out_of_the_folder_are_compared_by_their_ends(tmp_path, imagine):
    """No file is opened by them; a scene folder does not take them."""
    names = ("../shots/a.png", "/elsewhere/shots/b.png", "images/../images/c.png", f"{tmp_path}/images/d.png")
    frames = [{"file_path": name, "transform_matrix": EYE} for name in names]
    (tmp_path / "transforms.json").write_text(json.dumps(transforms(frames=frames)))
    photos = [imagine(name) for name in ("shots/a.png", "shots/b.png", "images/c.png", "images/d.png")]
    views = assign_cameras(photos, str(tmp_path / "transforms.json"))
    assert [view.pose is not None for view in views] == [True] * 4
    with pytest.raises(ValueError, match="leads out of the scene folder"):
        read_nerfstudio(tmp_path, check=False)


def test_frames_for_testing_are_calibrated_too(tmp_path, imagine):
    document = transforms(test_frames=[{"file_path": "b.png", "transform_matrix": EYE}])
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    views = assign_cameras([imagine("a.png"), imagine("b.png")], str(tmp_path / "transforms.json"))
    assert len(views) == 2


# Rigs


@pytest.mark.parametrize(
    ("known", "folder"), [("cam0", "cam1"), ("left", "right"), ("camera_2", "camera_10")]
)
def test_a_photo_of_a_device_that_is_missing(tmp_path, imagine, known, folder):
    text = f"""{known}:
  camera_model: pinhole
  intrinsics: [500, 500, 319.5, 239.5]
  distortion_model: none
  distortion_coeffs: []
  resolution: [640, 480]
"""
    with pytest.raises(ValueError, match=f"no camera '{folder}'"):
        read(tmp_path, imagine, text, "chain.yaml", f"{folder}/0001.png")
    for photo in (f"{known}/0001.png", "0002.png", "other/3.png"):
        assert read(tmp_path, imagine, text, "chain.yaml", photo).NAME == "pinhole"


# ROS


ECHO = """header:
  stamp: {{sec: {second}, nanosec: 0}}
  frame_id: camera
height: 480
width: 640
distortion_model: {model}
d: {d}
k: [520.0, 0.0, 318.2, 0.0, 523.0, 243.7, 0.0, 0.0, 1.0]
r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
p: [520.0, 0.0, 318.2, 0.0, 0.0, 523.0, 243.7, 0.0, 0.0, 0.0, 1.0, 0.0]
binning_x: 0
binning_y: 0
roi: {{x_offset: 0, y_offset: 0, height: 0, width: 0, do_rectify: false}}
---
"""


@pytest.mark.parametrize(
    ("model", "d", "fisheye"),
    [
        ("plumb_bob", [*D, 0.02, -0.01, 0.004], False),
        ("rational_polynomial", D, False),
        ("equidistant", [0.02, -0.006, 0.001, -0.0002, 0.0], True),
    ],
)
def test_ros_topic_echo(tmp_path, imagine, points, model, d, fisheye):
    text = "".join(ECHO.format(second=second, model=model, d=d) for second in range(3))
    camera = read(tmp_path, imagine, text, "echo.yaml")
    check_opencv(camera, points, d[:4] if fisheye else d, fisheye)
    with pytest.raises(ValueError, match="several documents that differ"):
        read(tmp_path, imagine, text + text.replace("520.0", "530.0"), "echo.yaml")
