"""Files as single tools write them: read as their writer projects, or refused by name."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import open_calibration

K = np.array([[520.0, 0.0, 318.2], [0.0, 523.0, 243.7], [0.0, 0.0, 1.0]])
D = [-0.21, 0.06, 0.0012, -0.0007, 0.01]
EYE = np.eye(4).tolist()


@pytest.fixture
def points():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.uniform(-0.45, 0.45, (300, 2)), np.ones((300, 1))], -1)


def check_opencv(view, points, distortion):
    cv2 = pytest.importorskip("cv2")
    theirs, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, np.array(distortion))
    ours, valid = view.camera.project(torch.from_numpy(points))
    assert valid.all() and np.abs(ours.numpy() - 0.5 - theirs[:, 0]).max() < 1e-6


def read(path, photo, notes=None):
    (view,) = assign_cameras([photo], str(path), report=None if notes is None else notes.append)
    return view


def write_storage(path, items, flags=0):
    cv2 = pytest.importorskip("cv2")
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE | flags)
    for name, value in items:
        storage.writeComment(value) if name is None else storage.write(name, value)
    storage.release()
    return path


LENS = [("camera_matrix", K), ("distortion_coefficients", np.array(D)[:, None])]


@pytest.mark.parametrize("suffix", ["yml", "xml", "json", "json.gz"])
def test_comments_of_opencv(tmp_path, imagine, points, suffix):
    """In JSON they are no JSON: // on a line of its own, with the comma after it."""
    items = [("image_width", 640), ("image_height", 480), (None, "flags: +fix_k3"), ("flags", 128), *LENS]
    check_opencv(read(write_storage(tmp_path / f"c.{suffix}", items), imagine("a.png")), points, D)


@pytest.mark.parametrize("suffix", ["yml", "xml", "json"])
def test_numbers_in_base64_are_refused_by_name(tmp_path, imagine, suffix):
    cv2 = pytest.importorskip("cv2")
    path = write_storage(tmp_path / f"c.{suffix}", LENS, cv2.FILE_STORAGE_WRITE_BASE64)
    with pytest.raises(ValueError, match="camera_matrix is in base64"):
        read(path, imagine("a.png"))


@pytest.mark.parametrize(
    "names", [("camera_matrix", "distortion_coefficients"), ("cameraMatrix", "dist_coeffs")]
)
@pytest.mark.parametrize("suffix", ["yml", "xml", "json"])
def test_interactive_calibration_of_opencv(tmp_path, imagine, points, names, suffix):
    """It writes standard deviations under names that begin like those of matrix and distortion."""
    matrix, distortion = names
    items = [
        ("calibrationDate", "Tue"),
        ("framesCount", 10),
        ("cameraResolution", np.array([[640, 480]])),
        (matrix, K),
        (f"{matrix}_std_dev", np.ones((4, 1))),
        (distortion, np.array([D])),
        (f"{distortion}_std_dev", np.ones((5, 1))),
        ("avg_reprojection_error", 0.2),
    ]
    path = write_storage(tmp_path / f"c.{suffix}", items)
    assert open_calibration(path).lenses[0].size == (640, 480)
    check_opencv(read(path, imagine("a.png")), points, D)


@pytest.mark.parametrize(
    ("matrix", "vector"), [("cameraMatrix{}", "distCoeffs{}"), ("K_{}", "D_{}"), ("mtx{}", "dist{}")]
)
@pytest.mark.parametrize("sides", [("L", "R"), ("left", "right")])
def test_sides_of_a_pair(tmp_path, imagine, points, matrix, vector, sides):
    other = (K + np.diag([9.0, 9.0, 0.0])).tolist()
    document = {matrix.format(sides[0]): K.tolist(), vector.format(sides[0]): D}
    document |= {matrix.format(sides[1]): other, vector.format(sides[1]): [0.0] * 5}
    (tmp_path / "pair.json").write_text(json.dumps(document))
    check_opencv(read(tmp_path / "pair.json", imagine("left/a.png")), points, D)
    assert read(tmp_path / "pair.json", imagine("right/a.png")).camera.params[0] == 529.0
    with pytest.raises(ValueError, match="which camera took"):
        read(tmp_path / "pair.json", imagine("a.png"))


def test_a_pair_of_omnidirectional_cameras(tmp_path, imagine):
    """As the sample of cv2.omnidir writes it: each has its own xi."""
    document = {"used_imgs": ["a", "b"], "om": [0, 0, 0], "T": [1, 0, 0], "rms": 0.1}
    for number, xi in ((1, 0.5), (2, 1.0)):
        document |= {f"camera_matrix_{number}": K.tolist(), f"distortion_coefficients_{number}": [0.0] * 4}
        document[f"xi_{number}"] = xi
    path = tmp_path / "omni.json"
    path.write_text(json.dumps(document))
    for label, xi in (("1", 0.5), ("2", 1.0)):
        camera = read(f"{path}:{label}", imagine("a.png")).camera
        assert camera.NAME == "ucm" and camera.params[4] == pytest.approx(xi / (1 + xi))
    path.write_text(json.dumps({key: value for key, value in document.items() if key != "xi_2"}))
    with pytest.raises(ValueError, match="needs xi2"):
        open_calibration(path)


