"""What happens to weights trained with grid positions when coordinates become ray angles, and how fast they recover.

    python benchmarks/finetune_from_grid.py --json FILE

A small ViT (three blocks of width 64) sees three views of a room through pinholes of 50° to 90° and predicts the point
under every patch, in the camera's frame: where it looks and how far it is. It is trained with grid RoPE, then continues
with ray angles at several α; all variants see the same batches. α is matched by `match_scale`, so that phases per patch
are those of the grid, and the place of special tokens by `match_offset`. Scores are medians over patches of test rooms.
Seeds whose rows are in the file are kept; the others are added.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from g_ray.coordinates import match_offset, match_scale
from g_ray.encodings import Encoding, encoding
from g_ray.nn.transformer import Block
from g_ray.runtime.files import write_json
from g_ray.runtime.provenance import collect_provenance
from g_ray_lab.recipes.reconstruction_recipes import tiny
from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer
from g_ray_lab.sources.batches import ReconstructionBatch

PATCH, DIM, HEAD, DEPTH = 4, 64, 32, 3
SETTINGS = ("pinhole", "zoom", "fisheye")
STEPS = (0, 50, 200, 1000)
WARMUP = 20
BATCHES = 150  # of four sets; training draws from them again and again
GRID = encoding("rope", HEAD, coordinate="grid_from_one", rotate_values=False)  # as VGGT


class PointViT(nn.Module):
    """Patches in, one point per patch out: log distance times a direction."""

    def __init__(self, kind: Encoding) -> None:
        super().__init__()
        self.encoding = kind
        self.embed = nn.Linear(3 * PATCH * PATCH, DIM)
        # Relative positions alone do not say where a patch is: a token of each view gives them an origin.
        self.camera = nn.Parameter(torch.randn(DIM) * 0.02)
        self.blocks = nn.ModuleList(Block(DIM, kind) for _ in range(DEPTH))
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 4))

    def forward(self, batch: ReconstructionBatch) -> tuple[Tensor, Tensor]:
        patches = nn.functional.unfold(batch.images.flatten(0, 1), PATCH, stride=PATCH).mT
        x = torch.cat([self.camera.expand(len(patches), 1, DIM), self.embed(patches)], 1)
        x = x.unflatten(0, batch.images.shape[:2]).flatten(1, 2)
        tokens = batch.views.tokens(PATCH, special=1)
        position = self.encoding.prepare(tokens)
        for block in self.blocks:
            x = block(x, position)
        direction, distance = self.head(x[:, tokens.layout.get_patch_mask()]).split([3, 1], -1)
        return nn.functional.normalize(direction, dim=-1), distance[..., 0]


def read_truth(batch: ReconstructionBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return direction, log distance and validity at the pixel next to each patch's center: [set token]."""
    half = PATCH // 2
    points = batch.camera_points[:, :, half::PATCH, half::PATCH].flatten(1, 3)
    valid = batch.valid[:, :, half::PATCH, half::PATCH].flatten(1, 3)
    distance = points.norm(dim=-1).clamp(min=1e-3)
    return points / distance[..., None], distance.log(), valid


def compute_loss(model: PointViT, batch: ReconstructionBatch) -> Tensor:
    direction, distance = model(batch)
    true_direction, true_distance, valid = read_truth(batch)
    error = (direction - true_direction).norm(dim=-1) + 0.5 * (distance - true_distance).abs()
    return error[valid].mean()


class Run:
    """A network in training, one step at a time."""

    def __init__(self, kind: Encoding, weights: dict[str, Any] | None, lr: float) -> None:
        self.model, self.lr, self.steps = PointViT(kind), lr, 0
        if weights is not None:
            self.model.load_state_dict(weights)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr, (0.9, 0.95), weight_decay=0.05)

    def update(self, batch: ReconstructionBatch, total: int | None = None) -> None:
        """Do one step: linear warm-up, then a constant rate or, with `total`, a line to zero."""
        self.steps += 1
        rate = min(1.0, self.steps / WARMUP) * (1.0 if total is None else 1 - (self.steps - 1) / total)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * rate
        self.optimizer.zero_grad()
        compute_loss(self.model, batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


@torch.no_grad()
def score(model: PointViT, batches: list[ReconstructionBatch]) -> dict[str, float]:
    """Return the median angle between true and predicted rays in degrees, and of the relative error of distance."""
    angles, distances = [], []
    for batch in batches:
        direction, distance = model(batch)
        true_direction, true_distance, valid = read_truth(batch)
        chord = (direction - true_direction).norm(dim=-1)[valid]
        angles.append(2 * torch.asin((chord / 2).clamp(max=1.0)))
        distances.append(((distance - true_distance).exp() - 1).abs()[valid])
    return {
        "rays_deg": math.degrees(float(torch.cat(angles).median())),
        "distance_rel": float(torch.cat(distances).median()),
    }


class Study:
    """Batches, test rooms and the variants that continue from a grid: the same for all seeds."""

    def __init__(self) -> None:
        recipe = replace(tiny("rope"), data=replace(tiny("rope").data, views=(3, 3)))
        source = recipe.data.build_source(0, PATCH)
        self.batches = [source.make_batch(step) for step in range(BATCHES)]
        scorer = RoomsScorer.from_training(source, 32)
        self.tests = {setting: list(scorer.make_batches(setting)) for setting in SETTINGS}
        first = self.batches[0].views.tokens(PATCH)
        self.matched = match_scale(first)
        place = match_offset(first, self.matched, grid="grid_from_one")
        twice = match_offset(first, 2 * self.matched, grid="grid_from_one")
        print(f"matched α {self.matched:.2f}, offset {place[0]:.2f} {place[1]:.2f}", flush=True)
        build = partial(encoding, "gray", HEAD, rotate_values=False)
        alike = {"scale": self.matched, "offset": place}
        self.variants = {
            "grid": GRID,
            "α = 1": build(),
            "α matched": build(scale=self.matched),
            "α and offset matched": build(**alike),
            "α twice, offset matched": build(scale=2 * self.matched, offset=twice),
            "α and offset matched, values rotated": build(**alike, rotate_values=True),
        }

    def list_rows(self, seed: int, pretrain: int) -> Iterator[dict[str, Any]]:
        """Train a network with the grid, continue it with every variant, and score these on the way."""
        torch.manual_seed(seed)
        grid = Run(GRID, None, lr=2e-3)
        order = torch.randint(BATCHES, (pretrain + max(STEPS),)).tolist()
        for index in order[:pretrain]:
            grid.update(self.batches[index], pretrain)
        runs = {name: Run(kind, grid.model.state_dict(), lr=5e-4) for name, kind in self.variants.items()}
        for step in range(max(STEPS) + 1):
            if step in STEPS:
                for name, run in runs.items():
                    scores = {setting: score(run.model, batches) for setting, batches in self.tests.items()}
                    row = {"seed": seed, "variant": name, "steps": step, "matched": self.matched}
                    print(row, scores, flush=True)
                    yield {**row, "scores": scores}
            if step < max(STEPS):
                for run in runs.values():
                    run.update(self.batches[order[pretrain + step]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretrain", type=int, default=1500)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"pretrain": arguments.pretrain, "batches": BATCHES, **collect_provenance()}
    path = arguments.json
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    study = Study()
    for seed in sorted(set(range(arguments.seeds)) - {row["seed"] for row in rows}):
        rows += study.list_rows(seed, arguments.pretrain)
        write_json(path, {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
