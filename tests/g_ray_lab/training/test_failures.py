"""What goes wrong outside of the model: disks, loader workers, held-out data. Nothing that was trained is lost."""

import errno
import os
import signal

import pytest
import torch

from g_ray.models.weights import CheckpointError
from g_ray_lab.training import engine
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import CurveRecipe
from g_ray_lab.training.run_files import CheckpointStore, History, read_metrics
from g_ray_lab.training.task import CurveTask


def list_steps(out):
    return [checkpoint.step for checkpoint in CheckpointStore(out / "checkpoints").list_checkpoints()]


def metrics(out):
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in read_metrics(out)]


def test_unreadable_held_out_data_costs_no_checkpoint(runs, tmp_path, monkeypatch, capsys):
    def unreadable(self, model):
        raise OSError("held_out/00001.png: image file is truncated")

    monkeypatch.setattr(CurveTask, "validate", unreadable)
    monkeypatch.setattr(CurveTask, "render_samples", unreadable)
    outcome = engine.train("curve", runs.small(8), runs.quiet(tmp_path / "run", sample_every=8))
    assert outcome.validation is None and list_steps(outcome.folder) == [4, 8]
    said = capsys.readouterr().err
    assert "step 4: no validation, OSError: held_out/00001.png" in said and "step 8: no samples" in said


@pytest.mark.parametrize("before_entry", [True, False])
def test_a_run_stopped_between_saving_and_validating_validates_first(
    runs, tmp_path, monkeypatch, before_entry
):
    """The log is that of an uninterrupted run, with one validation a checkpoint."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    engine.train("curve", runs.small(12), runs.quiet(whole))

    def stop_validating(session, history):
        if session.step == 8:
            raise SystemExit
        return validate(session, history)

    def stop_recording(store, step, validation):
        if step == 8:
            raise SystemExit
        return record(store, step, validation)

    validate, record = engine.Session._validate, CheckpointStore.record_validation
    if before_entry:
        monkeypatch.setattr(engine.Session, "_validate", stop_validating)
    else:
        monkeypatch.setattr(CheckpointStore, "record_validation", stop_recording)
    with pytest.raises(SystemExit):
        engine.train("curve", runs.small(12), runs.quiet(out))
    newest, _ = CheckpointStore(out / "checkpoints").find_newest()
    assert newest is not None and newest.step == 8 and not newest.is_validated()
    monkeypatch.undo()
    engine.train("curve", runs.small(12), runs.quiet(out))
    assert sorted(map(str, metrics(out))) == sorted(map(str, metrics(whole)))
    for checkpoint in CheckpointStore(out / "checkpoints").list_checkpoints():
        assert checkpoint.is_validated() and checkpoint.read_validation() is not None


def test_a_full_disk_under_the_log_saves_what_was_trained(runs, tmp_path, monkeypatch):
    original = History.add

    def full(self, step, values):
        if step < 6:
            return original(self, step, values)
        raise self._explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    monkeypatch.setattr(History, "add", full)
    out = tmp_path / "run"
    with pytest.raises(OSError, match=r"No space left on device.*step 6 is saved") as caught:
        engine.train("curve", runs.small(12), runs.quiet(out))
    assert str(out) in str(caught.value) and "\n" not in str(caught.value)
    assert list_steps(out)[-1] == 6
    monkeypatch.undo()
    assert engine.train("curve", runs.small(12), runs.quiet(out)).steps == 12


def test_an_error_of_the_log_names_its_folder(tmp_path):
    history = History(tmp_path, 0, tensorboard=False)

    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    history._file = Full()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OSError, match="No space left on device") as caught, history:
        history.add(1, {"loss": 1.0})
    assert str(tmp_path) in str(caught.value)


def die_in_worker(self, step, rank, world):
    if step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return _make_batch(self, step, rank, world)


_make_batch = CurveTask.make_batch


class Named(CurveTask):
    def describe_batch(self, batch):
        return "mine"


def test_a_killed_loader_worker_loses_nothing(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(CurveTask, "make_batch", die_in_worker)
    out = tmp_path / "run"
    with pytest.raises(OSError, match=r"a loader worker died .*is saved in") as caught:
        engine.train("curve", runs.small(12), runs.quiet(out, workers=1))
    assert str(out) in str(caught.value) and "\n" not in str(caught.value)
    assert list_steps(out)[-1] >= 4
    monkeypatch.undo()
    assert engine.train("curve", runs.small(12), runs.quiet(out)).steps == 12


def test_a_full_folder_is_noticed_before_the_first_step(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100})())
    monkeypatch.setattr(CurveTask, "make_batch", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(CheckpointError, match="of free space") as caught:
        engine.train("curve", runs.small(8), runs.quiet(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_an_unwritable_folder_is_noticed_before_the_first_step(runs, tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(CurveTask, "make_batch", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(CheckpointError, match="Read-only file system"):
        engine.train("curve", runs.small(8), runs.quiet(tmp_path / "run"))


def test_changes_of_the_model_end_in_one_line(runs, tmp_path):
    run = runs.quiet(tmp_path / "run", allow_changes=True)
    engine.train("curve", runs.small(6), run)
    with pytest.raises(ValueError, match=r"another model .* first.bias was 16 and is 24") as caught:
        engine.train("curve", runs.small(8, width=24), run)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="was nothing and is"):
        engine.train("curve", runs.small(8, layers=5), run)


@pytest.mark.parametrize(
    ("value", "norm", "bad_loss", "said"),
    [
        (float("nan"), float("nan"), True, "the loss is nan on mine"),
        (1.0, float("nan"), True, ""),
        (1.0, float("inf"), False, "the gradient is inf on mine"),
    ],
)
def test_a_rank_names_its_scenes_only_for_its_own_loss(value, norm, bad_loss, said):
    learner = object.__new__(Learner)
    learner.task = Named(CurveRecipe())
    assert learner._describe_failure(value, norm, bad_loss, None) == said


def test_weights_of_a_checkpoint_are_compared_by_name_and_shape():
    learner = object.__new__(Learner)
    learner.check_fit({"a": torch.Size([2])}, {"a": torch.zeros(2)})
    with pytest.raises(ValueError, match="a was 3 and is 2"):
        learner.check_fit({"a": torch.Size([2])}, {"a": torch.zeros(3)})
