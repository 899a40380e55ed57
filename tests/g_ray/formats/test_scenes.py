"""Scene folders: what tools write is read back exactly, real points reproject, wrong files are named in one line."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from g_ray.cameras import Equirectangular
from g_ray.formats import read_scene
from g_ray.formats.colmap.colmap_cameras import MODELS, camera_from_colmap
from g_ray.formats.colmap.colmap_model import NO_POINT, read_model
from g_ray.media.images import read_photo

KINDS = ("pinhole", "opencv", "fisheye")


@pytest.fixture(scope="module")
def views(room_scenes):
    return room_scenes.shots(3, KINDS)


def same_as_written(scene, views):
    assert len(scene) == len(views)
    for index, shot in enumerate(views):
        assert scene.names[index].endswith(shot.name)
        read = scene.cameras[index]
        assert (read.NAME, read.width, read.height) == (
            shot.camera.NAME,
            shot.camera.width,
            shot.camera.height,
        )
        assert torch.allclose(read.params, shot.camera.params, atol=1e-12)
        found, written = scene.poses[index].world_from_cam, shot.pose.world_from_cam
        assert torch.allclose(found, written, atol=1e-9)
        assert (read_photo(scene.images[index]).movedim(0, -1) * 255).round().byte().numpy().tolist() == (
            shot.pixels.tolist()
        )


# What tools write


def test_nerfstudio(tmp_path, room_scenes, views):
    document = room_scenes.write_nerfstudio(tmp_path, views)
    scene = read_scene(tmp_path)
    assert scene.kind == "nerfstudio"
    same_as_written(scene, views)
    document["ply_file_path"] = "sparse.ply"
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    said = " ".join(read_scene(tmp_path).notes)
    assert "not used: ply_file_path" in said and "after applied_transform" in said
    document["frames"][0]["mask_path"] = "masks/a.png"
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="no such mask"):
        read_scene(tmp_path)


@pytest.mark.parametrize("text", [False, True])
def test_colmap_as_pycolmap_writes_it(tmp_path, room_scenes, views, text):
    room_scenes.write_colmap(tmp_path, views, text)
    scene = read_scene(tmp_path)
    assert scene.kind == "COLMAP"
    same_as_written(scene, views)


def test_transforms_come_before_the_model_that_they_were_made_from(tmp_path, room_scenes, views):
    room_scenes.write_colmap(tmp_path, views)
    assert read_scene(tmp_path).kind == "COLMAP"
    room_scenes.write_nerfstudio(tmp_path, views)
    assert read_scene(tmp_path).kind == "nerfstudio"


def test_a_global_camera_an_angle_of_view_and_frames_that_override(tmp_path, room_scenes, views):
    document = room_scenes.write_nerfstudio(tmp_path, views)
    frames = [{key: frame[key] for key in ("file_path", "transform_matrix")} for frame in document["frames"]]
    frames[1] |= {"camera_angle_x": 1.0, "fl_x": 30.0}
    shared = {"camera_model": "OPENCV", "camera_angle_x": 1.2, "k1": 0.0}
    (tmp_path / "transforms.json").write_text(json.dumps({**shared, "frames": frames}))
    first, second, _ = read_scene(tmp_path).cameras
    assert first.NAME == "pinhole" and (first.width, first.height) == (48, 36)
    assert first.params.tolist()[:4] == pytest.approx([24 / np.tan(0.6), 24 / np.tan(0.6), 24.0, 18.0])
    assert second.params[0] == 30.0


def test_a_panorama_of_nerfstudio_covers_the_sphere(tmp_path, room_scenes, views):
    """There, fl_x = w / 2 and fl_y = h mean 360° × 180°."""
    document = room_scenes.write_nerfstudio(tmp_path, views[:1])
    kept = {key: document["frames"][0][key] for key in ("file_path", "transform_matrix")}
    panorama = {"camera_model": "EQUIRECTANGULAR", "fl_x": 24.0, "fl_y": 36.0, "cx": 24.0, "cy": 18.0}
    (tmp_path / "transforms.json").write_text(json.dumps({"frames": [kept | panorama]}))
    (read,) = read_scene(tmp_path).cameras
    assert torch.allclose(read.params, Equirectangular.panorama(48, 36, dtype=torch.float64).params)


SAMPLES = {
    "f": 60.0, "fx": 60.0, "fy": 63.0, "cx": 31.0, "cy": 25.0, "alpha": 0.6, "beta": 1.1, "w": 64.0, "h": 48.0,
    "omega": 0.9, "k": -0.1,
    "k1": 0.03, "k2": -0.01, "k3": 0.004, "k4": -0.002, "k5": 0.001, "k6": -0.0005,
    "p1": 0.002, "p2": -0.003, "s1": 0.001, "s2": -0.002, "s3": 0.0015, "s4": 0.0005, "sx1": 0.001, "sy1": -0.002,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_model_projects_as_pycolmap_does(name):
    pycolmap = pytest.importorskip("pycolmap")
    parameters = tuple(SAMPLES[key] for key in MODELS[name].parameters.split())
    theirs = pycolmap.Camera(camera_id=1, model=name, width=64, height=48, params=list(parameters))
    assert int(theirs.model) == MODELS[name].number
    points = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.3
    points[:, 2] = 1.0
    pixels, valid = camera_from_colmap(name, 64, 48, parameters).project(points)
    assert valid.all()
    assert np.abs(theirs.img_from_cam(points.numpy()) - pixels.numpy()).max() < 1e-9


def test_every_model_of_pycolmap_is_known():
    pycolmap = pytest.importorskip("pycolmap")
    known = {
        name: int(number) for name, number in pycolmap.CameraModelId.__members__.items() if int(number) >= 0
    }
    assert {name: model.number for name, model in MODELS.items()} == known


# Real structure from motion


def test_real_points_reproject_at_the_error_of_their_model(shared_data, tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    scene = read_scene(shared_data / "sceaux")
    assert len(scene) == 11 and {c.NAME for c in scene.cameras} == {"opencv"}
    pycolmap.Reconstruction(str(shared_data / "sceaux" / "sparse")).write_text(str(tmp_path))
    binary, text = (
        read_model(shared_data / "sceaux" / "sparse", points=True),
        read_model(tmp_path, points=True),
    )
    assert binary.cameras == text.cameras and binary.points.keys() == text.points.keys()
    sums, counts = dict.fromkeys(binary.points, 0.0), dict.fromkeys(binary.points, 0)
    for one, other in zip(
        sorted(binary.images, key=lambda i: i.name), sorted(text.images, key=lambda i: i.name), strict=True
    ):
        assert one.name == other.name and np.array_equal(one.pixels, other.pixels)
        assert np.array_equal(one.point_ids, other.point_ids)
        seen, index = one.point_ids != NO_POINT, scene.find_index(one.name)
        ids = one.point_ids[seen].tolist()
        points = torch.tensor([binary.points[i].position for i in ids], dtype=torch.float64)
        pixels, valid = scene.cameras[index].project(scene.poses[index].inverse().apply(points))
        assert valid.all()
        errors = np.linalg.norm(pixels.numpy() - one.pixels[seen], axis=1)
        for i, error in zip(ids, errors, strict=True):
            sums[i], counts[i] = sums[i] + error, counts[i] + 1
    errors = np.array([sums[i] / counts[i] for i in sums])
    assert np.abs(errors - [point.error for point in binary.points.values()]).max() < 1e-6
    assert errors.mean() == pytest.approx(0.627376, abs=1e-6)


# Wrong files, each named in one line


def remove_image(folder):
    (folder / "images" / "view_01.png").unlink()


def remove_images(folder):
    for path in (folder / "images").iterdir():
        path.unlink()


def break_image(folder):
    (folder / "images" / "view_01.png").write_bytes(b"nothing")


def frame_with(**changes):
    def change(folder):
        document = json.loads((folder / "transforms.json").read_text())
        document["frames"][1] |= changes
        (folder / "transforms.json").write_text(json.dumps(document))

    return change


def text_instead(name, content):
    return lambda folder: (folder / name).write_text(content)


MIRROR = np.diag([1.0, 1.0, -1.0, 1.0]).tolist()


def test_a_nerfstudio_scene_of_which_images_are_missing_is_read_without_them(tmp_path, room_scenes, views):
    room_scenes.write_nerfstudio(tmp_path, views)
    remove_image(tmp_path)
    scene = read_scene(tmp_path)
    assert len(scene.names) == 2
    assert any("1 of 3 images are missing" in note for note in scene.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_images, r"3 of 3 images are missing: images/view_00.png"),
        (break_image, "view_01.png: cannot be read as an image"),
        (frame_with(w=40), "is 48×36 px, but its camera takes 40×36"),
        (frame_with(w=36, h=48), "stored turned by 90°"),
        (frame_with(file_path="../images/view_01.png"), "leads out of the scene folder"),
        (frame_with(file_path="/etc/passwd"), "leads out of the scene folder"),
        (frame_with(file_path="C:\\secret.png"), "leads out of the scene folder"),
        (frame_with(file_path="images\\..\\..\\x.png"), "leads out of the scene folder"),
        (frame_with(file_path="images/view_00.png"), "is there twice"),
        (frame_with(file_path=3), "frame number 1 names no image"),
        (
            frame_with(transform_matrix=[[1, 0], [0, 1]]),
            "frame images/view_01.png: transform_matrix is not a 4×4",
        ),
        (frame_with(transform_matrix="I"), "transform_matrix is not a 4×4"),
        (frame_with(transform_matrix=MIRROR), "does not begin with a rotation"),
        (frame_with(fl_x="wide"), "fl_x is 'wide', not a number"),
        (frame_with(fl_x=float("nan")), "fl_x is nan, not a number"),
        (frame_with(fl_x=0, fl_y=0), "fl_x is 0"),
        (frame_with(w=48.5), "w is 48.5"),
        (frame_with(fl_x=-3), "fl_x is -3"),
        (text_instead("transforms.json", "[" * 100_000), "not JSON"),
        (frame_with(camera_angle_x=4.0, fl_x=None, fl_y=None), "not between 0 and π"),
        (frame_with(camera_model="ORTHOPHOTO"), "camera model 'ORTHOPHOTO' is not read here"),
        (frame_with(camera_model="PINHOLE", k1=0.1), "PINHOLE has no k1"),
        (frame_with(camera_model="OPENCV", k4=0.1), "k4 of OPENCV"),
        (text_instead("transforms.json", "{"), "not JSON"),
        (text_instead("transforms.json", "[]"), "must be an object with frames"),
        (text_instead("transforms.json", '{"frames": []}'), "no frames"),
    ],
)
def test_what_is_wrong_with_a_nerfstudio_folder_is_said_in_one_line(
    tmp_path, room_scenes, views, change, message
):
    room_scenes.write_nerfstudio(tmp_path, views)
    change(tmp_path)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        read_scene(tmp_path)
    assert "\n" not in str(caught.value)


def cut(name, size):
    def change(folder):
        path = folder / "sparse" / "0" / name
        path.write_bytes(path.read_bytes()[:size])

    return change


def longer(folder):
    path = folder / "sparse" / "0" / "images.bin"
    path.write_bytes(path.read_bytes() + b"\0")


def huge(folder):
    (folder / "sparse" / "0" / "images.bin").write_bytes(b"\xff" * 8)


def text_model(cameras, images):
    def change(folder):
        shutil.rmtree(folder / "sparse" / "0")
        (folder / "sparse" / "0").mkdir()
        (folder / "sparse" / "0" / "cameras.txt").write_text(cameras)
        (folder / "sparse" / "0" / "images.txt").write_text(images)

    return change


PINHOLE, IMAGE = "1 PINHOLE 48 36 40 40 24 18\n", "1 1 0 0 0 0 0 0 1 view_00.png\n\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_image, "1 of 3 images are missing: view_01.png"),
        (cut("cameras.bin", 20), "cameras.bin: the file ends too early"),
        (cut("images.bin", 90), "images.bin: the file ends"),
        (longer, "1 bytes are left over"),
        (huge, "images.bin: the file ends too early"),
        (text_model("1 LENSBABY 48 36 40\n", IMAGE), "unknown model LENSBABY"),
        (text_model("1 PINHOLE 48 36 40\n", IMAGE), "PINHOLE has 4 parameters, the file gives 1"),
        (text_model("1 PINHOLE 48\n", IMAGE), "cameras.txt: "),
        (text_model("1 PINHOLE 48 36 -40 40 24 18\n", IMAGE), "camera 1: "),
        (text_model(PINHOLE, IMAGE.replace(" 1 view", " 2 view")), "has camera 2, which is not there"),
        (text_model(PINHOLE, "1 0 0 0 0 0 0 0 1 view_00.png\n\n"), "the pose of view_00.png is not one"),
        (text_model(PINHOLE, "1 1 0 0 view_00.png\n\n"), "images.txt: "),
        (text_model(PINHOLE, IMAGE.replace("view", "../view")), "leads out of the scene folder"),
        (text_model(PINHOLE, "# none\n"), "has no images"),
        (lambda folder: shutil.rmtree(folder / "sparse"), "is no scene folder"),
        (shutil.rmtree, "no such folder"),
    ],
)
def test_what_is_wrong_with_a_colmap_folder_is_said_in_one_line(
    tmp_path, room_scenes, views, change, message
):
    room_scenes.write_colmap(tmp_path / "scene", views)
    change(tmp_path / "scene")
    with pytest.raises((ValueError, OSError), match=message) as caught:
        read_scene(tmp_path / "scene")
    assert "\n" not in str(caught.value)


@settings(max_examples=150)
@given(data=st.data())
def test_no_damage_ends_in_anything_but_one_line(data, damaged):
    """Bytes changed, cut or added anywhere in a model: it is still read, or refused with ValueError or OSError."""
    name = data.draw(
        st.sampled_from(["cameras.bin", "images.bin", "cameras.txt", "images.txt", "transforms.json"])
    )
    path, original = damaged[name]
    place = data.draw(st.integers(0, len(original)))
    cut = data.draw(st.integers(0, 12))
    path.write_bytes(original[:place] + data.draw(st.binary(max_size=12)) + original[place + cut :])
    try:
        scene = read_scene(path.parents[2] if path.suffix != ".json" else path.parent)
        assert len(scene) and bool(torch.isfinite(scene.poses.world_from_cam).all())
    except (ValueError, OSError) as error:
        assert "\n" not in str(error)
    finally:
        path.write_bytes(original)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory, room_scenes, views):
    """File name → its path in a scene folder of its own, and what it holds."""
    found = {}
    for kind in ("bin", "txt"):
        folder = tmp_path_factory.mktemp(kind)
        room_scenes.write_colmap(folder, views, text=kind == "txt")
        for name in ("cameras", "images"):
            path = folder / "sparse" / "0" / f"{name}.{kind}"
            found[path.name] = (path, path.read_bytes())
    folder = tmp_path_factory.mktemp("json")
    room_scenes.write_nerfstudio(folder, views)
    found["transforms.json"] = (folder / "transforms.json", (folder / "transforms.json").read_bytes())
    return found


def test_a_text_model_without_features_or_with_a_missing_last_line_is_read(tmp_path, room_scenes, views):
    room_scenes.write_colmap(tmp_path, views)
    text_model("# a comment\n" + PINHOLE, "# a comment\n" + IMAGE.rstrip("\n"))(tmp_path)
    assert read_scene(tmp_path).names == ("view_00.png",)


def test_images_are_found_by_the_end_of_their_path(tmp_path, room_scenes, views):
    room_scenes.write_nerfstudio(tmp_path, views)
    scene = read_scene(tmp_path)
    assert scene.find_index("view_02.png") == scene.find_index("images/view_02.png") == 2
    assert scene.find_index(str(scene.images[1])) == 1
    with pytest.raises(ValueError, match=r"no image named 'view_2.png'; it has images/view_00.png"):
        scene.find_index("view_2.png")


def test_sixteen_bits_are_read_and_transparency_is_dropped(tmp_path):
    from PIL import Image

    Image.fromarray(np.full((4, 4), 40000, np.uint16)).save(tmp_path / "deep.png")
    assert torch.allclose(read_photo(tmp_path / "deep.png"), torch.tensor(40000 / 65535))
    Image.fromarray(np.full((4, 4, 4), 51, np.uint8)).save(tmp_path / "clear.png")
    assert torch.allclose(read_photo(tmp_path / "clear.png"), torch.tensor(0.2))
