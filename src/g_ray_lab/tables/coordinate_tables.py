"""`g-ray reproduce coordinates` and `frequency-recon`: what the paper fixes for reconstruction, measured.

The paper has the pair of angles `tangent` and the frequency scale α = 1; these tables train alternatives alike.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.ablation_tables import build_rooms
from g_ray_lab.tables.trained_table import TrainedTable

if TYPE_CHECKING:
    from g_ray.models.lvsm_config import EncodingOptions
    from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
    from g_ray_lab.scoring.study import Study

STEPS = 500  # small scale: minutes per network on one core
TEST_SETS = 32

COORDINATE_ROWS: "dict[str, tuple[str, EncodingOptions]]" = {
    "tangent": ("gray", {"coordinate": "tangent"}),
    "equidistant": ("gray", {"coordinate": "equidistant"}),
    "spherical": ("gray", {"coordinate": "spherical"}),
    "camray_tangent": ("gray_camray", {"coordinate": "tangent"}),
    "camray": ("camray", {}),
    "camray_equidistant": ("gray_camray", {"coordinate": "equidistant"}),
    "tangent_unit": ("gray", {"coordinate": "tangent", "base": 1.0}),
    "equidistant_unit": ("gray", {"coordinate": "equidistant", "base": 1.0}),
}
"""Method and changes of its encodings. `camray` adds rays to the image features and has grid indices in attention.

At α = 1 all frequencies of `spherical` are rounded to 1, because its azimuth is periodic. The `_unit` rows have that
bank (β = 1), so that coordinates can be compared apart from it.
"""
COORDINATE_PAIRS = (
    ("equidistant", "tangent"),
    ("spherical", "tangent"),
    ("equidistant", "spherical"),
    ("camray_tangent", "tangent"),
    ("camray_tangent", "camray"),
    ("camray_equidistant", "equidistant"),
    ("camray_equidistant", "camray_tangent"),
    ("tangent_unit", "tangent"),
    ("spherical", "tangent_unit"),
    ("equidistant_unit", "tangent_unit"),
    ("spherical", "equidistant_unit"),
)


@dataclass(frozen=True)
class CoordinatesTable(TrainedTable):
    """Ray coordinates, with and without rays as input, as fields of view grow from 60° to 360°."""

    def build_study(self) -> "Study":
        from g_ray_lab.recipes.reconstruction_recipes import see_through_all_lenses
        from g_ray_lab.scoring.reconstruction_scorer import LensScorer
        from g_ray_lab.scoring.study import Study

        recipes = {
            row: see_through_all_lenses(make_row(self.scale, method, options))
            for row, (method, options) in COORDINATE_ROWS.items()
        }
        scorer = LensScorer.from_training(build_rooms(recipes["tangent"]), TEST_SETS)
        return Study("coordinates", self.scale, recipes, scorer, COORDINATE_PAIRS)

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray_lab.figures import draw_curves, write_metrics

        write_metrics(select_single_lenses(result), self.out, draw_curves, axis="test lens")


def select_single_lenses(result: dict[str, Any]) -> dict[str, Any]:
    """Return rows and references of tests with one lens, which have an order, under labels of several short lines."""
    from g_ray_lab.scoring.reconstruction_scorer import LENS_TESTS

    single = {name for name, lenses in LENS_TESTS.items() if len(lenses) == 1}
    return {
        part: [
            {**row, "setting": row["setting"].replace("_", "\n")}
            for row in result[part]
            if row["setting"] in single
        ]
        for part in ("rows", "references")
    }


ALPHAS = (0.25, 0.5, 1, 2, 4, 8)
PAPER_ALPHA = "alpha_1"


@dataclass(frozen=True)
class FrequencyRecon(TrainedTable):
    """G-ray in the reconstruction network with frequency scales α from 0.25 to 8; the paper has 1."""

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer
        from g_ray_lab.scoring.study import Study

        recipes = {
            f"alpha_{alpha:g}": make_row(self.scale, "gray", {"scale": float(alpha)}) for alpha in ALPHAS
        }
        pairs = tuple((row, PAPER_ALPHA) for row in recipes if row != PAPER_ALPHA)
        scorer = RoomsScorer.from_training(build_rooms(recipes[PAPER_ALPHA]), TEST_SETS)
        return Study("frequency-recon", self.scale, recipes, scorer, pairs)


def make_row(scale: str, method: str, options: "EncodingOptions") -> "ReconstructionRecipe":
    """Return the recipe of a method whose encodings have other options."""
    from g_ray_lab.recipes import reconstruction_recipes as reconstruction

    recipe = {"small": reconstruction.tiny, "paper": reconstruction.ablation}[scale](method)
    if scale == "small":
        schedule = replace(recipe.schedule, steps=STEPS, warmup=STEPS // 20)
        recipe = replace(recipe, schedule=schedule)
    return replace(recipe, model=replace(recipe.model, encoding_options=options))
