"""Sources by pattern, sizes, notes, and refusals with their likely cause."""

import json
from dataclasses import replace

import pytest
import torch

from g_ray.calibration.assign import assign_cameras, find_calibration
from g_ray.cameras import CAMERAS, Equirectangular, OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.formats import CALIBRATIONS
from g_ray.formats.cameras_json import write_cameras
from g_ray.formats.plausible import check_plausible
from g_ray.geometry.pose import Pose
from g_ray.media.photos import find_photos
from g_ray.media.view import View


def camera_file(path, names=("camera",), size=(640, 480), pose=None):
    lens = Pinhole.from_fov(60.0, *size, dtype=torch.float64)
    write_cameras(path, [View(name, lens, pose) for name in names])
    return str(path)


def test_a_mix_by_pattern(tmp_path, imagine, shoot):
    fisheye = CALIBRATIONS["opencv"].example(tmp_path / "lab").path
    (phone,) = find_photos([shoot("phone/p.jpg", (640, 480), {41989: 28})])
    photos = [imagine("dslr/a.jpg"), imagine("dslr/b/c.jpg"), replace(phone, name="phone/p.jpg")]
    views = assign_cameras(photos, [f"dslr/*={fisheye}", "phone/*=exif"])
    assert [view.source for view in views] == ["camera.yml (OpenCV)"] * 2 + ["EXIF focal length"]
    views = assign_cameras(photos, ["exif", f"dslr/*={fisheye}"])
    assert [view.camera.NAME for view in views] == ["opencv", "opencv", "pinhole"]
    first = camera_file(tmp_path / "first.json")
    views = assign_cameras(photos[:2], [f"dslr/a*={first}", f"dslr/*={fisheye}"])
    assert [view.camera.NAME for view in views] == ["pinhole", "opencv"]


def test_a_camera_of_a_rig_by_folder_by_label_or_by_size(tmp_path, imagine):
    chain = CALIBRATIONS["kalibr"].example(tmp_path / "lab").path
    (view,) = assign_cameras([imagine("rec/cam0/1.png")], str(chain))
    assert view.camera.NAME == "opencv_fisheye"
    (view,) = assign_cameras([imagine("left/1.png")], [f"left/*={chain}:cam1"])
    assert view.camera.NAME == "double_sphere"
    with pytest.raises(
        ValueError, match=r"which camera took left/1.png \(640×480\)\? It has cam0 \(640×480\), cam1"
    ):
        assign_cameras([imagine("left/1.png")], str(chain))
    chain.write_text(
        chain.read_text()
        .replace("[640, 480]", "[320, 240]", 1)
        .replace("460.0, 458.0, 319.5, 239.5", "230.0, 229.0, 159.5, 119.5")
    )
    (view,) = assign_cameras([imagine("left/1.png", (320, 240))], str(chain))
    assert view.camera.NAME == "opencv_fisheye"


def test_names_with_and_without_folders(tmp_path, imagine):
    path = camera_file(tmp_path / "c.json", ("images/left/a.jpg", "images/right/a.jpg"))
    source = [view.source for view in assign_cameras([imagine("left/a.jpg"), imagine("right/a.jpg")], path)]
    assert source == ["c.json (G-ray)"] * 2
    with pytest.raises(ValueError, match=r"could be 'images/left/a.jpg' and 'images/right/a.jpg'"):
        assign_cameras([imagine("a.jpg")], path)


def test_a_single_camera_serves_all_photos_of_its_size_but_a_pose_is_one_photos(tmp_path, imagine):
    path = camera_file(tmp_path / "c.json")
    assert len(assign_cameras([imagine("a.jpg"), imagine("b.jpg")], path)) == 2
    posed = camera_file(tmp_path / "posed.json", pose=Pose(torch.eye(4, dtype=torch.float64)))
    with pytest.raises(ValueError, match="has a pose and serves photos of other names"):
        assign_cameras([imagine("a.jpg")], posed)
    (view,) = assign_cameras([imagine("camera.jpg")], posed)
    assert view.pose is not None


def test_what_is_not_used_is_said(tmp_path, imagine):
    path = camera_file(tmp_path / "c.json", ("a", "b", "c", "d", "e"))
    said = []
    assign_cameras([imagine("a.jpg")], path, report=said.append)
    assert said == [f"{path}: 4 cameras belong to photos that are not given: b, c, d, … (4)"]
    said.clear()
    yml = CALIBRATIONS["opencv"].example(tmp_path / "lab").path
    text = yml.read_text().replace("image_width: 640\nimage_height: 480\n", "")
    yml.write_text(text)
    assign_cameras([imagine("a.jpg")], str(yml), report=said.append)
    assert said == [f"{yml}: it names no image size; taken to be that of the photos"]
    said.clear()
    half_turn = imagine("t.jpg", orientation=3)
    assign_cameras([half_turn], camera_file(tmp_path / "one.json"), report=said.append)
    assert len(said) == 1 and "turned upright according to EXIF" in said[0]


