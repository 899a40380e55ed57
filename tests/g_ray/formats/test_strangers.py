"""Files written by OpenCV and COLMAP themselves give their own projections, to 1e-6 px."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.cameras import UCM, DoubleSphere, OpenCV
from g_ray.formats import open_calibration
from g_ray.formats.aria import AriaSource
from g_ray.formats.aria import _build_camera as aria_camera
from g_ray.formats.kalibr import parse_lens as kalibr_lens
from g_ray.media.photos import find_photos

MATRIX = np.array([[520.0, 0, 318.2], [0, 523.0, 243.7], [0, 0, 1]])
SERIES = [-0.21, 0.06, 0.0012, -0.0007, 0.01, 0.02, -0.01, 0.004, 0.001, -0.0005, 0.0008, 0.0002, 0.0, 0.0]


@pytest.fixture
def points():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.uniform(-0.5, 0.5, (300, 2)), np.ones((300, 1))], -1)


@pytest.fixture
def photo(imagine):
    return imagine("a.png")


def write_opencv(path, distortion, **more):
    cv2 = pytest.importorskip("cv2")
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("image_width", 640)
    storage.write("image_height", 480)
    for key, value in more.items():
        storage.write(key, value)
    storage.write("camera_matrix", MATRIX)
    storage.write("distortion_coefficients", np.array(distortion).reshape(-1, 1))
    storage.release()
    return cv2


@pytest.mark.parametrize("suffix", [".yml", ".xml"])
@pytest.mark.parametrize("count", [4, 5, 8, 12, 14])
def test_opencv(tmp_path, points, photo, suffix, count):
    cv2 = write_opencv(tmp_path / f"camera{suffix}", SERIES[:count])
    (view,) = assign_cameras([photo], str(tmp_path / f"camera{suffix}"))
    theirs, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), MATRIX, np.array(SERIES[:count]))
    ours, valid = view.camera.project(torch.from_numpy(points))
    assert valid.all() and np.abs(ours.numpy() - 0.5 - theirs[:, 0]).max() < 1e-6
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-13)
    plane = cv2.undistortPoints(theirs, MATRIX, np.array(SERIES[:count]), criteria=criteria)
    rays, _ = view.camera.unproject(torch.from_numpy(theirs[:, 0]) + 0.5)
    assert np.abs((rays[:, :2] / rays[:, 2:]).numpy() - plane[:, 0]).max() * 520 < 1e-6


@pytest.mark.parametrize("suffix", [".yml", ".xml"])
def test_opencv_fisheye(tmp_path, points, photo, suffix):
    k = np.array([0.02, -0.006, 0.001, -0.0002])
    cv2 = write_opencv(tmp_path / f"camera{suffix}", k, fisheye_model=1)
    (view,) = assign_cameras([photo], str(tmp_path / f"camera{suffix}"))
    assert view.camera.NAME == "opencv_fisheye"
    theirs, _ = cv2.fisheye.projectPoints(points[:, None], np.zeros(3), np.zeros(3), MATRIX, k)
    ours, _ = view.camera.project(torch.from_numpy(points))
    assert np.abs(ours.numpy() - 0.5 - theirs[:, 0]).max() < 1e-6


@pytest.mark.parametrize(
    ("model", "k"),
    [
        ("plumb_bob", SERIES[:5]),
        ("rational_polynomial", SERIES[:8]),
        ("equidistant", [0.02, -0.006, 0.001, 0.0]),
    ],
)
@pytest.mark.parametrize("form", ["calibration", "message"])
def test_ros(tmp_path, points, photo, model, k, form):
    cv2 = pytest.importorskip("cv2")
    flat = MATRIX.reshape(-1).tolist()
    if form == "calibration":
        document = {
            "image_width": 640,
            "image_height": 480,
            "camera_name": "narrow",
            "camera_matrix": {"rows": 3, "cols": 3, "data": flat},
            "distortion_model": model,
            "distortion_coefficients": {"rows": 1, "cols": len(k), "data": k},
        }
    else:
        document = {
            "width": 640,
            "height": 480,
            "distortion_model": model,
            "D": k,
            "K": flat,
            "P": [1.0] * 12,
        }
    (tmp_path / "info.yaml").write_text(json.dumps(document))
    (view,) = assign_cameras([photo], str(tmp_path / "info.yaml"))
    assert "ROS" in view.source
    project = cv2.fisheye.projectPoints if model == "equidistant" else cv2.projectPoints
    theirs, _ = project(points[:, None], np.zeros(3), np.zeros(3), MATRIX, np.array(k))
    ours, _ = view.camera.project(torch.from_numpy(points))
    assert np.abs(ours.numpy() - 0.5 - theirs.reshape(-1, 2)).max() < 1e-6


COLMAP = {
    "PINHOLE": [520.0, 523.0, 318.7, 244.2],
    "SIMPLE_RADIAL": [520.0, 318.7, 244.2, -0.1],
    "OPENCV": [520.0, 523.0, 318.7, 244.2, -0.2, 0.05, 0.001, -0.0005],
    "OPENCV_FISHEYE": [300.0, 301.0, 318.7, 244.2, 0.02, -0.006, 0.001, -0.0002],
    "THIN_PRISM_FISHEYE": [
        300.0,
        301.0,
        318.7,
        244.2,
        0.02,
        -0.006,
        0.0003,
        0.0002,
        0.001,
        0.0,
        0.0001,
        -0.0002,
    ],
    "RAD_TAN_THIN_PRISM_FISHEYE": [
        300.0,
        301.0,
        318.7,
        244.2,
        *[0.02, -0.006, 0.001, 0, 0, 0, 1e-4, 2e-4, 1e-4, 0, 0, 0],
    ],
}


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("model", COLMAP)
def test_colmap(tmp_path, points, photo, model, text):
    pycolmap = pytest.importorskip("pycolmap")
    theirs = pycolmap.Camera(camera_id=1, model=model, width=640, height=480, params=COLMAP[model])
    reconstruction = pycolmap.Reconstruction()
    reconstruction.add_camera_with_trivial_rig(theirs)
    rigid = pycolmap.Rigid3d(
        pycolmap.Rotation3d(np.array([0.1, 0.2, -0.1, 0.94**0.5])), np.array([0.3, -0.2, 1.0])
    )
    image = pycolmap.Image(name="photos/a.png", camera_id=1, image_id=1)
    reconstruction.add_image_with_trivial_frame(image, rigid)
    (tmp_path / "sparse").mkdir()
    (reconstruction.write_text if text else reconstruction.write)(str(tmp_path / "sparse"))
    (view,) = assign_cameras([photo], str(tmp_path))
    ours, _ = view.camera.project(torch.from_numpy(points))
    assert np.abs(ours.numpy() - theirs.img_from_cam(points)).max() < 1e-6
    written = reconstruction.images[1].cam_from_world().matrix()
    assert view.pose is not None and np.allclose(view.pose.cam_from_world[:3].numpy(), written, atol=1e-9)


def test_aria_projects_as_colmaps_model_of_the_same_name(points):
    """Pixel centres at integers there; one focal length; the order k p s."""
    pycolmap = pytest.importorskip("pycolmap")
    params = [
        240.0,
        319.2,
        239.9,
        -0.02,
        0.09,
        -0.06,
        0.02,
        -0.004,
        0.0003,
        0.0007,
        -0.0004,
        0.001,
        -0.0003,
        0.0006,
        0.0002,
    ]
    entry = {"Label": "camera-slam-left", "Projection": {"Name": "FisheyeRadTanThinPrism", "Params": params}}
    theirs = pycolmap.Camera(
        model="RAD_TAN_THIN_PRISM_FISHEYE", width=640, height=480, params=[240.0, *params]
    )
    ours, _ = aria_camera(entry, 640, 480, 0.0).project(torch.from_numpy(points))
    assert np.abs(ours.numpy() - 0.5 - theirs.img_from_cam(points)).max() < 1e-6


# Kalibr's models, from their definitions


def kalibr_project(model, intrinsics, distortion, k, points):
    """Kalibr's own order of steps: projection to a plane, distortion of the plane, focal lengths."""
    x, y, z = points.T
    if model == "pinhole":
        plane, (fx, fy, cx, cy) = np.stack([x / z, y / z], -1), intrinsics
    else:
        xi, fx, fy, cx, cy = intrinsics
        plane = np.stack([x, y], -1) / (z + xi * np.linalg.norm(points, axis=-1))[:, None]
    r2 = (plane**2).sum(-1, keepdims=True)
    if distortion == "radtan":
        k1, k2, p1, p2 = k
        u, v = plane.T
        shift = np.stack(
            [2 * p1 * u * v + p2 * (r2[:, 0] + 2 * u * u), p1 * (r2[:, 0] + 2 * v * v) + 2 * p2 * u * v], -1
        )
        plane = plane * (1 + k1 * r2 + k2 * r2**2) + shift
    elif distortion == "fov":
        r = np.sqrt(r2)
        plane = plane * np.arctan(2 * r * np.tan(k[0] / 2)) / (k[0] * r)
    return plane * [fx, fy] + [cx, cy]


