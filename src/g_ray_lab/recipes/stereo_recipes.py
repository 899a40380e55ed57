"""Recipes of learned stereo: the network of `g_ray.stereo.sweep_network` on rooms through all lenses."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from g_ray_lab.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from torch import nn

    from g_ray_lab.textured import StereoViews
    from g_ray_lab.training.task import Task

LensName = Literal["narrow", "pinhole", "fisheye", "panorama"]


@dataclass(frozen=True)
class StereoData:
    """Rooms with textured solids, rendered with exact depth, through lenses of any kinds."""

    KIND: ClassVar[str] = "stereo-rooms"

    side: int = 128
    """Pixels of a square image; a multiple of 8."""
    batch: int = 4
    """References per process and step."""
    views: int = 5
    """Photographs of a room; each of them is a reference now and then."""
    sources: tuple[int, int] = (2, 3)
    """Sources of a reference, drawn between these."""
    distinct: int = 250
    """Different rooms; further steps repeat them with other references, sources, colors and errors of poses."""
    lenses: tuple[LensName, ...] = ("narrow", "pinhole", "fisheye", "panorama")
    """Kinds of lenses; narrow pinholes are parts of large photographs."""
    cache: Path | None = None
    """Keep rendered photographs in this folder (400 kB a room)."""

    def build_source(self, seed: int) -> "StereoViews":
        from g_ray_lab.textured import StereoViews

        return StereoViews(self, seed)


@dataclass(frozen=True, kw_only=True)
class StereoRecipe(Recipe):
    """A sweep with learned features finds ray distances of a reference from its sources."""

    data: StereoData = field(default_factory=StereoData)

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        settings["data"].pop("cache", None)  # where pictures are kept changes nothing about the run
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_model(self) -> "nn.Module":
        from g_ray.stereo.sweep_network import SweepNetwork

        return SweepNetwork()

    def build_task(self) -> "Task":
        from g_ray_lab.training.stereo_task import StereoTask

        return StereoTask(self.data.build_source(self.seed), self.data.batch)


def rooms() -> StereoRecipe:
    """The shipped weights g-ray-stereo: stereo along the rays of any lens, rooms of 128 px, half an hour of a core."""
    return StereoRecipe(
        schedule=Schedule(lr=2.5e-3, steps=600, warmup=30, start=1e-4),
        optimizer=OptimizerSettings(betas=(0.9, 0.99), weight_decay=1e-3, clip=2.0),
        precision="bf16",
    )
