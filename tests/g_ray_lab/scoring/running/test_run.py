"""Runs: interrupted, shared between processes, repeated after something has changed, and with bad data or models."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras.pinhole import Pinhole
from g_ray.cli.main import main
from g_ray.geometry.pose import Pose
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.miniatures import MINIATURES
from g_ray_lab.scoring import evaluated_models as models
from g_ray_lab.scoring import evaluation_run as run
from g_ray_lab.scoring.evaluated_models import StandingModel
from g_ray_lab.scoring.evaluation_run import LoadedViews
from g_ray_lab.scoring.set_prediction import PredictedSet, PredictedView, from_arrays, to_arrays
from g_ray_lab.scoring.set_scoring import read_triangles
from g_ray_lab.scoring.store import Shard
from g_ray_lab.scoring.view_index import INDICES

KEEP = "--keep-predictions"


def read_rows(folder):
    with (folder / "rows.csv").open() as file:
        return list(csv.DictReader(file))


def strip(result):
    return {name: value for name, value in result.items() if name != "provenance"}


@pytest.fixture
def data(miniature_root, tmp_path):
    """`data(name)`: a copy of a dataset's miniature that may be damaged."""

    def copy(name):
        shutil.copytree(miniature_root(name), tmp_path / name)
        return tmp_path / name

    return copy


# Interruptions and shares


def test_a_killed_run_resumes(evaluate, miniature_root, tmp_path):
    """SIGKILL in the middle: the same command keeps what is there, and ends as if nothing had happened."""
    root, out = miniature_root("eth3d"), tmp_path / "killed"
    words = ["evaluate", "eth3d-fov", "--data", root, "--out", out, "--model", "truth", "--width", "98"]
    words += ["--limit", "4", "--views", "2", "4", "8"]
    process = subprocess.Popen(
        [sys.executable, "-m", "g_ray", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob("rows/[!.]*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in out.glob("rows/[!.]*.json")}
    assert 3 <= len(before) < 12 and not (out / "result.json").exists()
    assert main([str(word) for word in words]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    _, whole = evaluate("eth3d-fov", "--model", "truth", "--limit", 4, "--views", 2, 4, 8)
    resumed = json.loads((out / "result.json").read_text())
    assert resumed["sets"]["scored"] == 12
    for row, other in zip(resumed["rows"], whole["rows"], strict=True):
        assert row["metrics"] == other["metrics"]


def test_shares_make_the_same_table(evaluate, monkeypatch, tmp_path):
    options = ("--model", "standing", "--limit", 2, "--views", 2, 4)
    _, alone = evaluate("eth3d-fov", *options)
    code, first = evaluate("eth3d-fov", *options, "--shard", "1/2", out="shared")
    assert code == 0 and first["sets"]["not_run"] == 2
    assert "**Unfinished**: 2 of 4 sets" in (tmp_path / "shared" / "table.md").read_text()
    # The second share as torchrun would start it.
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    _, both = evaluate("eth3d-fov", *options, out="shared")
    assert [row["metrics"] for row in both["rows"]] == [row["metrics"] for row in alone["rows"]]
    assert both["sets"] == alone["sets"]


def test_torchrun_makes_the_same_table(evaluate, data, tmp_path):
    """Two processes of the real launcher; a set without a score in one of them does not end the other."""
    root, options = data("eth3d"), ("--model", "standing", "--limit", 3, "--views", 2, 4)
    evaluate("eth3d-fov", *options, data=root)
    shutil.copytree(tmp_path / "out" / INDICES, root / INDICES)
    (depth,) = root.rglob("ground_truth_depth/dslr_images/DSC_0709.JPG")
    depth.write_bytes(depth.read_bytes()[:-8])
    code, alone = evaluate("eth3d-fov", *options, data=root)
    assert code == 1 and 0 < alone["sets"]["unreadable"] < 6

    words = ["evaluate", "eth3d-fov", "--data", root, "--out", tmp_path / "both", *options, "--width", 98]
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "g_ray"]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *map(str, words)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr[-2000:]
    both = json.loads((tmp_path / "both" / "result.json").read_text())
    assert both["sets"] == alone["sets"] and both["problems"] == alone["problems"]
    assert [row["metrics"] for row in both["rows"]] == [row["metrics"] for row in alone["rows"]]


def test_worker_processes_make_the_same_table(evaluate):
    options = ("--model", "standing", "--limit", 2, "--views", 2)
    _, alone = evaluate("eth3d-fov", *options)
    _, parallel = evaluate("eth3d-fov", *options, "--jobs", 2, out="parallel")
    assert [row["metrics"] for row in parallel["rows"]] == [row["metrics"] for row in alone["rows"]]


@pytest.mark.parametrize(("count", "workers"), [(1, 1), (3, 2), (2, 4)])
def test_every_set_is_in_one_share(count, workers):
    shares = [part for number in range(count) for part in Shard(number + 1, count).divide(workers)]
    for position in range(50):
        assert sum(share.takes(position) for share in shares) == 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="--shard"):
        Shard.parse(text)


def test_views_are_kept_for_the_next_model_while_there_is_room():
    camera = Pinhole.from_fov(60.0, 2, 2)
    views = [
        EvaluationView("a", "", torch.zeros(3, 2, 2), camera, None, torch.zeros(2, 2), torch.ones(2, 2) > 0)
    ]
    size = 3 * 4 * 4 + 4 * 4 + 4
    loaded = LoadedViews(max_bytes=2 * size)
    asked = []
    for key in ("first", "second", "first", "third", "second", "first"):
        assert loaded.get(key, lambda key=key: asked.append(key) or views) is views
    assert asked == ["first", "second", "third", "first"]


# What has changed since


def test_a_stale_prediction_is_named_and_made_again(evaluate, data, tmp_path, capsys):
    root = data("eth3d")
    evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP, data=root)
    (image,) = {path for path in root.rglob("dslr_images_undistorted/*.JPG") if path.name == "DSC_0709.JPG"}
    pixels = np.asarray(Image.open(image))
    Image.fromarray(255 - pixels).save(image)
    capsys.readouterr()
    code, _ = evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP, data=root)
    printed = capsys.readouterr()
    assert code == 0
    assert "the row there is of other files" in printed.out + printed.err
    assert "the prediction there is not used (other images)" in printed.out + printed.err


