"""Protocols: sets of views on miniatures of their datasets, frozen in files."""

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.scoring.protocol import (
    AlignedSize,
    CovisibilityWalk,
    ImageSize,
    SamplingInput,
    Shuffled,
    Strided,
    draw_zooms,
)
from g_ray_lab.scoring.protocol_registry import PROTOCOLS, VIEW_COUNTS
from g_ray_lab.scoring.view_index import (
    compute_scene_covisibility,
    freeze_views,
    load_or_compute,
    load_views,
    read_view_index,
    write_view_index,
)
from g_ray_lab.sources.covisibility import compute_overlap

FRAMES = 4
"""Per device in the miniatures."""


@pytest.fixture(scope="session")
def frozen(miniature_root, tmp_path_factory):
    """`frozen(protocol)`: its view index on the miniature."""
    cache, made = tmp_path_factory.mktemp("cache"), {}

    def get(name):
        if name not in made:
            made[name] = freeze_views(name, PROTOCOLS[name], miniature_root(PROTOCOLS[name].dataset), cache)
        return made[name]

    return get


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_finds_its_views(name, frozen, miniature_root):
    protocol, index = PROTOCOLS[name], frozen(name)
    (scene_name,) = index.scenes
    assert len(index.missing) == max(1, len(protocol.scenes)) - 1
    scene = DATASETS[protocol.dataset].read(miniature_root(protocol.dataset), scene_name)
    indexed = index.check_scene(scene)
    assert tuple(indexed.sets) == protocol.view_counts
    for count, sets in indexed.sets.items():
        assert sets
        for one in sets:
            assert set(one.views) <= set(scene.by_name)
            assert count in (0, len(one.views))
            assert one.zooms == () if protocol.zoom_max == 1 else one.zooms[0] == 1.0


@pytest.mark.parametrize("name", ["pandaset", "eth3d-fov", "scannetpp-mixed", "kitti-depth", "dtu"])
def test_views_are_loaded_at_the_size_of_the_protocol(name, frozen, miniature_root):
    protocol, index = PROTOCOLS[name], frozen(name)
    (scene_name, indexed), *_ = index.scenes.items()
    scene = DATASETS[protocol.dataset].read(miniature_root(protocol.dataset), scene_name)
    one = next(iter(indexed.sets.values()))[0]
    small = replace(protocol, size=ImageSize(48, 32)) if isinstance(protocol.size, ImageSize) else protocol
    views = load_views(small, scene, one)
    assert [view.name for view in views] == list(one.views)
    for position, view in enumerate(views):
        assert view.image.shape[1:] == view.ray_depth.shape == (view.camera.height, view.camera.width)
        native = scene[view.name].camera
        if name == "eth3d-fov":
            expected = float(native.parameter("fx")) * 48 / native.width * one.get_zoom(position)
            assert float(view.camera.parameter("fx")) == pytest.approx(expected, rel=0.02)


def test_depth_outside_the_range_is_not_scored(frozen, miniature_root):
    protocol = PROTOCOLS["sintel-depth"]
    scene = DATASETS["sintel"].read(miniature_root("sintel"), "alley_2")
    views = frozen("sintel-depth").scenes["alley_2"].sets[0][0]
    whole = load_views(protocol, scene, views)[0]
    z = whole.ray_depth * RayMap.from_camera(whole.camera).directions[..., 2]
    middle = float(z.median())
    near = load_views(replace(protocol, depth_range=(0.0, middle)), scene, views)[0]
    assert bool(whole.valid.all())
    assert torch.equal(near.valid, z < middle)
    assert 0.2 < float(near.valid.float().mean()) < 0.8


# Sampling


def test_both_devices_get_half_of_the_views(frozen):
    for count, sets in frozen("scannetpp-mixed").scenes["cc5237fd77"].sets.items():
        for one in sets:
            assert sum(name.startswith("dslr") for name in one.views) == count / 2
            assert one.repeated == max(0, count - 2 * FRAMES)


