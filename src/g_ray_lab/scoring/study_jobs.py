"""What a study consists of: its definition, the networks to train and score, and how that is done."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from g_ray_lab.scoring.shard import Shard
from g_ray_lab.scoring.study import WHOLE, Scorer
from g_ray_lab.training.feed import choose_workers, count_local
from g_ray_lab.training.history import METRICS
from g_ray_lab.training.recipe import Recipe, Run
from g_ray_lab.training.training_checkpoint import WEIGHTS, CheckpointStore

SAVE_EVERY = 250  # steps between checkpoints of small networks: little is lost when a study is interrupted


@dataclass(frozen=True)
class Study:
    """Definition of a table: recipes by row name, and the scorer that defines the columns."""

    name: str
    scale: str
    methods: Mapping[str, Recipe]
    scorer: Scorer
    pairs: tuple[tuple[str, str], ...] = ()
    """Rows to compare scene by scene: (with ray angles, without)."""
    networks: Path | None = None
    """Folder of another study with the same rows, whose networks are scored instead of training new ones."""
    features: Path | None = None
    """Folder for features of a frozen encoder, which all rows and seeds share."""
    weights: Mapping[str, Path] = field(default_factory=dict)
    """Files of networks that are scored as they are, by row; the others are trained."""
    row_scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """Rows that are scored on test scenes of their own, with the columns of `scorer`."""
    reference_scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """Scorers among those of `row_scorers` whose scenes get rows without training too, named with these prefixes."""
    show_changes: bool = False
    """Whether to compute how each row changes from the first column of a group to the others."""
    early: tuple[int, ...] = ()
    """Networks are also scored after so many steps of their training."""

    def check_early(self) -> None:
        """Raise ValueError for steps at which some network of the study is not in training."""
        if self.early and self.weights:
            raise ValueError(
                f"scores after {self.early[0]} steps: {next(iter(self.weights))} is a given network and is not trained "
                "here; leave one of both away"
            )
        last = min(recipe.schedule.steps for recipe in self.methods.values())
        if wrong := [step for step in self.early if not 1 <= step < last]:
            raise ValueError(
                f"scores after {wrong[0]} steps: give steps from 1 to {last - 1}, before training ends"
            )

    def get_scorer(self, method: str) -> Scorer:
        """Return the scorer of a row."""
        return self.row_scorers.get(method, self.scorer)

    def find_reference_scorers(self) -> dict[str, Scorer]:
        """Return the scorers of rows without training, by prefix: that of the table, and others that some row uses."""
        used = [self.get_scorer(method) for method in self.methods]
        others = {
            f"{prefix}_": scorer
            for prefix, scorer in self.reference_scorers.items()
            if any(scorer is one for one in used)
        }
        return {"": self.scorer, **others}

    def get_run_folder(self, out: Path, method: str, seed: int) -> Path:
        """Return the folder of one training run: in this study's folder, or in that of the study that trained it."""
        return (self.networks or out) / "runs" / f"{method}-seed{seed}"

    def get_scores_file(self, out: Path, method: str, seed: int) -> Path:
        """Return the file of one network's scores; those of another study's networks stay in this folder."""
        own = self.get_run_folder(out, method, seed) / "scores.json"
        is_own = self.networks is None and method not in self.weights
        return own if is_own else out / "scores" / f"{method}-seed{seed}.json"

    def get_weights_file(self, out: Path, method: str, seed: int) -> Path:
        """Return the file of one network: the given one, or where its training leaves it."""
        return self.weights.get(method, self.get_run_folder(out, method, seed) / WEIGHTS)


@dataclass(frozen=True)
class Stage:
    """A network after so many steps of its training."""

    steps: int
    weights: Path
    scores: Path
    """File of its scores."""


@dataclass(frozen=True)
class Job:
    """One network to train and score."""

    method: str
    recipe: Recipe
    scorer: Scorer
    folder: Path
    scores: Path
    features: Path | None = None
    weights: Path | None = None
    """File of a network that is scored as it is."""
    early: tuple[int, ...] = ()
    """Steps after which the network is scored during its training."""

    @property
    def network(self) -> Path:
        """File of the network: the given one, or where its training leaves it."""
        return self.weights or self.folder / WEIGHTS

    @property
    def last(self) -> Stage:
        """The network after all of its training."""
        return Stage(self.recipe.schedule.steps, self.network, self.scores)

    def find_early(self, step: int) -> Stage:
        """Return the network during its training, or raise ValueError if its checkpoint was not kept."""
        scores = self.scores.with_name(f"{self.scores.stem}-step-{step}.json")
        for checkpoint in CheckpointStore(self.folder / "checkpoints").list_checkpoints():
            if checkpoint.step == step:
                return Stage(step, checkpoint.weights, scores)
        raise ValueError(
            f"{self.folder} has kept no checkpoint of step {step}: it was trained without asking for it, use another "
            "--out"
        )

    def find_stages(self) -> list[Stage]:
        """Return all stages of a finished network that are scored, in the order of training."""
        return [*map(self.find_early, self.early), self.last]

    def read_steps_done(self) -> int:
        """Return the steps that the run has logged: reading its file needs no communication between processes."""
        with contextlib.suppress(OSError, IndexError, ValueError, KeyError):
            return json.loads((self.folder / METRICS).read_text().splitlines()[-1])["step"]
        return 0


@dataclass(frozen=True)
class Effort:
    """How a study is run: nothing here changes its numbers."""

    jobs: int = 1
    """Networks trained at a time, distributed over `devices`; one per GPU keeps all of them busy."""
    devices: Sequence[str] = ("cpu",)
    workers: int | None = None
    """Processes that make batches for each network; None divides the cores among the networks beside GPUs."""
    save_every: int = SAVE_EVERY
    """Steps between checkpoints."""
    shard: Shard = WHOLE
    """Share of the scoring of finished networks; with a share nothing is trained."""
    score: bool = True
    """Whether networks are scored, or only trained."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"--jobs {self.jobs} must be at least 1")

    def make_run(self, job: Job, device: str) -> Run:
        """Return how one network is trained."""
        kind, cores = device.split(":")[0], count_local()[0]
        return Run(
            out=job.folder,
            device=device,
            workers=choose_workers(self.workers, kind, cores, self.jobs),
            cache=job.features,
            sample_every=None,
            tensorboard=False,
            save_every=self.save_every,
            milestones=job.early,
        )

    def count_threads(self) -> int:
        """Return the threads of each of several processes: one on a CPU, which trains in all cores, else its share."""
        return 1 if self.devices[0] == "cpu" else max(1, count_local()[0] // self.jobs)
