"""A run of `g-ray evaluate`: predict, score, and write rows and the table. Killed at any point, it resumes.

OUT/rows/SET.json           scores, with what they depend on
OUT/predictions/SET.npz     predictions in 16 bits, with what they depend on, if they are to be kept
OUT/rows.csv                all rows
OUT/result.json, table.md   means with intervals, and what is missing
OUT/indices/PROTOCOL.json   the view index, where the dataset has none
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from g_ray.predictors import ModelSettings
from g_ray.runtime.device import LOCAL_RANK, read_local_rank
from g_ray.runtime.out_folder import claim_out, lock_folder
from g_ray.runtime.parallel import run_in_processes
from g_ray_lab.datasets.evaluation_scene import EvaluationScene, EvaluationView
from g_ray_lab.scoring.averages import SetRow
from g_ray_lab.scoring.evaluated_models import EvaluatedModel, make_model
from g_ray_lab.scoring.evaluation_plan import EvaluationPlan, Limits, PlannedSet, Report, make_plan
from g_ray_lab.scoring.protocol import Protocol
from g_ray_lab.scoring.set_prediction import PredictedSet, check_prediction, from_arrays, to_arrays
from g_ray_lab.scoring.set_scoring import score_set
from g_ray_lab.scoring.store import DAMAGED, Key, Shard, Store
from g_ray_lab.scoring.view_index import INDICES, load_views

PREDICTIONS, ROWS = "predictions", "rows"
POLL_S = 2.0
"""Seconds between looks at the rows that worker processes have written."""
MAX_MESSAGE = 300
"""Characters of a message in a row."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated on what; picklable, so that worker processes can be given it."""

    name: str
    """Name of the protocol."""
    protocol: Protocol
    data: Path
    out: Path
    model: str | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    poses: bool = False
    """Whether the model is given the true poses."""
    limits: Limits = field(default_factory=Limits)
    keep: bool = False
    """Whether predictions are kept on disk: about 1 TB for a network on all sets of the paper's main table."""
    indices: Path | None = None
    """Folder of view indices that are frozen here; None: in `out`."""
    calibration: str | None = None
    """Source of the calibration that the model is given (`recalibrated_model`); None: the true one."""

    def make_plan(self, report: Report = lambda text: None) -> EvaluationPlan:
        """Choose the sets."""
        indices = self.indices or self.out / INDICES
        return make_plan(self.name, self.protocol, self.data, indices, self.limits, report)

    def make_model(self) -> EvaluatedModel:
        """Load the model."""
        settings = self.protocol.limit_windows(self.model, self.settings)
        model = make_model(self.model, settings, self.poses)
        if self.calibration is None:
            return model
        from g_ray_lab.scoring.recalibrated_model import recalibrate_model

        return recalibrate_model(model, self.calibration)


def run_evaluation(
    evaluation: Evaluation,
    *,
    jobs: int = 1,
    shard: Shard | None = None,
    report: Report = lambda text: None,
    advance: Callable[[int, int], None] = lambda done, total: None,
    loaded: "LoadedViews | None" = None,
) -> tuple[EvaluationPlan, EvaluatedModel]:
    """Score all sets of a share that have no row yet; return the plan and the model.

    `report` gets a line for each problem, `advance` the sets done and all sets of the share. `loaded` keeps views for
    the next model that is scored on them; worker processes (`jobs`) read their own.
    """
    shard = shard or Shard()
    if jobs < 1:
        raise ValueError(f"--jobs {jobs}: give 1 or more")
    model = evaluation.make_model()
    # Shares start at the same time: one of them claims the folder and freezes the index.
    with lock_folder(evaluation.out, timeout_s=math.inf):
        claim_out(evaluation.out, "evaluate")
        plan = evaluation.make_plan(report)
    sets = [one for position, one in enumerate(plan.sets) if shard.takes(position)]
    advance(0, len(sets))  # the time that is left is measured from here
    if jobs == 1 or len(sets) < 2:
        _run_share(evaluation, plan, model, sets, report, lambda done: advance(done, len(sets)), loaded)
        return plan, model
    divided = shard.divide(min(jobs, len(sets)))
    first = read_local_rank() * len(divided)
    shares = [(evaluation, share, first + place) for place, share in enumerate(divided)]
    with _watch_rows(evaluation.out / ROWS, sets, advance):
        for lines in run_in_processes(_run_in_worker, shares, len(shares), lambda share: str(share[1])):
            for line in lines:
                report(line)
    return plan, model