def test_predictions_of_another_model_are_not_used(evaluate, capsys):
    options = ("--limit", 1, KEEP)
    _, first = evaluate("eth3d-native", "--model", "standing", *options)
    capsys.readouterr()
    _, second = evaluate("eth3d-native", "--model", "truth", *options)
    printed = capsys.readouterr()
    assert "(other model)" in printed.out + printed.err
    assert first["model"] == "standing" and second["model"] == "truth"
    assert second["rows"][0]["metrics"]["depth_rel"]["mean"] < 1e-5


def test_a_damaged_prediction_is_made_again(evaluate, tmp_path, capsys):
    _, first = evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP)
    (path,) = (tmp_path / "out" / "predictions").glob("*.npz")
    path.write_bytes(path.read_bytes()[:-500])
    shutil.rmtree(tmp_path / "out" / "rows")
    capsys.readouterr()
    _, second = evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP)
    printed = capsys.readouterr()
    assert "it is damaged" in printed.out + printed.err
    assert second["rows"][0]["metrics"] == first["rows"][0]["metrics"]


def test_scores_are_made_again_from_stored_predictions(evaluate, monkeypatch, tmp_path):
    _, first = evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP)
    shutil.rmtree(tmp_path / "out" / "rows")
    monkeypatch.setattr(StandingModel, "predict", lambda self, views: pytest.fail("predicted again"))
    _, second = evaluate("eth3d-native", "--model", "standing", "--limit", 1, KEEP)
    assert strip(second) == strip(first)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e7])
