"""`g-ray reproduce nvs-rayrope` and `nvs-plucker`: which part of a protocol decides a result, one factor at a time.

Rows are variants of a recipe, named VARIANT_METHOD. A variant on other scenes is tested on scenes of its own kind.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.recipes.nvs_recipes import (
    NVSRecipe,
    cache_pictures,
    clamp_angles,
    limit_scenes,
    misread_paths,
    quick,
    set_lpips,
    train_longer,
    use_objects,
    use_paths,
    use_room_frame,
)
from g_ray_lab.tables.synthesis_table import FovTable, find_lpips

if TYPE_CHECKING:
    from g_ray_lab.scoring.nvs_protocols import FovProtocol, NVSProtocol
    from g_ray_lab.scoring.study import Study

FACTOR_SCENES = 128
"""Test scenes of the small scale."""
PAPER_LPIPS = 0.5
DISTINCT = (64, 512)
"""Training scenes of nvs-plucker, in addition to new ones at every step."""
LONGER = 3
"""Times the steps of the other rows that `paths_long` has."""


@dataclass(frozen=True)
class Variant:
    """One change of a recipe, the methods that are trained with it, and test scenes other than those of the table."""

    methods: tuple[str, ...]
    change: Callable[[NVSRecipe], NVSRecipe] = lambda recipe: recipe
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

    def build_recipe(self, method: str) -> NVSRecipe:
        """Return the recipe that the variants change: shorter than that of other tables at small scale."""
        if self.scale == "paper":
            return super().build_recipe(method)
        return cache_pictures(quick(method), self.out)

    def build_rooms(self) -> "FovProtocol":
        return replace(super().build_rooms(), scenes=FACTOR_SCENES)

    def build_protocol(self, *, factors: bool = False) -> "NVSProtocol":
        from g_ray_lab.scoring.indexed_protocols import RE10KProtocol
        from g_ray_lab.scoring.nvs_protocols import GroupedProtocol

        protocol = super().build_protocol(factors=factors)
        if self.scale == "small":
            return protocol
        assert isinstance(protocol, RE10KProtocol)
        return GroupedProtocol({"wide": protocol, "square": replace(protocol, height=protocol.width)})

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.study import Study

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

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray_lab.figures import draw_curves, write_metrics
        from g_ray_lab.result_pictures import draw_group_differences
        from g_ray_lab.scoring.table_writer import split_groups

        wide = split_groups(result)["wide"]
        write_metrics({**wide, "references": []}, self.out, draw_curves, ["psnr"])
        draw_group_differences(result, self.out)


@dataclass(frozen=True)
class NVSRayRoPE(FactorTable):
    """RayRoPE with and without G-ray: loss, range of angles and number of frequencies, one at a time."""

    NAME: ClassVar[str] = "nvs-rayrope"
    COMPARED: ClassVar[tuple[str, str]] = ("rayrope_gray", "rayrope")

    def list_variants(self) -> Mapping[str, Variant]:
        from g_ray_lab.scoring.nvs_protocols import make_path_shapes

        both = ("rayrope", "rayrope_gray")
        if self.scale == "paper":  # heads of 144 channels and LPIPS are in the recipe
            return {
                "lpips": Variant(both),
                "mse": Variant(both, lambda recipe: set_lpips(recipe, 0.0, None)),
                "lpips_clamped": Variant(("rayrope_gray",), clamp_angles),
            }
        rooms, weights = self.build_rooms(), find_lpips(self.lpips)
        paths = make_path_shapes(rooms.width, self.patch, rooms.scenes)
        if weights is None:
            raise ValueError("nvs-rayrope trains with LPIPS: give its weights with --lpips FILE")
        return {
            "mse": Variant(both),
            "lpips": Variant(both, lambda recipe: set_lpips(recipe, PAPER_LPIPS, weights)),
            "head144": Variant(both, lambda recipe: replace(recipe, model=replace(recipe.model, heads=1))),
            "paths": Variant(both, use_paths, paths, shows_references=True),
            "paths_clamped": Variant(
                ("rayrope_gray",), lambda recipe: clamp_angles(use_paths(recipe)), paths
            ),
        }


@dataclass(frozen=True)
class NVSPlucker(FactorTable):
    """Plücker rays as fields of view differ: scenes, frame and axes of poses, real camera paths, steps, objects."""

    NAME: ClassVar[str] = "nvs-plucker"
    COMPARED: ClassVar[tuple[str, str]] = ("gta_gray", "plucker")

    def list_variants(self) -> Mapping[str, Variant]:
        from g_ray_lab.scoring.nvs_protocols import make_object_shapes, make_path_shapes, replace_frames

        both = ("plucker", "gta_gray")
        if self.scale == "paper":
            return {"re10k": Variant(both)}
        rooms, in_room = self.build_rooms(), replace_frames(self.build_protocol())
        paths, misread = (
            make_path_shapes(rooms.width, self.patch, rooms.scenes, axes) for axes in ("opencv", "blender")
        )
        return {
            **{f"scenes{count}": Variant(both, limit_scenes(count)) for count in DISTINCT},
            "all": Variant(both),
            # GTA compares poses, so that the frame of the world changes nothing in it.
            "all_room": Variant(("plucker",), use_room_frame, in_room),
            "paths": Variant(both, use_paths, paths, shows_references=True),
            "paths_misread": Variant(("plucker",), misread_paths, misread),
            "paths_long": Variant(both, lambda recipe: train_longer(use_paths(recipe), LONGER), paths),
            "objects": Variant(
                both, use_objects, make_object_shapes(rooms, self.patch), shows_references=True
            ),
        }
