"""The training loop: resume, step, log, validate, save, and stop cleanly on Ctrl-C or SIGTERM.

    newest checkpoint ─► weights, moments, counters, step        (nothing there: step 0)      Session.begin
                                                     │
      ┌──────────────────────────────────────────────▼───────────────────────────────────────┐
      │ feed      batch = make_batch(step, rank, world), here or ahead of time in workers    │ task.py
      │   │                                                                                  │
      │   │ unreadable on any rank? skip the step     worker lost, Ctrl-C? save and stop     │ Session.run_loop
      │   ▼                                                                                  │
      │ forward ─► loss ─► backward ─► gradient norm ─► clip ─► AdamW                        │ Learner.update
      │ (autocast) (fp32)  (× loss scale,     │                                              │
      │                     summed over       └─ not finite on any rank? skip the step       │
      │                     ranks)                                                           │
      │   ▼                                                                                  │
      │ step + 1 ─► log ─► save ─► validate ─► samples, each every n steps                   │ Session._after_step
      └──────────────────────────────────────────────┬───────────────────────────────────────┘
                                                     ▼
                              model.safetensors: the last checkpoint's weights                Session.publish_outcome

Everything random in a step is a function of (seed, step, rank), and everything else that a step depends on is in the
checkpoint. A run that is killed at any moment and resumed therefore ends, on the CPU, with the same bits as an
uninterrupted one. Ranks agree on every decision (`World.reduce_any`): one that skipped or stopped on its own would
leave the others waiting for its gradients.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import nn

from g_ray.runtime.out_folder import claim_out, lock_folder
from g_ray.runtime.progress import Progress
from g_ray_lab.sources.draws import BROKEN_SAMPLE, describe_error
from g_ray_lab.training.distributed import World, join_world
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import Recipe, Run
from g_ray_lab.training.run_files import CheckpointStore, History, check_same
from g_ray_lab.training.task import (
    BrokenBatch,
    LostLoader,
    choose_workers,
    count_local,
    iterate_batches,
    make_step_seed,
)

CHECKPOINT_COPIES = 3
"""A checkpoint has the weights and two moments of each."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class TrainingOutcome:
    """Result of a finished run."""

    folder: Path
    weights: Path
    steps: int
    skipped: int
    validation: float | None


def train(
    name: str, recipe: Recipe, run: Run, provenance: Mapping[str, Any] | None = None
) -> TrainingOutcome:
    """Train the recipe called `name`, or resume it from the newest checkpoint in its folder.

    Raises `KeyboardInterrupt` after Ctrl-C, with everything saved; `ValueError` or `OSError` with one line for what a
    user can fix. The rank that it happened on reports it; the others exit silently with code 2.
    """
    folder = run.out if run.out is not None else Path("out/train") / name
    with join_world(run.device, group_of_one=run.parallel == "fsdp") as world, ExitStack() as stack:
        with world.fail_together():
            if world.is_leader:
                claim_out(folder, "train", ours=any(folder.glob("checkpoints/step-*")))
                stack.enter_context(lock_folder(folder))
        session = Session(name, recipe, run, folder, world, dict(provenance or {}))
        session.begin()
        with catch_interrupt() as interrupt:
            session.run_loop(interrupt)
        return session.publish_outcome()


@dataclass
class Interrupt:
    """The signal to stop, once it was received."""

    received: int | None = None

    def reraise(self) -> None:
        """Do what the signal would have done, now that everything is saved."""
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def catch_interrupt() -> Iterator[Interrupt]:
    """While entered, the first Ctrl-C or SIGTERM only sets `received`; the next one acts as usual."""
    interrupt = Interrupt()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        interrupt.received = number
        restore()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield interrupt
    finally:
        restore()


