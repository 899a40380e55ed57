"""A trained network, with what its recipe says about the views that it is used to."""

from dataclasses import dataclass
from pathlib import Path

import torch

from g_ray.models.lvsm import LVSM, LVSMConfig
from g_ray.models.shipped import resolve_weights
from g_ray.recipes.nvs import NVSData, NVSRecipe
from g_ray.recipes.re10k import RE10KData
from g_ray.recipes.scene import SceneData
from g_ray.recipes.stored import read_recipe
from g_ray.training.checkpoint import load_weights


@dataclass(frozen=True, eq=False)
class Network:
    """LVSM with its weights."""

    model: LVSM
    encoding: str
    """Camera inside attention."""
    size: tuple[int, int]
    """Width and height that it was trained at."""
    baseline: float | None
    """How far apart the contexts of its training stand, in its unit; None: it takes poses in metres, as they are."""

    @property
    def patch(self) -> int:
        return self.model.config.patch

    @property
    def tokens(self) -> int:
        """Patches of a view in training."""
        return self.size[0] * self.size[1] // self.patch**2

    @property
    def device(self) -> torch.device:
        return self.model.pixels.weight.device


def load_network(weights: str | Path, device: str | torch.device = "cpu") -> Network:
    """From a file that `g-ray train` has written, or by the name of weights that come with the package."""
    path = resolve_weights(Path(weights))
    if not path.is_file():
        raise OSError(f"{path}: no such file; give weights from g-ray train (model.safetensors)")
    recipe = read_recipe(path)
    if not isinstance(recipe, NVSRecipe):
        raise ValueError(
            f"{path} is a {type(recipe).__name__}: give weights of a novel-view synthesis recipe"
        )
    model = LVSM(LVSMConfig(**vars(recipe.model)))
    load_weights(model, path)
    size = (recipe.data.width, recipe.data.height)
    return Network(model.eval().to(device), recipe.model.encoding, size, get_trained_baseline(recipe.data))


def get_trained_baseline(data: NVSData) -> float | None:
    """Real captures have no unit of their own and are scaled by their contexts; rooms and objects are in metres."""
    if isinstance(data, SceneData):
        return data.baseline
    return 1.0 if isinstance(data, RE10KData) else None
