"""`g-ray weights lpips` and `g-ray weights ship`: download the weights of a metric, ship those of a finished run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer


@dataclass(frozen=True)
class Lpips:
    """Download the LPIPS weights (AlexNet, v0.1) into the cache, once; training and tables use them from there."""

    def run(self) -> None:
        from g_ray_lab.metrics.lpips import fetch_weights

        fetch_weights()


@dataclass(frozen=True)
class Ship:
    """Put the weights of a finished run into the package, with log and model card. For maintainers."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of a finished g-ray train."""
    name: tyro.conf.Positional[str]
    """Name of the weights."""
    folder: Path | None = None
    """Folder for the files; the package's own if not given."""
    scenes: int = 256
    """Test rooms, or sets of views from --tests, to score them on."""
    tests: Path | None = None
    """Networks trained on scene folders: folder with NAME-test-pinhole, -zoom, -mixed, -fisheye to score them on."""
    photos: Path | None = None
    """In addition to --tests: a scene folder with depth, whose last 40 % of frames are scored too."""
    size: int | None = None
    """Long side in pixels that `g-ray reconstruct` gives a reconstruction network, if another than in training."""

    def run(self) -> None:
        import json

        from g_ray.models.weights import find_weights_folder
        from g_ray_lab.recipes.shipping import ship_run

        folder = self.folder or find_weights_folder()
        card = ship_run(self.run_folder, self.name, folder, self.scenes, self._build_tests(), self.size)
        path = folder / f"{self.name}.safetensors"
        print(f"{path}: {card['bytes'] / 1e6:.1f} MB, {json.dumps(card['scores'])}")

    def _build_tests(self) -> "FoldersScorer | None":
        from g_ray_lab.recipes.stored_recipe import read_recipe
        from g_ray_lab.tables.scene_tables import build_folders_scorer
        from g_ray_lab.training.run_files import WEIGHTS

        if self.tests is None:
            return None
        recipe = read_recipe(self.run_folder / WEIGHTS)
        return build_folders_scorer(recipe, self.tests, self.photos, self.scenes)
