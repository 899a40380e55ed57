"""Recipes of learned stereo: the network of `g_ray.stereo.sweep_network` on rooms through all lenses."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from g_ray_lab.sources.stereo_settings import StereoData
from g_ray_lab.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from torch import nn

    from g_ray_lab.training.task import Task


@dataclass(frozen=True, kw_only=True)
class StereoRecipe(Recipe):
    """A sweep with learned features finds ray distances of a reference from its sources."""

    data: StereoData = field(default_factory=StereoData)

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        settings["data"].pop("cache", None)  # where photographs are kept changes nothing about the run
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_model(self) -> "nn.Module":
        from g_ray.stereo.sweep_network import SweepNetwork

        return SweepNetwork()

    def build_task(self) -> "Task":
        from g_ray_lab.textured import StereoViews
        from g_ray_lab.training.stereo_task import StereoTask

        return StereoTask(StereoViews(self.data, self.seed), self.data.batch)


def rooms() -> StereoRecipe:
    """The shipped weights g-ray-stereo: stereo along the rays of any lens, rooms of 128 px, an hour of a core."""
    return StereoRecipe(
        data=StereoData(views=6, sources=(2, 5), distinct=900),
        schedule=Schedule(lr=2.5e-3, steps=2200, warmup=60, start=1e-4),
        optimizer=OptimizerSettings(betas=(0.9, 0.99), weight_decay=1e-3, clip=2.0),
        precision="bf16",
    )
