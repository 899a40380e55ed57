"""Exports as strangers read them: pycolmap, trimesh, OpenEXR; and nerfstudio's keys."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from g_ray.cameras import (
    EUCM,
    UCM,
    DoubleSphere,
    Equirectangular,
    Fisheye624,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
    RayMapCamera,
    ThinPrismFisheye,
)
from g_ray.export.export_options import ExportOptions
from g_ray.export.frusta import build_frustum
from g_ray.export.points import collect_points
from g_ray.export.result import read_reconstruction
from g_ray.export.write_files import write_exports, write_reconstruction
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap, camera_to_colmap
from g_ray.formats.colmap.colmap_scene import read_colmap
from g_ray.formats.frames import camera_to_frame
from g_ray.formats.nerfstudio import read_nerfstudio
from g_ray.geometry.pose import Pose

F64 = {"dtype": torch.float64}
FRAME = {"fx": 30.0, "fy": 31.0, "cx": 23.0, "cy": 18.5, **F64}
WIDE = FRAME | {"fx": 17.0, "fy": 17.5}  # corners look backwards
LENSES = {
    "PINHOLE": Pinhole.make(48, 36, **FRAME),
    "OPENCV": OpenCV.make(48, 36, k1=-0.05, k2=0.01, p1=0.002, p2=-0.001, **FRAME),
    "FULL_OPENCV": OpenCV.make(48, 36, k1=0.05, k4=0.02, k5=0.01, **FRAME),
    "OPENCV_FISHEYE": OpenCVFisheye.make(48, 36, k1=0.02, k2=-0.004, k3=0.001, **WIDE),
    "THIN_PRISM_FISHEYE": ThinPrismFisheye.make(48, 36, k1=0.02, p1=0.002, k3=0.001, sx1=0.002, sy1=-0.001, **WIDE),
    "RAD_TAN_THIN_PRISM_FISHEYE": Fisheye624.make(48, 36, k1=0.02, k5=0.001, p1=0.002, s2=0.001, **WIDE),
    "EUCM": EUCM.make(48, 36, alpha=0.6, beta=1.1, **WIDE),
}  # fmt: skip
ALL = ExportOptions(confidence=0.0, edges=None, depth_npy=True)


@pytest.fixture(scope="module")
def written(tmp_path_factory, room_results):
    """Pinholes and fisheyes, with all files."""
    folder = tmp_path_factory.mktemp("mixed")
    views, images = room_results.mixed()
    return write_reconstruction(room_results.result(folder, views), images, ExportOptions(depth_npy=True))


@pytest.fixture(scope="module")
def lenses(tmp_path_factory, room_results):
    """One view through every lens that COLMAP has."""
    folder = tmp_path_factory.mktemp("lenses")
    views, images = room_results.seen_through(list(LENSES.values()))
    return write_reconstruction(room_results.result(folder, views), images, ALL)


def test_everything_is_there_and_read_back(written):
    there = {path.name for path in written.folder.iterdir()}
    assert there == {
        "cameras.json", "images", "depth", "points.ply", "scene.glb", "colmap", "transforms.json",
        "transforms_opencv.json", "transforms_opencv_fisheye.json", "result.json",
    }  # fmt: skip
    assert written.finished and len(written.views) == 4
    assert not [path for path in written.folder.rglob(".*") if path.is_file()]


def test_a_mesh_is_written_and_removed_again(tmp_path, room_results):
    views, images = room_results.mixed()
    options = ExportOptions(mesh="tsdf", texture_size=128, faces=2000)
    result = write_reconstruction(room_results.result(tmp_path / "out", views), images, options)
    (note,) = [note for note in result.notes if note.startswith("mesh.glb")]
    assert "triangles (tsdf" in note and "texels" in note
    (mesh,) = trimesh.load_scene(tmp_path / "out" / "mesh.glb").geometry.values()
    assert 0 < len(mesh.faces) <= 2000 and mesh.visual.uv is not None
    assert len(trimesh.load(tmp_path / "out" / "mesh.ply", process=False).faces) == len(mesh.faces)
    write_exports(result, ExportOptions(mesh="none"))
    assert not list((tmp_path / "out").glob("mesh.*"))


def test_a_result_without_depth_has_no_mesh(tmp_path, room_results):
    views, images = room_results.mixed()
    views = tuple(replace(view, valid=view.valid & False, ray_depth=0 * view.ray_depth) for view in views)
    result = write_reconstruction(
        room_results.result(tmp_path / "out", views), images, ExportOptions(mesh="poisson")
    )
    assert "mesh.glb is not written: no view has depth: there is nothing to mesh" in result.notes
    assert not list((tmp_path / "out").glob("mesh.*"))


def test_an_image_circle_becomes_masks(tmp_path, room_results):
    """COLMAP's fisheye has a ray for every pixel: the mask says which are outside of the circle."""
    lens = LENSES["OPENCV_FISHEYE"].limit_to_circle(15.0)
    views, images = room_results.seen_through([lens, LENSES["PINHOLE"]])
    stored = write_reconstruction(room_results.result(tmp_path, views), images, ALL)
    (path,) = (tmp_path / "masks").iterdir()
    name = read_colmap(tmp_path / "colmap", check=False).names[0]
    assert path.name == f"{name}.png"  # COLMAP's rule
    column, row = np.meshgrid(np.arange(48) + 0.5, np.arange(36) + 0.5)
    inside = np.hypot(column - 23.0, row - 18.5) <= 15.0
    assert np.array_equal(np.asarray(Image.open(path)) > 0, inside)
    assert any("masks/ has 1 masks" in note for note in stored.notes)
    scene = read_nerfstudio(tmp_path)
    assert (
        torch.equal(scene.views[0].load_mask(), torch.from_numpy(inside))
        and scene.views[1].load_mask() is None
    )


