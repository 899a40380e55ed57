"""A folder of rendered objects: whole objects only, resumed, with the unreadable ones named."""

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from g_ray_lab.cluster import LOGS, Cluster
from g_ray_lab.datasets import objaverse
from g_ray_lab.datasets.objaverse import (
    NAMES,
    PARTIAL,
    find_objects,
    is_finished,
    read_cameras,
    read_image,
    write_object,
)
from g_ray_lab.meshes.mesh_files import find_meshes
from g_ray_lab.sources.render_objects import (
    ObjectJob,
    ObjectSettings,
    claim_folder,
    list_object_jobs,
    render_object,
    render_objects,
    render_on_cluster,
    sample_cameras,
)

TINY = ObjectSettings(size=16, antialias=1)


@pytest.fixture(scope="module")
def one_object(tmp_path_factory) -> Path:
    """A procedural object at 32 pixels, with depth."""
    root = tmp_path_factory.mktemp("objects")
    render_object(root, ObjectJob("cup"), ObjectSettings(size=32, antialias=2, depth=True))
    return root / "cup"


@pytest.fixture
def mesh_folder(tmp_path) -> Path:
    folder = tmp_path / "meshes"
    folder.mkdir()
    for name in ("box.ply", "block.glb"):
        trimesh.creation.box(extents=(1, 2, 3)).export(folder / name)
    (folder / "broken.glb").write_bytes(b"glTF")
    return folder


# One object


def test_all_files_of_the_layout_are_there(one_object):
    views = sorted(path.name for path in (one_object / "views").glob("*.jpg"))
    assert views == sorted(NAMES) and len(views) == 24
    assert sorted(path.name for path in one_object.iterdir()) == ["cameras.json", "views"]
    assert not any(one_object.parent.glob(f"{PARTIAL}/*"))


def test_the_camera_file_has_the_released_fields(one_object):
    entries = json.loads((one_object / "cameras.json").read_text())["cameras"]
    assert [entry["view_id"] for entry in entries] == list(range(24))
    for entry in entries:
        assert set(entry) == {"view_id", "view_idx", "radial_idx", "image_name", "intrinsics", "extrinsics"}
        assert entry["image_name"] == f"{entry['view_idx']:03d}_{entry['radial_idx']}.jpg"
        inside, outside = entry["intrinsics"], entry["extrinsics"]
        assert inside["image_size"] == [32, 32] and inside["principal_point"] == [16.0, 16.0]
        (fx, fy), fov = inside["focal_length"], np.radians(inside["fov_degrees"])
        assert fx == fy == pytest.approx(16 / np.tan(fov / 2), rel=1e-9)
        c2w, w2c = (np.array(outside[name]) for name in ("camera_to_world", "world_to_camera"))
        square = np.eye(4)
        square[:3] = c2w
        assert np.allclose(np.linalg.inv(square)[:3], w2c)
        centre = c2w[:, 3]
        assert np.allclose(c2w[:, 2], centre / np.linalg.norm(centre))  # Blender: z points backward
        assert c2w[2, 1] > 0.8  # … and y upward
        assert np.allclose(outside["camera_position"], centre)
        level = np.radians([outside["elevation_degrees"], outside["azimuth_degrees"]])
        towards = [np.cos(level[0]) * np.cos(level[1]), np.cos(level[0]) * np.sin(level[1]), np.sin(level[0])]
        assert np.allclose(outside["camera_distance"] * np.array(towards), centre)


def test_cameras_come_back_as_they_were(one_object):
    read, sampled = read_cameras(one_object), sample_cameras("cup", 0, 32)
    assert torch.allclose(read.poses.world_from_cam, sampled.poses.world_from_cam, atol=1e-12)
    assert torch.equal(read.cameras.params, sampled.cameras.params)


def test_depth_and_images_show_the_same_object(one_object):
    for name in NAMES[:6]:
        depth = np.load(one_object / "views" / name.replace(".jpg", "_depth.npz"))["z_depth"]
        image = read_image(one_object / "views" / name)
        assert depth.shape == (32, 32) and depth.dtype == np.float32 and (depth > 0).any()
        outside = torch.from_numpy(np.pad(depth, 2, mode="edge") > 0).float()[None]
        far = (
            torch.nn.functional.max_pool2d(outside, 5, stride=1)[0] == 0
        )  # two pixels from the object: white
        assert (image[:, far] >= 235).all()  # but for JPEG's ripples
        assert image[:, torch.from_numpy(depth > 0)].float().mean() < 245


