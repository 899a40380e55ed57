"""`g-ray train`: a recipe becomes weights."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro

from g_ray.recipes import RECIPES
from g_ray.training.recipe import Recipe
from g_ray.training.run import Run

LIBRARIES = ("g-ray", "torch", "numpy", "einops", "jaxtyping", "pillow", "safetensors", "tensorboard")

RecipeType = TypeVar("RecipeType", bound=Recipe)


@dataclass(frozen=True)
class Start(Generic[RecipeType]):
    """A recipe with its overrides, and how to run it; both without a prefix on the command line."""

    name: tyro.conf.Suppress[str]
    recipe: Annotated[RecipeType, tyro.conf.arg(name="")]
    options: Annotated[Run, tyro.conf.arg(name="")] = field(default_factory=Run)

    def run(self) -> None:
        from g_ray.training.engine import train

        outcome = train(self.name, self.recipe, self.options, collect_provenance())
        validation = "" if outcome.validation is None else f", validation {outcome.validation:.5g}"
        if is_leader():
            print(f"{outcome.steps} steps{validation}, {outcome.skipped} skipped; weights: {outcome.weights}")


def make_subcommand(name: str, make: Callable[[], Recipe]) -> Any:
    recipe = make()
    about = (getattr(make, "func", make).__doc__ or "").split("\n")[0]
    return Annotated[
        Start[type(recipe)],  # pyright: ignore[reportInvalidTypeArguments]
        tyro.conf.subcommand(name, default=Start(name, recipe), description=about),
    ]


if TYPE_CHECKING:
    AnyStart = Start[Recipe]
else:
    AnyStart = reduce(or_, [make_subcommand(name, make) for name, make in RECIPES.items()])


@dataclass(frozen=True)
class Train:
    """Train a recipe, or continue where its folder left off. RECIPE --help lists what can be overridden."""

    start: Annotated[AnyStart, tyro.conf.arg(name="")]

    def run(self) -> None:
        self.start.run()


def is_leader() -> bool:
    return os.environ.get("RANK", "0") == "0"


def collect_provenance() -> dict[str, Any]:
    """Stored beside every checkpoint."""
    from g_ray.runtime import provenance as here

    return {**here.collect_provenance(), "libraries": read_library_versions(), "command": sys.argv}


def read_library_versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
