"""Put the weights of a finished training run into the package (`g-ray weights ship`), for maintainers.

`ship_run` writes NAME.safetensors (weights in half precision, with their recipe), NAME.log.jsonl (the metrics of the
run) and the card NAME.json: digest, recipe, command, machine, and scores that are measured on the shipped file itself.
"""

import hashlib
import json
import os
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from g_ray.models.weights import CONFIG, load_reconstruction, read_weights
from g_ray.predictors.sweep_weights import load_sweep_network
from g_ray.runtime.files import atomic_path, strip_paths, write_atomically, write_json
from g_ray.stereo.sweep_network import TOLERANCE
from g_ray.synthesis.synthesizer import load_network
from g_ray_lab.recipes import get_recipe, list_names
from g_ray_lab.recipes.nvs_recipes import NVSRecipe
from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
from g_ray_lab.recipes.stereo_recipes import StereoRecipe
from g_ray_lab.recipes.stored_recipe import read_recipe
from g_ray_lab.scoring.nvs_protocols import FovProtocol
from g_ray_lab.scoring.nvs_scorer import make_predictor
from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer, RoomsScorer
from g_ray_lab.scoring.scored_runs import ScoredRun, make_rows
from g_ray_lab.sources.nvs_settings import RoomsData
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.textured import StereoViews
from g_ray_lab.training.recipe import Recipe
from g_ray_lab.training.run_files import METRICS, WEIGHTS, CheckpointStore
from g_ray_lab.training.stereo_task import measure_errors

MAX_BYTES = 60 * 10**6
"""Largest file of weights in the package, so that it stays a small download."""

FIRST_SETS = 16
"""Test rooms whose scores a card has on their own, so that a test can repeat them."""