# COLMAP


def test_colmap_keeps_the_true_models(lenses):
    pycolmap = pytest.importorskip("pycolmap")
    model = pycolmap.Reconstruction(str(lenses.folder / "colmap" / "sparse" / "0"))
    assert [model.images[i].camera.model.name for i in sorted(model.images)] == list(LENSES)
    assert not lenses.notes or all("colmap" not in note for note in lenses.notes)
    assert all((c.width, c.height) == (48, 36) for c in model.cameras.values())


@pytest.mark.parametrize("which", ["written", "lenses"])
def test_pycolmap_reprojects_our_points(which, request):
    """Also their observations in further views, and independently of our projection."""
    pycolmap = pytest.importorskip("pycolmap")
    result = request.getfixturevalue(which)
    model = pycolmap.Reconstruction(str(result.folder / "colmap" / "sparse" / "0"))
    worst, seen = {}, 0
    for image in model.images.values():
        ids = [p.point3D_id for p in image.points2D]
        world = np.stack([model.points3D[i].xyz for i in ids])
        found = image.camera.img_from_cam(image.cam_from_world() * world)
        error = np.linalg.norm(found - np.stack([p.xy for p in image.points2D]), axis=1)
        worst[image.camera.model.name], seen = error.max(), seen + len(ids)
    assert max(worst.values()) < 0.01, worst
    lengths = np.array([p.track.length() for p in model.points3D.values()])
    assert lengths.min() >= 1 and lengths.max() >= 3 and lengths.sum() == seen
    for number, point in list(model.points3D.items())[::500]:
        assert all(
            model.images[e.image_id].points2D[e.point2D_idx].point3D_id == number
            for e in point.track.elements
        )


def test_agreeing_depth_is_what_makes_a_track(tmp_path, room_results):
    """A view whose depth is wrong everywhere has its own points and no others."""
    pycolmap = pytest.importorskip("pycolmap")
    views, images = room_results.seen_through([LENSES["PINHOLE"]] * 3)
    views = (*views[:2], replace(views[2], ray_depth=views[2].ray_depth * 1.3))
    result = write_reconstruction(room_results.result(tmp_path, views), images, ALL)
    model = pycolmap.Reconstruction(str(tmp_path / "colmap" / "sparse" / "0"))
    counts = [model.images[i].num_points2D() for i in (1, 2, 3)]
    assert counts[0] > 48 * 36 * 1.3 and counts[1] > 48 * 36 * 1.3
    assert counts[2] < 48 * 36 * 1.2
    assert len(model.cameras) == 1 and len(result.views) == 3


def test_our_own_reader_reads_colmap_and_nerfstudio(written):
    by_colmap = read_colmap(written.folder)
    by_nerfstudio = read_nerfstudio(written.folder)
    order = sorted(range(4), key=lambda i: written.views[i].name)
    for place, number in enumerate(order):
        view = written.views[number]
        assert by_colmap.names[place] == view.name and by_nerfstudio.names[place] == f"images/{view.name}"
        for scene in (by_colmap, by_nerfstudio):
            assert scene.cameras[place].NAME == view.camera.NAME
            assert torch.allclose(scene.cameras[place].params, view.camera.params, atol=1e-9)
            assert torch.allclose(scene.poses[place].world_from_cam, view.pose.world_from_cam, atol=1e-5)


@pytest.mark.parametrize("name", LENSES)
def test_a_camera_goes_to_colmap_and_back(name):
    model, parameters = camera_to_colmap(LENSES[name])
    assert model == name
    assert torch.equal(camera_from_colmap(model, 48, 36, parameters).params, LENSES[name].params)


