"""Walks through a miniature level: where cameras stand, what they see in common, and the folders that they become."""

import json
import shutil

import numpy as np
import pytest
import torch
from level_files import SIZE, write_package

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole
from g_ray.formats import read_scene
from g_ray.media.depth import convert_to_ray_depth
from g_ray.rays.ray_map import RayMap
from g_ray_lab.sources.reconstruction_settings import ScenesViews
from g_ray_lab.textured.scene_sources import LevelSource, is_test_level
from g_ray_lab.textured.walk import (
    CLEARANCE_M,
    FISHEYE_DEG,
    PINHOLE_DEG,
    LensKind,
    ViewLimits,
    draw_cameras,
    draw_walk,
)
from g_ray_lab.textured.walk_writer import (
    NO_FAULTS,
    PARTIAL,
    CameraFaults,
    WalkSettings,
    expose_views,
    find_unfinished_walks,
    list_walks,
    write_walk,
    write_walks,
)

ROOM_M = np.array(SIZE) / 39.37
TINY = WalkSettings("mini", "train", "mixed", views=3, sizes=((32, 24),))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return LevelSource("mini", write_package(tmp_path_factory.mktemp("game")))


@pytest.fixture(scope="module")
def space(source):
    return source.open()


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    root = tmp_path_factory.mktemp("walks")
    assert [outcome.refused for outcome in write_walks(root, list_walks([source], 2), TINY)] == [None, None]
    return root


# Poses


@pytest.mark.parametrize("kind", ["pinhole", "fisheye"])
def test_walks_stay_in_free_space_and_see_more_than_a_wall(space, kind):
    random = np.random.default_rng(1)
    cameras = draw_cameras(kind, random, 4, 32, 24)
    poses = draw_walk(space, cameras, random)
    assert poses is not None
    limits = ViewLimits()
    for camera, pose in zip(cameras, poses, strict=True):
        eye = pose.translation.numpy()
        assert (eye > 0.9 * CLEARANCE_M).all() and (ROOM_M - eye > 0.9 * CLEARANCE_M).all()
        assert abs(float(pose.rotation[2, 0])) < 0.3  # the right axis is nearly level
        depth = space.scene.view(camera, pose).ray_depth
        depth = depth[depth > 0].numpy()
        # A little less than the limits, which hold for the coarse image.
        assert np.percentile(depth, 5) > 0.8 * limits.near_m and np.median(depth) > 0.8 * limits.median_m[0]


def test_a_place_in_a_wall_is_no_start(space):
    outside = np.array([[-1.0, -1.0, 1.0]])
    lost = type(space)(space.scene, outside)
    assert (
        draw_walk(
            lost, draw_cameras("pinhole", np.random.default_rng(0), 2, 32, 24), np.random.default_rng(0)
        )
        is None
    )


# Lenses


@pytest.mark.parametrize("size", [(64, 64), (64, 48), (48, 64)])
def test_lenses_have_their_fields_of_view_along_the_longer_side(size):
    random = np.random.default_rng(0)

    def measure(kind: LensKind, low: float, high: float) -> list[float]:
        angles = []
        for camera in draw_cameras(kind, random, 12, *size):
            fov = camera.fov()
            angles.append(float(fov.horizontal_deg if size[0] >= size[1] else fov.vertical_deg))
        assert min(angles) > 0.93 * low and max(angles) < 1.07 * high  # principal points lie off the middle
        return angles

    measure("pinhole", *PINHOLE_DEG)
    measure("fisheye", *FISHEYE_DEG)
    zooms = measure("zoom", *PINHOLE_DEG)
    assert min(zooms) < 36 and max(zooms) > 95


def test_mixed_sets_have_all_lenses():
    kinds = {type(camera) for camera in draw_cameras("mixed", np.random.default_rng(0), 60, 32, 24)}
    assert kinds == {Pinhole, OpenCVFisheye, Equirectangular}


# Photographs


def test_dark_walks_are_as_bright_as_bright_ones():
    light = torch.rand(2, 8, 8, 3) + 0.1
    everything, sky = torch.ones(2, 8, 8, dtype=torch.bool), torch.zeros(2, 8, 8, 3)
    images = [
        expose_views(scale * light, sky, everything, np.random.default_rng(0), NO_FAULTS)
        for scale in (1.0, 1e-4)
    ]
    assert (images[0].int() - images[1].int()).abs().max() <= 1
    assert 80 < images[0].float().mean() < 160
    noisy = expose_views(
        light, sky, everything, np.random.default_rng(0), CameraFaults(noise=0.05, blurred=0.0)
    )
    assert (noisy != images[0]).any()


# Folders