def _run_in_worker(share: tuple[Evaluation, Shard, int]) -> list[str]:
    """Score a share in a process of its own, on the GPU of its number; returns the lines to report."""
    evaluation, shard, local_rank = share
    os.environ[LOCAL_RANK] = str(local_rank)
    lines: list[str] = []
    plan = evaluation.make_plan()
    sets = [one for position, one in enumerate(plan.sets) if shard.takes(position)]
    _run_share(evaluation, plan, evaluation.make_model(), sets, lines.append, lambda done: None)
    return lines


@contextmanager
def _watch_rows(folder: Path, sets: Sequence[PlannedSet], advance: Callable[[int, int], None]):
    """Report how many sets worker processes have finished since the start, by the files that they write."""
    stop, started = Event(), time.time()

    def look() -> None:
        while not stop.wait(POLL_S):
            files = (folder / f"{one.name}.json" for one in sets)
            done = sum(file.exists() and file.stat().st_mtime >= started for file in files)
            advance(done, len(sets))

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        advance(len(sets), len(sets))


def _run_share(
    evaluation: Evaluation,
    plan: EvaluationPlan,
    model: EvaluatedModel,
    sets: Sequence[PlannedSet],
    report: Report,
    advance: Callable[[int], None],
    loaded: "LoadedViews | None" = None,
) -> None:
    """Score sets one after the other; scenes are opened once, as their sets follow each other."""
    runner = SetRunner(evaluation, plan, model, model.digest(), report, loaded or LoadedViews(max_bytes=0))
    for done, planned in enumerate(sets, 1):
        runner.run(planned)
        advance(done)


@dataclass
class SetRunner:
    """Takes a set from files to its row. Remembers the last scene that it opened."""

    evaluation: Evaluation
    plan: EvaluationPlan
    model: EvaluatedModel
    model_digest: str
    report: Report
    loaded: "LoadedViews"
    _scene: EvaluationScene | None = None

    def run(self, planned: PlannedSet) -> SetRow:
        """Score a set and write its row, unless it has one; whatever goes wrong becomes a row, too."""
        out = self.evaluation.out
        try:
            scene = self._open(planned.scene)
            key = {**self._make_key(planned), "files": stamp_files(scene, planned)}
        except (ValueError, OSError) as error:
            row = self._make_row(planned, status="unreadable", message=_shorten(error))
            write_row(out, row, self._make_key(planned))
            self.report(f"{planned.name}: {row.message}")
            return row
        old, stale = read_row(out, planned.name, key)
        if old is not None and old.status == "scored":
            return old
        if stale is not None:
            self.report(f"{planned.name}: the row there is of {stale}, so that it is made again")
        row = self._score(scene, planned, key["files"])
        write_row(out, row, key)
        if row.status != "scored":
            self.report(f"{planned.name}: {row.message}")
        return row

    def _score(self, scene: EvaluationScene, planned: PlannedSet, files: str) -> SetRow:
        try:
            views = self.loaded.get(
                f"{self.plan.hash_views(planned)} {files}",
                lambda: load_views(self.plan.protocol, scene, planned.views),
            )
            self._check_truth(views)
        except (ValueError, OSError) as error:
            return self._make_row(planned, status="unreadable", message=_shorten(error))
        empty = sum(not bool(view.valid.any()) for view in views)
        try:
            predicted = self._predict(planned, views)
        except Exception as error:  # models of others raise whatever they like
            return self._make_row(planned, status="failed", message=_shorten(error), empty=empty)
        try:
            metrics = score_set(self.plan.protocol, scene, views, predicted)
        except OSError as error:  # a true surface that is read only now
            return self._make_row(planned, status="unreadable", message=_shorten(error), empty=empty)
        except Exception as error:
            return self._make_row(planned, status="failed", message=_shorten(error), empty=empty)
        missing = len(views) - len(predicted.placed)
        notes = ([f"{missing} of {len(views)} views were not placed"] if missing else []) + [*predicted.notes]
        return self._make_row(
            planned,
            status="scored",
            message="; ".join(notes)[:MAX_MESSAGE],
            placed=len(predicted.placed),
            empty=empty,
            cpu_seconds=predicted.cpu_seconds,
            metrics=metrics,
        )

    def _predict(self, planned: PlannedSet, views: Sequence[EvaluationView]) -> PredictedSet:
        """Return the stored prediction, or make and store it."""
        store, name = Store(self.evaluation.out / PREDICTIONS), planned.name
        key = {**self._make_key(planned), "images": hash_images(views)}
        arrays, stale = store.read_arrays(name, key)
        if arrays is not None:
            try:
                return from_arrays(arrays, len(views))
            except (KeyError, ValueError):
                stale = DAMAGED
        if stale is not None:
            self.report(f"{name}: the prediction there is not used ({stale}), it is made again")
        started = time.process_time()
        predicted = self.model.predict(views)
        predicted = replace(predicted, cpu_seconds=time.process_time() - started)
        check_prediction(predicted, views, self.model.name)
        if self.evaluation.keep:
            store.write_arrays(name, key, to_arrays(predicted))
        return predicted

    def _check_truth(self, views: Sequence[EvaluationView]) -> None:
        if self.plan.protocol.alignment == "mean distance" and not any(
            bool(view.valid.any()) for view in views
        ):
            raise ValueError("no view has a pixel of known depth")

    def _open(self, name: str) -> EvaluationScene:
        if self._scene is None or self._scene.name != name:
            self._scene = self.plan.open_scene(name)
        return self._scene

    def _make_key(self, planned: PlannedSet) -> Key:
        return make_key(self.plan, self.model_digest, planned)

    def _make_row(self, planned: PlannedSet, **values: Any) -> SetRow:
        return SetRow(
            protocol=self.plan.name,
            dataset=self.plan.protocol.dataset,
            scene=planned.scene,
            set=planned.name,
            views=planned.count,
            given=len(planned.views.views),
            repeated=planned.views.repeated,
            **values,
        )


