"""`g-ray train`: train the network of a recipe."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import or_
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import tyro

from g_ray_lab.recipes import RECIPES, Family, format_name, split_name
from g_ray_lab.sources.reconstruction_settings import FolderSettings
from g_ray_lab.training.recipe import Recipe, Run

LIBRARIES = ("g-ray", "torch", "numpy", "einops", "jaxtyping", "pillow", "safetensors", "tensorboard")

RecipeType = TypeVar("RecipeType", bound=Recipe)
MethodType = TypeVar("MethodType")
AnyStart = TypeVar("AnyStart")


@dataclass(frozen=True)
class Start(Generic[RecipeType]):
    """A recipe with its overrides, and how to run it; both without a prefix on the command line."""

    name: tyro.conf.Suppress[str]
    recipe: Annotated[RecipeType, tyro.conf.arg(name="")]
    options: Annotated[Run, tyro.conf.arg(name="")] = field(default_factory=Run)

    def run(self) -> None:
        from g_ray_lab.training.engine import train

        outcome = train(self.name, self.recipe, self.options, collect_provenance())
        validation = "" if outcome.validation is None else f", validation {outcome.validation:.5g}"
        if is_leader():
            print(f"{outcome.steps} steps{validation}, {outcome.skipped} skipped; weights: {outcome.weights}")


@dataclass(frozen=True)
class MethodStart(Start[RecipeType], Generic[RecipeType, MethodType]):
    """A recipe of a family; its name and settings already belong to the method, see `make_subcommand`."""

    method: MethodType = field(kw_only=True)
    """How the network is given cameras: a row of the paper's tables."""


@dataclass(frozen=True)
class Train(Generic[AnyStart]):
    """Train a recipe, or resume its run. `g-ray train RECIPE --help` lists the settings and the methods."""

    CONFIG: ClassVar[tuple[Any, ...]] = ()
    """Options keep their prefixes: --schedule.steps."""

    start: Annotated[AnyStart, tyro.conf.arg(name="")]

    @staticmethod
    def prepare(words: Sequence[str]) -> tuple[Any, Sequence[str], tyro.constructors.ConstructorRegistry]:
        """Return the type to parse, with the defaults of the chosen method, and the words with names expanded."""
        words = expand_recipe_name(words)
        return make_train(words), words, make_registry()

    def run(self) -> None:
        self.start.run()  # pyright: ignore[reportAttributeAccessIssue]


def make_registry() -> tyro.constructors.ConstructorRegistry:
    """Return how settings of folders are written on the command line."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def parse_folder_settings(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        if info.type is not FolderSettings:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="SETTING=VALUE,…",
            instance_from_str=lambda words: FolderSettings.parse(words[0]),
            is_instance=lambda value: isinstance(value, FolderSettings),
            str_from_instance=lambda value: [value.format()],
        )

    return registry


def make_train(arguments: Sequence[str] = ()) -> Any:
    """Return the type of the command, with the defaults of the method that `arguments` choose.

    The method has to be known before parsing: it determines the defaults of other options, e.g. of --model.encoding.
    """
    chosen = find_method(arguments)
    starts = [make_subcommand(name, family, chosen) for name, family in RECIPES.items()]
    return Train[reduce(or_, starts)]


def make_subcommand(name: str, family: Family, chosen: str | None) -> Any:
    """Return the type of one recipe's subcommand; `chosen` is ignored if it is not a method of this family."""
    method = chosen if chosen in family.methods else family.default
    recipe = family.build(method)
    full_name = format_name(name, method)
    if method is None:
        kind, default = Start[type(recipe)], Start(full_name, recipe)  # pyright: ignore[reportInvalidTypeArguments]
    else:
        choices = Literal[family.methods]  # pyright: ignore[reportInvalidTypeForm]
        kind = MethodStart[type(recipe), choices]  # pyright: ignore[reportInvalidTypeArguments]
        default = MethodStart(full_name, recipe, method=method)
    return Annotated[kind, tyro.conf.subcommand(name, default=default, description=family.description)]


def find_method(arguments: Sequence[str]) -> str | None:
    """Return the value of --method on a command line, the last one if there are several."""
    method = None
    for index, word in enumerate(arguments):
        if word.startswith("--method="):
            method = word.removeprefix("--method=")
        elif index and arguments[index - 1] == "--method":
            method = word
    return method


def expand_recipe_name(words: Sequence[str]) -> list[str]:
    """Replace `nvs-tiny-gta_gray` by `nvs-tiny --method gta_gray`."""
    words = list(words)
    if words and words[0] not in RECIPES:
        try:
            family, method = split_name(words[0])
        except ValueError:
            return words  # an option, or an unknown name: tyro lists those that exist
        if find_method(words) not in (None, method):
            raise ValueError(
                f"{words[0]} and --method {find_method(words)} contradict each other: "
                f"use g-ray train {family} --method METHOD"
            )
        words[:1] = [family, "--method", str(method)]
    return words


def is_leader() -> bool:
    """Return whether this process prints results: the first one of torchrun, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def collect_provenance() -> dict[str, Any]:
    """Return what is stored with every checkpoint: machine, commit, versions and command line."""
    from g_ray.runtime import provenance

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {**provenance.collect_provenance(), "libraries": versions, "command": sys.argv}
