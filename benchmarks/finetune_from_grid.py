"""What happens to weights trained with grid positions when coordinates become ray angles, and how fast they recover.

    python benchmarks/finetune_from_grid.py --json FILE

The recon-tiny network is trained with grid RoPE on rooms through pinholes. Its weights then continue with ray angles
at several α; every variant sees the same batches. `matched` is `match_scale` of the training views: phases per patch
are those of the grid. Scores are means over rooms of the test split after 0, 50, 200 and 1,000 steps.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from g_ray.coordinates import match_scale
from g_ray.runtime.files import write_json
from g_ray.runtime.provenance import collect_provenance
from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe, tiny
from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer, make_predictor, score_batch
from g_ray_lab.training.learner import build_optimizer
from g_ray_lab.training.task import Task

SETTINGS = ("pinhole", "zoom", "fisheye")
METRICS = ("points_rel", "rays_deg", "depth_rel")
STEPS = (0, 50, 200, 1000)
WARMUP = 20


def make_variants(matched: float) -> dict[str, ReconstructionRecipe]:
    """Return the recipes that continue: without and with rotated values, and the grid as before."""
    angles = {
        "gray_qk, α = 1": ("gray_qk", 1.0),
        "gray_qk, α matched": ("gray_qk", matched),
        "gray_qk, α twice matched": ("gray_qk", 2 * matched),
        "gray, α matched": ("gray", matched),
    }
    recipes = {"grid": tiny("rope")}
    for name, (method, scale) in angles.items():
        recipe = tiny(method)
        recipes[name] = replace(recipe, model=replace(recipe.model, encoding_options={"scale": scale}))
    return recipes


class Run:
    """A network in training, one step at a time."""

    def __init__(self, recipe: ReconstructionRecipe, weights: dict[str, Any] | None, lr: float) -> None:
        torch.manual_seed(recipe.seed)
        self.task: Task = recipe.build_task()
        self.model: nn.Module = self.task.build_model()
        if weights is not None:
            self.model.load_state_dict(weights)
        self.optimizer, self.lr, self.steps = build_optimizer(self.model, recipe.optimizer), lr, 0

    def update(self, batch: Any, total: int | None = None) -> float:
        """Do one step: linear warm-up, then a constant rate or, with `total`, a line to zero."""
        self.steps += 1
        rate = min(1.0, self.steps / WARMUP) * (1.0 if total is None else 1 - (self.steps - 1) / total)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * rate
        loss, _ = self.task.compute_loss(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def score(model: nn.Module, tests: dict[str, list[Any]], scorer: RoomsScorer) -> dict[str, dict[str, float]]:
    """Return the mean of every metric in every setting."""
    predict, scores = make_predictor(model.eval()), {}
    for setting, batches in tests.items():
        rows = [score_batch(b, predict(b), scorer.choose_depth(setting), None).rows() for b in batches]
        scores[setting] = {m: fmean([v for row in rows for v in row[m].tolist()]) for m in METRICS}
    model.train()
    return scores


def list_rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    grid = Run(tiny("rope"), None, lr=2e-3)
    for step in range(arguments.pretrain):
        loss = grid.update(grid.task.make_batch(step, 0, 1), arguments.pretrain)
        if step % 100 == 0:
            print(f"grid {step} {loss:.3f}", flush=True)
    batch = grid.task.make_batch(0, 0, 1)
    matched = match_scale(batch.views.tokens(tiny("rope").model.build_config().patch))
    print(f"matched α {matched:.2f}", flush=True)
    scorer = RoomsScorer.from_training(grid.task.data, arguments.sets)  # pyright: ignore
    tests = {setting: list(scorer.make_batches(setting)) for setting in SETTINGS}
    weights = grid.model.state_dict()
    runs = {name: Run(recipe, weights, lr=5e-4) for name, recipe in make_variants(matched).items()}
    for step in range(max(STEPS) + 1):
        if step in STEPS:
            for name, run in runs.items():
                row = {
                    "variant": name,
                    "steps": step,
                    "matched": matched,
                    "scores": score(run.model, tests, scorer),
                }
                print(name, step, {s: round(row["scores"][s]["points_rel"], 3) for s in SETTINGS}, flush=True)
                yield row
        if step < max(STEPS):
            batch = grid.task.make_batch(arguments.pretrain + step, 0, 1)
            for run in runs.values():
                run.update(batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pretrain", type=int, default=1500)
    parser.add_argument("--sets", type=int, default=48)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(list_rows(arguments))
    settings = {"pretrain": arguments.pretrain, "sets": arguments.sets}
    write_json(arguments.json, {**collect_provenance(), "settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