@pytest.mark.parametrize(
    ("model", "intrinsics", "distortion", "k", "tolerance"),
    [
        ("pinhole", [460.0, 458.0, 319.5, 239.5], "none", [], 1e-9),
        ("pinhole", [460.0, 458.0, 319.5, 239.5], "radtan", [-0.28, 0.07, 0.0009, 0.0001], 1e-9),
        ("omni", [0.9, 700.0, 701.0, 322.0, 238.0], "none", [], 1e-9),
        ("omni", [0.9, 700.0, 701.0, 322.0, 238.0], "radtan", [-0.1, 0.02, 0.001, -0.0005], 2e-2),
        ("omni", [-0.3, 400.0, 401.0, 322.0, 238.0], "none", [], 2e-2),
        ("omni", [-0.3, 400.0, 401.0, 322.0, 238.0], "radtan", [-0.1, 0.02, 0.001, -0.0005], 2e-2),
        ("pinhole", [420.0, 421.0, 319.5, 239.5], "fov", [0.92], 1e-9),
    ],
)
def test_kalibr(points, model, intrinsics, distortion, k, tolerance):
    """Ray maps (omni with distortion) are bilinear between pixel centers."""
    settings = {
        "camera_model": model,
        "intrinsics": intrinsics,
        "distortion_model": distortion,
        "distortion_coeffs": k,
    }
    camera = kalibr_lens(settings, 0.0)(640, 480)
    expected = kalibr_project(model, intrinsics, distortion, k, points) + 0.5
    inside = (np.abs(expected - [320, 240]) < [310, 230]).all(-1)
    ours, valid = camera.project(torch.from_numpy(points[inside]).to(camera.dtype))
    assert valid.all() and inside.sum() > 200
    assert np.abs(ours.numpy() - expected[inside]).max() < tolerance