def test_folders_are_scenes_with_consistent_depth(folder):
    """Points of one view, seen by another, lie where its depth says, or behind it."""
    for path in sorted(folder.glob("mini-*")):
        scene = read_scene(path)
        assert len(scene) == 3 and scene.covisibility is not None
        rays = [RayMap.from_camera(camera) for camera in scene.cameras]
        maps = []
        for file, ray in zip(scene.depth, rays, strict=True):
            assert file is not None and file.convention == "ray"
            maps.append(convert_to_ray_depth(file.read(), ray, file.convention))
        depth, valid = maps[0]
        points = scene.poses[0].apply(rays[0].directions * depth[..., None])[valid]
        for other in (1, 2):
            pixels, imaged = scene.cameras[other].project(scene.poses[other].inverse().apply(points))
            inside = (
                imaged
                & scene.cameras[other].contains(pixels)
                & ((pixels - pixels.floor() - 0.5).abs() < 0.4).all(-1)
            )
            column, row = pixels[inside].long().unbind(-1)
            distance = (points[inside] - scene.poses[other].translation).norm(dim=-1)
            there = maps[other][0][row.clamp(max=23), column.clamp(max=31)]
            known = there > 0
            # Far neighbors on steep surfaces differ within a pixel; nothing is seen through a wall.
            error = (there - distance)[known] / distance[known]
            assert known.sum() > 10 and error.median().abs() < 0.03 and (error > 0.3).float().mean() < 0.1
        matrix = np.load(scene.covisibility)
        assert matrix.shape == (3, 3) and (matrix.diagonal() > 0.5).all()


def test_sky_and_missing_rays_are_zero_in_depth_files(folder, space):
    path = sorted(folder.glob("mini-*"))[0]
    scene = read_scene(path)
    document = json.loads((path / "transforms.json").read_text())
    for camera, pose, file in zip(scene.cameras, scene.poses.world_from_cam, scene.depth, strict=True):
        assert file is not None
        seen = space.scene.view(camera.to(torch.float32), type(scene.poses)(pose).to(torch.float32))
        stored = file.read()
        assert ((stored > 0) == seen.valid).float().mean() > 0.99
        assert (stored - seen.ray_depth)[seen.valid & (stored > 0)].abs().median() <= document[
            "depth_unit_scale_factor"
        ]


def test_training_reads_the_folders(folder):
    data = ScenesViews(width=28, height=28, batch=2, views=(2, 2), folders=(folder,), overlap=0.05)
    batch = data.build_source(0, 14).make_batch(0)
    assert batch.images.shape == (2, 2, 3, 28, 28) and batch.valid.float().mean() > 0.5


def test_a_scene_that_is_gone_is_made_again_and_no_other(folder, source, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(folder, root)
    first, second = sorted(path.name for path in root.glob("mini-*"))
    before = {p.name: p.read_bytes() for p in (root / second / "images").iterdir()}
    shutil.rmtree(root / second)
    (root / PARTIAL / "left").mkdir(parents=True)
    jobs = list_walks([source], 2)
    assert [job.name for job in find_unfinished_walks(root, jobs)] == [second]
    stamp = (root / first / "transforms.json").stat().st_mtime_ns
    assert [outcome.name for outcome in write_walks(root, jobs, TINY)] == [second]
    assert {p.name: p.read_bytes() for p in (root / second / "images").iterdir()} == before
    assert (root / first / "transforms.json").stat().st_mtime_ns == stamp


def test_a_level_that_cannot_be_read_is_an_outcome(source, tmp_path):
    missing = LevelSource("none", source.folder)
    outcome = write_walk(tmp_path, list_walks([missing], 1)[0], TINY)
    assert outcome.refused is not None and "none" in outcome.refused
    assert not list(tmp_path.glob("none*"))


def test_more_walks_only_add(source):
    others = [LevelSource(name, source.folder) for name in "abc"]
    few, many = ({job.name for job in list_walks(others, count)} for count in (4, 9))
    assert few < many and len(many) == 9


def test_levels_of_one_family_are_never_parted():
    names = [
        f"{family}{number}" for family in ("dm", "ctf", "oa_", "x", "tower", "deep") for number in (1, 2, 3)
    ]
    assert all(is_test_level(name) == is_test_level(f"{name}old") for name in names)
    assert {is_test_level(f"family{chr(97 + i)}1") for i in range(26)} == {True, False}


@pytest.mark.parametrize("change", [{"views": 1}, {"sizes": ()}, {"sizes": ((8, 8),)}, {"seed": -1}])
def test_settings_that_make_no_sense_are_refused(change):
    with pytest.raises(ValueError, match="give"):
        WalkSettings(**{**vars(TINY), **change})