def read_row(out: Path, name: str, key: Key) -> tuple[SetRow | None, str | None]:
    """Return the row of a set, or None, and why one that exists cannot be used."""
    value, stale = Store(out / ROWS).read(name, key)
    try:
        return (None if value is None else SetRow(**value)), stale
    except TypeError:
        return None, DAMAGED


def write_row(out: Path, row: SetRow, key: Key) -> None:
    Store(out / ROWS).write(row.set, key, asdict(row))


@dataclass
class LoadedViews:
    """The last sets of views that were read, for several models on the same sets: casting at a mesh takes a while."""

    max_bytes: int
    _sets: dict[str, list[EvaluationView]] = field(default_factory=dict)

    def get(self, key: str, load: Callable[[], list[EvaluationView]]) -> list[EvaluationView]:
        """Return the views with a key, or load them; the oldest sets make room."""
        if key not in self._sets:
            self._sets[key] = load()
        views = self._sets[key]
        while self._sets and sum(map(_count_bytes, self._sets.values())) > self.max_bytes:
            del self._sets[next(iter(self._sets))]
        return views


def _count_bytes(views: Sequence[EvaluationView]) -> int:
    return sum(tensor.nbytes for view in views for tensor in (view.image, view.ray_depth, view.valid))


def make_key(plan: EvaluationPlan, model_digest: str, planned: PlannedSet) -> Key:
    """Return what every result of a set depends on."""
    return {"model": model_digest, "views": plan.hash_views(planned)}


def hash_images(views: Sequence[EvaluationView]) -> str:
    """Hash the pixels that a model is shown, rounded to bytes, and its cameras."""
    digest = hashlib.sha256()
    for view in views:
        digest.update((255 * view.image).round().to(torch.uint8).numpy(force=True).tobytes())
        digest.update(f"{view.camera.NAME} {view.camera.width} {view.camera.height}".encode())
        digest.update(view.camera.params.double().numpy(force=True).round(6).tobytes())
    return digest.hexdigest()[:16]


def stamp_files(scene: EvaluationScene, planned: PlannedSet) -> str:
    """Hash size and time of every file of a set, which is quick: a file that was replaced is scored again."""
    digest = hashlib.sha256()
    for name in dict.fromkeys(planned.views.views):
        frame = scene[name]
        files = [*frame.image.list_files(), *(() if frame.depth is None else frame.depth.list_files())]
        for file in (*files, *scene.list_surface_files()):
            stat = file.stat() if file.exists() else None
            digest.update(f"{file.name} {stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:16]


def _shorten(error: Exception) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    if not isinstance(error, ValueError | OSError):
        text = f"{type(error).__name__}: {text}"
    return (text or type(error).__name__)[:MAX_MESSAGE]