def test_a_scanned_object_is_rendered(shared_data, tmp_path):
    found = find_meshes(shared_data / "gso_mini" / "objects")
    name = "Schleich_Spinosaurus_Action_Figure"
    render_object(tmp_path, ObjectJob(name, found[name]), replace(TINY, size=48, antialias=2))
    image = read_image(tmp_path / name / "views" / NAMES[0]).float() / 255
    body = image.min(0).values < 0.9
    assert 0.03 < body.float().mean() < 0.5
    red, _, blue = image[:, body].mean(-1)
    assert red > blue + 0.05  # it is brown


@pytest.mark.parametrize("name", ["../out", "a/b", ".hidden", "..", "", "/x"])
def test_a_name_cannot_leave_the_folder(tmp_path, name):
    views = sample_cameras("a", 0, 8)
    with pytest.raises(ValueError, match="cannot be called"):
        write_object(tmp_path / "root", name, views, torch.zeros(24, 3, 8, 8, dtype=torch.uint8))
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_cannot_be_finished_is_not_there(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "cameras.json")

    monkeypatch.setattr(objaverse, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        render_object(tmp_path, ObjectJob("cup"), TINY)
    assert not (tmp_path / "cup").exists() and list((tmp_path / PARTIAL).iterdir()) == []


def test_the_first_of_two_writers_wins_and_strangers_are_left_alone(tmp_path):
    views, images = sample_cameras("cup", 0, 8), torch.zeros(24, 3, 8, 8, dtype=torch.uint8)
    write_object(tmp_path, "cup", views, images)
    write_object(tmp_path, "cup", views, images + 255)
    assert read_image(tmp_path / "cup" / "views" / NAMES[0]).max() == 0
    (tmp_path / "plate").mkdir()
    (tmp_path / "plate" / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="in the way"):
        write_object(tmp_path, "plate", views, images)
    assert (tmp_path / "plate" / "mine.txt").exists()


# Many objects


def test_unreadable_meshes_are_outcomes_and_finished_objects_are_skipped(tmp_path, mesh_folder):
    root, jobs = tmp_path / "out", list_object_jobs(mesh_folder, None, seed=0)
    outcomes = {outcome.name: outcome.refused for outcome in render_objects(root, jobs, TINY)}
    assert outcomes.keys() == {"box", "block", "broken"}
    assert outcomes["box"] is None and "broken.glb" in str(outcomes["broken"])
    assert find_objects(root) == ["block", "box"]
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.jpg")}
    assert [outcome.name for outcome in render_objects(root, jobs, TINY)] == ["broken"]
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*.jpg")}


def test_a_mesh_without_size_is_unreadable_too(tmp_path):
    (tmp_path / "point.obj").write_text("v 1 1 1\nv 1 1 1\nv 1 1 1\nf 1 2 3\n")
    (outcome,) = render_objects(tmp_path / "out", [ObjectJob("point", tmp_path / "point.obj")], TINY)
    assert "point.obj: all its vertices are one point" in str(outcome.refused)


def test_other_errors_end_the_run(tmp_path):
    (tmp_path / "cup").mkdir()
    (tmp_path / "cup" / "note.txt").touch()
    with pytest.raises(FileExistsError):
        list(render_objects(tmp_path, [ObjectJob("cup"), ObjectJob("plate")], TINY))


def test_processes_make_the_same_files_as_one(tmp_path):
    jobs = list_object_jobs(None, 3, seed=0)
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert len(list(render_objects(alone, jobs, TINY, workers=1))) == 3
    assert len(list(render_objects(together, jobs, TINY, workers=2))) == 3
    objaverse = sorted(path.relative_to(alone) for path in alone.rglob("*.*") if path.is_file())
    assert len(objaverse) == 3 * 25
    assert all((alone / file).read_bytes() == (together / file).read_bytes() for file in objaverse)


def test_a_larger_count_only_adds(mesh_folder):
    for name in ("c", "d", "e"):
        trimesh.creation.box().export(mesh_folder / f"{name}.ply")
    few, many = list_object_jobs(mesh_folder, 2, seed=0), list_object_jobs(mesh_folder, 4, seed=0)
    assert many[:2] == few and len(many) == 4
    orders = {tuple(job.name for job in list_object_jobs(mesh_folder, None, seed=seed)) for seed in range(5)}
    assert len(orders) > 1
    assert list_object_jobs(None, 3, 0)[:2] == list_object_jobs(None, 2, 0)


def test_other_settings_are_refused_in_one_line(tmp_path):
    claim_folder(tmp_path, TINY)
    claim_folder(tmp_path, TINY)
    with pytest.raises(ValueError, match="made with size 16 instead of 32; use the same settings"):
        claim_folder(tmp_path, replace(TINY, size=32))
    (tmp_path / "dataset.json").write_text("[broken")
    with pytest.raises(ValueError, match="not the settings file"):
        claim_folder(tmp_path, TINY)


@pytest.mark.parametrize("settings", [{"size": 4}, {"antialias": 0}, {"seed": -1}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match="give 8 to 8192"):
        ObjectSettings(**settings)


@pytest.mark.parametrize("count", [0, -1, None])
def test_a_number_of_procedural_objects_is_needed(count):
    with pytest.raises(ValueError, match="objects"):
        list_object_jobs(None, count, seed=0)


# Cluster


@pytest.fixture
def on_path(monkeypatch):
    """Jobs are processes of their own: they have to find the package that is being tested."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3] / "src"))


def test_jobs_of_a_cluster_render_their_shares(tmp_path, mesh_folder, on_path):
    root, jobs = tmp_path / "out", list_object_jobs(mesh_folder, None, seed=0)
    root.mkdir()
    where = Cluster("local", jobs=2)
    outcomes = {o.name: o.refused for o in render_on_cluster(root, jobs, TINY, where, pause_s=0.2)}
    assert outcomes.keys() == {"box", "block", "broken"} and "broken.glb" in str(outcomes["broken"])
    assert find_objects(root) == ["block", "box"]
    assert len({path.name.split("_")[0] for path in (root / LOGS).glob("*.pkl")}) == 2
    alone = tmp_path / "alone"
    list(render_objects(alone, jobs, TINY))
    assert (alone / "box/views/000_0.jpg").read_bytes() == (root / "box/views/000_0.jpg").read_bytes()


def test_a_job_that_fails_is_named(tmp_path, on_path):
    (tmp_path / "cup").mkdir()
    (tmp_path / "cup" / "note.txt").touch()
    with pytest.raises(OSError, match=r"job \w+ failed: .*in the way"):
        list(render_on_cluster(tmp_path, [ObjectJob("cup")], TINY, Cluster("local", jobs=1), pause_s=0.2))
    assert not is_finished(tmp_path, "cup")


@pytest.mark.slow
def test_leaving_cancels_the_jobs(tmp_path, on_path):
    jobs = list_object_jobs(None, 2000, seed=0)
    outcomes = render_on_cluster(tmp_path, jobs, TINY, Cluster("local", jobs=1), pause_s=0.1)
    next(outcomes)
    outcomes.close()
    counts = [-1, 0]
    while counts[-1] != counts[-2]:  # a busy machine takes a while to stop them
        time.sleep(4)
        counts.append(len(find_objects(tmp_path)))
    assert 0 < counts[-1] < 2000


def test_without_submitit_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"pip install 'g-ray\[lab\]'"):
        list(render_on_cluster(tmp_path, [ObjectJob("cup")], TINY, Cluster("local")))


@pytest.mark.parametrize(
    ("kind", "options", "reason"), [("slurm", {}, "srun"), ("local", {"colour": "red"}, "colour")]
)
def test_what_submitit_refuses_is_one_line(tmp_path, kind, options, reason):
    if kind == "slurm" and shutil.which("srun"):
        pytest.skip("this machine has Slurm")
    with pytest.raises(ValueError, match=reason):
        list(render_on_cluster(tmp_path, [ObjectJob("cup")], TINY, Cluster(kind, options=options)))