def test_predictions_are_stored_in_16_bits(scale):
    random = torch.Generator().manual_seed(0)
    depth = scale * (0.5 + 10 * torch.rand(6, 8, generator=random))
    rays = torch.nn.functional.normalize(torch.randn(6, 8, 3, generator=random), dim=-1)
    valid = torch.rand(6, 8, generator=random) > 0.2
    depth[~valid] = torch.inf
    view = PredictedView(Pose(torch.eye(4).double()), depth, valid, rays, depth[..., None] * rays)
    arrays = to_arrays(PredictedSet((view, None), ("a note",), 1.5))
    assert all(arrays[f"000/{name}"].itemsize == 2 for name in ("ray_depth", "rays", "world_points"))
    stored = from_arrays(arrays, 2)
    (one, none), known = stored.views, valid.nonzero(as_tuple=True)
    assert none is None and stored.notes == ("a note",) and torch.equal(one.valid, valid)
    torch.testing.assert_close(one.ray_depth[known], depth[known], rtol=5e-4, atol=0)
    assert float((one.rays - rays).norm(dim=-1).max()) < 3e-5
    far = (one.world_points[known] - view.world_points[known]).norm(dim=-1)
    assert bool((far <= 1e-3 * depth[known]).all())


# Data that cannot be used


def test_a_truncated_depth_map_is_one_row_and_the_run_goes_on(evaluate, data, tmp_path):
    root = data("eth3d")
    evaluate("eth3d-fov", "--model", "truth", "--views", 2, data=root)
    rows = read_rows(tmp_path / "out")
    (path,) = root.rglob("ground_truth_depth/dslr_images/DSC_0709.JPG")
    path.write_bytes(path.read_bytes()[:-8])
    code, result = evaluate("eth3d-fov", "--model", "truth", "--views", 2, data=root)
    assert code == 1
    sets = result["sets"]
    assert 0 < sets["unreadable"] < len(rows) == sets["unreadable"] + sets["scored"]
    assert all("DSC_0709.JPG: 38392 bytes" in problem["message"] for problem in result["problems"])
    table = (tmp_path / "out" / "table.md").read_text()
    assert f"{sets['unreadable']} of 10 sets are not in the means, the data cannot be used" in table
    assert len(read_rows(tmp_path / "out")) == 10


def test_a_broken_surface_is_no_failure_of_the_model(evaluate, monkeypatch, tmp_path):
    """The true surface is read only when a prediction is compared with it."""
    path = tmp_path / "mesh.ply"
    path.write_bytes(b"ply")
    with pytest.raises(OSError, match=r"mesh\.ply: .*download it again"):
        read_triangles(path)
    monkeypatch.setattr(run, "score_set", lambda *given: read_triangles(path))
    code, result = evaluate("eth3d-native", "--model", "truth", "--limit", 1)
    assert code == 1 and (result["sets"]["unreadable"], result["sets"]["failed"]) == (1, 0)


def test_missing_scenes_are_named(evaluate, tmp_path):
    _, result = evaluate("eth3d-native", "--model", "standing", "--limit", 1)
    assert len(result["missing_scenes"]) == 12
    assert "Missing scenes, not in the means: courtyard" in (tmp_path / "out" / "table.md").read_text()


def test_scenes_that_cannot_be_read_are_told_from_missing_ones(evaluate, miniature_size, tmp_path):
    """A scene that is damaged before views are drawn: no set is planned for it, and the run says so."""
    root = tmp_path / "two"
    MINIATURES["sintel"](root, replace(miniature_size, scenes=2))
    damaged = sorted(path.parent.name for path in root.rglob("camdata_left/*/frame_0001.cam"))[0]
    for path in root.rglob(f"camdata_left/{damaged}/*.cam"):
        path.write_bytes(b"")
    code, result = evaluate("sintel-pose", "--model", "standing", data=root)
    assert code == 1 and result["sets"]["scored"] == 1 and result["problems"] == []
    assert result["unreadable_scenes"] == [damaged] and damaged not in result["missing_scenes"]
    table = (tmp_path / "out" / "table.md").read_text()
    assert f"Scenes that cannot be read, not in the means: {damaged} (1)." in table


