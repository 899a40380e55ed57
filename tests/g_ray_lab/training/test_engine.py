"""The loop as a whole: what it learns, leaves, refuses and shows."""

import json

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from g_ray_lab.sources.arc_views import RoomsNVS
from g_ray_lab.sources.nvs_settings import RoomsData
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.training import engine
from g_ray_lab.training.engine import train
from g_ray_lab.training.learner import move_to_device
from g_ray_lab.training.recipe import OptimizerSettings, Schedule
from g_ray_lab.training.run_files import CheckpointStore, list_differences, read_metrics
from g_ray_lab.training.task import BrokenBatch, CurveTask, choose_workers, iterate_batches, make_step_seed


def test_it_learns_the_curve(runs, tmp_path):
    schedule = Schedule(lr=1e-2, steps=150, warmup=10, start=1e-4)
    recipe = runs.small(schedule=schedule, dropout=0.0, batch=32)
    outcome = train("curve", recipe, runs.quiet(tmp_path / "run", save_every=1000, log_every=30))
    losses = [entry["loss"] for entry in read_metrics(outcome.folder) if "loss" in entry]
    assert len(losses) == 5 and losses[-1] < 0.1 * losses[0]
    assert outcome.validation < 0.05


def test_what_a_run_leaves(runs, tmp_path):
    run = runs.quiet(tmp_path / "run", sample_every=6, tensorboard=True)
    outcome = train("curve", runs.small(12), run, {"commit": "abc", "libraries": {"torch": "2"}})
    (last,) = CheckpointStore(run.out / "checkpoints").list_checkpoints()[-1:]
    assert last.read_document("provenance") == {"commit": "abc", "libraries": {"torch": "2"}, "processes": 1}
    settings = last.read_document("recipe")["settings"]
    assert settings["schedule"]["steps"] == 12 and settings["optimizer"]["betas"] == [0.9, 0.95]
    assert outcome.weights == run.out / "model.safetensors"
    assert load_file(outcome.weights).keys() == last.load_weights().keys()
    with Image.open(run.out / "samples" / "step-00000012.png") as picture:
        assert picture.size == (64, 32)
    assert list((run.out / "tensorboard").glob("events*"))
    entry = read_metrics(run.out)[0]
    assert {"step", "loss", "mse", "gradient_norm", "lr", "skipped", "seconds"} == entry.keys()


def test_a_finished_run_is_left_alone(runs, tmp_path, monkeypatch):
    run = runs.quiet(tmp_path / "run")
    first = train("curve", runs.small(8), run)
    monkeypatch.setattr(engine, "iterate_batches", lambda *args: pytest.fail("trained again"))
    assert train("curve", runs.small(8), run) == first


def test_another_recipe_is_refused_and_its_keys_named(runs, tmp_path):
    run = runs.quiet(tmp_path / "run")
    train("curve", runs.small(8), run)
    other = runs.small(8, seed=1, optimizer=OptimizerSettings(weight_decay=0.2, clip=0.5))
    with pytest.raises(ValueError, match=r"optimizer\.weight_decay: 0\.1 → 0\.2; .*seed: 0 → 1") as caught:
        train("curve", other, run)
    assert "--allow-changes" in str(caught.value) and "width" not in str(caught.value)
    longer = runs.small(12)
    assert train("curve", longer, runs.quiet(run.out, allow_changes=True)).steps == 12


def test_differences_see_what_is_new_and_what_is_gone():
    before, now = {"a": {"b": 1, "c": {}}, "gone": 2}, {"a": {"b": 1, "c": {"d": 3}}}
    assert list_differences(before, now) == [
        "a.c: {} → (not set)",
        "a.c.d: (not set) → 3",
        "gone: 2 → (not set)",
    ]


def test_initial_weights(runs, tmp_path):
    first = train("curve", runs.small(8), runs.quiet(tmp_path / "first"))
    frozen = Schedule(lr=0.0, steps=2)
    second = runs.small(schedule=frozen, init=first.weights)
    outcome = train("curve", second, runs.quiet(tmp_path / "second"))
    a, b = load_file(first.weights), load_file(outcome.weights)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("limit", [3_000, 8_000])