def test_sizes(tmp_path, imagine):
    path = camera_file(tmp_path / "c.json")
    cases = [
        (imagine("a.jpg", (480, 640)), "turned by 90°"),
        (imagine("a.jpg", (640, 360)), "another shape"),
        (imagine("a.jpg", (1280, 960)), r"--resize-calibration scales the calibration by 2"),
    ]
    for photo, text in cases:
        with pytest.raises(ValueError, match=text):
            assign_cameras([photo], path)
    for photo, text in cases[:2]:
        with pytest.raises(ValueError, match=text):
            assign_cameras([photo], path, resize=True)
    (view,) = assign_cameras([cases[2][0]], path, resize=True)
    assert view.camera.params[:4].tolist() == pytest.approx(
        (Pinhole.from_fov(60.0, 1280, 960, dtype=torch.float64).params[:4]).tolist()
    )
    (stored,) = assign_cameras([imagine("a.jpg", (640, 480), orientation=6, upright=False)], path)
    assert stored.camera.width == 640


def test_scannetpp_worlds_and_undistorted_images(tmp_path, imagine):
    scannetpp = CALIBRATIONS["scannetpp"]
    folder = scannetpp.example(tmp_path / "scene").path
    photos = [
        imagine("dslr/resized_images/DSC00001.JPG", (1752, 1168)),
        imagine("iphone/rgb/frame_000000.jpg", (1920, 1440)),
    ]
    said = []
    dslr, iphone = assign_cameras(photos, str(folder), report=said.append)
    assert (dslr.camera.NAME, iphone.camera.NAME) == ("opencv_fisheye", "opencv")
    assert dslr.pose is None and iphone.pose is not None and "in another world" in said[0]
    with pytest.raises(ValueError, match="undistorted"):
        assign_cameras([imagine("dslr/resized_undistorted_images/DSC00001.JPG", (1752, 1168))], str(folder))


def test_aria_at_both_sizes_and_from_mps(tmp_path, imagine):
    path = CALIBRATIONS["aria"].example(tmp_path / "aria").path
    (full,) = assign_cameras([imagine("camera-rgb.jpg", (2880, 2880))], str(path))
    (half,) = assign_cameras([imagine("camera-rgb.jpg", (1408, 1408))], str(path))
    pixel = torch.tensor([[700.0, 300.0]], dtype=torch.float64)
    assert torch.allclose(half.camera.unproject(pixel)[0], full.camera.unproject(pixel * 2 + 32)[0])
    document = json.loads(path.read_text())
    params = document["CameraCalibrations"][0]["Projection"]["Params"]
    params[:3] = [611.0, 699.0, 700.5]
    lines = path.with_name("online_calibration.jsonl")
    lines.write_text(
        json.dumps({**document, "ImageSizes": [[1408, 1408]]}) + "\n" + json.dumps({"later": 1}) + "\n"
    )
    (online,) = assign_cameras([imagine("camera-rgb.jpg", (1408, 1408))], str(lines))
    assert torch.allclose(online.camera.params, half.camera.params)


def test_aria_from_mps_before_june_2023(tmp_path, imagine):
    """Timestamps and cameras were strings then, the latter as Python prints lists."""
    path = CALIBRATIONS["aria"].example(tmp_path / "aria").path
    cameras = json.loads(path.read_text())["CameraCalibrations"]
    cameras[0]["Calibrated"] = True
    line = {
        "tracking_timestamp_us": "148502610",
        "utc_timestamp_ns": "1686",
        "CameraCalibrations": str(cameras),
    }
    lines = path.with_name("online_calibration.jsonl")
    lines.write_text(json.dumps(line) + "\n" + json.dumps(line) + "\n")
    photo = imagine("camera-rgb.jpg", (2880, 2880))
    (old,), (new,) = assign_cameras([photo], str(lines)), assign_cameras([photo], str(path))
    assert torch.equal(old.camera.params, new.camera.params)
    lines.write_text(json.dumps({**line, "CameraCalibrations": "[{'Label': "}))
    with pytest.raises(ValueError, match="holds no list of cameras"):
        assign_cameras([photo], str(lines))


def test_an_aria_label_takes_the_camera_of_the_recorded_size(tmp_path, imagine):
    """The small image is an inner square at half the size: a scaled calibration of the sensor would be 0.8° off."""
    path = CALIBRATIONS["aria"].example(tmp_path / "aria").path
    photo = imagine("a.jpg", (1408, 1408))
    (by_size,) = assign_cameras([photo], str(path))
    (by_label,) = assign_cameras([photo], [f"*={path}:camera-rgb"])
    assert by_label.camera is by_size.camera or torch.equal(by_label.camera.params, by_size.camera.params)
    for rule in (str(path), f"*={path}:camera-rgb"):
        with pytest.raises(
            ValueError, match=r"records 2880×2880 and 1408×1408 px, b.jpg has 704×704"
        ) as refused:
            assign_cameras([imagine("b.jpg", (704, 704))], [rule], resize=True)
        assert "resize" not in str(refused.value)


