"""Calibrations of further tools give the projection that the tool defines, to 1e-6 px."""

import json

import numpy as np
import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import open_calibration

K = np.array([[520.0, 0, 318.2], [0, 523.0, 243.7], [0, 0, 1]])


@pytest.fixture
def points():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.uniform(-0.45, 0.45, (300, 2)), np.ones((300, 1))], -1)


def check(tmp_path, imagine, name, text, points, expected, center=0.0, photo="a.png", tolerance=1e-6):
    """Compare with pixels in the tool's own convention; `center` is where it puts the center of the first pixel."""
    (tmp_path / name).write_text(text)
    (view,) = assign_cameras([imagine(photo)], str(tmp_path / name))
    inside = (np.abs(expected - [320, 240]) < [310, 230]).all(-1)
    ours, valid = view.camera.project(torch.from_numpy(points[inside]).to(view.camera.dtype))
    assert valid.all() and inside.sum() > 150
    assert np.abs(ours.numpy() - (0.5 - center) - expected[inside]).max() < tolerance
    return view


def project_opencv(points, series, fisheye=False):
    cv2 = pytest.importorskip("cv2")
    zero, k = np.zeros(3), np.array(series)
    if fisheye:
        return cv2.fisheye.projectPoints(points[:, None], zero, zero, K, k)[0][:, 0]
    return cv2.projectPoints(points, zero, zero, K, k)[0][:, 0]


def project_mei(points, xi, k, gamma, center):
    unit = points / np.linalg.norm(points, axis=-1, keepdims=True)
    x, y = unit[:, 0] / (unit[:, 2] + xi), unit[:, 1] / (unit[:, 2] + xi)
    k1, k2, p1, p2 = k
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2 * r2
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return np.stack([gamma[0] * u + center[0], gamma[1] * v + center[1]], -1)


CAMODOCAL = """%YAML:1.0
---
model_type: {model}
camera_name: camera
image_width: 640
image_height: 480
"""


def format_group(name, values):
    return f"{name}:\n" + "".join(f"   {key}: {value!r}\n" for key, value in values.items())


def test_camodocal_mei(tmp_path, imagine, points):
    """As in KITTI-360; with distortion it becomes a table of rays, bilinear between pixels."""
    k = {"k1": 0.017, "k2": 0.4, "p1": 0.0004, "p2": -0.0003}
    projection = {"gamma1": 1336.0, "gamma2": 1335.0, "u0": 317.0, "v0": 241.0}
    text = CAMODOCAL.format(model="MEI") + format_group("mirror_parameters", {"xi": 2.2})
    text += format_group("distortion_parameters", k) + format_group("projection_parameters", projection)
    expected = project_mei(points, 2.2, k.values(), (1336.0, 1335.0), (317.0, 241.0))
    check(tmp_path, imagine, "image_02.yaml", text, points, expected, tolerance=2e-2)


@pytest.mark.parametrize("model", ["PINHOLE", "PINHOLE_FULL", "KANNALA_BRANDT"])
def test_camodocal(tmp_path, imagine, points, model):
    text = CAMODOCAL.format(model=model)
    if model == "KANNALA_BRANDT":
        series = [0.02, -0.006, 0.001, -0.0002]
        values = dict(zip(("k2", "k3", "k4", "k5"), series, strict=True))
        values |= {"mu": 520.0, "mv": 523.0, "u0": 318.2, "v0": 243.7}
        text += format_group("projection_parameters", values)
        check(tmp_path, imagine, "c.yaml", text, points, project_opencv(points, series, fisheye=True))
        return
    names = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")[: 4 if model == "PINHOLE" else 8]
    series = [-0.21, 0.06, 0.0012, -0.0007, 0.01, 0.02, -0.01, 0.004][: len(names)]
    text += format_group("distortion_parameters", dict(zip(names, series, strict=True)))
    text += format_group("projection_parameters", {"fx": 520.0, "fy": 523.0, "cx": 318.2, "cy": 243.7})
    check(tmp_path, imagine, "c.yaml", text, points, project_opencv(points, series))


