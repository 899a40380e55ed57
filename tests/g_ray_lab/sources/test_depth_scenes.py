"""Depth files and scene folders with depth: what was rendered is read back, in every format."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.formats import find_scenes, read_scene
from g_ray.media.depth import DepthFile, convert_to_ray_depth, resize_depth
from g_ray.rays.ray_map import RayMap
from g_ray_lab.sources import covisibility
from g_ray_lab.sources.covisibility import (
    compute_scene_covisibility,
    find_stored_path,
    get_scene_covisibility,
    store_covisibility,
)
from g_ray_lab.sources.scene_store import DepthReading

WRITERS = {  # of a whole scene, and how exact its depth is
    "WAI": ("write_wai", 2e-3),
    "nerfstudio": ("write_nerfstudio_depth", 6e-4),
    "COLMAP": ("write_colmap_dense", 1e-6),
    "7-Scenes": ("write_seven_scenes", 6e-4),
}


@pytest.fixture(scope="module")
def views(room_scenes):
    return room_scenes.shots(5)


@pytest.fixture(scope="module")
def depth():
    return np.random.default_rng(0).uniform(0.5, 4, (6, 8)).astype(np.float32)


def written(tmp_path, kind, depth, room_scenes):
    path = tmp_path / f"a.{kind}"
    if kind == "exr":
        room_scenes.write_exr(path, depth)
    elif kind == "png":
        room_scenes.write_png_depth(path, depth)
    elif kind == "npy":
        np.save(path, depth)
    elif kind == "npz":
        np.savez(path, z_depth=depth, ray_depth=2 * depth)
    else:
        path.write_bytes(b"8&6&1&" + depth.tobytes())
    return path


FORMATS = [("exr", 1, 2e-3), ("png", 1e-3, 6e-4), ("npy", 1, 0), ("bin", 1, 0)]


@pytest.mark.parametrize(("kind", "unit", "near"), FORMATS)
def test_depth_files(tmp_path, room_scenes, depth, kind, unit, near):
    read = DepthFile(written(tmp_path, kind, depth, room_scenes), unit=unit).read()
    assert read.dtype == torch.float32 and np.abs(read.numpy() - depth).max() <= near


def test_an_archive_knows_both_conventions(tmp_path, room_scenes, depth):
    path = written(tmp_path, "npz", depth, room_scenes)
    assert (DepthFile(path, "z").read().numpy() == depth).all()
    assert (DepthFile(path, "ray").read().numpy() == 2 * depth).all()


def test_what_means_no_depth(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[65535, 0, -1], [np.nan, np.inf, 2]], dtype=np.float32))
    read = DepthFile(tmp_path / "a.npy", nothing=65535).read()
    rays = RayMap.from_camera(Pinhole.from_fov(60.0, 3, 2))
    along, valid = convert_to_ray_depth(read, rays, "ray")
    assert valid.tolist() == [[False] * 3, [False, False, True]]
    assert along.tolist() == [[0, 0, 0], [0, 0, 2]]


BROKEN = {
    "missing": (".exr", None, "no such depth map"),
    "not EXR": (".exr", b"hello", "cannot be read as EXR"),
    "not numpy": (".npy", b"hello", "numpy"),
    "not COLMAP": (".bin", b"8&6&1&1234", "COLMAP"),
    "unknown": (".tga", b"", "not a depth map"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(tmp_path, case):
    suffix, content, said = BROKEN[case]
    path = tmp_path / f"a{suffix}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match=said) as caught:
        DepthFile(path).read()
    assert str(path) in str(caught.value)


def test_eight_bits_are_no_depth(tmp_path, room_scenes, views):
    room_scenes.write_images(tmp_path, views[:1])
    with pytest.raises(OSError, match="16 bits"):
        DepthFile(tmp_path / views[0].name).read()


@pytest.mark.parametrize("fisheye", [False, True])
def test_z_and_ray_depth_are_one_surface(fisheye):
    camera = (
        OpenCVFisheye.make(8, 6, fx=3.0, fy=3.0, cx=4.0, cy=3.0) if fisheye else Pinhole.from_fov(80.0, 8, 6)
    )
    rays = RayMap.from_camera(camera)
    ray_depth = torch.rand(6, 8) + 1
    z_depth = ray_depth * rays.directions[..., 2]
    found, valid = convert_to_ray_depth(z_depth, rays, "z")
    assert torch.equal(valid, rays.directions[..., 2] > 1e-6)
    assert torch.allclose(found[valid], ray_depth[valid], rtol=1e-5)


def test_nearest_depth_takes_whole_pixels_of_a_map_of_any_size():
    depth = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(resize_depth(depth, (4, 3), 4, 3, (0, 0, 4, 3)), depth)
    assert torch.equal(resize_depth(depth, (8, 6), 2, 1, (4, 0, 8, 2)), depth[:1, 2:])
    assert torch.equal(resize_depth(depth, (4, 3), 2, 3, (0, 0, 4, 3)), depth[:, [1, 3]])


# Scenes


@pytest.mark.parametrize("kind", WRITERS)
def test_scenes_with_depth(tmp_path, room_scenes, views, kind):
    name, near = WRITERS[kind]
    getattr(room_scenes, name)(tmp_path, views)
    scene = read_scene(tmp_path)
    assert scene.kind == kind and len(scene) == len(scene.depth) == 5
    assert torch.allclose(
        scene.poses.world_from_cam, torch.stack([v.pose.world_from_cam for v in views]), atol=1e-6
    )
    for camera, file, shot in zip(scene.cameras, scene.depth, views, strict=True):
        assert torch.allclose(camera.params[:4], shot.camera.params[:4])
        assert file.convention == "z"
        assert np.abs(file.read().numpy() - shot.z_depth).max() < near


def test_colmap_takes_depth_beside_it(tmp_path, room_scenes, views):
    room_scenes.write_colmap(tmp_path, views)
    (tmp_path / "depth").mkdir()
    np.save(tmp_path / "depth" / "view_01.npy", views[1].z_depth)
    np.save(tmp_path / "depth" / "view_02.png.npy", views[2].z_depth)
    scene = read_scene(tmp_path)
    assert [file is not None for file in scene.depth] == [False, True, True, False, False]


def test_wai_names_depth_in_its_modalities(tmp_path, room_scenes, views):
    document = room_scenes.write_wai(tmp_path, views)
    for frame in document["frames"]:
        frame["guess"] = frame["depth"].replace("depth/", "guess/")
    guessed = {"mvsanywhere": {"frame_key": "guess", "format": "depth"}}
    document["frame_modalities"]["pred_depth"] = guessed
    (tmp_path / "scene_meta.json").write_text(json.dumps(document))
    scene = read_scene(tmp_path)
    assert scene.depth[0].path.parent.name == "depth" and "pred_depth/mvsanywhere" in scene.notes[0]
    other = read_scene(tmp_path, modality="pred_depth/mvsanywhere")
    assert other.depth[0].path.parent.name == "guess"
    with pytest.raises(ValueError, match="no modality 'x'; it has depth, pred_depth/mvsanywhere"):
        read_scene(tmp_path, modality="x")


def test_scenes_are_found_below_a_folder(tmp_path, room_scenes, views):
    room_scenes.write_wai(tmp_path / "b" / "one", views)
    room_scenes.write_seven_scenes(tmp_path / "a", views)
    assert find_scenes(tmp_path) == [tmp_path / "a", tmp_path / "b" / "one"]
    assert find_scenes(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(ValueError, match="no scene folder"):
        find_scenes(tmp_path / "b" / "one" / "images")


# Covisibility


def test_computed_covisibility_falls_with_distance_and_knows_no_unit(tmp_path, room_scenes, views):
    room_scenes.write_nerfstudio_depth(tmp_path, views)
    scene = read_scene(tmp_path)
    shares = compute_scene_covisibility(scene)
    assert shares.shape == (5, 5) and np.diag(shares).min() > 0.95
    assert shares[0, 1] > shares[0, 4] > 0.1
    document = json.loads((tmp_path / "transforms.json").read_text())
    for frame in document["frames"]:
        for row in frame["transform_matrix"][:3]:
            row[3] *= 100
    (tmp_path / "transforms.json").write_text(json.dumps({**document, "depth_unit_scale_factor": 0.1}))
    assert np.allclose(compute_scene_covisibility(read_scene(tmp_path)), shares, atol=0.01)


def test_stored_covisibility_comes_first(tmp_path, room_scenes, views):
    room_scenes.write_wai(tmp_path, views, covisibility=True)
    scene = read_scene(tmp_path)
    assert (get_scene_covisibility(scene) == 1).all()
    np.save(scene.covisibility, np.ones((4, 4)))
    with pytest.raises(ValueError, match="4×4 for 5 views"):
        get_scene_covisibility(scene)


def test_real_frames(shared_data):
    scene = read_scene(shared_data / "7scenes_redkitchen100", check=False)
    assert scene.kind == "7-Scenes" and len(scene) == 100
    depth = scene.depth[0].read()
    assert depth.shape == (480, 640) and 0.5 < depth[depth > 0].median() < 5 and depth.max() < 20


def test_covisibility_is_stored_once_and_read(tmp_path, room_scenes, views, monkeypatch):
    room_scenes.write_nerfstudio_depth(tmp_path, views)
    shares = compute_scene_covisibility(read_scene(tmp_path))
    assert store_covisibility(read_scene(tmp_path)) and not store_covisibility(read_scene(tmp_path))
    monkeypatch.setattr(
        covisibility, "compute_scene_covisibility", lambda scene: pytest.fail("computed again")
    )
    assert np.array_equal(get_scene_covisibility(read_scene(tmp_path)), shares)
    # Another unit of depth, or another camera, is another matrix.
    scene = read_scene(tmp_path)
    other = DepthReading(unit=0.5).apply_to(scene)
    cropped = (replace(view, camera=view.camera.crop(1, 0, 40, 36)) for view in scene.views)
    moved = replace(scene, views=tuple(cropped))
    paths = {find_stored_path(each) for each in (scene, other, moved)}
    assert len(paths) == 3