def test_kalibr_by_parameters():
    """`ds` is xi alpha fu fv pu pv, `eucm` alpha beta fu fv pu pv."""
    ds = kalibr_lens({"camera_model": "ds", "intrinsics": [-0.2, 0.6, 300, 301, 319.5, 239.5]}, 0.0)(640, 480)
    assert isinstance(ds, DoubleSphere) and ds.params.tolist() == [300.0, 301.0, 320.0, 240.0, -0.2, 0.6]
    eucm = kalibr_lens({"camera_model": "eucm", "intrinsics": [0.6, 1.1, 300, 301, 319.5, 239.5]}, 0.0)(
        640, 480
    )
    assert eucm.params.tolist() == [300.0, 301.0, 320.0, 240.0, 0.6, 1.1]
    omni = kalibr_lens({"camera_model": "omni", "intrinsics": [1.0, 600, 602, 319.5, 239.5]}, 0.0)(640, 480)
    assert isinstance(omni, UCM) and omni.params.tolist() == [300.0, 301.0, 320.0, 240.0, 0.5]
    equi = {"camera_model": "pinhole", "intrinsics": [1.0, 1, 2, 3], "distortion_model": "equi"}
    fisheye = kalibr_lens(
        {**equi, "intrinsics": [300, 301, 319.5, 239.5], "distortion_coeffs": [0.1, 0, 0, 0]}, 0.0
    )
    assert fisheye(640, 480).NAME == "opencv_fisheye"


# Real photos


def test_sceaux(shared_data):
    """Real photos, their COLMAP model and their EXIF: focal lengths agree to 4 %, observed points to 1 px."""
    from g_ray.formats.colmap.colmap_model import NO_POINT, read_model

    photos = find_photos([shared_data / "sceaux" / "images"])
    views = assign_cameras(photos, str(shared_data / "sceaux"))
    assert len(views) == 11 and isinstance(views[0].camera, OpenCV) and all(view.pose for view in views)
    (first, *_) = assign_cameras(photos, "exif")
    assert abs(first.camera.params[0] / views[0].camera.params[0] - 1) < 0.04
    model = read_model(shared_data / "sceaux" / "sparse", points=True)
    image = next(image for image in model.images if image.name == views[3].name)
    seen = image.point_ids != NO_POINT
    world = torch.tensor([model.points[i].position for i in image.point_ids[seen]], dtype=torch.float64)
    pixels, _ = views[3].camera.project(views[3].pose.inverse().apply(world))
    error = np.linalg.norm(pixels.numpy() - image.pixels[seen], axis=-1)
    assert np.median(error) < 1.0


