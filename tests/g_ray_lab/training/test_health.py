"""NaN losses and broken samples: skipped, counted, named; too many end the run."""

import json

import pytest
import torch
from safetensors.torch import load_file

from g_ray_lab.sources.draws import UnreadableFolder
from g_ray_lab.training import engine
from g_ray_lab.training.learner import SkipCounter, TooManySkipped
from g_ray_lab.training.recipe import CurveRecipe
from g_ray_lab.training.run_files import read_metrics
from g_ray_lab.training.task import CurveTask

PLAIN = CurveRecipe(width=4, layers=1, dropout=0.0, batch=4)


class Trouble(CurveTask):
    """NaN at some steps, broken files at others."""

    nan_at, broken_at = (), ()

    def make_batch(self, step, rank, world):
        if step in self.broken_at:
            raise OSError(f"scene_{step}/images/00001.png: image file is truncated")
        batch = super().make_batch(step, rank, world)
        if step in self.nan_at:
            batch.y.fill_(float("nan"))
        return batch

    def describe_batch(self, batch):
        return "scene_nan"


@pytest.fixture
def run(runs, tmp_path, monkeypatch):
    """Train the curve with trouble at the given steps."""

    def train(nan_at=(), broken_at=(), precision="fp32", steps=12, **changes):
        task = Trouble(PLAIN)
        task.nan_at, task.broken_at = nan_at, broken_at
        recipe = runs.small(steps, precision=precision)
        monkeypatch.setattr(type(recipe), "build_task", lambda self: task)
        return engine.train("curve", recipe, runs.quiet(tmp_path / "run", **changes))

    return train


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_bad_steps_are_skipped_counted_and_named(run, capsys, precision):
    outcome = run(nan_at=(3,), broken_at=(5, 6), precision=precision)
    said = capsys.readouterr().err
    assert outcome.steps == 12 and outcome.skipped == 3
    assert "step 3 skipped: the loss is nan on scene_nan (1 so far)" in said
    assert "step 5 skipped: OSError: scene_5/images/00001.png: image file is truncated (2 so far)" in said
    assert all(torch.isfinite(tensor).all() for tensor in load_file(outcome.weights).values())
    entries = read_metrics(outcome.folder)
    assert [entry["skipped"] for entry in entries if "skipped" in entry] == [0, 2, 3, 3]
    assert not any("NaN" in json.dumps(entry) for entry in entries)


def test_too_many_in_a_row_end_the_run_in_one_line(run):
    with pytest.raises(
        TooManySkipped, match=r"4 steps in a row .*step 8 skipped: OSError: scene_8/"
    ) as caught:
        run(broken_at=range(5, 100), max_skipped_in_a_row=4)
    assert "\n" not in str(caught.value)


def test_too_many_in_all_end_the_run(run):
    with pytest.raises(TooManySkipped, match="3 steps in all"):
        run(nan_at=(1, 4, 7, 10), max_skipped=3)


def test_sets_drawn_again_are_counted_and_named(run, monkeypatch, capsys):
    monkeypatch.setattr(Trouble, "list_redrawn", lambda self, batch: ("OSError: a.png",), raising=False)
    outcome = run()
    assert "step 11: drew another set: OSError: a.png" in capsys.readouterr().err
    assert outcome.skipped == 0 and read_metrics(outcome.folder)[-2]["redrawn"] == 12


def test_a_folder_that_cannot_be_read_ends_the_run_with_everything_saved(run, monkeypatch, tmp_path):
    whole = Trouble.make_batch

    def lose_folder(self, step, rank, world):
        if step == 7:
            raise UnreadableFolder("data/a: 16 sets in a row cannot be read")
        return whole(self, step, rank, world)

    monkeypatch.setattr(Trouble, "make_batch", lose_folder)
    with pytest.raises(
        ValueError, match="step 7: data/a: 16 sets in a row cannot be read; its last checkpoint"
    ):
        run()
    assert list((tmp_path / "run/checkpoints").glob("step-*7"))


def test_a_bug_is_not_a_broken_sample(run, monkeypatch):
    def bug(self, step, rank, world):
        raise TypeError("ours")

    monkeypatch.setattr(Trouble, "make_batch", bug)
    with pytest.raises(TypeError, match="ours"):
        run()


def test_counts_survive_a_restart():
    before = SkipCounter(10, 5)
    before.record_skip(3, "x")
    after = SkipCounter(10, 5)
    after.load_state_dict(before.state_dict())
    assert (after.total, after.in_a_row, after.recent) == (1, 1, ["step 3 skipped: x"])
    after.record_success()
    assert (after.total, after.in_a_row) == (1, 0)
