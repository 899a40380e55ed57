"""Synthesis of objects: the recipes of `g_ray.recipes.nvs` on rendered objects instead of rooms."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from g_ray.recipes import nvs
from g_ray.recipes.nvs import NVSData, NVSRecipe

if TYPE_CHECKING:
    from g_ray.data.nvs import NVSSource

ROOT = Path("out/objects")


@dataclass(frozen=True)
class ObjectsData(NVSData):
    """Rendered objects on disk: two native views are given, one other view is asked for."""

    KIND = "objects"

    root: Path = ROOT
    """Folder of rendered objects, as `g-ray data objects` writes them."""
    targets: Literal["all", "fov", "novel", "novel_fov", "fov_dolly", "novel_fov_dolly", "mixed"] = "all"
    """Views that a step may ask for: every view but the two that are given, or a protocol's targets."""
    cache_mb: int = 256
    """Decoded images that each process keeps in memory."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray.data.objects.nvs import ObjectsNVS

        settings = {name: value for name, value in vars(self).items() if name != "batch"}
        return ObjectsNVS(seed=seed, batch_size=self.batch, **settings)


def tiny(method: str, root: Path = ROOT) -> NVSRecipe:
    """48×48 images of objects, for a CPU: the network, steps and loss of nvs-tiny, 64 patches per view."""
    return replace(nvs.tiny(method), data=ObjectsData(48, 48, 16, root, targets="mixed"))


def paper(method: str, root: Path = ROOT) -> NVSRecipe:
    """The appendix "Novel View Synthesis" on rendered objects: 256×256, batch 4 on one GPU, fp16, 80,000 steps.

    Training asks for the targets of the original mixed protocol. The paper does not say what it asks for; its 11 dB
    at new viewpoints with changed FoV beside 26 dB at the given ones are those of networks that never saw the former.
    """
    return replace(nvs.paper(method), data=ObjectsData(256, 256, 4, root, targets="mixed"))