def test_an_image_of_another_size(evaluate, data):
    root = data("eth3d")
    (path,) = root.rglob("dslr_images_undistorted/DSC_0709.JPG")
    Image.fromarray(np.zeros((60, 90, 3), np.uint8)).save(path)
    code, result = evaluate("eth3d-native", "--model", "truth", "--limit", 1, data=root)
    assert code == 1
    (problem,) = result["problems"]
    assert problem["status"] == "unreadable" and "is 90×60 px, but its camera takes" in problem["message"]


def test_a_pose_that_is_nan_after_the_index_was_frozen(evaluate, data):
    root = data("pandaset")
    options = ("--model", "standing", "--limit", 1, "--views", 2)
    evaluate("pandaset", *options, data=root)
    path = next(root.rglob("left_camera/poses.json"))
    poses = json.loads(path.read_text())
    poses[1]["position"]["x"] = float("nan")
    path.write_text(json.dumps(poses))
    code, result = evaluate("pandaset", *options, data=root)
    assert code == 1
    assert "pose 1 is not a rotation and a position" in result["problems"][0]["message"]


def test_a_pickle_with_foreign_names(evaluate, data):
    import gzip
    import pickle

    root = data("pandaset")
    options = ("--model", "standing", "--limit", 1, "--views", 4)
    evaluate("pandaset", *options, data=root)
    for path in root.rglob("lidar/*.pkl.gz"):
        path.write_bytes(gzip.compress(pickle.dumps(os.getcwd)))
    code, result = evaluate("pandaset", *options, data=root)
    assert code == 1 and result["sets"]["unreadable"] == 1
    assert ".pkl.gz" in result["problems"][0]["message"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scenes", "nowhere"), "--scenes nowhere: no scene of eth3d-native"),
        (("--views", "3"), "--views: eth3d-native has sets of 4 views"),
        (("--limit", "0"), "--limit 0: give 1 or more"),
        (("--shard", "3/2"), "--shard 3/2"),
        (("--model", "nothing"), "unknown model 'nothing'"),
        (("--model", "truth", "--size", "300"), "--model truth is a reference"),
    ],
)
def test_wrong_options_are_one_line(options, message, evaluate, capsys):
    code, _ = evaluate("eth3d-native", *options)
    error = capsys.readouterr().err
    assert code == 2 and message in error and error.count("\n") == 1


