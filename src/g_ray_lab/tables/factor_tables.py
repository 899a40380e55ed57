"""`g-ray reproduce nvs-rayrope` and `nvs-plucker`: which part of a protocol decides a result, one factor at a time.

Rows are variants of a recipe, named VARIANT_METHOD. A variant on other scenes is tested on scenes of its own kind.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.tables.synthesis_tables import FovTable, cache_pictures

if TYPE_CHECKING:
    from g_ray_lab.recipes.nvs_recipes import NVSRecipe
    from g_ray_lab.scoring.nvs_scorer import NVSProtocol
    from g_ray_lab.scoring.study_runs import Study

FACTOR_SCENES = 128
"""Test scenes of the small scale."""
PAPER_LPIPS = 0.5
DISTINCT = (64, 512)
"""Training scenes of nvs-plucker, besides new ones at every step."""


@dataclass(frozen=True)
class Variant:
    """One change of a recipe, the methods that are trained with it, and test scenes other than those of the table."""

    methods: tuple[str, ...]
    change: "Callable[[NVSRecipe], NVSRecipe]" = lambda recipe: recipe
    protocol: "NVSProtocol | None" = None
    shows_references: bool = False
    """Whether to score predictions without a network on its test scenes too, because they look otherwise."""


@dataclass(frozen=True)
class FactorTable(FovTable):
    """Variants of recipes, each scored at the shape of the paper's tests (`wide`) and at that of training."""

    NAME: ClassVar[str]
    COMPARED: ClassVar[tuple[str, str]]
    """Methods whose difference is computed within each variant: (with ray angles, without)."""

    @abstractmethod
    def list_variants(self) -> Mapping[str, Variant]:
        """Return the variants by name."""

    def build_recipe(self, method: str) -> "NVSRecipe":
        """Return the recipe that the variants change: shorter than that of other tables at small scale."""
        from g_ray_lab.recipes import nvs_recipes

        if self.scale == "paper":
            return super().build_recipe(method)
        return cache_pictures(nvs_recipes.quick(method), self.out)

    def build_protocol(self) -> "NVSProtocol":
        from g_ray_lab.scoring.grouped_protocol import GroupedProtocol, make_shapes
        from g_ray_lab.scoring.re10k_protocol import RE10KProtocol
        from g_ray_lab.scoring.rendered_protocols import FovProtocol

        protocol = super().build_protocol()
        if isinstance(protocol, FovProtocol):
            return make_shapes(replace(protocol, scenes=FACTOR_SCENES), factors=False)
        assert isinstance(protocol, RE10KProtocol)
        return GroupedProtocol({"wide": protocol, "square": replace(protocol, height=protocol.width)})

    def build_paths_protocol(self) -> "NVSProtocol":
        """Return the tests along real camera paths, at the two shapes; the lens is cropped to each of them."""
        from g_ray_lab.scoring.grouped_protocol import GroupedProtocol
        from g_ray_lab.scoring.rendered_protocols import PathsProtocol
        from g_ray_lab.sources.nvs_settings import PathsData

        side = self.build_recipe(self.COMPARED[1]).data.width
        PathsData(side, side).find_file()  # fails now if there is none, not after the training of other rows
        square = PathsProtocol(side, side, FACTOR_SCENES)
        return GroupedProtocol({"wide": replace(square, height=side // 2), "square": square})

    def build_objects_protocol(self) -> "NVSProtocol":
        """Return the tests on scanned objects, at the two shapes."""
        from g_ray_lab.scoring.grouped_protocol import make_shapes
        from g_ray_lab.scoring.rendered_protocols import ObjectFovProtocol
        from g_ray_lab.sources.nvs_settings import ObjectArcsData

        side = self.build_recipe(self.COMPARED[1]).data.width
        ObjectArcsData(side, side).find_meshes()  # fails now if there are none
        return make_shapes(ObjectFovProtocol(side, side, FACTOR_SCENES), factors=False)

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.study_runs import Study

        variants = self.list_variants()
        recipes, scorers, references = {}, {}, {}
        for name, variant in variants.items():
            own = None if variant.protocol is None else self.build_scorer(variant.protocol)
            for method in variant.methods:
                recipes[f"{name}_{method}"] = variant.change(self.build_recipe(method))
                if own is not None:
                    scorers[f"{name}_{method}"] = own
            if own is not None and variant.shows_references:
                references[name] = own
        return Study(
            self.NAME,
            self.scale,
            recipes,
            self.build_scorer(self.build_protocol()),
            tuple(self._list_pairs(variants)),
            row_scorers=scorers,
            reference_scorers=references,
            show_changes=True,
        )

    def _list_pairs(self, variants: Mapping[str, Variant]) -> list[tuple[str, str]]:
        """Return the two compared rows of each variant; one that trains the first alone is compared with the second
        of the variant that its name extends."""
        first, second = self.COMPARED
        pairs = []
        for name, variant in variants.items():
            host = name if second in variant.methods else name.rpartition("_")[0]
            if first in variant.methods and host in variants:
                pairs.append((f"{name}_{first}", f"{host}_{second}"))
        return pairs

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures.table_figures import draw_curves
        from g_ray_lab.scoring.study import split_groups
        from g_ray_lab.tables.trained_table import draw_group_differences

        wide = split_groups(result)["wide"]
        write_png(draw_curves({**wide, "references": []}, "psnr", LIGHT), self.out / "psnr.png")
        draw_group_differences(result, self.out)


@dataclass(frozen=True)
class NVSRayRoPE(FactorTable):
    """RayRoPE with and without G-ray: loss, range of angles and number of frequencies, one at a time."""

    NAME: ClassVar[str] = "nvs-rayrope"
    COMPARED: ClassVar[tuple[str, str]] = ("rayrope_gray", "rayrope")

    def list_variants(self) -> Mapping[str, Variant]:
        both = ("rayrope", "rayrope_gray")
        if self.scale == "paper":  # heads of 144 channels and LPIPS are in the recipe
            return {
                "lpips": Variant(both),
                "mse": Variant(both, lambda recipe: set_lpips(recipe, 0.0, None)),
                "lpips_clamped": Variant(("rayrope_gray",), clamp_angles),
            }
        paths, weights = self.build_paths_protocol(), self._find_weights()
        return {
            "mse": Variant(both),
            "lpips": Variant(both, lambda recipe: set_lpips(recipe, PAPER_LPIPS, weights)),
            "head144": Variant(both, lambda recipe: replace(recipe, model=replace(recipe.model, heads=1))),
            "paths": Variant(both, use_paths, paths, shows_references=True),
            "paths_clamped": Variant(
                ("rayrope_gray",), lambda recipe: clamp_angles(use_paths(recipe)), paths
            ),
        }

    def _find_weights(self) -> Path:
        from g_ray_lab.tables.synthesis_tables import find_lpips

        weights = find_lpips(self.lpips)
        if weights is None:
            raise ValueError("nvs-rayrope trains with LPIPS: give its weights with --lpips FILE")
        return weights


@dataclass(frozen=True)
class NVSPlucker(FactorTable):
    """Plücker rays as fields of view differ: number of scenes, frame of the poses, real camera paths, objects."""

    NAME: ClassVar[str] = "nvs-plucker"
    COMPARED: ClassVar[tuple[str, str]] = ("gta_gray", "plucker")

    def list_variants(self) -> Mapping[str, Variant]:
        both = ("plucker", "gta_gray")
        if self.scale == "paper":
            return {"re10k": Variant(both)}
        in_room = replace_frames(self.build_protocol())
        return {
            **{f"scenes{count}": Variant(both, limit_scenes(count)) for count in DISTINCT},
            "all": Variant(both),
            # GTA compares poses, so that the frame of the world changes nothing in it.
            "all_room": Variant(("plucker",), use_room_frame, in_room),
            "paths": Variant(both, use_paths, self.build_paths_protocol(), shows_references=True),
            "objects": Variant(both, use_objects, self.build_objects_protocol(), shows_references=True),
        }


# Changes of a recipe.


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
    from g_ray_lab.scoring.grouped_protocol import GroupedProtocol
    from g_ray_lab.scoring.rendered_protocols import FovProtocol

    assert isinstance(protocol, GroupedProtocol)
    parts = {
        name: replace(part, pose_frame="room")
        for name, part in protocol.parts.items()
        if isinstance(part, FovProtocol)
    }
    return GroupedProtocol(parts)
