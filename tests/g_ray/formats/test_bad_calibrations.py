"""Wrong calibrations, one row each: one line, the right exception, where it lies, and what is wrong."""

# ruff: noqa: E501

import json
import time

import numpy as np
import pytest

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import CALIBRATIONS

K = "[500, 0, 319.5, 0, 500, 239.5, 0, 0, 1]"
HEAD = f"image_width: 640\nimage_height: 480\ncamera_matrix: {{rows: 3, cols: 3, data: {K}}}\n"
ROS = HEAD + "camera_name: c\n"
KALIBR = "cam0:\n  camera_model: {}\n  intrinsics: {}\n  distortion_model: {}\n  distortion_coeffs: {}\n  resolution: [640, 480]\n"
PINHOLE = "[500, 500, 319.5, 239.5]"
EYE = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]


def transforms(**changes):
    frame = {"file_path": "a.png", "transform_matrix": EYE}
    document = {"fl_x": 500.0, "cx": 320.0, "cy": 240.0, "w": 640, "h": 480, "frames": [frame]}
    frame.update({key: changes.pop(key) for key in list(changes) if key in ("file_path", "transform_matrix")})
    return json.dumps(document | changes)


def aria(label="camera-slam-left", name="FisheyeRadTanThinPrism", params=(240.0, 319.0, 239.0, *[0.0] * 12)):
    entry = {"Label": label, "Projection": {"Name": name, "Params": list(params)}}
    return json.dumps({"CameraCalibrations": [entry]})


def ours(**changes):
    params = {"fx": 500.0, "fy": 500.0, "cx": 320.0, "cy": 240.0}
    entry = {"name": "a", "model": "pinhole", "width": 640, "height": 480, "params": params}
    return json.dumps({"format": "g-ray-cameras", "version": 1, "cameras": [entry | changes]})