def test_an_unknown_protocol_and_absent_data_are_one_line(tmp_path, capsys):
    assert main(["evaluate", "nothing", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "unknown protocol 'nothing'" in capsys.readouterr().err
    words = [
        "evaluate",
        "dtu",
        "--data",
        str(tmp_path / "no"),
        "--out",
        str(tmp_path / "out"),
        "--model",
        "truth",
    ]
    assert main(words) == 2
    assert "no such folder; g-ray data prepare dtu makes it" in capsys.readouterr().err


# Models that cannot be used


def test_a_peer_that_is_not_installed_is_one_line(evaluate, capsys):
    code, result = evaluate("eth3d-native", "--model", "mapanything")
    error = capsys.readouterr().err
    assert code == 2 and result is None
    assert "pip install git+https://github.com/facebookresearch/map-anything" in error


GARBAGE = {
    "a pose that is not finite": lambda one: replace(one, pose=Pose(one.pose.world_from_cam * torch.nan)),
    "a pose that is no rotation": lambda one: replace(one, pose=Pose(2 * one.pose.world_from_cam)),
    "depth that is not finite": lambda one: replace(one, ray_depth=one.ray_depth / 0),
    "negative distances": lambda one: replace(one, ray_depth=-one.ray_depth),
    "a depth map of shape (3, 4)": lambda one: replace(
        one, ray_depth=torch.ones(3, 4), valid=torch.ones(3, 4, dtype=torch.bool)
    ),
}


@pytest.mark.parametrize("fault", GARBAGE)
def test_garbage_is_a_failed_row(fault, evaluate, monkeypatch, tmp_path):
    class Garbage(StandingModel):
        def predict(self, views):
            predicted = super().predict(views)
            return replace(predicted, views=(GARBAGE[fault](predicted.views[0]), *predicted.views[1:]))

    monkeypatch.setitem(models.REFERENCES, "standing", Garbage)
    code, result = evaluate("eth3d-native", "--model", "standing", "--limit", 1)
    assert code == 1 and result["sets"]["failed"] == 1 and result["rows"] == []
    assert fault in result["problems"][0]["message"]
    assert "the model gave no usable prediction" in (tmp_path / "out" / "table.md").read_text()


def test_a_model_that_raises_fails_its_sets_only(evaluate, monkeypatch):
    class Fragile(StandingModel):
        def predict(self, views):
            if len(views) == 4:
                raise RuntimeError("out of\nluck")
            return super().predict(views)

    monkeypatch.setitem(models.REFERENCES, "standing", Fragile)
    code, result = evaluate("eth3d-fov", "--model", "standing", "--limit", 1, "--views", 2, 4)
    assert code == 1
    assert (result["sets"]["scored"], result["sets"]["failed"]) == (1, 1)
    assert result["problems"][0]["message"] == "RuntimeError: out of luck"


def test_views_that_are_not_placed_are_counted(evaluate, monkeypatch, tmp_path):
    """Half of the pixels have no prediction: errors are those of the others, and no more than half are inliers."""

    class Lazy(models.TruthModel):
        def predict(self, views):
            predicted = super().predict(views)
            return replace(predicted, views=(*predicted.views[:2], None, None))

    monkeypatch.setitem(models.REFERENCES, "truth", Lazy)
    code, result = evaluate("eth3d-native", "--model", "truth", "--limit", 1)
    means = {name: value["mean"] for name, value in result["rows"][0]["metrics"].items()}
    assert code == 0 and result["sets"]["with_views_not_placed"] == 1
    assert means["depth_rel"] == pytest.approx(0, abs=1e-5)
    assert means["depth_inlier"] == means["points_inlier"] == pytest.approx(0.5)
    assert 0.3 < means["coverage"] < 0.7
    assert read_rows(tmp_path / "out")[0]["message"] == "2 of 4 views were not placed"


def test_the_network_is_scored_by_its_heads(evaluate):
    """Rays come from the network's own camera points, and are not those of the calibration."""
    _, result = evaluate("eth3d-native", "--model", "network", "--weights", "g-ray-rooms", "--limit", 1)
    means = {name: value["mean"] for name, value in result["rows"][0]["metrics"].items()}
    assert means["rays_deg"] > 0.1 and means["coverage"] == 1
    assert result["settings"]["settings"]["weights"] == "g-ray-rooms"
    assert len(result["settings"]["weights_sha256"]) == 16
    assert result["rows"][0]["cpu_seconds"] > 0
    assert result["model_title"] == "network alone"


def test_titles_say_how_a_network_is_placed(evaluate, tmp_path):
    """Placed by matches, points lie on the calibrated rays; the title of the table says what was scored."""
    options = ("--model", "network", "--weights", "g-ray-rooms", "--limit", 1)
    _, result = evaluate("eth3d-native", *options, "--place-by", "matches")
    assert result["rows"][0]["metrics"]["rays_deg"]["mean"] < 1e-3
    assert (tmp_path / "out" / "table.md").read_text().splitlines()[0].endswith(": network placed by matches")