def test_a_full_disk_in_a_real_process(runs, tmp_path, limit):
    """Files may not grow beyond a limit: first the weights do not fit, then the state does not."""
    out = tmp_path / "run"
    train("curve", runs.small(8), runs.quiet(out))
    before = {path: path.read_bytes() for path in out.rglob("checkpoints/*/*")}
    run = runs.quiet(out, allow_changes=True)
    failed = runs.Processes(runs.small(16), run, sabotage=runs.SmallFilesOnly(limit))
    assert failed.codes() == [2]
    said = (tmp_path / "run-0.log").read_text().splitlines()[-1]
    assert said.startswith("g-ray: could not save the checkpoint of step 12") and "step 8 is intact" in said
    assert {path: path.read_bytes() for path in out.rglob("checkpoints/*/*")} == before
    assert runs.Processes(runs.small(16), run).codes() == [0]


@pytest.mark.slow
def test_trouble_on_one_rank_is_told_by_it_alone(runs, tmp_path):
    """Broken batches on rank 1: both ranks skip the step, and both end when there are too many."""
    run = runs.quiet(tmp_path / "run", max_skipped_in_a_row=3)
    ended = runs.Processes(runs.small(), run, 2, sabotage=runs.break_batches_of_rank_1)
    assert ended.codes() == [2, 2]
    first, second = ((tmp_path / f"run-{rank}.log").read_text() for rank in (0, 1))
    assert "step 5 skipped: rank 1: ValueError: broken.png (1 so far)" in first
    assert "g-ray: 3 steps in a row had to be skipped" in first.splitlines()[-1]
    assert second == ""


def test_the_feed_keeps_order_and_reports_broken_batches(runs):
    class Half(CurveTask):
        def make_batch(self, step, rank, world):
            if step % 2:
                raise ValueError(f"file {step}\nis bad")
            return step, rank, world

    task = Half(runs.small())
    got = list(iterate_batches(task, 2, 6, 1, 3, workers=2))
    assert got == [
        (2, 1, 3),
        BrokenBatch("ValueError: file 3 is bad"),
        (4, 1, 3),
        BrokenBatch("ValueError: file 5 is bad"),
    ]


@pytest.mark.parametrize(
    ("asked", "device", "cores", "ranks", "workers"),
    [
        (None, "cpu", 64, 1, 0),
        (None, "cuda", 2, 1, 1),
        (None, "cuda", 16, 4, 3),
        (None, "cuda", 96, 8, 8),
        (None, "cuda", 4, 8, 1),
        (5, "cpu", 2, 1, 5),
        (0, "cuda", 96, 1, 0),
    ],
)
def test_workers_by_cores_and_ranks(asked, device, cores, ranks, workers):
    assert choose_workers(asked, device, cores, ranks) == workers


def test_batches_are_pinned_as_a_whole(monkeypatch):
    """What a loader does beside a GPU: every image-sized tensor once, nothing else changed."""
    pinned = []

    def pin(tensor):
        pinned.append(tuple(tensor.shape))
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    batch = RoomsReconstruction(RoomsViews(28, 28, 1, (2, 2))).make_batch(0)
    copy = batch.pin_memory()
    assert len(pinned) == 6 and copy.names == batch.names and torch.equal(copy.images, batch.images)
    scenes = RoomsNVS(RoomsData(width=12, height=12, batch=1)).make_batch(0)
    assert torch.equal(scenes.pin_memory().target_images, scenes.target_images) and len(pinned) == 8


def test_seeds_differ_everywhere():
    seeds = {make_step_seed(seed, step, rank) for seed in range(5) for step in range(50) for rank in range(4)}
    assert len(seeds) == 1000 and max(seeds) < 2**63 and make_step_seed(1, 2, 3) == make_step_seed(1, 2, 3)


def test_a_batch_of_anything_is_placed(mixed_views):
    views = mixed_views()
    batch = {"views": views, "list": [torch.ones(2), ("name", 3)], "none": None}
    moved = move_to_device(batch, torch.device("meta"))
    assert moved["list"][0].device.type == "meta" and moved["list"][1] == ("name", 3)
    assert moved["views"].poses.world_from_cam.device.type == "meta"


@pytest.mark.parametrize(("device", "message"), [("gpu", "not a device"), ("cuda", "sees no GPU")])
def test_wrong_devices_are_one_line(runs, tmp_path, device, message):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=message):
        train("curve", runs.small(), runs.quiet(tmp_path / "run", device=device))


def test_resolved_recipes_are_json(runs):
    resolved = runs.small().to_settings()
    assert json.loads(json.dumps(resolved)) == resolved
