"""RECIPES: training runs by name. Each entry is a function that returns the whole recipe; none imports torch."""

from collections.abc import Callable
from functools import partial

from g_ray.recipes import nvs, objects, re10k, scene
from g_ray.recipes.curve import CurveRecipe
from g_ray.training.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "curve": CurveRecipe,
    **{f"nvs-tiny-{method}": partial(nvs.tiny, method) for method in nvs.METHODS},
    **{f"nvs-paper-{method}": partial(nvs.paper, method) for method in nvs.METHODS},
    **{f"nvs-objects-tiny-{method}": partial(objects.tiny, method) for method in nvs.METHODS},
    **{f"nvs-objects-paper-{method}": partial(objects.paper, method) for method in nvs.METHODS},
    **{f"nvs-re10k-paper-{method}": partial(re10k.paper, method) for method in nvs.METHODS},
    **{f"nvs-paths-tiny-{method}": partial(re10k.paths_tiny, method) for method in nvs.METHODS},
    "nvs-scene": scene.scene,
}
