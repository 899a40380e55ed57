"""A run that is killed at any moment and continued ends with the same bits as one that was left alone."""

import random
import signal
import time
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from g_ray_lab.training.run_files import CheckpointStore, read_metrics

pytestmark = pytest.mark.slow  # processes that start, are killed and start again


def same_bits(a, b) -> bool:
    a, b = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return a.keys() == b.keys() and all(
        torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)) for name in a
    )


def metrics(folder):
    return [
        {key: value for key, value in entry.items() if key != "seconds"} for entry in read_metrics(folder)
    ]


@pytest.fixture(scope="module")
def reference(runs, tmp_path_factory):
    """Uninterrupted runs, one per (number of processes, kind of parallelism)."""
    done = {}

    def folder(size, parallel="ddp", **changes):
        key = (size, parallel, *changes.items())
        if key not in done:
            out = tmp_path_factory.mktemp("whole") / "run"
            whole = runs.Processes(runs.small(**changes), runs.quiet(out, parallel=parallel), size)
            assert whole.codes() == [0] * size
            done[key] = out
        return done[key]

    return folder


@pytest.mark.parametrize(
    ("size", "parallel", "kills", "steps"), [(1, "ddp", 4, 40), (2, "ddp", 3, 40), (2, "fsdp", 1, 16)]
)
def test_killed_at_random_moments(runs, reference, tmp_path, size, parallel, kills, steps):
    """Several kills in one run, each some steps after a start; what is left is continued until it is done."""
    run = runs.quiet(tmp_path / "run", parallel=parallel, allow_changes=True)
    slow = runs.small(steps, pause_s=0.005)  # a pause changes no weights, and gives time to aim
    chance = random.Random(f"{size} {parallel}")
    for first in [4] + [0] * (kills - 1):
        killed = runs.Processes(slow, run, size)
        wanted = runs.saved_step(run.out) + first + chance.choice((0, 4))
        assert killed.kill_some_time_after(wanted, chance) == [-signal.SIGKILL] * size
    assert 0 < runs.saved_step(run.out) < steps, "the kills were not in the middle of the run"
    assert runs.Processes(runs.small(steps), run, size).codes() == [0] * size
    assert same_bits(run.out, reference(size, parallel, steps=steps))


@pytest.mark.parametrize(
    ("sabotage", "counts"),
    [
        ("kill_while_flushing", (1, 4, 6, 7, 13)),
        ("kill_while_renaming", (1, 2, 4)),
        ("kill_while_deleting", (1, 3)),
    ],
)
def test_killed_inside_saving(runs, reference, tmp_path, sabotage, counts):
    """At every stage of writing, publishing and deleting checkpoints."""
    run = runs.quiet(tmp_path / "run", keep=1)
    for count in counts:
        killed = runs.Processes(runs.small(), run, sabotage=partial(getattr(runs, sabotage), count))
        assert killed.codes() == [-signal.SIGKILL]
        assert all(
            checkpoint.find_damage() is None
            for checkpoint in CheckpointStore(run.out / "checkpoints").list_checkpoints()
        )
    assert runs.Processes(runs.small(), run).codes() == [0]
    assert same_bits(run.out, reference(1))
    assert not list((run.out / "checkpoints").glob(".*")), "leftovers"


@pytest.mark.parametrize(("size", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_polite_signal_saves_and_leaves(runs, reference, tmp_path, size, number):
    """… in the middle between two checkpoints; the metrics are the same afterwards, too."""
    out = tmp_path / "run"
    slow = runs.small(pause_s=0.02)
    stopped = runs.Processes(slow, runs.quiet(out, save_every=1000, allow_changes=True), size)
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
        time.sleep(0.01)
    stopped.kill(number)
    assert stopped.codes() == [{signal.SIGINT: 130, signal.SIGTERM: 143}[number]] * size
    (saved,) = CheckpointStore(out / "checkpoints").list_checkpoints()
    assert 3 <= saved.step < 40
    continued = runs.Processes(runs.small(), runs.quiet(out, allow_changes=True), size)
    assert continued.codes() == [0] * size
    assert same_bits(out, reference(size))
    logged = [entry for entry in metrics(out) if "loss" in entry]
    assert logged == [entry for entry in metrics(reference(size)) if "loss" in entry]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_resumed_too(runs, reference, tmp_path, precision):
    run = runs.quiet(tmp_path / "run", allow_changes=True)
    killed = runs.Processes(runs.small(precision=precision, pause_s=0.005), run)
    assert killed.kill_some_time_after(8, random.Random(0)) == [-signal.SIGKILL]
    assert runs.Processes(runs.small(precision=precision), run).codes() == [0]
    assert same_bits(run.out, reference(1, precision=precision))


def test_workers_change_nothing(runs, reference, tmp_path):
    run = runs.quiet(tmp_path / "run", workers=2)
    assert runs.Processes(runs.small(), run).codes() == [0]
    assert same_bits(run.out, reference(1))


def test_a_run_goes_on_with_another_kind_of_parallelism(runs, tmp_path):
    """Moments are stored by name: DDP, then FSDP2, then DDP again."""
    out = tmp_path / "run"
    for steps, parallel in ((8, "ddp"), (16, "fsdp"), (24, "ddp")):
        run = runs.quiet(out, parallel=parallel, allow_changes=True)
        assert runs.Processes(runs.small(steps), run, 2).codes() == [0, 0]
    assert CheckpointStore(out / "checkpoints").list_checkpoints()[-1].step == 24


def test_one_run_per_folder(runs, tmp_path, monkeypatch):
    from g_ray.runtime import out_folder

    monkeypatch.setattr(out_folder, "TIMEOUT_S", 0.0)
    with (
        out_folder.lock_folder(tmp_path),
        pytest.raises(ValueError, match="another run is writing to"),
        out_folder.lock_folder(tmp_path),
    ):
        pass
    with out_folder.lock_folder(tmp_path):
        pass


def test_means_of_all_ranks_are_resumed(runs, reference, tmp_path):
    """Stopped between two entries of the log: the next one is the mean over all ranks, as without a stop."""
    run = runs.quiet(tmp_path / "run", allow_changes=True)
    killed = runs.Processes(runs.small(pause_s=0.01), run, 2)
    # A checkpoint every 4 steps and an entry every 3: steps 4 and 8 are in the middle of a mean.
    assert killed.kill_some_time_after(8, random.Random(0)) == [-signal.SIGKILL] * 2
    assert runs.Processes(runs.small(), run, 2).codes() == [0, 0]
    assert metrics(run.out) == metrics(reference(2))


def test_a_loss_that_is_not_a_number_is_blamed_on_its_own_rank(runs, tmp_path):
    run = runs.quiet(tmp_path / "run")
    done = runs.Processes(runs.small(8), run, 2, sabotage=runs.fill_batches_of_rank_1_with_nan)
    assert done.codes() == [0, 0]
    said = (tmp_path / "run-0.log").read_text()
    assert "step 5 skipped: rank 1: the loss is nan on scenes of rank 1 (1 so far)" in said
