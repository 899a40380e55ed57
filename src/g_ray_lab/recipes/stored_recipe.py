"""Recipes that were stored with weights: a .safetensors file from `g-ray train` is enough to rebuild its model."""

from pathlib import Path
from typing import Any

from g_ray.models.weights import read_recipe_document
from g_ray_lab.recipes.nvs_recipes import NVSRecipe
from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
from g_ray_lab.recipes.stereo_recipes import StereoRecipe
from g_ray_lab.sources.nvs_settings import NVS_DATA, NVSData
from g_ray_lab.sources.reconstruction_settings import RECONSTRUCTION_DATA, ReconstructionData
from g_ray_lab.sources.stereo_settings import StereoData
from g_ray_lab.training.recipe import CurveRecipe, Recipe

KINDS: dict[str, type[Recipe]] = {
    kind.__name__: kind for kind in (CurveRecipe, NVSRecipe, ReconstructionRecipe, StereoRecipe)
}
AnyData = NVSData | ReconstructionData | StereoData
DATA: dict[str, type[AnyData]] = {**NVS_DATA, **RECONSTRUCTION_DATA, StereoData.KIND: StereoData}


def parse_recipe(document: dict[str, Any]) -> Recipe:
    """Build the recipe that recipe.json of a checkpoint describes."""
    from pydantic import TypeAdapter

    if document.get("kind") not in KINDS:
        raise ValueError(
            f"unknown kind of recipe {document.get('kind')!r}: this version has {', '.join(KINDS)}"
        )
    settings = dict(document["settings"])
    if "data" in settings:
        settings["data"] = parse_data(settings["data"])
    return TypeAdapter(KINDS[document["kind"]]).validate_python(settings)


def parse_data(settings: dict[str, Any]) -> AnyData:
    """Build data settings of the class that their `kind` names."""
    from pydantic import TypeAdapter

    values = dict(settings)
    kind = values.pop("kind", None)
    if kind not in DATA:
        raise ValueError(f"unknown kind of data {kind!r}: this version has {', '.join(DATA)}")
    return TypeAdapter(DATA[kind]).validate_python(values)


def read_recipe(weights: Path) -> Recipe:
    """Read the recipe from a file of weights that `g-ray train` has written."""
    document = read_recipe_document(weights)
    try:
        return parse_recipe(document)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{weights}: its recipe cannot be used ({reason}): use weights from g-ray train"
        ) from None
