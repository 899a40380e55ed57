"""RECIPES: training runs by name. Nothing here imports torch."""

from collections.abc import Callable
from dataclasses import dataclass

from g_ray.models.lvsm_config import METHODS
from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
from g_ray_lab.recipes import nvs_recipes, reconstruction_recipes, stereo_recipes
from g_ray_lab.training.recipe import CurveRecipe, Recipe


@dataclass(frozen=True)
class Family:
    """A function that makes a recipe: one for each of its methods, or a single one where there are no methods."""

    make: Callable[..., Recipe]
    methods: tuple[str, ...] = ()
    default: str | None = None
    """The method if none is given."""

    def build(self, method: str | None = None) -> Recipe:
        """Return the whole recipe."""
        if method is None:
            method = self.default
        elif method not in self.methods:
            raise ValueError(
                f"unknown method {method!r}: choose one of {', '.join(self.methods)}"
                if self.methods
                else f"there is no choice of methods here, but {method!r} was given"
            )
        return self.make() if method is None else self.make(method)

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (self.make.__doc__ or "").split("\n")[0]


def _synthesis(make: Callable[[str], Recipe]) -> Family:
    return Family(make, tuple(METHODS), "gta_gray")


def _reconstruction(make: Callable[[str], Recipe]) -> Family:
    return Family(make, tuple(RECONSTRUCTION_METHODS), "gray")


RECIPES: dict[str, Family] = {
    "curve": Family(CurveRecipe),
    "nvs-tiny": _synthesis(nvs_recipes.tiny),
    "nvs-paper": _synthesis(nvs_recipes.paper),
    "nvs-objects-tiny": _synthesis(nvs_recipes.objects_tiny),
    "nvs-objects-paper": _synthesis(nvs_recipes.objects_paper),
    "nvs-re10k-paper": _synthesis(nvs_recipes.re10k_paper),
    "nvs-paths-tiny": _synthesis(nvs_recipes.paths_tiny),
    "nvs-scene": Family(nvs_recipes.scene),
    "recon-tiny": _reconstruction(reconstruction_recipes.tiny),
    "recon-rooms": Family(reconstruction_recipes.rooms),
    "recon-stage1": _reconstruction(reconstruction_recipes.stage1),
    "recon-stage2": _reconstruction(reconstruction_recipes.stage2),
    "recon-dino": _reconstruction(reconstruction_recipes.dino),
    "recon-dino-small": _reconstruction(reconstruction_recipes.dino_small),
    "recon-scenes-tiny": Family(reconstruction_recipes.scenes_tiny),
    "recon-scenes-rooms": Family(reconstruction_recipes.scenes_rooms),
    "recon-scenes-stage1": Family(reconstruction_recipes.scenes_stage1),
    "recon-scenes-stage2": Family(reconstruction_recipes.scenes_stage2),
    "recon-mixture-stage1": Family(reconstruction_recipes.mixture_stage1),
    "recon-mixture-stage2": Family(reconstruction_recipes.mixture_stage2),
    "stereo-rooms": Family(stereo_recipes.rooms),
}


def format_name(family: str, method: str | None) -> str:
    """Return the name of one recipe, e.g. nvs-tiny-gta_gray: its folder and its name in stored runs."""
    return family if method is None else f"{family}-{method}"


def split_name(name: str) -> tuple[str, str | None]:
    """Return the family and the method of a name, e.g. of nvs-tiny-gta_gray; a family alone has its default method.

    Raises ValueError for an unknown name.
    """
    if name in RECIPES:
        return name, RECIPES[name].default
    family, _, method = name.rpartition("-")
    if family not in RECIPES or method not in RECIPES[family].methods:
        raise ValueError(
            f"unknown recipe {name!r}: choose one of {', '.join(RECIPES)}, where it has methods followed by -METHOD"
        )
    return family, method


def get_recipe(name: str) -> Recipe:
    """Return the recipe of a family or of a family and method: get_recipe("nvs-tiny-gta_gray")."""
    family, method = split_name(name)
    return RECIPES[family].build(method)


def list_names() -> list[str]:
    """Return the names of all recipes: of all methods of all families."""
    return [
        format_name(name, method) for name, family in RECIPES.items() for method in family.methods or (None,)
    ]