def ship_run(
    run_folder: Path,
    name: str,
    folder: Path,
    scenes: int,
    tests: FoldersScorer | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """Write weights, log and card of a run to `folder`; return the card.

    Networks are scored on that many test rooms, or with `tests` if they were trained on scene folders. `size` is the
    long side that commands give a reconstruction network, if another than in training.
    """
    weights = run_folder / WEIGHTS
    if not weights.is_file():
        raise ValueError(f"{weights}: no such file; give the folder of a finished g-ray train")
    recipe = read_recipe(weights)
    if not isinstance(recipe, NVSRecipe | ReconstructionRecipe | StereoRecipe):
        raise ValueError(
            f"{weights} is a {type(recipe).__name__}: only synthesis, reconstruction and stereo networks are shipped"
        )
    last, _ = CheckpointStore(run_folder / "checkpoints").find_newest()
    if last is None:
        raise ValueError(f"{run_folder} has no intact checkpoint, which holds its recipe and machine")
    document, provenance = strip_paths(last.read_document("recipe")), last.read_document("provenance")
    document["name"] = find_recipe_name(recipe, document["name"])
    shipped = folder / f"{name}.safetensors"
    write_half_precision(weights, shipped, document, last.step, make_config(recipe, size))
    write_atomically(folder / f"{name}.log.jsonl", (run_folder / METRICS).read_bytes())
    card = {
        "name": name,
        "bytes": shipped.stat().st_size,
        "sha256": hashlib.sha256(shipped.read_bytes()).hexdigest(),
        "step": last.step,
        "command": format_command(
            provenance.pop("command", ["", "train", document["name"]]), provenance["processes"]
        ),
        "recipe": document,
        "validation": last.read_validation(),
        "scores": _score(recipe, shipped, scenes, tests),
        "provenance": strip_paths(provenance),
    }
    write_json(folder / f"{name}.json", card)
    return card


def _score(
    recipe: NVSRecipe | ReconstructionRecipe | StereoRecipe,
    shipped: Path,
    scenes: int,
    tests: FoldersScorer | None,
) -> dict[str, Any]:
    if isinstance(recipe, NVSRecipe):
        return score_nvs(recipe, shipped, scenes)
    if isinstance(recipe, StereoRecipe):
        return score_stereo(recipe, shipped, scenes)
    return score_reconstruction(recipe, shipped, scenes, tests)


def find_recipe_name(recipe: Recipe, default: str) -> str:
    """Return the name under which `g-ray train` has this recipe; a study names its networks after its rows."""
    settings = replace(recipe, seed=0).to_settings()
    return next((name for name in list_names() if get_recipe(name).to_settings() == settings), default)


def make_config(recipe: Recipe, size: int | None) -> dict[str, str]:
    """Return the metadata that a reconstruction network is built from; synthesis networks are built from the recipe."""
    if not isinstance(recipe, ReconstructionRecipe):
        if size is not None:
            raise ValueError("--size is for reconstruction networks: others take photographs as they are")
        return {}
    config = recipe.model.build_config()
    if size is not None and size < config.patch:
        raise ValueError(f"--size {size}: give one patch, {config.patch} px, or more")
    return {CONFIG: json.dumps(asdict(replace(config, long_side=size or config.long_side)))}


def write_half_precision(
    weights: Path, shipped: Path, document: dict[str, Any], step: int, more: dict[str, str]
) -> None:
    """Write the weights in half precision: half the bytes, 3 of 7 decimal digits; scores are measured afterwards."""
    halves = {
        name: weight.half() if weight.is_floating_point() else weight
        for name, weight in read_weights(weights).items()
    }
    size = sum(weight.numel() * weight.element_size() for weight in halves.values())
    if size > MAX_BYTES:
        raise ValueError(
            f"{weights} has {size / 1e6:.0f} MB in half precision: a package takes 60 MB at most"
        )
    with atomic_path(shipped) as scratch:
        metadata = {"format": "pt", "step": str(step), "recipe": json.dumps(document), **more}
        save_file(halves, scratch, metadata=metadata)


def score_nvs(recipe: NVSRecipe, weights: Path, scenes: int) -> dict[str, Any]:
    """Score a synthesis network per zoom on test rooms; return nothing if it was trained on other data."""
    data = recipe.data
    if not isinstance(data, RoomsData):
        return {}
    protocol = FovProtocol(data.width, data.height, scenes, fov_deg=data.fov_deg)
    predict = make_predictor(load_network(weights).model)
    summaries = {setting: protocol.score(predict, setting, None).summarize() for setting in protocol.settings}
    rows = {
        setting: {name: asdict(value) for name, value in row.items()} for setting, row in summaries.items()
    }
    return {"protocol": f"{scenes} test rooms, views zoomed by up to z", **rows}


def score_stereo(recipe: StereoRecipe, weights: Path, scenes: int) -> dict[str, Any]:
    """Score a stereo network on all pixels of test rooms by the kinds of lenses, next to one distance for all pixels.

    `reliability` has for each tenth of confidence the mean confidence, the share of its pixels that are right, and its
    share of all pixels.
    """
    network = load_sweep_network(weights)
    scores: dict[str, Any] = {
        "protocol": f"{scenes} test rooms for each kind of lens, all pixels of one view of {recipe.data.sides[0]} px "
        f"with {recipe.data.views - 1} sources, within 3 % and 10 %",
    }
    judged = []
    for kinds in (*((kind,) for kind in recipe.data.lenses), recipe.data.lenses):
        sources = (recipe.data.views - 1,) * 2
        data = replace(recipe.data, lenses=kinds, sources=sources, pictures=None)
        source = StereoViews(data, recipe.seed, "test")
        errors, baseline = [], []
        for number in range(scenes):
            set_ = source.make_set(number)
            with torch.no_grad():
                found = network([set_.images], [set_.list_sights()], set_.limits[None])
            errors.append(measure_errors(found.full[0], set_))
            middle = set_.ray_depth[set_.valid].median()
            baseline.append((middle / set_.ray_depth[set_.valid] - 1).abs())
            confidence = found.confidence_logits.sigmoid().repeat_interleave(2, 1).repeat_interleave(2, 2)[0]
            judged.append(torch.stack([confidence[set_.valid], (errors[-1] < TOLERANCE).float()]))
        name = kinds[0] if len(kinds) == 1 else "mixed"
        scores[name] = {"network": _summarize(errors), "one distance": _summarize(baseline)}
    confidence, right = torch.cat(judged, 1)
    tenth = (10 * confidence).long().clamp(0, 9)
    scores["reliability"] = [
        [
            float(confidence[tenth == i].mean()),
            float(right[tenth == i].mean()),
            float((tenth == i).float().mean()),
        ]
        for i in tenth.unique().tolist()
    ]
    return scores


def _summarize(errors: list[Tensor]) -> dict[str, float]:
    every = torch.cat(errors)
    return {
        "error": float(every.mean()),
        "within 3 %": float((every < 0.03).float().mean()),
        "within 10 %": float((every < 0.1).float().mean()),
    }


def score_reconstruction(
    recipe: ReconstructionRecipe, weights: Path, scenes: int, tests: FoldersScorer | None = None
) -> dict[str, Any]:
    """Score a reconstruction network per lens on test rooms, or with `tests` if it was trained on scene folders.

    The fields of view of rooms are those of the ablation table, whatever the training used, so that cards can be
    compared.
    """
    if not isinstance(recipe.data, RoomsViews):
        return {} if tests is None else score_on_folders(recipe, weights, tests)
    rooms = replace(recipe.data, fov_deg=RoomsViews.fov_deg).build_source(
        0, recipe.model.build_config().patch
    )
    assert isinstance(rooms, RoomsReconstruction)
    scorer = RoomsScorer.from_training(rooms, scenes)
    network = load_reconstruction(weights)
    scores = scorer.score_settings(network)
    table = make_rows([ScoredRun.from_scores("", recipe.seed, scores)])
    test = scorer.rooms.settings
    low, high = test.fov_deg
    return {
        "protocol": f"{scenes} test rooms, {test.views[1]} views of {test.width}×{test.width} px, "
        f"pinholes of {low:.0f}°–{high:.0f}°; trained on pinholes alone",
        **{row["setting"]: row["metrics"] for row in table},
        "first": {
            "sets": min(scenes, FIRST_SETS),
            **{
                setting: {name: statistics.fmean(values[:FIRST_SETS]) for name, values in metrics.items()}
                for setting, metrics in scores.items()
            },
        },
    }


def score_on_folders(recipe: ReconstructionRecipe, weights: Path, tests: FoldersScorer) -> dict[str, Any]:
    """Score a network on test folders and photographs, next to `standing`, which is calibration alone."""
    network = load_reconstruction(weights)
    scores = tests.score_settings(network)
    rows = make_rows([ScoredRun.from_scores("", recipe.seed, scores)])
    references = make_rows(tests.score_references())
    return {
        "protocol": f"{tests.sets} sets of {tests.views} views of {tests.side} px from test folders, "
        "depth along the ray",
        **{row["setting"]: row["metrics"] for row in rows},
        "standing": {
            row["setting"]: {name: value["mean"] for name, value in row["metrics"].items()}
            for row in references
        },
    }


def format_command(words: list[str], processes: int = 1) -> str:
    """Format a recorded command line as a user would type it, without the folders of this machine."""
    begin = ["g-ray"] if processes == 1 else ["torchrun", "--nproc-per-node", str(processes), "-m", "g_ray"]
    parts = [*begin, *(os.path.basename(word) if os.path.isabs(word) else word for word in words[1:])]
    while "--out" in parts:
        place = parts.index("--out")
        del parts[place : place + 2]
    return " ".join(parts)
