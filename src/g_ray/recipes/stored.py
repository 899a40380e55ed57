"""From weights back to the recipe that made them: one .safetensors file is enough to rebuild its model."""

import json
from pathlib import Path
from typing import Any

from g_ray.recipes.curve import CurveRecipe
from g_ray.recipes.nvs import NVSData, NVSRecipe, RoomsData
from g_ray.recipes.objects import ObjectsData
from g_ray.recipes.re10k import PathsData, RE10KData
from g_ray.recipes.reconstruction import ReconstructionData, ReconstructionRecipe, RoomsViews
from g_ray.recipes.reconstruction_scenes import ScenesViews
from g_ray.recipes.scene import SceneData
from g_ray.training.recipe import Recipe

KINDS: dict[str, type[Recipe]] = {
    kind.__name__: kind for kind in (CurveRecipe, NVSRecipe, ReconstructionRecipe)
}
DATA: dict[str, type[NVSData] | type[ReconstructionData]] = {
    kind.KIND: kind
    for kind in (RoomsData, ObjectsData, RE10KData, PathsData, SceneData, RoomsViews, ScenesViews)
}


def parse_recipe(document: dict[str, Any]) -> Recipe:
    """A recipe from what recipe.json of a checkpoint holds."""
    from pydantic import TypeAdapter

    if document.get("kind") not in KINDS:
        raise ValueError(
            f"unknown kind of recipe {document.get('kind')!r}: this version has {', '.join(KINDS)}"
        )
    settings = dict(document["settings"])
    if "data" in settings:
        settings["data"] = parse_data(settings["data"])
    return TypeAdapter(KINDS[document["kind"]]).validate_python(settings)


def parse_data(settings: dict[str, Any]) -> NVSData | ReconstructionData:
    """Data settings as their own class."""
    from pydantic import TypeAdapter

    values = dict(settings)
    kind = values.pop("kind", None)
    if kind not in DATA:
        raise ValueError(f"unknown kind of data {kind!r}: this version has {', '.join(DATA)}")
    return TypeAdapter(DATA[kind]).validate_python(values)


def read_recipe(weights: Path) -> Recipe:
    """The recipe inside a file of weights that `g-ray train` has written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{weights} is not a safetensors file: {error}") from None
    if "recipe" not in metadata:
        raise ValueError(
            f"{weights} does not say which recipe it was trained with: use weights from g-ray train"
        )
    return parse_recipe(json.loads(metadata["recipe"]))