TEXTS = {
    # name: (file, content, what the message says)
    "empty": ("c.yml", "", "an empty file"),
    "blank": ("c.json", "  \n", "an empty file"),
    "prose": ("c.txt", "my camera is very good", "no calibration format that is known"),
    "a list": ("c.json", "[1, 2, 3]", "no calibration format that is known"),
    "broken JSON": ("c.json", '{"frames": [', "not JSON"),
    "broken YAML": ("c.yaml", "a: [1, 2\nb: }", "not YAML"),
    "broken XML": ("c.xml", "<opencv_storage><a>", "not XML"),
    "other XML": ("c.xml", "<lens><k1>0</k1></lens>", "no calibration format that is known"),
    "python in YAML": ("c.yaml", "camera_matrix: !!python/object/apply:os.system ['true']", "not YAML"),
    "no such keys": ("c.yaml", "alpha: 1\nbeta: 2\n", "no calibration format that is known"),
    "short matrix": ("c.yml", "camera_matrix: [500, 0, 320]\n", "camera_matrix has 3 values, not 9"),
    "matrix of words": ("c.yml", "camera_matrix: [a, 0, 0, 0, b, 0, 0, 0, 1]\n", "camera_matrix is 'a', not a number"),
    "matrix is one number": ("c.yml", "camera_matrix: 500\n", "not a list of numbers"),
    "matrix with NaN": ("c.yml", "camera_matrix: [.nan, 0, 0, 0, 1, 0, 0, 0, 1]\n", "not a number"),
    "matrix of another size": ("c.yml", "camera_matrix: {rows: 3, cols: 4, data: [1, 2]}\n", "declares 3×4 values but has 2"),
    "transposed matrix": ("c.yml", "camera_matrix: [500, 0, 0, 0, 500, 0, 320, 240, 1]\n", "check rows and columns"),
    "skew": ("c.yml", "camera_matrix: [500, 3, 320, 0, 500, 240, 0, 0, 1]\n", "skew 3"),
    "six coefficients": ("c.yml", HEAD + "distortion_coefficients: [0, 0, 0, 0, 0, 0.1]\n", "6 distortion coefficients"),
    "tilt": ("c.yml", HEAD + f"distortion_coefficients: [{'0, ' * 12}0.1, 0]\n", "tilted sensor"),
    "fisheye of five": ("c.yml", HEAD + "fisheye_model: 1\ndistortion_coefficients: [0, 0, 0, 0, 0.1]\n", "a fisheye has 4"),
    "k3 before p1 p2": ("c.yml", HEAD + "distortion_coefficients: [-0.28, 0.1, 0.2, 0.001, 0.0004]\n", "check the order"),
    "fisheye's as radial": ("c.yml", HEAD + "distortion_coefficients: [-0.9, 1.4, 0.01, 0.01, -1.5]\n", "coefficients"),
    "wrong signs": ("c.yml", HEAD + "fisheye_model: 1\ndistortion_coefficients: [-1.9, 0, 0, 0]\n", "folds back"),
    "half a width": ("c.yml", HEAD.replace("640", "640.5"), "image_width is 640.5"),
    "size zero": ("c.yml", HEAD.replace("480", "0"), "image_height is 0"),
    "negative focal length": ("c.yml", HEAD.replace("[500", "[-500"), "fx = -500"),
    "focal length in mm": ("c.yml", HEAD.replace("500", "4.2"), "in millimeters or normalized"),
    "no size, other size": ("c.yml", f"camera_matrix: {K.replace('319.5', '1600').replace('239.5', '1200')}\n", "names no image size"),
    "ROS without a size": ("c.yaml", ROS.replace("image_width: 640\n", "") + "distortion_model: plumb_bob\n", "image_width is missing"),
    "ROS, unknown model": ("c.yaml", ROS + "distortion_model: mei\n", "distortion_model 'mei' is not known"),
    "ROS, count": ("c.yaml", ROS + "distortion_model: equidistant\ndistortion_coefficients: [0, 0, 0, 0, 0.1]\n", "equidistant has 4"),
    "ROS, binned": ("c.yaml", ROS + "distortion_model: plumb_bob\nbinning_x: 2\n", "without binning"),
    "ROS, cut": ("c.yaml", ROS + "distortion_model: plumb_bob\nroi: {x_offset: 8, y_offset: 0}\n", "region of interest"),
    "Kalibr, model": ("c.yaml", KALIBR.format("mei", PINHOLE, "none", "[]"), "camera_model 'mei' is not known"),
    "Kalibr, distortion": ("c.yaml", KALIBR.format("pinhole", PINHOLE, "brown", "[]"), "distortion_model 'brown'"),
    "Kalibr, intrinsics": ("c.yaml", KALIBR.format("omni", PINHOLE, "none", "[]"), "intrinsics has 4 values, not 5"),
    "Kalibr, coefficients": ("c.yaml", KALIBR.format("pinhole", PINHOLE, "radtan", "[0.1]"), "1 values, not 4"),
    "Kalibr, no such pair": ("c.yaml", KALIBR.format("ds", "[0, 0.5, 300, 300, 320, 240]", "radtan", "[0.1, 0, 0, 0]"), "ds-none only"),
    "Kalibr, omni-equi": ("c.yaml", KALIBR.format("omni", "[0.9, 600, 600, 320, 240]", "equi", "[0.1, 0, 0, 0]"), "omni-radtan"),
    "Kalibr, xi": ("c.yaml", KALIBR.format("omni", "[-1.5, 600, 600, 320, 240]", "none", "[]"), "above -1"),
    "Kalibr, no resolution": ("c.yaml", KALIBR.format("pinhole", PINHOLE, "none", "[]").replace("  resolution: [640, 480]\n", ""), "resolution is missing"),
    "nerfstudio, no frames": ("t.json", '{"frames": []}', "no frames"),
    "nerfstudio, no rotation": ("t.json", transforms(transform_matrix=[[2.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]), "a rotation"),
    "nerfstudio, model": ("t.json", transforms(camera_model="LENS"), "camera model 'LENS'"),
    "nerfstudio, no focal length": ("t.json", transforms(fl_x=0), "fl_x is 0"),
    "nerfstudio, other order": ("t.json", transforms(fl_x=320.0, fl_y=500.0, cx=500.0, cy=600.0), "cy = 600 lies outside"),
    "Aria, label": ("a.json", aria(label="camera-left"), "its image size is not known"),
    "Aria, projection": ("a.json", aria(name="Spline"), "Projection.Name 'Spline'"),
    "Aria, count": ("a.json", aria(params=(240.0, 319.0)), "Projection.Params has 2 values"),
    "Aria, halved": ("a.json", aria(label="camera-rgb", params=(611.0, 704.0, 704.0, *[0.0] * 12)), "far from the middle"),
    "Aria, no label": ("a.json", aria(label=None), "it has no Label"),
    "Aria, nothing": ("a.json", '{"CameraCalibrations": []}', "no cameras in it"),
    "unknown entry": ("c.yml", HEAD + "lens_shift: 0.3\n", "entry 'lens_shift' is not known"),
    "unknown model": ("c.yml", HEAD + "model: scaramuzza\n", "model 'scaramuzza' is not known"),
    "two distortions": ("c.yml", HEAD + "dist: [0.1, 0, 0, 0]\nD: [0.2, 0, 0, 0]\n", "dist and D both look like"),
    "two spellings": ("c.yml", HEAD + "cameraMatrix: [1]\n", "are the same entry"),
    "vector and scalars": ("c.yml", HEAD + "dist: [0.1, 0, 0, 0]\nk1: 0.1\n", "dist and k1 both"),
    "fisheye, perhaps": ("c.yml", HEAD + "fisheye: maybe\n", "fisheye is 'maybe'"),
    "fisheye and pinhole": ("c.yml", HEAD + "fisheye: 1\nmodel: pinhole\n", "both fisheye and perspective"),
    "omnidir without xi": ("c.yml", HEAD + "model: omnidir\n", "needs xi"),
    "omnidir of five": ("c.yml", HEAD + "xi: 1.1\nD: [0.1, 0, 0, 0, 0.1]\n", "omnidir has 4"),
    "distortion of 500": ("c.yml", HEAD + "distortion_coefficients: [500, 0, 0, 0]\n", "changes the angle of view"),
    "fisheye of 500": ("c.yml", HEAD + "fisheye: 1\ndistortion_coefficients: [500, 0, 0, 0]\n", "changes the angle of view"),
    "skew entry": ("c.yml", HEAD + "skew: 0.3\n", "skew is not 0"),
    "ROS, unknown entry": ("c.yaml", ROS + "distortion_model: plumb_bob\nxi: 0.9\n", "'xi' is not known"),
    "twice in YAML": ("c.yml", HEAD + "image_width: 320\n", "key 'image_width' is there twice"),
    "twice in JSON": ("c.json", '{"frames": [], "frames": []}', "key 'frames' is there twice"),
    "twice in XML": ("c.xml", "<opencv_storage><a>1</a><a>2</a></opencv_storage>", "key 'a' is there twice"),
    "nerfstudio, fisheye of ngp": ("t.json", transforms(is_fisheye=True, camera_model="OPENCV"), "contradict each other"),
    "nerfstudio, is_fisheye": ("t.json", transforms(is_fisheye="so"), "is_fisheye is 'so'"),
    "nerfstudio, f-theta": ("t.json", transforms(ftheta_p0=0.1), "ftheta_p0 of instant-ngp"),
    "nerfstudio, rolling shutter": ("t.json", transforms(rolling_shutter=[0, 0.1, 0, 0]), "rolling_shutter of instant-ngp"),
    "nerfstudio, vector": ("t.json", transforms(distortion_params=[0.1, 0.2]), "distortion_params has 2 values, not 6"),
    "nerfstudio, two vectors": ("t.json", transforms(distortion_params=[0.1] * 6, k1=0.2), "distortion_params and k1"),
    "nerfstudio, fl_y": ("t.json", transforms(fl_y=0), "fl_y is 0"),
    "nerfstudio, list of models": ("t.json", transforms(camera_model=["OPENCV"]), "camera model a list"),
    "nerfstudio, huge": ("t.json", transforms(fl_x=10**400), "fl_x is an integer of many digits"),
    "huge size": ("c.yml", HEAD.replace("640", "1e308"), "image_width is '1e308'"),
    "huge integer": ("c.yml", HEAD.replace("[500", "[1" + "0" * 400), "an integer of many digits"),
    "deep JSON": ("c.json", '{"a":' * 99999, "nested too deeply"),
    "deep YAML": ("c.yml", "[" * 9999, "nested too deeply"),
    "damaged archive": ("c.yml.gz", "no archive", "cannot be unpacked"),
    "ours, unknown key": ("c.json", ours(focal=3), "unknown key"),
    "ours, unknown model": ("c.json", ours(model="lens"), "unknown model"),
    "ours, table outside": ("c.json", ours(model="ray_map", table="../rays.npy"), "not a .npy file inside the folder"),
    "ours, principal point": ("c.json", ours(params={"fx": 500.0, "fy": 500.0, "cx": 320.0, "cy": 500.0}), "cy = 500 lies outside"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_a_wrong_file(tmp_path, imagine, case):
    name, content, text = TEXTS[case]
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as raised:
        assign_cameras([imagine("a.png")], str(tmp_path / name))
    message = str(raised.value)
    assert text in message and str(tmp_path) in message and "\n" not in message and len(message) < 400


def test_there_are_more_than_forty():
    assert len(TEXTS) >= 40


def colmap(folder, cameras="1 PINHOLE 640 480 500 500 320 240", images="1 1 0 0 0 0 0 0 1 a.png"):
    (folder / "sparse").mkdir()
    (folder / "sparse" / "cameras.txt").write_text(cameras + "\n")
    (folder / "sparse" / "images.txt").write_text(images + "\n\n")


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"cameras": "1 PINHOLE 640 480 500 500 320"}, "PINHOLE has 4 parameters, the file gives 3"),
        ({"cameras": "1 PINHOLE"}, "no camera, 2 of 5 words: '1 PINHOLE'; export the model again"),
        ({"cameras": "1 LENS 640 480 500"}, "unknown model LENS"),
        ({"cameras": "1 PINHOLE 640 480 240 320 500 500"}, "cy = 500 lies outside"),
        ({"cameras": "1 OPENCV 640 480 500 500 320 240 -0.2 0.05 0.3 0.1"}, "check the order"),
        ({"images": "1 1 0 0 0 0 0 0 2 a.png"}, "has camera 2, which is not there"),
        ({"images": "1 0 0 0 0 0 0 0 1 a.png"}, "the pose of a.png is not one"),
        ({"images": "1 1 0 0 0 0 0 0 1 ../a.png"}, "leads out of"),
        ({"images": "1 1 0 0 0"}, "no image, 5 of 10 words: '1 1 0 0 0'; export the model again"),
        ({"images": "1 1 0 0 0 0 0 0 1 b.png"}, "no calibration for a.png"),
    ],
)
def test_a_wrong_colmap_model(tmp_path, imagine, files, text):
    colmap(tmp_path, **files)
    with pytest.raises(ValueError, match=text) as raised:
        assign_cameras([imagine("a.png")], str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((480, 640, 2), np.float32), "is no ray map"),
        (np.zeros((480, 640, 3), np.int32), "is no ray map"),
        (np.zeros((480, 640, 3), np.float32), "0% of the rays are usable"),
        (np.ones((480, 640, 3), np.float32), "does not grow"),
        (np.ones((100, 640, 3), np.float32), "another shape"),
    ],
)
def test_a_wrong_ray_map(tmp_path, imagine, array, text):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=text):
        assign_cameras([imagine("a.png")], str(tmp_path / "a.npy"))


