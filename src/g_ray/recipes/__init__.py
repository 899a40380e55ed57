"""RECIPES: training runs by name. Each entry is a function that returns the whole recipe; none imports torch."""

from collections.abc import Callable
from functools import partial

from g_ray.recipes import nvs, objects, re10k, reconstruction, reconstruction_scenes, scene
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
    **{f"recon-tiny-{method}": partial(reconstruction.tiny, method) for method in reconstruction.METHODS},
    "recon-rooms": reconstruction.rooms,
    **{f"recon-stage1-{method}": partial(reconstruction.stage1, method) for method in reconstruction.METHODS},
    **{f"recon-stage2-{method}": partial(reconstruction.stage2, method) for method in reconstruction.METHODS},
    "recon-scenes-tiny": reconstruction_scenes.tiny,
    "recon-scenes-rooms": reconstruction_scenes.rooms,
    "recon-scenes-stage1": reconstruction_scenes.stage1,
}