@pytest.mark.parametrize(
    ("kind", "prefix", "series"),
    [
        ("PinHole", "Camera1", {"k1": -0.21, "k2": 0.06, "p1": 0.0012, "p2": -0.0007}),
        ("PinHole", "Camera", {"k1": -0.21, "k2": 0.06, "p1": 0.0012, "p2": -0.0007, "k3": 0.01}),
        ("KannalaBrandt8", "Camera1", {"k1": 0.02, "k2": -0.006, "k3": 0.001, "k4": -0.0002}),
        ("Rectified", "Camera1", {}),
    ],
)
def test_orb_slam(tmp_path, imagine, points, kind, prefix, series):
    values = {"fx": 520.0, "fy": 523.0, "cx": 318.2, "cy": 243.7, **series}
    lines = [
        "%YAML:1.0",
        'File.version: "1.0"',
        f'Camera.type: "{kind}"',
        "Camera.width: 640",
        "Camera.height: 480",
    ]
    lines += [f"{prefix}.{name}: {value}" for name, value in values.items()]
    text = "\n".join([*lines, "Camera.fps: 20", "Camera.RGB: 1", "ORBextractor.nFeatures: 1000", ""])
    fisheye = kind == "KannalaBrandt8"
    expected = project_opencv(points, list(series.values()) or [0.0] * 4, fisheye)
    check(tmp_path, imagine, "settings.yaml", text, points, expected)


def test_basalt(tmp_path, imagine, points):
    """The double sphere by its definition; a fisheye beside it by OpenCV."""
    sphere = {"fx": 300.0, "fy": 301.0, "cx": 318.2, "cy": 243.7, "xi": -0.2, "alpha": 0.59}
    series = [0.02, -0.006, 0.001, -0.0002]
    fisheye = {"fx": 520.0, "fy": 523.0, "cx": 318.2, "cy": 243.7}
    fisheye |= dict(zip(("k1", "k2", "k3", "k4"), series, strict=True))
    cameras = [{"camera_type": "ds", "intrinsics": sphere}, {"camera_type": "kb4", "intrinsics": fisheye}]
    content = {"intrinsics": cameras, "resolution": [[640, 480]] * 2, "T_imu_cam": []}
    text = json.dumps({"value0": content})
    x, y, z = points.T
    d1 = np.linalg.norm(points, axis=-1)
    shifted = -0.2 * d1 + z
    d2 = np.sqrt(x * x + y * y + shifted**2)
    scale = 0.59 * d2 + (1 - 0.59) * shifted
    expected = np.stack([300.0 * x / scale + 318.2, 301.0 * y / scale + 243.7], -1)
    check(tmp_path, imagine, "calibration.json", text, points, expected, photo="cam0/a.png")
    expected = project_opencv(points, series, fisheye=True)
    check(tmp_path, imagine, "calibration.json", text, points, expected, photo="cam1/a.png")
    with pytest.raises(ValueError, match="no camera 'cam2'"):
        assign_cameras([imagine("cam2/a.png")], str(tmp_path / "calibration.json"))


def test_open3d(tmp_path, imagine, points):
    document = {"width": 640, "height": 480, "intrinsic_matrix": K.T.reshape(-1).tolist()}
    expected = project_opencv(points, [0.0] * 4)
    check(tmp_path, imagine, "camera.json", json.dumps(document), points, expected)
    extrinsic = np.eye(4).reshape(-1).tolist()
    whole = {"class_name": "PinholeCameraParameters", "extrinsic": extrinsic, "intrinsic": document}
    check(tmp_path, imagine, "camera.json", json.dumps(whole), points, expected)
    assert "not used" in open_calibration(tmp_path / "camera.json").notes[0]
    (tmp_path / "log.json").write_text(
        json.dumps({"class_name": "PinholeCameraTrajectory", "parameters": [whole]})
    )
    with pytest.raises(ValueError, match="does not name photos"):
        open_calibration(tmp_path / "log.json")