def boards(path, size):
    """One array [1, n, size] per picture of the chessboard."""
    nodes = ElementTree.parse(path).getroot()
    return [np.array((node.text or "").split(), dtype=float).reshape(1, -1, size) for node in nodes]


def test_a_real_fisheye_calibration(tmp_path, shared_data, imagine):
    """Corners of a chessboard through a 131° lens: OpenCV's calibration, written and read, explains them."""
    cv2 = pytest.importorskip("cv2")
    folder = shared_data / "opencv_fisheye" / "calib-3_stereo_from_JY"
    world, seen = (boards(folder / "object.xml", 3)[::3], boards(folder / "left.xml", 2)[::3])
    names = ("CALIB_RECOMPUTE_EXTRINSIC", "CALIB_FIX_SKEW")
    place = cv2.fisheye if hasattr(cv2.fisheye, names[0]) else cv2  # they moved in OpenCV 5
    flags = getattr(place, names[0]) | getattr(place, names[1])
    _, k, d, turns, shifts = cv2.fisheye.calibrate(world, seen, (1280, 800), None, None, flags=flags)
    storage = cv2.FileStorage(str(tmp_path / "left.yml"), cv2.FILE_STORAGE_WRITE)
    for key, value in {"image_width": 1280, "image_height": 800, "fisheye_model": 1}.items():
        storage.write(key, value)
    storage.write("camera_matrix", k)
    storage.write("distortion_coefficients", d)
    storage.release()
    (view,) = assign_cameras([imagine("left.png", (1280, 800))], str(tmp_path / "left.yml"))
    errors = []
    for points, pixels, turn, shift in zip(world, seen, turns, shifts, strict=True):
        local = points[0] @ cv2.Rodrigues(turn)[0].T + shift.reshape(1, 3)
        ours, _ = view.camera.project(torch.from_numpy(local))
        errors.append(np.linalg.norm(ours.numpy() - 0.5 - pixels[0], axis=-1))
    assert np.sqrt(np.mean(np.concatenate(errors) ** 2)) < 0.5
    assert 110 < view.camera.fov().horizontal_deg < 150


def test_the_opened_source_is_one_object_for_all_photos(tmp_path, photo):
    write_opencv(tmp_path / "camera.yml", SERIES[:5])
    source = open_calibration(tmp_path / "camera.yml")
    first, second = (source.find_camera(photo) for _ in range(2))
    assert first is not None and second is not None and torch.equal(first.camera.params, second.camera.params)


@pytest.mark.parametrize(
    ("entry", "document", "size", "radius"),
    [
        ({}, {}, (2880, 2880), 1415.0),
        ({}, {}, (1408, 1408), 707.5),
        ({}, {"ImageSizes": [[1408, 1408]]}, (1408, 1408), 707.5),
        (
            {"ConfigData": {"ImageWidth": 2000, "ImageHeight": 2000, "ValidRadius": 900}},
            {},
            (2000, 2000),
            900.0,
        ),
        ({"ConfigData": {"ImageWidth": 2000, "ImageHeight": 2000}}, {}, (2000, 2000), None),
    ],
    ids=["sensor", "halved", "MPS", "second generation", "unknown"],
)
def test_aria_is_dark_beyond_its_valid_radius(tmp_path, imagine, entry, document, size, radius):
    """projectaria_tools: a pixel is valid up to that distance from the principal point; half of it at half the size."""
    example = AriaSource.example(tmp_path)
    content = json.loads(example.path.read_text())
    content["CameraCalibrations"][0].update(entry)
    if size[0] != 2880 and (entry or document):
        content["CameraCalibrations"][0]["Projection"]["Params"][:3] = [
            600.0,
            size[0] / 2 - 0.5,
            size[1] / 2 - 0.5,
        ]
    example.path.write_text(json.dumps({**content, **document}))
    view = open_calibration(example.path).find_camera(imagine("camera-rgb/1.jpg", size))
    if radius is None:
        assert view.camera.circle is None
        return
    camera = view.camera
    at = camera.params[2:4] + torch.tensor(
        [[0.0, radius - 1], [0.0, 1 - radius], [radius + 1, 0.0], [0.0, -radius - 1]]
    )
    assert camera.unproject(at.double())[1].tolist() == [True, True, False, False]
