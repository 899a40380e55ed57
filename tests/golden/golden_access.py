"""Every use that the golden tests make of g_ray.

A refactoring that moves or renames something edits this file and leaves the records in data/ as they are. Renames that
users notice (options, settings, recipes) are listed below, old name → new name; the records keep the old names.
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

RENAMED_OPTIONS: dict[str, str] = {
    **{f"--optimiser.{name}": f"--optimizer.{name}" for name in ("betas", "clip", "eps", "weight-decay")},
    "--data.colour": "--data.color",
    "--data.off-centre": "--data.off-center",
}
"""`--old` → `--new`, for every command. The old spelling must still be accepted."""

RENAMED_SETTINGS: dict[str, str] = {
    "optimiser": "optimizer",
    "colour": "color",
    "off_centre": "off_center",
    "rope_normalised": "rope_normalized",
}
"""Keys of resolved recipes, and values that are names."""

RENAMED_RECIPES: dict[str, str] = {
    f"{family}-rope_normalised": f"{family}-rope_normalized"
    for family in ("recon-tiny", "recon-stage1", "recon-stage2")
}
"""Recipes by family and method. The old spelling must still be accepted."""

RENAMED_CLASSES: dict[str, str] = {}
"""Classes of recipes."""

SHIPPED = {"g-ray-rooms": "recon-rooms", "nvs-rooms": "nvs-tiny-gta_gray"}
"""Names of the shipped weights, and the recipe that trained each."""


# Names and recipes


def drop_added_settings(settings: Any) -> Any:
    """Return settings without those that came later and change nothing."""
    from g_ray.runtime import renamed

    return renamed.drop_added_settings(settings)


def public_names() -> list[str]:
    import g_ray

    return sorted(g_ray.__all__)


def recipe_names() -> list[str]:
    """All methods of all families."""
    from g_ray_lab.recipes import list_names

    return list_names()


def accepts_recipe(name: str) -> bool:
    """Whether `g-ray train NAME` knows a recipe, also one that its help does not list."""
    from g_ray_lab.cli.train_command import expand_recipe_name
    from g_ray_lab.recipes import RECIPES

    return expand_recipe_name(["train", name])[1] in RECIPES


def get_recipe(name: str, changes: dict[str, Any] | None = None) -> Any:
    """The recipe of a name; `changes` replaces settings and may be nested."""
    from g_ray_lab.recipes import get_recipe

    return _replace(get_recipe(name), changes or {})


def _replace(settings: Any, changes: dict[str, Any]) -> Any:
    changes = {RENAMED_SETTINGS.get(key, key): value for key, value in changes.items()}
    nested = {
        key: _replace(getattr(settings, key), value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return dataclasses.replace(settings, **nested)


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
    return Path(str(files("g_ray"))) / "weights" / f"{name}.safetensors"


def build_shipped(name: str, changes: dict[str, Any]) -> tuple[Any, torch.nn.Module]:
    """The task of a recipe with `changes`, and its model with the shipped weights."""
    from safetensors.torch import load_file

    task = get_recipe(SHIPPED[name], changes).build_task()
    model = task.build_model()
    model.load_state_dict(load_file(shipped_file(name)))
    return task, model.eval()


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
    return score(get_recipe(SHIPPED[name]), shipped_file(name), scenes)


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


def read_help(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options and subcommands in the help of a command, both sorted."""
    code, text, error = run_cli([*words, "--help"])
    assert code == 0, f"g-ray {' '.join(words)} --help: exit code {code}, {error}"
    # Names are indented by at most four characters; text that mentions an option is indented more.
    lines = text.splitlines()
    options = {m[1] for line in lines if (m := re.match(r"[│| ]{0,4}(?:-\w, )?(--[a-z][\w.-]*)", line))}
    subcommands = {m[1] for line in lines if (m := re.match(r"[│| ]{0,4}[•*] ([\w.-]+)", line))}
    return sorted(options), sorted(subcommands)


def accepts_option(words: Sequence[str], option: str) -> bool:
    """Whether a command knows an option, also one that its help does not show.

    An option that exists nowhere is added, so that nothing is run.
    """
    code, _, error = run_cli([*words, option, "1", "--no-such-option", "1"])
    unknown = error.split("Unrecognized options", 1)[-1]
    return code == 2 and re.search(rf"{re.escape(option)}(?![\w.-])", unknown) is None


# Sizes


@contextlib.contextmanager
def smallest_reconstruction() -> Iterator[None]:
    """Give the reconstruction size "tiny" a few thousand parameters, which no option can."""
    from g_ray.models import RECONSTRUCTION_SIZES

    usual = RECONSTRUCTION_SIZES["tiny"]
    small = {"dim": 8, "pairs": 1, "heads": 1, "taps": (0, 0, 0, 0), "pose_dim": 8}
    small |= {"dpt_features": 8, "dpt_channels": (4, 4, 4, 4)}
    RECONSTRUCTION_SIZES["tiny"] = partial(usual, **small)
    try:
        yield
    finally:
        RECONSTRUCTION_SIZES["tiny"] = usual
