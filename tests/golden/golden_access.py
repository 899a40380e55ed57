"""Every use that the golden tests make of g_ray.

A refactoring that moves something edits this file and leaves the records in data/ as they are.
"""

import contextlib
import dataclasses
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import torch

SHIPPED = ("g-ray-rooms", "nvs-rooms")
"""Names of shipped weights whose training data is in the package."""


# Names and recipes


def public_names() -> list[str]:
    import g_ray

    return sorted(g_ray.__all__)


def recipe_names() -> list[str]:
    """All methods of all families."""
    from g_ray_lab.recipes import list_names

    return list_names()


def get_recipe(name: str, changes: dict[str, Any] | None = None) -> Any:
    """The recipe of a name; `changes` replaces settings and may be nested."""
    from g_ray_lab.recipes import get_recipe

    return _replace(get_recipe(name), changes or {})


def _replace(settings: Any, changes: dict[str, Any]) -> Any:
    nested = {
        key: _replace(getattr(settings, key), value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return dataclasses.replace(settings, **nested)


def get_shipped_recipe(name: str) -> Any:
    """The recipe in the file of shipped weights: the registered one may have changed since."""
    from g_ray_lab.recipes.stored_recipe import read_recipe

    return read_recipe(shipped_file(name))


def resolve_recipe(name: str) -> dict[str, Any]:
    recipe = get_recipe(name)
    return {"class": type(recipe).__name__, "settings": recipe.to_settings()}


# Tasks: a model, data and an objective


def read_batches(recipe: Any, steps: Sequence[int], ranks: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Batches by "step S rank R", and "held out"; each as named tensors and strings."""
    task = recipe.build_task()
    batches = {
        f"step {step} rank {rank}": task.make_batch(step, rank, len(ranks))
        for step in steps
        for rank in ranks
    }
    batches["held out"] = task.data.make_held_out()
    return {name: flatten_batch(batch) for name, batch in batches.items()}


def flatten_batch(batch: Any) -> dict[str, Any]:
    """Fields of a batch by name. Views become cameras and poses."""
    found: dict[str, Any] = {"names": list(batch.names)}
    if hasattr(batch, "target_images"):  # novel-view synthesis
        found |= {"context_images": batch.context_images, "target_images": batch.target_images}
        found |= _flatten_views("contexts", batch.contexts) | _flatten_views("targets", batch.targets)
        return found
    for name in ("images", "world_points", "camera_points", "ray_depth", "z_depth", "valid"):
        found[name] = getattr(batch, name)
    found["poses"] = batch.poses.world_from_cam
    return found | _flatten_views("views", batch.views)


def _flatten_views(name: str, views: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{name} lenses": [f"{camera.NAME} {camera.width}×{camera.height}" for camera in views.cameras],
    }
    for index, camera in enumerate(views.cameras):
        found[f"{name} camera {index}"] = camera.params
    if views.poses is not None:
        found[f"{name} poses"] = views.poses.world_from_cam
    return found


# Shipped weights


def shipped_file(name: str) -> Path:
    return Path(str(files("g_ray_weights"))) / f"{name}.safetensors"


def build_shipped(name: str, changes: dict[str, Any]) -> tuple[Any, torch.nn.Module]:
    """The task of a recipe with `changes`, and its model with the shipped weights."""
    from safetensors.torch import load_file

    task = _replace(get_shipped_recipe(name), changes).build_task()
    model = task.build_model()
    model.load_state_dict(load_file(shipped_file(name)))
    return task, model.eval()


def load_reconstruction(name: str) -> torch.nn.Module:
    """The network of shipped weights, as commands load it."""
    from g_ray.models.weights import load_reconstruction

    return load_reconstruction(shipped_file(name))


@torch.no_grad()
def score_training(task: Any, model: torch.nn.Module) -> dict[str, float]:
    """The loss of the first batch with its logged terms, and the score on held-out data."""
    loss, logged = task.compute_loss(model, task.make_batch(0, 0, 1))
    terms = {name: float(value) for name, value in logged.items()}
    return {"loss": float(loss), **terms, "validation": float(task.validate(model))}


def score_card(name: str, scenes: int) -> dict[str, Any]:
    """The scores on the card of shipped weights, over fewer test scenes."""
    from g_ray_lab.recipes import shipping

    score = shipping.score_nvs if name.startswith("nvs") else shipping.score_reconstruction
    return score(get_shipped_recipe(name), shipped_file(name), scenes)


# The command line


def run_cli(words: Sequence[str], folder: Path | None = None) -> tuple[int, str, str]:
    """Run `g-ray WORDS` in this process, in `folder`: exit code, stdout, stderr."""
    from g_ray.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with (
        _surroundings(["g-ray", *words], folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _surroundings(argv: list[str], folder: Path | None) -> Iterator[None]:
    """Plain text in one column of options, this command line as sys.argv, this working folder."""
    variables = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    with (
        contextlib.chdir(folder or Path.cwd()),
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, variables),
    ):
        yield


def list_subcommands(words: Sequence[str]) -> list[str]:
    """The subcommands in the help of a command."""
    code, text, error = run_cli([*words, "--help"])
    assert code == 0, f"g-ray {' '.join(words)} --help: exit code {code}, {error}"
    return sorted(m[1] for line in text.splitlines() if (m := re.match(r"[│| ]{0,4}[•*] ([\w.-]+)", line)))


# Data


def shared_data() -> Path:
    """The folder of real data, which may be missing."""
    from g_ray.runtime.files import find_shared_data

    return find_shared_data()


def write_miniature(dataset: str, folder: Path, scenes: int, frames: int, width: int) -> None:
    """Rooms in the format of an evaluation dataset."""
    from g_ray_lab.miniatures import MINIATURES
    from g_ray_lab.miniatures.miniature_room import MiniatureSize

    MINIATURES[dataset](folder, MiniatureSize(scenes, frames, width))


# Sizes


@contextlib.contextmanager
def smallest_reconstruction() -> Iterator[None]:
    """Give the reconstruction size "tiny" a few thousand parameters, which no option can."""
    from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES

    usual = RECONSTRUCTION_SIZES["tiny"]
    small = {"dim": 8, "pairs": 1, "heads": 1, "taps": (0, 0, 0, 0), "pose_dim": 8}
    small |= {"dpt_features": 8, "dpt_channels": (4, 4, 4, 4)}
    RECONSTRUCTION_SIZES["tiny"] = partial(usual, **small)
    try:
        yield
    finally:
        RECONSTRUCTION_SIZES["tiny"] = usual