METASHAPE = (
    "<projection>{}</projection><width>640</width><height>480</height><f>520</f><cx>1.5</cx><cy>-2.5</cy>"
)


@pytest.mark.parametrize(
    "wrapper",
    ["{}", "<document><chunk><sensors><sensor label='lens'>{}</sensor></sensors></chunk></document>"],
)
def test_metashape_frame(tmp_path, imagine, points, wrapper):
    """By the formulas of its manual."""
    k1, k2, k3, p1, p2, b1 = -0.1, 0.02, -0.001, 0.0005, -0.0003, 0.75
    terms = "".join(
        f"<{name}>{value}</{name}>"
        for name, value in zip(("k1", "k2", "k3", "p1", "p2", "b1"), (k1, k2, k3, p1, p2, b1), strict=True)
    )
    text = wrapper.format(f"<calibration>{METASHAPE.format('frame')}{terms}</calibration>")
    x, y = points[:, 0] / points[:, 2], points[:, 1] / points[:, 2]
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    u = x * radial + p1 * (r2 + 2 * x * x) + 2 * p2 * x * y
    v = y * radial + p2 * (r2 + 2 * y * y) + 2 * p1 * x * y
    expected = np.stack([320 + 1.5 + u * (520 + b1), 240 - 2.5 + v * 520], -1)
    check(tmp_path, imagine, "c.xml", text, points, expected, center=0.5)


def test_metashape_fisheye(tmp_path, imagine, points):
    text = f"<calibration>{METASHAPE.format('fisheye')}<k1>0.02</k1><k2>-0.004</k2></calibration>"
    r = np.linalg.norm(points[:, :2], axis=-1) / points[:, 2]
    angle = np.arctan(r)
    scale = 520 * angle * (1 + 0.02 * angle**2 - 0.004 * angle**4) / r
    expected = points[:, :2] / points[:, 2:] * scale[:, None] + [321.5, 237.5]
    check(tmp_path, imagine, "c.xml", text, points, expected, center=0.5)


@pytest.mark.parametrize("entry", ["<b2>0.1</b2>", "<k4>0.1</k4>", "<p3>0.1</p3>", "<skew>0.1</skew>"])
def test_metashape_refuses_what_no_camera_here_has(tmp_path, imagine, entry):
    (tmp_path / "c.xml").write_text(f"<calibration>{METASHAPE.format('frame')}{entry}</calibration>")
    with pytest.raises(ValueError, match=r"calibrate with it fixed|not known"):
        assign_cameras([imagine("a.png")], str(tmp_path / "c.xml"))


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("FOV", [420.0, 421.0, 320.0, 240.0, 0.9]),
        ("DIVISION", [500.0, 501.0, 321.0, 239.0, -0.05]),
        ("SIMPLE_DIVISION", [500.0, 321.0, 239.0, -0.05]),
        ("SIMPLE_RADIAL", [500.0, 321.0, 239.0, -0.05]),
    ],
)
def test_colmap_cameras_alone(tmp_path, imagine, points, model, params):
    pycolmap = pytest.importorskip("pycolmap")
    theirs = pycolmap.Camera(model=model, width=640, height=480, params=params)
    text = f"# cameras\n3 {model} 640 480 {' '.join(map(str, params))}\n"
    check(tmp_path, imagine, "cameras.txt", text, points, theirs.img_from_cam(points), center=0.5)


def test_recordings_say_how_to_extract_them(tmp_path, imagine):
    (tmp_path / "a.vrs").write_bytes(b"VisionRe" + bytes(100))
    with pytest.raises(ValueError, match="calib_json"):
        assign_cameras([imagine("a.png")], str(tmp_path / "a.vrs"))