def test_models_that_are_another_model_exactly():
    assert camera_to_colmap(UCM.make(48, 36, alpha=0.6, **FRAME)) == (
        "EUCM",
        (30.0, 31.0, 23.0, 18.5, 0.6, 1.0),
    )
    assert camera_to_colmap(Equirectangular.panorama(48, 24)) == ("EQUIRECTANGULAR", (48.0, 24.0))


REFUSED = {
    "skew": (Pinhole.make(48, 36, skew=1.0, **FRAME), "has no skew", "has no skew"),
    "prism": (OpenCV.make(48, 36, s1=0.001, **FRAME), "FULL_OPENCV has no s1", "OPENCV has no s1"),
    "double sphere": (DoubleSphere.make(48, 36, xi=-0.2, alpha=0.6, **FRAME), "like double_sphere", "no camera model"),
    "ray map": (RayMapCamera.example(0, 48, 36), "like ray_map", "no camera model"),
    "part of a panorama": (Equirectangular.make(48, 36, fx=40.0, fy=40.0, cx=24.0, cy=18.0), "whole sphere", None),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_format_cannot_say_is_refused(case):
    lens, colmap, nerfstudio = REFUSED[case]
    with pytest.raises(ValueError, match=colmap):
        camera_to_colmap(lens)
    if nerfstudio is None:
        assert camera_to_frame(lens)["camera_model"] == "EQUIRECTANGULAR"
    else:
        with pytest.raises(ValueError, match=nerfstudio):
            camera_to_frame(lens)


def test_views_that_do_not_fit_are_left_out_and_named(tmp_path, room_results):
    pycolmap = pytest.importorskip("pycolmap")
    cameras = [
        LENSES["PINHOLE"],
        REFUSED["double sphere"][0],
        Equirectangular.panorama(48, 24, dtype=torch.float64),
    ]
    views, images = room_results.seen_through(cameras)
    result = write_reconstruction(room_results.result(tmp_path, views), images, ALL)
    assert sum("leaves out 01_double_sphere.png" in note for note in result.notes) == 2
    model = pycolmap.Reconstruction(str(tmp_path / "colmap" / "sparse" / "0"))
    assert {image.name for image in model.images.values()} == {"00_pinhole.png", "02_equirectangular.png"}
    panorama = next(image for image in model.images.values() if "equi" in image.name)
    assert panorama.num_points2D() > 48 * 24  # also behind the camera
    frames = json.loads((tmp_path / "transforms.json").read_text())["frames"]
    assert [frame["camera_model"] for frame in frames] == ["PINHOLE", "EQUIRECTANGULAR"]
    assert read_nerfstudio(tmp_path).cameras[1].params == pytest.approx(cameras[2].params)
    again = write_exports(read_reconstruction(tmp_path), ALL)
    assert again.notes == result.notes and again.finished
    alone = write_reconstruction(room_results.result(tmp_path / "b", views[1:2]), images[1:2], ALL)
    assert any("colmap/ is not written" in note for note in alone.notes)
    assert not (tmp_path / "b" / "colmap").exists() and not (tmp_path / "b" / "transforms.json").exists()


# nerfstudio


NUMBERS = ("fl_x", "fl_y", "cx", "cy", "k1", "k2", "k3", "k4", "p1", "p2")


def check_schema(document, folder):
    assert set(document) <= {"camera_model", "ply_file_path", "frames", "w", "h", *NUMBERS}
    assert (folder / document["ply_file_path"]).is_file()
    for frame in document["frames"]:
        merged = {**document, **frame}
        assert {"file_path", "transform_matrix", "fl_x", "fl_y", "cx", "cy", "w", "h"} <= set(merged)
        assert merged["camera_model"] in ("PINHOLE", "OPENCV", "OPENCV_FISHEYE", "EQUIRECTANGULAR")
        assert all(isinstance(merged[key], float) for key in NUMBERS if key in merged)
        assert isinstance(merged["w"], int) and isinstance(merged["h"], int)
        matrix = np.array(frame["transform_matrix"])
        assert (
            matrix.shape == (4, 4)
            and matrix[3].tolist() == [0, 0, 0, 1]
            and np.linalg.det(matrix[:3, :3]) > 0.99
        )
        assert (folder / frame["file_path"]).is_file()
        if "depth_file_path" in frame:
            assert np.load(folder / frame["depth_file_path"]).shape == (merged["h"], merged["w"])


def test_nerfstudio_s_schema_and_one_model_per_file(written):
    for name, models in (
        ("transforms.json", {"PINHOLE", "OPENCV_FISHEYE"}),
        ("transforms_opencv.json", {"OPENCV"}),
        ("transforms_opencv_fisheye.json", {"OPENCV_FISHEYE"}),
    ):
        document = json.loads((written.folder / name).read_text())
        check_schema(document, written.folder)
        assert {frame["camera_model"] for frame in document["frames"]} == models
        assert all("depth_file_path" in frame for frame in document["frames"])
        if name != "transforms.json":
            assert {document["camera_model"]} == models and len(document["frames"]) == 2
    assert any("one camera model per file" in note for note in written.notes)


def test_opengl_axes_and_a_shared_camera(tmp_path, room_results):
    views, images = room_results.seen_through([LENSES["OPENCV_FISHEYE"]] * 2)
    write_reconstruction(room_results.result(tmp_path, views), images, ExportOptions())
    document = json.loads((tmp_path / "transforms.json").read_text())
    check_schema(document, tmp_path)
    assert document["camera_model"] == "OPENCV_FISHEYE" and "fl_x" not in document["frames"][0]
    assert "depth_file_path" not in document["frames"][0]
    matrix = np.array(document["frames"][1]["transform_matrix"])
    pose = views[1].pose.world_from_cam.numpy()
    assert np.allclose(matrix[:3, 3], pose[:3, 3]) and np.allclose(
        -matrix[:3, 2], pose[:3, 2]
    )  # looks along −z
    assert np.allclose(-matrix[:3, 1], pose[:3, 1])  # y is up


# Points and meshes


def test_trimesh_reads_points_and_scene(written):
    trimesh = pytest.importorskip("trimesh")
    cloud = collect_points(written, ExportOptions())
    points = trimesh.load(written.folder / "points.ply")
    assert np.allclose(points.vertices, cloud.positions, atol=1e-5)
    assert np.array_equal(points.colors[:, :3], cloud.colors)
    scene = trimesh.load(written.folder / "scene.glb")
    assert set(scene.geometry) == {"points", *(view.name for view in written.views)}
    assert np.allclose(scene.geometry["points"].vertices, cloud.positions, atol=1e-5)
    assert np.array_equal(scene.geometry["points"].colors[:, :3], cloud.colors)
    transform, _ = scene.graph["points"]
    assert np.array_equal(transform, np.diag([1, -1, -1, 1]))  # glTF's y is up


def test_the_confidence_of_a_point_is_a_property(written):
    content = (written.folder / "points.ply").read_bytes()
    head, _, body = content.partition(b"end_header\n")
    assert b"property float confidence" in head
    kind = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3), ("confidence", "<f4")])
    cloud = collect_points(written, ExportOptions())
    assert np.array_equal(np.frombuffer(body, kind)["confidence"], cloud.confidence)


