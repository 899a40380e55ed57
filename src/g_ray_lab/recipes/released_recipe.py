"""Convert a released LVSM to a file as `g-ray train` writes it: weights with the recipe that rebuilds their network."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from g_ray.models.foreign_weights import read_released_config, rename_from_released
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import LVSMConfig
from g_ray.models.weights import LoadReport, check_config, load_matching
from g_ray.runtime.files import atomic_path
from g_ray_lab.recipes.nvs_recipes import NVSRecipe, paper
from g_ray_lab.sources.nvs_settings import NVSData, ObjectsData, RE10KData

GRID = 32
"""Patches per side of an image in released training: 256 px of 8."""


def convert_released_lvsm(
    state: Mapping[str, Tensor],
    out: Path,
    *,
    method: str | None,
    depth: str = "depth",
    trained_on: str = "re10k",
    dtype: torch.dtype | None = None,
) -> LoadReport:
    """Write a released LVSM as ours; every tensor must have a place, and every place a tensor."""
    renamed = rename_from_released(state)
    config = read_released_config(renamed, method, depth)
    check_config(config, renamed)
    with torch.device("meta"):
        model = LVSM(config)
    model = model.to_empty(device="cpu")
    report = load_matching(model, renamed)
    if report.missing or report.unused:
        raise ValueError(f"not the LVSM of RayRoPE; {'; '.join(report.format_lines()[1:])}")
    weights = {name: value.to(dtype).contiguous() for name, value in model.state_dict().items()}
    recipe = build_released_recipe(config, trained_on)
    document = {"name": "released", "kind": type(recipe).__name__, "settings": recipe.to_settings()}
    with atomic_path(out) as scratch:
        save_file(weights, scratch, metadata={"format": "pt", "recipe": json.dumps(document)})
    return report


def build_released_recipe(config: LVSMConfig, trained_on: str) -> NVSRecipe:
    """Return the paper's recipe with this network, on the data it was trained on.

    Released loaders read RealEstate10K, whose poses have OpenCV's axes, as if they had Blender's: a network trained
    with them needs its test cameras read in the same way.
    """
    side = GRID * config.patch
    data: dict[str, NVSData] = {
        "re10k": RE10KData(side, side, axes="blender", check=0),
        "objects": ObjectsData(side, side, targets="mixed"),
    }
    return replace(paper("rayrope"), model=config, data=data[trained_on])
