"""One network of a study: where it is trained or lies, and its scores after some stages of training."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from g_ray_lab.scoring.scored_runs import ScoredRun, Scorer, join_shares
from g_ray_lab.scoring.store import WHOLE, Shard, Store, hash_file
from g_ray_lab.training.recipe import Recipe
from g_ray_lab.training.run_files import METRICS, WEIGHTS, CheckpointStore


@dataclass(frozen=True)
class Stage:
    """A network after some steps of its training."""

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
            f"{self.folder} has kept no checkpoint of step {step}: it was trained without --early {step}, use another "
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

    def read_cpu_seconds(self) -> float:
        """Return the CPU seconds of training over all its starts, from the newest checkpoint."""
        if not self.folder.is_dir():  # a given network, not one of this study
            return 0.0
        newest, _ = CheckpointStore(self.folder / "checkpoints", 1, None).find_newest()
        return newest.load_state()["cpu_seconds"] if newest else 0.0

    def get_key(self, stage: Stage) -> dict[str, str]:
        """Return what the scores of a stage depend on."""
        return {"weights": hash_file(stage.weights), **self.scorer.key}

    def read_run(self, stage: Stage) -> ScoredRun | None:
        """Read the scores of a stage, or return None; CPU seconds are those of the whole training."""
        scores, _ = Store(stage.scores.parent).read(stage.scores.stem, self.get_key(stage))
        if scores is None:
            return None
        seed, seconds = self.recipe.seed, self.read_cpu_seconds()
        return ScoredRun.from_scores(self.method, seed, scores, stage.steps, seconds)

    def score_stages(self, device: str, shard: Shard = WHOLE) -> None:
        """Score all stages, unless scores of these weights by this protocol are already stored."""
        for stage in self.find_stages():
            Store(stage.scores.parent).measure_share(
                stage.scores.stem,
                self.get_key(stage),
                shard,
                lambda stage=stage: self.scorer.score_share(
                    load_network(self.recipe, stage.weights, device), shard
                ),
                join_shares,
            )


def load_network(recipe: Recipe, weights: Path, device: str = "cpu") -> torch.nn.Module:
    """Load a trained network in evaluation mode."""
    from safetensors.torch import load_file

    network = recipe.build_model()
    network.load_state_dict(load_file(weights))
    return network.eval().to(device)