def test_a_file_that_is_no_npy(tmp_path, imagine):
    (tmp_path / "a.npy").write_bytes(b"not numpy")
    with pytest.raises(ValueError, match=r"a.npy: cannot be read as .npy"):
        assign_cameras([imagine("a.png")], str(tmp_path / "a.npy"))
    (tmp_path / "c.dat").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match=r"c.dat: neither text"):
        assign_cameras([imagine("a.png")], str(tmp_path / "c.dat"))


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ([], "no calibration: give"),
        (["nothing.json"], "nothing.json: no such calibration"),
        (["=exif"], "write SOURCE or PATTERN=SOURCE"),
        (["phone/*="], "write SOURCE or PATTERN=SOURCE"),
        (["phone/*=GOOD"], r"no photo left matches; there are a.png"),
        (["GOOD", "GOOD"], "say which photos each is for"),
        (["a*=GOOD", "GOOD"], "every photo has another one"),
        (["a*=GOOD", "*=GOOD"], "no photo left matches"),
        (["GOOD:cam7"], "no camera 'cam7'"),
        (["estimate:magic"], "write estimate"),
        (["estimate:colmap"], "needs two photos or more"),
        (["exif"], "no such image"),
    ],
)
def test_wrong_arguments(tmp_path, imagine, sources, text):
    good = str(CALIBRATIONS["opencv"].example(tmp_path).path)
    kind = OSError if sources == ["exif"] else ValueError
    with pytest.raises(kind, match=text) as raised:
        assign_cameras([imagine("a.png")], [source.replace("GOOD", good) for source in sources])
    assert "\n" not in str(raised.value)


