"""Changes of recipes of view synthesis, of which rows of tables are made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from g_ray_lab.recipes.nvs_recipes import NVSRecipe
    from g_ray_lab.scoring.nvs_protocols import NVSProtocol


def cache_pictures(recipe: "NVSRecipe", out: Path) -> "NVSRecipe":
    """Return the recipe with a cache in OUT: all rows of a seed see the same rooms, which are rendered once."""
    return replace(recipe, data=replace(recipe.data, cache=out / "pictures"))


def set_lpips(recipe: "NVSRecipe", weight: float, weights: Path | None) -> "NVSRecipe":
    """Return the recipe with another weight of LPIPS in the loss; 0 is the squared error alone."""
    return replace(recipe, loss=replace(recipe.loss, lpips=weight, lpips_weights=weights))


def clamp_angles(recipe: "NVSRecipe") -> "NVSRecipe":
    """Return the recipe with ray angles limited to ±π/2."""
    options = {**recipe.model.encoding_options, "clamp_angles": True}
    return replace(recipe, model=replace(recipe.model, encoding_options=options))


def use_paths(recipe: "NVSRecipe") -> "NVSRecipe":
    """Return the recipe on rooms along real camera paths."""
    from g_ray_lab.sources.nvs_settings import PathsData

    data = recipe.data
    return replace(recipe, data=PathsData(data.width, data.height, data.batch))


def use_objects(recipe: "NVSRecipe") -> "NVSRecipe":
    """Return the recipe on scanned objects, with the cameras of rooms."""
    from g_ray_lab.sources.nvs_settings import ObjectArcsData, RoomsData

    data = recipe.data
    assert isinstance(data, RoomsData)
    return replace(recipe, data=ObjectArcsData(data.width, data.height, data.batch, cache=data.cache))


def limit_scenes(count: int) -> "Callable[[NVSRecipe], NVSRecipe]":
    """Return a change to that many different training scenes."""
    return lambda recipe: replace(recipe, data=replace(recipe.data, distinct=count))


def use_room_frame(recipe: "NVSRecipe") -> "NVSRecipe":
    """Return the recipe with poses in the frame of the room."""
    return replace(recipe, data=replace(recipe.data, pose_frame="room"))


def replace_frames(protocol: "NVSProtocol") -> "NVSProtocol":
    """Return the tests in rooms with poses in the frame of the room."""
    from g_ray_lab.scoring.nvs_protocols import FovProtocol, GroupedProtocol

    assert isinstance(protocol, GroupedProtocol)
    parts = {
        name: replace(part, pose_frame="room")
        for name, part in protocol.parts.items()
        if isinstance(part, FovProtocol)
    }
    return GroupedProtocol(parts)