class Session:
    """One start of a run, from its newest checkpoint to its end or to the next interruption."""

    def __init__(
        self, name: str, recipe: Recipe, run: Run, folder: Path, world: World, provenance: dict[str, Any]
    ) -> None:
        self.recipe, self.run, self.folder, self.world = recipe, run, folder, world
        self.identity = {
            "name": name,
            "kind": type(recipe).__name__,
            "settings": recipe.to_settings(),
            "processes": world.size,
        }
        self.documents = {"recipe": self.identity, "provenance": {**provenance, "processes": world.size}}
        self.store = CheckpointStore(folder / "checkpoints", run.keep, run.milestone_every, run.milestones)
        self.total = recipe.schedule.steps
        self.step = self.saved_step = 0
        self.validation: float | None = None
        self.validated = True
        self.failure: OSError | None = None
        self.seconds = self.cpu_seconds = 0.0

    # Beginning

    def begin(self) -> None:
        """Build the task and the learner, and restore the newest checkpoint if there is one."""
        torch.manual_seed(self.recipe.seed)
        self.task = self.recipe.build_task()
        if self.run.cache is not None:
            self.task.use_cache(self.run.cache, int(self.run.cache_gb * 1e9))
        self.learner = Learner(self.task, self.recipe, self.run, self.world)
        self.progress = Progress(
            self.total, 0, self.task.batch_size * self.world.size, quiet=not self.world.is_leader
        )
        self._restore()
        self.progress.step = self.step
        if self.step < self.total:
            size = CHECKPOINT_COPIES * sum(
                p.numel() * p.element_size() for p in self.learner.model.parameters()
            )
            with self.world.fail_together():
                if self.world.is_leader:
                    self.store.check_space(size)

    def _restore(self) -> None:
        loaded: dict[str, Any] | None = None
        weights: dict[str, Any] = {}
        shapes = {name: weight.shape for name, weight in self.learner.get_weights().items()}
        with self.world.fail_together():
            if self.world.is_leader:
                loaded, weights = self._read_newest()
                if loaded is not None:
                    self.learner.check_fit(shapes, weights)
        moments = loaded.pop("moments") if loaded else {}
        loaded = self.world.broadcast(loaded)
        if loaded is None:
            return
        self.learner.restore(weights, moments, loaded["learner"])
        self.step = self.saved_step = loaded["step"]
        self.validation, self.validated = loaded["validation"], loaded["validated"]
        self.seconds, self.cpu_seconds = loaded["seconds"], loaded["cpu_seconds"]
        done = "already finished" if self.step >= self.total else "continuing"
        self.progress.print_line(f"{done} at step {self.step} of {self.folder}")

    def _read_newest(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        self.store.clean()
        newest, notes = self.store.find_newest()
        for note in notes:
            self.progress.print_line(note)
        if newest is None:
            return None, {}
        before = newest.read_document("recipe")
        for change in check_same(before, self.identity, self.folder, self.run.allow_changes):
            self.progress.print_line(f"changed since the run was started: {change}")
        state = newest.load_state()
        if newest.is_validated():
            state["validation"] = newest.read_validation()
        return {**state, "validated": newest.is_validated()}, newest.load_weights()

    # The loop

    def run_loop(self, interrupt: Interrupt) -> None:
        if self.step >= self.total and self.validated:
            return
        with ExitStack() as stack:
            history = stack.enter_context(self._open_history()) if self.world.is_leader else None
            stack.callback(self.progress.close)
            if not self.validated:  # the run was stopped between saving and validating
                self._validate(history)
            self._clock = time.monotonic(), time.process_time()
            for batch in self._iterate_batches():
                broken = self._check_batch(batch, interrupt)
                self._run_step(batch, broken)
                self._count_time()
                self._after_step(history)
            (failed,) = self.world.reduce_any(self.failure is not None)
            if failed:
                self._fail()

    def _iterate_batches(self) -> Iterator[Any]:
        kind = self.world.device.type
        workers = choose_workers(self.run.workers, kind, *count_local())
        places = (self.world.rank, self.world.size, workers, kind == "cuda")
        return iterate_batches(self.task, self.step, self.total, *places)

    def _check_batch(self, batch: Any, interrupt: Interrupt) -> bool:
        """Agree with all ranks on what to do with their batches: save and stop, or return whether to skip the step."""
        if isinstance(batch, LostLoader):
            self.failure = OSError(batch.reason)
        is_broken = isinstance(batch, BrokenBatch)
        redrawn = () if is_broken or isinstance(batch, LostLoader) else self.task.list_redrawn(batch)
        broken, final, stop, failed, again = self.world.reduce_any(
            is_broken,
            is_broken and batch.is_final,
            interrupt.received is not None,
            self.failure is not None,
            bool(redrawn),
        )
        if failed:
            self._fail()
        if stop:
            self._stop(interrupt)
        if final:
            self._give_up(batch)
        if again:
            self._report_redrawn(redrawn)
        return broken

    def _count_time(self) -> None:
        """Add wall and CPU time since the last call to the totals of the run."""
        before, self._clock = self._clock, (time.monotonic(), time.process_time())
        self.seconds += self._clock[0] - before[0]
        self.cpu_seconds += self._clock[1] - before[1]

    def _open_history(self) -> History:
        history = History(self.folder, self.step, self.run.tensorboard)
        if history.note:
            self.progress.print_line(history.note)
        return history

    def _run_step(self, batch: Any, broken: bool) -> None:
        """Do one gradient update, or skip it."""
        torch.manual_seed(make_step_seed(self.recipe.seed, self.step, self.world.rank))
        if broken:
            trouble = batch.reason if isinstance(batch, BrokenBatch) else ""
            self._skip(trouble)
        elif (trouble := self.learner.update(batch, self.step)) is not None:
            self._skip(trouble)
        else:
            self.learner.health.record_success()
        self.step += 1

    def _report_redrawn(self, reasons: tuple[str, ...]) -> None:
        """Count and name the files for which sets were drawn again, on any rank."""
        lines = self._gather_reasons("\n".join(reasons))
        self.learner.health.redrawn += sum(line.count("\n") + 1 for line in lines)
        for line in lines:
            self.progress.print_line(f"step {self.step}: drew another set: {line}".replace("\n", "; "))

    def _give_up(self, batch: Any) -> None:
        """Save and end the run on all ranks: on one of them a whole folder cannot be read."""
        self._save_unsaved()
        with self.world.fail_together():
            if isinstance(batch, BrokenBatch) and batch.is_final:
                raise ValueError(f"step {self.step}: {batch.reason}; its last checkpoint is in {self.folder}")

    def _gather_reasons(self, text: str) -> list[str]:
        """Return the texts of all ranks that are not empty, with the rank where there are several."""
        gathered = [(rank, text) for rank, text in enumerate(self.world.gather(text)) if text]
        return [f"rank {rank}: {text}" if self.world.size > 1 else text for rank, text in gathered]

    def _skip(self, trouble: str) -> None:
        reasons = self._gather_reasons(trouble)
        self.progress.print_line(self.learner.health.record_skip(self.step, "; ".join(reasons)))
        with self.world.fail_together():
            if self.world.is_leader:
                self.learner.health.check()

    def _after_step(self, history: History | None) -> None:
        last = self.step == self.total
        if last or self.step % self.run.log_every == 0:
            self._log(history)
        self.progress.advance(self.step)
        if last or self.step % self.run.save_every == 0 or self.step in self.run.milestones:
            # Saved first: held-out data may be unreadable, and that must not cost a checkpoint.
            self.save(validated=False)
            self._validate(history)
        if self.run.sample_every and (last or self.step % self.run.sample_every == 0):
            images = self._evaluate(self.task.render_samples, "samples")
            if images is not None and history is not None:
                with self._remember_failure():
                    history.add_images(self.step, images)
        self.progress.reset_timer()

    @contextmanager
    def _remember_failure(self) -> Iterator[None]:
        """Keep an error of the log, which only rank 0 meets, until all ranks can save and stop together."""
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error

    def _evaluate(self, function: Callable[[nn.Module], Result], what: str) -> Result | None:
        """Evaluate the model, or print why held-out data cannot be used; None on all ranks if one of them fails."""
        found, trouble = None, ""
        try:
            found = self.learner.evaluate(function)
        except BROKEN_SAMPLE as error:
            trouble = describe_error(error)
        troubles = [text for text in self.world.gather(trouble) if text]
        if troubles:
            self.progress.print_line(f"step {self.step}: no {what}, {troubles[0]}")
            return None
        return found

    def _log(self, history: History | None) -> None:
        means = self.learner.meter.pop_means()
        values = dict(zip(means, self.world.reduce_mean(list(means.values())), strict=True))
        values |= {"skipped": self.learner.health.total, "seconds": round(self.seconds, 3)}
        if self.learner.health.redrawn:
            values["redrawn"] = self.learner.health.redrawn
        if history is not None:
            with self._remember_failure():
                history.add(self.step, values)
        self.progress.report({name: values[name] for name in ("loss", "lr") if name in values})

    def _validate(self, history: History | None) -> None:
        """Validate the checkpoint that has just been saved."""
        self.validation = self._evaluate(self.task.validate, "validation")
        if self.validation is not None:
            if history is not None and not history.has_validation(self.step):
                with self._remember_failure():
                    history.add(self.step, {"validation": self.validation})
            self.progress.print_line(f"step {self.step}: validation {self.validation:.5g}")
        if self.world.is_leader:
            with self._remember_failure():
                self.store.record_validation(self.step, self.validation)
        self.validated = True

    def _fail(self) -> None:
        """Save what can be saved, and end all ranks with the error of the one that met it."""
        self.progress.close()
        failure = self.failure
        try:
            self._save_unsaved()
        except OSError as error:
            raise OSError(f"{failure or 'another rank failed'}; {error}") from None
        with self.world.fail_together():
            if failure is not None:
                raise OSError(
                    f"{failure}; step {self.step} is saved in {self.folder}: the same command continues from there"
                )

    def _stop(self, interrupt: Interrupt) -> None:
        self.progress.close()
        self._save_unsaved()
        self.progress.print_line(
            f"saved step {self.step} in {self.folder}; the same command continues from there"
        )
        if interrupt.received is None:  # another rank received the signal; exit as it does
            raise KeyboardInterrupt
        interrupt.reraise()

    # The end

    def _save_unsaved(self) -> None:
        if self.step > self.saved_step:
            self.save()

    def save(self, *, validated: bool = True) -> None:
        """Save a checkpoint; without `validated`, its validation follows."""
        weights, moments = self.learner.get_weights(), self.learner.get_moments()
        state = {
            "step": self.step,
            "validation": self.validation,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "moments": moments,
            "learner": self.learner.state_dict(),
        }
        with self.world.fail_together():
            if self.world.is_leader:
                validation = self.validation if validated else None
                self.store.save(self.step, weights, state, self.documents, validation, validated=validated)
        self.saved_step = self.step

    def publish_outcome(self) -> TrainingOutcome:
        """Put the final weights where they are easy to find."""
        weights = self.folder / "model.safetensors"
        if self.world.is_leader:
            newest, _ = self.store.find_newest()
            assert newest is not None
            publish_file(newest.weights, weights)
        return TrainingOutcome(self.folder, weights, self.step, self.learner.health.total, self.validation)


def publish_file(source: Path, target: Path) -> None:
    """Give a finished file a second name, atomically; copy it if the file system has no hard links."""
    scratch = target.with_name(f".{target.name}.tmp")
    scratch.unlink(missing_ok=True)
    try:
        os.link(source, scratch)
    except OSError:
        shutil.copyfile(source, scratch)
    os.replace(scratch, target)
