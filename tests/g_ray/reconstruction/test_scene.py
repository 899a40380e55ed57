"""The whole way: photographs in, a folder out; interrupted and continued; in chunks and at once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import g_ray
from g_ray.calibration import assign_cameras, find_photos
from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.export.result import read_reconstruction
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import load_reconstruction
from g_ray.predictors import network_cost as planning
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.reconstruction.reconstruct import KnownGeometry, reconstruct
from g_ray.reconstruction.reconstruction_run import open_work_folder

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def command(capture, out, *more):
    words = [
        "reconstruct",
        str(capture / "photos"),
        "--out",
        str(out),
        "--model",
        "network",
        "--weights",
        str(capture / "weights.safetensors"),
    ]
    calibration = [] if "--calibration" in more else ["--calibration", str(capture / "cameras.json")]
    return main([*words, *calibration, *more])


def test_the_command_writes_everything(capture, tmp_path, capsys):
    out = tmp_path / "out"
    assert command(capture, out, "--metric") == 0
    said = capsys.readouterr().out
    assert "opencv_fisheye" in said and "8 known poses" in said and "rotation error" in said
    for name in ("points.ply", "scene.glb", "report.html", "result.json", "transforms.json"):
        assert (out / name).stat().st_size > 100
    assert not (out / "unfinished").exists()
    result = read_reconstruction(out)
    assert result.finished and len(result.views) == 8
    assert result.settings["method"] == "gray"
    assert result.metrics["cameras with known poses"] == 8
    view = result.views[1]
    assert view.original_camera.NAME == "opencv_fisheye" and view.ray_depth.shape == (16, 24)
    assert view.true_pose is not None and bool((view.ray_depth[view.valid] > 0).all())
    pixels, seen = view.camera.project(view.pose.inverse().apply(view.points().double()))
    grid = torch.stack(torch.meshgrid(torch.arange(24) + 0.5, torch.arange(16) + 0.5, indexing="xy"), -1)
    inside = view.valid & seen
    assert float((pixels - grid)[inside].norm(dim=-1).max()) < 0.01


def test_a_finished_folder_is_not_written_over(capture, tmp_path, capsys):
    (tmp_path / "result.json").write_text('{"format": "g-ray-result"}')
    assert command(capture, tmp_path) == 2
    assert "finished result" in capsys.readouterr().err


def test_stopped_and_continued(capture, tmp_path, monkeypatch):
    """Chunks that were finished are not computed again, and the result is that of an undisturbed run."""
    done: list[int] = []
    run = NetworkPredictor.__call__

    def stopped(self, views):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(views[0].name)
        return run(self, views)

    monkeypatch.setattr(NetworkPredictor, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        scene_of(capture, tmp_path / "a")
    assert done == ["view000.png", "view001.png"] and not (tmp_path / "a" / "result.json").exists()
    done.clear()
    monkeypatch.setattr(NetworkPredictor, "__call__", lambda *given: done.append(0) or run(*given))
    again = scene_of(capture, tmp_path / "a")
    assert len(done) == 3
    straight = scene_of(capture, tmp_path / "b")
    for one, other in zip(again.views, straight.views, strict=True):
        torch.testing.assert_close(one.ray_depth, other.ray_depth)
        torch.testing.assert_close(one.pose.world_from_cam, other.pose.world_from_cam)


def test_after_ctrl_c_finished_views_can_be_looked_at(capture, tmp_path, monkeypatch, capsys):
    """And the same command finishes the rest."""
    run, done = NetworkPredictor.__call__, []

    def stopped(self, views):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(0)
        return run(self, views)

    monkeypatch.setattr(NetworkPredictor, "__call__", stopped)
    out = tmp_path / "out"
    assert command(capture, out, "--at-once", "4") == 130
    assert "5 of 8 views" in capsys.readouterr().out
    part = read_reconstruction(out)
    assert not part.finished and [view.name for view in part.views] == [f"v{view}.png" for view in range(5)]
    monkeypatch.setattr(NetworkPredictor, "__call__", run)
    assert command(capture, out, "--at-once", "4") == 0
    assert read_reconstruction(out).finished and len(read_reconstruction(out).views) == 8


def scene_of(capture, out, **changes):
    photos = find_photos([capture / "photos"])
    cameras = [view.camera for view in assign_cameras(photos, str(capture / "lenses.json"))]
    work = open_work_folder(out, {"of": "a test"})
    return reconstruct(
        photos, cameras, weights=capture / "weights.safetensors", at_once=4, work=work, **changes
    )


def test_an_unfinished_run_with_other_settings_is_refused(tmp_path):
    open_work_folder(tmp_path, {"size": 32, "weights": "a"})
    open_work_folder(tmp_path, {"size": 32, "weights": "a"})
    with pytest.raises(ValueError, match="unfinished run with other size"):
        open_work_folder(tmp_path, {"size": 64, "weights": "a"})


def test_another_calibration_under_the_same_name_is_noticed(capture, tmp_path, monkeypatch, capsys):
    """Chunks of the old one are not mixed into the new."""
    source = tmp_path / "cameras.json"
    source.write_text((capture / "lenses.json").read_text())

    def stopped(*given, **named):
        raise OSError("stopped")

    monkeypatch.setattr(NetworkPredictor, "__call__", stopped)
    given = ("--calibration", str(source))
    assert command(capture, tmp_path / "out", *given) == 2
    document = json.loads(source.read_text())
    document["cameras"][0]["params"]["fx"] *= 1.01
    source.write_text(json.dumps(document))
    capsys.readouterr()
    assert command(capture, tmp_path / "out", *given) == 2
    assert "unfinished run with other calibration" in capsys.readouterr().err


def test_a_damaged_chunk_is_computed_anew(capture, tmp_path):
    scene_of(capture, tmp_path)
    (tmp_path / "unfinished" / "chunk-0001.npz").write_bytes(b"not a zip")
    assert len(scene_of(capture, tmp_path).views) == 8


def test_as_a_library(capture, room):
    """Tensors and cameras, no files."""
    images = list(room.images[0])
    cameras = [camera[0] for camera in room.views.cameras]
    network = load_reconstruction(capture / "weights.safetensors")
    poses = [room.poses[0, view] for view in range(len(images))]
    found = g_ray.reconstruct(images, cameras, weights=network, known=KnownGeometry(poses, metric=True))
    assert isinstance(found, g_ray.Reconstruction)
    # The network is not trained: its positions do not support the unit of the known ones.
    assert found.unit == "unknown" and any("does not support meters" in note for note in found.notes)
    assert [view.name for view in found.views][:2] == ["view000.png", "view001.png"]
    scaled = g_ray.reconstruct(images, cameras, weights=network, known=KnownGeometry(distance=(0, 3, 2.0)))
    ends = [scaled.views[view].pose.translation for view in (0, 3)]
    assert float((ends[0] - ends[1]).norm()) == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--at-once", "2"], "chunks need 4 views"),
        (["--at-once", "5", "--max-memory", "1"], "give one of them"),
        (["--max-memory", "0"], "above 0"),
        (["--max-memory", "0.000001"], "raise --max-memory or lower --size"),
        (["--metric", "--poses", "ignore"], "does not use them"),
        (["--metric", "--calibration", "LENSES"], "0 of 8 views have one"),
        (["--poses", "ignore", "--distance", "v0.png", "nobody.png", "1"], "none of the photographs"),
        (["--poses", "ignore", "--distance", "v0.png", "v0.png", "1"], "twice"),
        (["--distance", "v0.png", "v1.png", "-1"], "above 0"),
        (["--distance", "v0.png", "v1.png", "1"], "known poses have one already"),
        (["--size", "33"], "not a multiple of the patch"),
        (["--size", "0"], "number of pixels"),
        (["--device", "abacus"], "not a device"),
        (["--calibration", "exif"], "v0.png"),
        (["--calibration", "nowhere.json"], "nowhere.json"),
        (["--frames", "3"], "video"),
        (["--confidence", "2"], "no share"),
    ],
)
def test_mistakes_are_one_line(capture, tmp_path, capsys, more, message):
    more = [str(capture / "lenses.json") if word == "LENSES" else word for word in more]
    assert command(capture, tmp_path / "out", *more) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (tmp_path / "out" / "result.json").exists()


def test_one_photograph_and_wrong_weights(capture, tmp_path, capsys):
    one = ["reconstruct", str(capture / "photos" / "v0.png"), "--calibration", str(capture / "cameras.json")]
    assert main([*one, "--out", str(tmp_path / "o")]) == 2
    assert "two or more" in capsys.readouterr().err
    (tmp_path / "w.safetensors").write_bytes(b"abc")
    assert command(capture, tmp_path / "o", "--weights", str(tmp_path / "w.safetensors")) == 2
    assert "not a safetensors file" in capsys.readouterr().err


def test_too_little_memory_is_one_line(capture, tmp_path, capsys, monkeypatch):
    def full(*args, **kwargs):
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"
        )

    monkeypatch.setattr("g_ray.predictors.network_predictor.run_inference", full)
    assert command(capture, tmp_path / "o") == 2
    assert "do not fit into memory" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing_that_looks_finished(capture, tmp_path, capsys, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "points.ply")

    monkeypatch.setattr("g_ray.export.write_files.write_ply", full)
    assert command(capture, tmp_path / "o") == 2
    assert "No space left" in capsys.readouterr().err
    assert not (tmp_path / "o" / "result.json").exists()
    assert json.loads((tmp_path / "o" / "unfinished" / "settings.json").read_text())


def test_cost_grows_as_it_should(capture):
    """Memory linear in the views; the estimate of attention quadratic."""
    network = load_reconstruction(capture / "weights.safetensors")
    weights = planning.count_weights(network)
    costs = [planning.estimate_chunk_cost(network.config, weights, [16] * views) for views in (8, 16, 24, 32)]
    steps = np.diff([one.memory for one in costs])
    assert np.allclose(steps[1:], steps[1], rtol=0.01)
    operations = np.diff([one.operations for one in costs], 2)
    assert (operations > 0).all() and np.allclose(operations, operations[0], rtol=0.01)
    limit = costs[1].memory
    assert planning.find_chunk_size(network.config, weights, [16] * 40, limit, 4) == 16
    config = replace(network.config, encoder="vits14", dim=384, patch=14, heads=6)
    assert planning.estimate_chunk_cost(config, weights, [256]).operations > costs[0].operations


@pytest.mark.parametrize(("size", "pixels"), [("tiny", 24), ("small", 224), ("dino", 168)])
def test_estimated_operations_are_those_that_are_done(size, pixels):
    """Counted by torch, which leaves attention itself out of its count on a CPU."""
    config = RECONSTRUCTION_SIZES[size]("gray")
    network = ReconstructionModel(config).eval()
    camera = Pinhole.from_fov(60, pixels, pixels)
    with FlopCounterMode(display=False) as counter:
        run_inference(network, [torch.rand(3, pixels, pixels)] * 2, [camera] * 2, size=pixels)
    estimate = planning.estimate_chunk_cost(config, 0, [(pixels // config.patch) ** 2] * 2)
    assert 0.7 < estimate.operations / counter.get_total_flops() < 1.6


def test_estimated_memory_covers_what_was_measured():
    measured = json.loads((RESULTS / "reconstruction_small.json").read_text())["rows"]
    peaks = {row["views"]: row["gray_mb"] * 1e6 for row in measured if row["part"] == "all"}
    assert sorted(peaks) == [2, 4, 8, 16]
    config = RECONSTRUCTION_SIZES["small"]("gray")
    for views, peak in peaks.items():
        assert 0.6 < peak / planning.estimate_chunk_cost(config, 0, [256] * views).memory < 1


def test_many_views_go_through_in_chunks(room):
    """Every view is placed, whatever the number; the network sees eight at a time."""
    network = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray"))
    count = 22
    images = [room.images[0, view % 8] for view in range(count)]
    cameras = [room.views.cameras[view % 8][0] for view in range(count)]
    seen = []
    found = reconstruct(
        images,
        cameras,
        weights=network,
        at_once=8,
        place_by="network",
        progress=lambda stage, share: seen.append((stage, share)),
    )
    assert seen[-1] == ("network", 1.0)
    assert len(found.views) == count and len({view.name for view in found.views}) == count
    assert all(bool(view.points()[view.valid].isfinite().all()) for view in found.views)