def test_exif_by_the_focal_plane_and_after_scaling(shoot, imagine):
    """10 mm at 1000 px a centimetre are 1000 px; half the size has half of it; so has a photo on its side."""
    tags = {37386: 10.0, 41486: 1000.0, 41487: 1000.0, 41488: 3, 40962: 640, 40963: 480}
    focal = lambda path: assign_cameras(find_photos([path]), "exif")[0].camera.params[0].item()  # noqa: E731
    assert focal(shoot("a.jpg", (640, 480), tags)) == pytest.approx(1000.0)
    assert focal(shoot("b.jpg", (320, 240), tags)) == pytest.approx(500.0)
    assert focal(shoot("c.jpg", (640, 480), {**tags, 274: 6})) == pytest.approx(1000.0)
    with pytest.raises(ValueError, match=r"d.jpg: it is 480×480, but was taken at 640×480"):
        focal(shoot("d.jpg", (480, 480), tags))
    with pytest.raises(ValueError, match="in millimeters, but not the sensor's size"):
        focal(shoot("e.jpg", (640, 480), {37386: 10.0}))


# Lenses that cannot be


@pytest.mark.parametrize(
    ("camera", "text"),
    [
        (Pinhole.make(640, 480, fx=24.0, fy=24.0, cx=320.0, cy=240.0), "in millimeters or normalized"),
        (Pinhole.make(640, 480, fx=60000.0, fy=60000.0, cx=320.0, cy=240.0), "too long"),
        (Pinhole.make(640, 480, fx=500.0, fy=90.0, cx=320.0, cy=240.0), "fx = 500 and fy = 90"),
        (Pinhole.make(640, 480, fx=500.0, fy=500.0, cx=800.0, cy=240.0), "cx = 800 lies outside"),
        (Pinhole.make(640, 480, fx=500.0, fy=500.0, cx=320.0, cy=-3.0), "cy = -3 lies outside"),
        (OpenCVFisheye.make(640, 480, fx=70.0, fy=70.0, cx=320.0, cy=240.0), "more than 360°"),
        (Equirectangular.make(640, 480, fx=50.0, fy=80.0, cx=320.0, cy=240.0), "more than 360°"),
    ],
)
def test_what_no_lens_is_like(camera, text):
    with pytest.raises(ValueError, match=text):
        check_plausible(camera)


# Examples of panoramas may show a place twice, which no lens does.
@pytest.mark.parametrize("name", [name for name in CAMERAS if name != "equirectangular"])
def test_ordinary_lenses_pass(name):
    for seed in range(5):
        check_plausible(CAMERAS[name].example(seed))


def test_panoramas_circular_fisheyes_and_tele_lenses_pass():
    check_plausible(Equirectangular.panorama(640, 320))
    check_plausible(OpenCVFisheye.make(3000, 2000, fx=440.0, fy=440.0, cx=1500.0, cy=1000.0))
    check_plausible(Pinhole.make(6000, 4000, fx=133000.0, fy=133000.0, cx=3000.0, cy=2000.0))


@pytest.mark.parametrize(
    ("sign", "text"), [((1, -1, -1), "y does not grow"), ((-1, -1, 1), "x does not grow")]
)
def test_ray_maps_with_other_axes_are_refused(sign, text):
    rays = Pinhole.from_fov(70.0, 64, 48).unproject_grid()[0]
    check_plausible(RayMapCamera.from_rays(rays))
    flipped = rays * torch.tensor(sign, dtype=rays.dtype)
    with pytest.raises(ValueError, match=r"OpenCV axes"):
        check_plausible(RayMapCamera.from_rays(flipped))
    with pytest.raises(ValueError, match=text if sign[2] > 0 else "does not grow"):
        check_plausible(RayMapCamera.from_rays(flipped))


@pytest.mark.parametrize("place", ["photos", "."])
def test_a_calibration_beside_the_photos_is_found(tmp_path, shoot, place):
    photos = find_photos([shoot("a.png"), shoot("b.png")])
    names = [photo.name for photo in photos]
    camera_file(tmp_path / place / "cameras.json", names, (64, 48))
    said = []
    found = find_calibration(photos, said.append)
    assert found == str(tmp_path / place / "cameras.json") and found in said[0]
    assert {view.camera.NAME for view in assign_cameras(photos, found)} == {"pinhole"}


def test_a_scene_folder_beside_the_photos_is_found(tmp_path, shoot):
    example = CALIBRATIONS["colmap"].example(tmp_path)
    photos = find_photos([shoot("a.png"), shoot("b.png")])
    assert example.path.is_relative_to(tmp_path)
    assert find_calibration(photos, lambda text: None) == str(tmp_path)


def test_other_files_beside_the_photos_are_no_calibration(tmp_path, shoot):
    photos = find_photos([shoot("a.png"), shoot("b.png")])
    (tmp_path / "photos" / "notes.json").write_text("{}")
    (tmp_path / "photos" / "depth.npy").write_bytes(b"no rays")
    (tmp_path / "cameras.json").write_text('{"cameras": []}')  # of another program
    said = []
    assert find_calibration(photos, said.append) == "estimate"
    assert "estimated" in said[0]
