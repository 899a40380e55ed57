"""`g-ray reproduce nvs-fov`, `nvs-frequency` and `nvs-zoom`: view synthesis as fields of view differ."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g_ray_lab.recipes.nvs_recipes import cache_pictures, tiny
from g_ray_lab.tables import synthesis_table
from g_ray_lab.tables.synthesis_table import PAIRS, FovTable, NVSTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.study import Study

ALPHAS = (1, 2, 4, 6, 8, 10, 15, 20, 40)


@dataclass(frozen=True)
class NVSFov(FovTable):
    """The six methods of LVSM, as fields of view differ and test images are wider than those of training."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.scoring.nvs_protocols import FovProtocol, make_shapes
        from g_ray_lab.scoring.study import Study

        recipes = {method: self.build_recipe(method) for method in METHODS}
        protocol = self.build_protocol()
        if isinstance(protocol, FovProtocol):  # RealEstate10K has the shape of its photographs
            protocol = make_shapes(protocol)
        return Study("nvs-fov", self.scale, recipes, self.build_scorer(protocol), PAIRS)


@dataclass(frozen=True)
class NVSFrequency(FovTable):
    """GTA + G-ray with frequency scales α from 1 to 40."""

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.study import Study

        base = self.build_recipe("gta_gray")
        recipes = {
            f"alpha_{alpha}": replace(
                base, model=replace(base.model, encoding_options={"scale": float(alpha)})
            )
            for alpha in ALPHAS
        }
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
        protocol = WhoZoomsProtocol(data.width, data.height, synthesis_table.TEST_ROOMS)
        return Study("nvs-zoom", self.scale, recipes, self.build_scorer(protocol), PAIRS, self.networks)