def make_alias_bomb(key: str) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join([*lines, f"{key}: *a9", f"camera_matrix: {K}", "image_height: 480", ""])


@pytest.mark.parametrize("key", ["image_width", "camera_name", "distortion_model", "dist"])
def test_aliases_that_stand_for_billions_of_values(tmp_path, imagine, key):
    (tmp_path / "c.yml").write_text(make_alias_bomb(key))
    with pytest.raises(ValueError, match="aliases that stand for more than") as raised:
        assign_cameras([imagine("a.png")], str(tmp_path / "c.yml"))
    assert len(str(raised.value)) < 400


def test_plain_aliases_are_read(tmp_path, imagine):
    text = f"k: &k {K}\ncamera_matrix: *k\n".replace("k: &k", "comment: &k")
    (tmp_path / "c.yml").write_text(text + "image_width: 640\nimage_height: 480\n")
    (view,) = assign_cameras([imagine("a.png")], str(tmp_path / "c.yml"))
    assert view.camera.NAME == "pinhole"
    (tmp_path / "c.yml").write_text("a: &a [*a]\n" + text)
    with pytest.raises(ValueError, match="contains itself"):
        assign_cameras([imagine("a.png")], str(tmp_path / "c.yml"))


def test_sizes_are_compared_before_rays_are_computed(tmp_path, imagine):
    """A ray for each pixel of the size that this file claims would take 57 GB."""
    content = KALIBR.format("omni", "[0.9, 600, 600, 32000, 24000]", "radtan", "[0.1, 0, 0, 0]")
    (tmp_path / "c.yaml").write_text(content.replace("[640, 480]", "[64000, 48000]"))
    with pytest.raises(ValueError, match="the same shape"):
        assign_cameras([imagine("a.png")], str(tmp_path / "c.yaml"))
    with pytest.raises(ValueError, match="too much memory"):
        assign_cameras([imagine("a.png")], str(tmp_path / "c.yaml"), resize=True)


def test_many_frames_are_quick(tmp_path, imagine):
    frames = [{"file_path": f"{number}.png", "transform_matrix": EYE} for number in range(6000)]
    (tmp_path / "t.json").write_text(transforms(frames=frames))
    before = time.process_time()
    (view,) = assign_cameras([imagine("17.png")], str(tmp_path / "t.json"))
    assert view.camera.NAME == "pinhole" and time.process_time() - before < 3


def test_ray_maps_with_a_broken_header(tmp_path, imagine):
    for shape in ("(-4, 4, 3)", "(4, 4, 3", "(10**9, 10**9, 3)", "(99999999999999999999, 4, 3)", "x"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(192)
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(ValueError, match="numpy"):
            assign_cameras([imagine("a.png")], str(tmp_path / "a.npy"))
