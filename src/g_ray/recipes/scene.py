"""Novel-view synthesis from a user's own photographs: a folder that nerfstudio or COLMAP has been at."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g_ray.recipes import nvs
from g_ray.training.recipe import Schedule

if TYPE_CHECKING:
    from g_ray.data.nvs import NVSSource


@dataclass(frozen=True)
class SceneData(nvs.NVSData):
    """Photographs of scene folders: a target anywhere, contexts near it."""

    KIND = "scene"

    folder: tuple[Path, ...] = ()
    """One or more folders with transforms.json, or with images/ and a COLMAP model in sparse/."""
    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views that are asked for."""
    near: int = 8
    """Contexts are drawn from so many views around the target."""
    hold_out: int = 8
    """Every so many views, one is kept for validation."""
    baseline: float = 0.7
    """Poses are scaled so that the first context's farthest fellow is this far away; rooms have about 0.7 m."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray.data.scenes.nvs import SceneNVS

        if not self.folder:
            raise ValueError(
                "no scene: give --data.folder DIR, with transforms.json or a COLMAP model in sparse/"
            )
        settings = {name: value for name, value in vars(self).items() if name not in ("batch", "folder")}
        return SceneNVS(self.folder, seed=seed, batch_size=self.batch, **settings)


def scene() -> nvs.NVSRecipe:
    """GTA + G-ray on your own scene (--data.folder DIR), 48×36 images, for a CPU; --init nvs-rooms starts trained."""
    tiny = nvs.tiny("gta_gray")
    return replace(
        tiny,
        data=SceneData(width=48, height=36, batch=8),
        schedule=Schedule(lr=5e-4, steps=2000, warmup=50, start=5e-6),
    )