# numpy.savez, as OpenCV's Python tutorial does


def test_arrays_of_numpy(tmp_path, imagine, points):
    vectors = np.empty(2, object)
    vectors[:] = [np.zeros(3), np.zeros(4)]
    np.savez(tmp_path / "B.npz", mtx=K, dist=[D], rvecs=vectors, tvecs=np.zeros((2, 3, 1)))
    check_opencv(read(tmp_path / "B.npz", imagine("a.png")), points, D)


def test_damaged_and_hostile_arrays(tmp_path, imagine):
    """An array that claims any size is not made; objects are not unpickled; a name that may change the lens counts."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    )
    np.savez(tmp_path / "c.npz", mtx=K, dist=[D])
    with zipfile.ZipFile(tmp_path / "c.npz", "a") as archive:
        archive.writestr("rvecs.npy", header.getvalue())
    assert read(tmp_path / "c.npz", imagine("a.png")).camera.NAME == "opencv"
    content = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "c.npz").write_bytes(content[:200] + bytes(50) + content[250:])
    with pytest.raises(ValueError, match=r"cannot be read as \.npz"):
        open_calibration(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", mtx=K, xyz=1.0)
    with pytest.raises(ValueError, match="'xyz' is not known and may change the lens"):
        open_calibration(tmp_path / "d.npz")


# nerfstudio


def transforms(**changes):
    affine = {"fl_x": 520.0, "fl_y": 523.0, "cx": 318.7, "cy": 244.2, "w": 640, "h": 480}
    return {**affine, "frames": [{"file_path": "a.png", "transform_matrix": EYE}], **changes}


@pytest.mark.parametrize(
    "key", ["dist_coeffs", "distortion", "xi", "skew", "fisheye", "lens", "camera_type", "k7", "is_omni"]
)
@pytest.mark.parametrize("in_frame", [False, True])
def test_keys_of_a_lens_that_are_not_read(tmp_path, imagine, key, in_frame):
    document = transforms()
    (document["frames"][0] if in_frame else document)[key] = 0.2
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"'{key}' is not read and may change the lens"):
        open_calibration(tmp_path / "transforms.json")


def test_other_keys_stay_allowed(tmp_path, imagine):
    more = {"aabb_scale": 16, "distance_unit": 1.0, "sharpness": 3.0, "ply_file_path": "p.ply", "xi": 0}
    (tmp_path / "transforms.json").write_text(json.dumps(transforms(**more)))
    notes = []
    read(tmp_path / "transforms.json", imagine("a.png"), notes)
    assert "not used: aabb_scale, distance_unit, ply_file_path" in notes[0]


def test_radius_of_an_aria_fisheye(tmp_path, imagine):
    """nerfstudio converts Aria's recordings with it: beyond it the image is black."""
    series = [-0.02, 0.09, -0.06, 0.02, -0.004, 0.0003, 0.0007, -0.0004, 0.001, -0.0003, 0.0006, 0.0002]
    document = transforms(camera_model="FISHEYE624", distortion_params=series, fisheye_crop_radius=200.0)
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    camera = read(tmp_path / "transforms.json", imagine("a.png")).camera
    pixels = torch.tensor([[318.7 + 199, 244.2], [318.7, 244.2 - 199], [318.7 + 201, 244.2]]).double()
    assert camera.unproject(pixels)[1].tolist() == [True, True, False]


def test_synthetic_scenes_of_nerf(tmp_path, shoot):
    """Names have no suffix, and sizes are those of the images."""
    from g_ray.media.photos import Photo

    path = shoot("train/r_0.png", (64, 48))
    scene = path.parent.parent
    frame = {"file_path": "./train/r_0", "rotation": 0.01, "transform_matrix": EYE}
    (scene / "transforms_train.json").write_text(json.dumps({"camera_angle_x": 0.69, "frames": [frame]}))
    view = read(scene / "transforms_train.json", Photo.from_file(path, "train/r_0.png"))
    assert view.camera.width == 64 and view.pose is not None


def test_absolute_paths_of_windows(tmp_path, imagine):
    document = transforms(frames=[{"file_path": "C:\\shots\\images\\a.png", "transform_matrix": EYE}])
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    assert read(tmp_path / "transforms.json", imagine("images/a.png")).pose is not None


# Kalibr, ROS, ORB-SLAM, CamOdoCal, Metashape


