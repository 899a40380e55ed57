"""`g-ray reproduce nvs-fov`, `nvs-frequency` and `nvs-zoom`: view synthesis as fields of view differ."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g_ray_lab.recipes.nvs_recipes import PAPER_ALPHA, cache_pictures, set_alpha, tiny
from g_ray_lab.sources.nvs_settings import RoomsData
from g_ray_lab.tables import synthesis_table
from g_ray_lab.tables.synthesis_table import PAIRS, FovTable, NVSTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.study import Study

ALPHAS = (1, 2, 4, 6, 8, 10, 15, 20, 40)
FINE = 2
"""Finer patches of `nvs-frequency`, per side."""
FINE_ALPHAS = (2, 4, 10)
ALPHA_ROW = "gta_gray_alpha10"
"""The row of `nvs-fov` that keeps the paper's α although it has fewer patches."""


@dataclass(frozen=True)
class NVSFov(FovTable):
    """The six methods of LVSM, as fields of view differ and test images are wider than those of training."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.scoring.study import Study

        recipes, pairs = {method: self.build_recipe(method) for method in METHODS}, PAIRS
        if self.scale == "small":
            recipes[ALPHA_ROW] = set_alpha(recipes["gta_gray"], PAPER_ALPHA)
            pairs = (*PAIRS, (ALPHA_ROW, "gta"))
        scorer = self.build_scorer(self.build_protocol(factors=True))
        return Study("nvs-fov", self.scale, recipes, scorer, pairs)


@dataclass(frozen=True)
class NVSFrequency(FovTable):
    """GTA + G-ray with frequency scales α from 1 to 40; at small scale some of them with finer patches (`fine`) too."""

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.study import Study

        base = self.build_recipe("gta_gray")
        recipes = {f"alpha_{alpha}": set_alpha(base, float(alpha)) for alpha in ALPHAS}
        if self.scale == "small":
            fine = replace(base, model=replace(base.model, patch=base.model.patch // FINE))
            recipes |= {f"fine_alpha_{alpha}": set_alpha(fine, float(alpha)) for alpha in FINE_ALPHAS}
        return Study("nvs-frequency", self.scale, recipes, self.build_scorer(self.build_protocol()))


@dataclass(frozen=True)
class NVSZoom(NVSTable):
    """The networks of `nvs-fov` when the second context, the target, or both are zoomed by 2.5. Small scale only."""

    networks: Path | None = None
    """Folder of `nvs-fov`, whose finished networks are scored; they are trained in OUT if none is given."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.scoring.nvs_protocols import WhoZoomsProtocol
        from g_ray_lab.scoring.study import Study

        if self.scale != "small":
            raise ValueError("nvs-zoom zooms rooms: it has --scale small only")
        if self.networks is not None and not (self.networks / "runs").is_dir():
            raise ValueError(
                f"--networks {self.networks}: no runs/ in it; give the --out of a finished nvs-fov"
            )
        recipes = {method: cache_pictures(tiny(method), self.networks or self.out) for method in METHODS}
        data = recipes["gta"].data
        assert isinstance(data, RoomsData)
        protocol = WhoZoomsProtocol(data.width, data.height, synthesis_table.TEST_ROOMS, data.fov_deg)
        return Study("nvs-zoom", self.scale, recipes, self.build_scorer(protocol), PAIRS, self.networks)