def test_a_scene_that_is_too_small_repeats_frames_and_is_counted(frozen):
    index = frozen("eth3d-fov")
    sets = index.scenes["delivery_area"].sets
    assert not any(one.repeated for one in (*sets[2], *sets[4]))
    assert all(one.repeated >= 46 for one in sets[50])
    assert index.repeated == 10 * sum(count > FRAMES for count in VIEW_COUNTS)
    again = [one for one in sets[50] if one.repeated]
    name = max(again[0].views, key=again[0].views.count)
    zooms = [again[0].get_zoom(i) for i, view in enumerate(again[0].views) if view == name]
    assert len(set(zooms)) == len(zooms)


def test_steps_of_a_walk_overlap(miniature_root, tmp_path):
    """Every view but the first overlaps with an earlier one by more than the threshold."""
    scene = DATASETS["eth3d"].read(miniature_root("eth3d"), "delivery_area")
    matrix = compute_scene_covisibility(scene)
    threshold = float(np.median(matrix))
    walk = CovisibilityWalk(threshold, sets=4)
    for chosen in walk.draw(SamplingInput(scene, 3, tmp_path, lambda: matrix), 3):
        unique = list(dict.fromkeys(chosen))
        for place, view in enumerate(unique[1:], 1):
            assert max(compute_overlap(matrix, other)[view] for other in unique[:place]) > threshold


def test_covisibility_across_lenses(miniature_root):
    """Frames of two devices in nearly one place see much of each other; distant ones less."""
    scene = DATASETS["scannetpp-mixed"].read(miniature_root("scannetpp-mixed"), "cc5237fd77")
    matrix = compute_scene_covisibility(scene)
    dslr, iphone = scene.by_name["dslr/DSC00000.JPG"], scene.by_name["iphone/frame_000000.jpg"]
    far = scene.by_name["iphone/frame_000030.jpg"]
    assert np.diag(matrix).min() > 0.95
    assert matrix[iphone, dslr] > 0.8  # the fisheye sees nearly all that the phone sees
    assert matrix[dslr, iphone] < 0.6
    assert matrix[iphone, far] < matrix[iphone, scene.by_name["iphone/frame_000010.jpg"]]


def test_covisibility_is_stored_for_one_version_of_a_scene(miniature_root, tmp_path):
    scene = DATASETS["eth3d"].read(miniature_root("eth3d"), "delivery_area")
    first = load_or_compute(tmp_path, scene)
    assert np.array_equal(load_or_compute(tmp_path, scene), first)
    assert len(list(tmp_path.iterdir())) == 1


def test_lidar_gives_covisibility(miniature_root):
    scene = DATASETS["pandaset"].read(miniature_root("pandaset"), "001")
    matrix = compute_scene_covisibility(scene, sparse=True)
    front, later, back = (
        scene.by_name[name] for name in ("front_camera/00", "front_camera/01", "back_camera/00")
    )
    assert compute_overlap(matrix, front)[later] > 0.3
    assert compute_overlap(matrix, front)[back] < 0.025