@pytest.mark.parametrize("name", [*LENSES, "panorama", "circle"])
def test_frusta_lie_on_the_rays_of_the_border(name):
    extra = {
        "panorama": Equirectangular.panorama(48, 24, dtype=torch.float64),
        "circle": OpenCVFisheye.make(64, 48, fx=15.0, fy=15.0, cx=32.0, cy=24.0, k2=-0.02, **F64),
    }
    lens = LENSES.get(name) or extra[name]
    pose = Pose.look_at(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 0.5, 5.0]))
    shape = build_frustum(lens, pose, 0.5)
    local = pose.to(torch.float64).inverse().apply(shape.outline)
    flat = not shape.ribs
    assert torch.allclose(local[:, 2] if flat else local.norm(dim=1), torch.tensor(0.5, **F64))
    pixels, valid = lens.project(local)
    inside = (pixels > -1e-4) & (pixels < torch.tensor([lens.width, lens.height]) + 1e-4)
    assert inside.all()
    if name not in ("panorama", "circle"):
        assert valid.all()
        edge = torch.minimum(pixels, torch.tensor([lens.width, lens.height]) - pixels).amin(1)
        assert edge.abs().max() < 1e-4
    assert torch.isfinite(shape.segments()).all() and len(shape.segments()) > 50
    assert flat == (name in ("PINHOLE", "OPENCV", "FULL_OPENCV"))


def test_exr_depth(tmp_path, room_results):
    exr = pytest.importorskip("OpenEXR")
    views, images = room_results.seen_through([LENSES["OPENCV_FISHEYE"]])
    write_reconstruction(room_results.result(tmp_path, views), images, ExportOptions(depth_exr=True))
    with exr.File(str(tmp_path / "depth" / f"{views[0].name}.exr"), separate_channels=True) as file:
        channels = {name: channel.pixels for name, channel in file.channels().items()}
    assert set(channels) == {"Z", "ray_depth", "confidence"}
    assert np.array_equal(channels["ray_depth"], views[0].ray_depth.numpy())
    assert np.allclose(channels["Z"], views[0].z_depth().numpy(), atol=1e-6)


def test_exr_without_the_package_says_what_to_install(tmp_path, room_results, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    views, images = room_results.mixed()
    with pytest.raises(ValueError, match=r"pip install .*depth"):
        write_reconstruction(room_results.result(tmp_path, views), images, ExportOptions(depth_exr=True))
    assert not read_reconstruction(tmp_path).finished