def test_a_key_of_a_lens_in_a_camchain(tmp_path):
    text = """cam0:
  camera_model: pinhole
  intrinsics: [500, 500, 319.5, 239.5]
  distortion_model: none
  distortion_coeffs: []
  resolution: [640, 480]
  xi: 0.9
"""
    (tmp_path / "chain.yaml").write_text(text)
    with pytest.raises(ValueError, match="'xi' is no key of Kalibr's"):
        open_calibration(tmp_path / "chain.yaml")


ROS = """image_width: 640
image_height: 480
camera_name: narrow_stereo/left
camera_matrix: {rows: 3, cols: 3, data: [520, 0, 318.2, 0, 523, 243.7, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 0, data: []}
rectification_matrix: {rows: 3, cols: 3, data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
"""


def test_a_camera_of_a_stereo_pair_of_ros(tmp_path, imagine):
    (tmp_path / "left.yaml").write_text(ROS)
    assert read(tmp_path / "left.yaml", imagine("left/a.png")).camera.NAME == "pinhole"
    with pytest.raises(ValueError, match="no camera 'right'"):
        read(tmp_path / "left.yaml", imagine("right/a.png"))


ORB = """%YAML:1.0
Camera.type: "PinHole"
Camera.fx: 435.2
Camera.fy: 435.2
Camera.cx: 318.2
Camera.cy: 243.7
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("Camera.bFishEye: 1\n", "bFishEye and the type PinHole contradict"),
        (
            "LEFT.D: !!opencv-matrix\n   rows: 1\n   cols: 5\n   dt: d\n   data:[-0.28, 0.07, 0.0, 0.0, 0.0]\n"
            "LEFT.K: !!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n   data: [458, 0, 318, 0, 457, 243, 0, 0, 1]\n",
            "LEFT.K is the lens and Camera.fx the image after rectification",
        ),
    ],
)
def test_orb_slam_settings_that_mean_another_lens(tmp_path, more, message):
    (tmp_path / "settings.yaml").write_text(ORB)
    open_calibration(tmp_path / "settings.yaml")
    (tmp_path / "settings.yaml").write_text(ORB + more)
    with pytest.raises(ValueError, match=message):
        open_calibration(tmp_path / "settings.yaml")


def test_scaramuzza_of_camodocal_has_columns_first(tmp_path):
    """The same lens in CamOdoCal's file and in OCamCalib's, whose rows come first."""
    (tmp_path / "c.yaml").write_text(
        """%YAML:1.0
---
model_type: scaramuzza
camera_name: pal
image_width: 640
image_height: 480
poly_parameters: {p0: -200.0, p1: 0.0, p2: 1.6e-3, p3: -1.0e-6, p4: 2.5e-9}
inv_poly_parameters: {p0: 300.0, p1: 150.0}
affine_parameters: {ac: 1.01, ad: 0.0003, ae: 0.0001, cx: 319.5, cy: 239.5}
"""
    )
    camera = open_calibration(tmp_path / "c.yaml").lenses[0].build(640, 480)
    row, column = 100.0, 420.0  # centers of pixels are at integers in both files
    inverse = torch.linalg.inv(torch.tensor([[1.01, 0.0003], [0.0001, 1.0]], dtype=torch.float64))
    x, y = inverse @ torch.tensor([column - 319.5, row - 239.5], dtype=torch.float64)
    radius = torch.hypot(x, y)
    depth = 200.0 - 1.6e-3 * radius**2 + 1.0e-6 * radius**3 - 2.5e-9 * radius**4
    expected = torch.nn.functional.normalize(torch.stack([x, y, depth]), dim=0)
    ray, valid = camera.unproject(torch.tensor([column + 0.5, row + 0.5], dtype=torch.float64))
    assert valid
    torch.testing.assert_close(ray, expected)
    (tmp_path / "c.yaml").write_text(
        "model_type: scaramuzza\npoly_parameters: {p0: -2.0}\naffine_parameters: {ac: 1.0}\n"
    )
    with pytest.raises(ValueError, match="SCARAMUZZA lacks p1"):
        open_calibration(tmp_path / "c.yaml")


def test_the_type_of_a_metashape_sensor_counts(tmp_path, imagine):
    text = """<document version="1.5.0"><chunk><sensors>
<sensor id="0" label="a" type="fisheye"><calibration class="adjusted">
<resolution width="640" height="480"/><f>300</f><k1>0.02</k1></calibration></sensor></sensors></chunk></document>"""
    (tmp_path / "cameras.xml").write_text(text)
    assert read(tmp_path / "cameras.xml", imagine("a.png")).camera.NAME == "opencv_fisheye"


def test_an_unknown_file_is_refused_with_its_entries(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"fx": 1, "ppx": 2, "coeffs": []}))
    with pytest.raises(ValueError, match="its entries are fx, ppx, coeffs, …: write camera_matrix"):
        open_calibration(tmp_path / "c.json")