class Counted:
    """Stands in for a scene of which only the number of frames matters."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


def draw(sampling, count):
    given = SamplingInput.__new__(SamplingInput)
    object.__setattr__(given, "scene", Counted(count))
    return sampling.draw(given, 0)


@pytest.mark.parametrize(
    ("sampling", "frames", "expected"),
    [
        (Strided(200), 1000, (0, 200, 400, 600, 800)),
        (Strided(200), 500, (0, 200, 400)),
        (Strided(3, most=90), 1000, tuple(range(0, 270, 3))),
        (Strided(1, most=110), 77, tuple(range(77))),
        (Strided(5), 49, tuple(range(0, 49, 5))),
    ],
)
def test_strides_are_the_published_ones(sampling, frames, expected):
    assert draw(sampling, frames) == [expected]


def test_da3_bench_shuffles_as_published():
    random.seed(42)
    indices = list(range(300))
    random.shuffle(indices)
    assert draw(Shuffled(), 300) == [tuple(sorted(indices[:100]))]
    assert draw(Shuffled(), 60) == [tuple(range(60))]


def test_zooms_are_uniform_and_frozen():
    zooms = np.array([draw_zooms("courtyard", 50, k, 3.0, 0) for k in range(200)])
    assert (zooms[:, 0] == 1).all()
    rest = zooms[:, 1:]
    assert rest.min() >= 1
    assert rest.max() <= 3
    assert abs(rest.mean() - 2) < 0.02
    assert np.abs(np.histogram(rest, 10, (1, 3))[0] / rest.size - 0.1).max() < 0.01
    assert draw_zooms("courtyard", 3, 0, 3.0, 0) == (1.0, 2.102248, 2.231125)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (AlignedSize(518), (518, 392)),
        (AlignedSize(512), (504, 378)),
        (ImageSize(518, 336), (518, 336)),
    ],
)
def test_sizes_are_the_published_ones(size, expected):
    camera = Pinhole.make(640, 480, fx=500.0, fy=500.0, cx=320.0, cy=240.0)
    framing = size.frame(camera)
    assert (framing.width, framing.height) == expected
    whole = isinstance(size, AlignedSize)
    assert (framing.box == (0, 0, 640, 480)) is whole


# Files


def test_an_index_is_written_and_read_back(frozen, tmp_path):
    index = frozen("eth3d-fov")
    write_view_index(tmp_path / "index.json", index)
    read = read_view_index(tmp_path / "index.json", PROTOCOLS["eth3d-fov"])
    assert read == index
    assert json.loads((tmp_path / "index.json").read_text())["sha256"] == index.digest


def test_the_same_dataset_gives_the_same_index(frozen, miniature_root, tmp_path):
    again = freeze_views("eth3d-fov", PROTOCOLS["eth3d-fov"], miniature_root("eth3d"), tmp_path)
    assert again.digest == frozen("eth3d-fov").digest


def test_an_index_that_was_changed_is_refused(frozen, tmp_path):
    path = tmp_path / "index.json"
    write_view_index(path, frozen("dtu"))
    path.write_text(path.read_text().replace("00000000.jpg", "00000001.jpg"))
    with pytest.raises(ValueError, match=r"index\.json: its hash does not fit"):
        read_view_index(path, PROTOCOLS["dtu"])


def test_an_index_of_other_settings_is_refused(frozen, tmp_path):
    write_view_index(tmp_path / "index.json", frozen("dtu"))
    with pytest.raises(ValueError, match="is for other settings of dtu"):
        read_view_index(tmp_path / "index.json", replace(PROTOCOLS["dtu"], size=AlignedSize(504)))


def test_an_index_is_not_overwritten(frozen, tmp_path):
    write_view_index(tmp_path / "index.json", frozen("dtu"))
    write_view_index(tmp_path / "index.json", frozen("dtu"))
    with pytest.raises(ValueError, match="is there with other views"):
        write_view_index(tmp_path / "index.json", frozen("eth3d-fov"))


def test_a_changed_dataset_is_named(frozen, miniature_root, tmp_path):
    shutil.copytree(miniature_root("dtu"), tmp_path / "dtu")
    path = tmp_path / "dtu" / "scan1" / "cams" / "00000002_cam.txt"
    words = path.read_text().split()
    words[4] = str(float(words[4]) + 3.0)
    path.write_text(" ".join(words))
    scene = DATASETS["dtu"].read(tmp_path / "dtu", "scan1")
    with pytest.raises(ValueError, match="scene scan1 of dtu is not the one of the view index of dtu"):
        frozen("dtu").check_scene(scene)


def test_a_scene_that_cannot_be_read_is_left_out_and_named(miniature_root, tmp_path):
    for scan in ("scan1", "scan4"):
        shutil.copytree(miniature_root("dtu") / "scan1", tmp_path / "dtu" / scan)
    (tmp_path / "dtu" / "scan1" / "cams" / "00000002_cam.txt").unlink()
    lines = []
    index = freeze_views("dtu", PROTOCOLS["dtu"], tmp_path / "dtu", tmp_path, report=lines.append)
    assert list(index.scenes) == ["scan4"]
    assert len(index.missing) == 21
    absent, unreadable = lines[:2]
    assert "20 of 22 scenes are not in" in absent
    assert unreadable.endswith("00000002_cam.txt: no such camera; unpack the dataset again")


def test_wid3rs_list_is_asked_for(miniature_root, tmp_path):
    shutil.copytree(miniature_root("scannetpp-fisheye"), tmp_path / "data")
    (tmp_path / "data" / "scannetpp_mv-recon_seq-id-map.json").unlink()
    with pytest.raises(ValueError, match="none of the 50 scenes"):
        freeze_views("scannetpp-wid3r", PROTOCOLS["scannetpp-wid3r"], tmp_path / "data", tmp_path)
