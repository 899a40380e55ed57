"""Recipes of novel-view synthesis: LVSM on rooms, objects, RealEstate10K, camera paths and a user's own photographs.

The methods of a family differ in nothing but how the network is given cameras.

Small recipes have few patches per view. Two settings keep what the paper's numbers mean there: the frequency scale α
gives the paper's phase per patch (`match_patch_phase`), and fields of view are those of RealEstate10K.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray.models.lvsm_config import METHODS, SIZES, LVSMConfig
from g_ray_lab.losses import NVSLossSettings
from g_ray_lab.sources.nvs_settings import (
    OBJECTS,
    NVSData,
    ObjectArcsData,
    ObjectsData,
    PathsData,
    RE10KData,
    RoomsData,
    SceneData,
)
from g_ray_lab.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from torch import nn

    from g_ray_lab.training.task import Task


PAPER_ALPHA, PAPER_PATCHES = 10.0, 32
"""Frequency scale of GTA + G-ray in the paper, and patches per side of its training images (256 px in patches of 8)."""
RE10K_FOV_DEG = (56.0, 62.0)
"""Of small rooms. Vertical fields of view of RealEstate10K have a median of 59°, and 5 % to 95 % are 49° to 62°: nearly
one field of view, and this range has its median."""


@dataclass(frozen=True, kw_only=True)
class NVSRecipe(Recipe):
    """LVSM learns to render a scene from views with known cameras."""

    model: LVSMConfig
    data: NVSData
    loss: NVSLossSettings

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        settings["data"].pop("cache", None)  # where pictures are cached changes nothing about the run
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_model(self) -> "nn.Module":
        from g_ray.models.lvsm import LVSM

        return LVSM(self.model)

    def build_task(self) -> "Task":
        from g_ray_lab.metrics.lpips import load_lpips
        from g_ray_lab.training.task import NVSTask

        self.data.check_patch(self.model.patch)
        files = () if self.loss.lpips_weights is None else (self.loss.lpips_weights,)
        return NVSTask(
            config=self.model,
            data=self.data.build_source(self.seed),
            perceptual=load_lpips(*files) if self.loss.lpips else None,
            weight=self.loss.lpips,
            batch_size=self.data.batch,
        )


def make_model(size: str, method: str) -> LVSMConfig:
    """Return the network of a size with the conditioning and encoding of a method."""
    conditioning, encoding = METHODS[method]
    return SIZES[size](encoding, conditioning)


def set_alpha(recipe: NVSRecipe, alpha: float) -> NVSRecipe:
    """Return the recipe with another frequency scale α of GTA + G-ray."""
    options = {**recipe.model.encoding_options, "scale": alpha}
    return replace(recipe, model=replace(recipe.model, encoding_options=options))


def match_patch_phase(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe with α = 10 · patches / 32 in GTA + G-ray: the paper's phase between neighboring patches.

    α is per radian. With the paper's 32 patches over 60°, α = 10 is 0.33 rad from patch to patch at the highest
    frequency; with 7 patches it would be 1.5 rad, and up to 2.8 rad in wide tests, where phases alias. Other methods
    have no α.
    """
    if recipe.model.encoding != "gta_gray":
        return recipe
    return set_alpha(recipe, PAPER_ALPHA * (recipe.data.width / recipe.model.patch) / PAPER_PATCHES)


def tiny(method: str) -> NVSRecipe:
    """Rooms at 42×42 px, for a CPU: 1,200 steps of 2 scenes, squared error alone.

    Seven patches per side are the fewest that can be tested at nearly 16:9, with 7×4 patches. Batches are small because
    what ends the plateau at the mean color of a view is the number of updates: after 24 CPU seconds GTA + G-ray renders
    held-out rooms at 19.2 dB with batches of 2, at 19.0 dB with 4, and is still on the plateau (15.7 dB) with 8.
    """
    return match_patch_phase(
        NVSRecipe(
            model=make_model("tiny", method),
            data=RoomsData(width=42, height=42, batch=2, fov_deg=RE10K_FOV_DEG),
            loss=NVSLossSettings(lpips=0.0),
            schedule=Schedule(lr=1e-3, steps=1200, warmup=50, start=1e-5),
            optimizer=OptimizerSettings(weight_decay=0.05, clip=1.0),
        )
    )


def quick(method: str) -> NVSRecipe:
    """nvs-tiny with 400 steps: a third of its time, for many variants."""
    recipe = tiny(method)
    return replace(recipe, schedule=replace(recipe.schedule, steps=400))


def paper(method: str) -> NVSRecipe:
    """The appendix "Novel View Synthesis" on rooms: 256×256, batch 4 on one GPU, fp16, 80,000 steps.

    The warm-up starts at a hundredth of the peak, as in released code; the paper does not state it. There is no
    gradient clipping: the paper mentions none for synthesis.
    """
    return NVSRecipe(
        model=make_model("paper", method),
        data=RoomsData(width=256, height=256, batch=4),
        loss=NVSLossSettings(lpips=0.5),
        schedule=Schedule(lr=4e-4, steps=80_000, warmup=2_500, start=4e-6),
        optimizer=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.5, clip=None),
        precision="fp16",
    )


def objects_tiny(method: str, root: Path = OBJECTS) -> NVSRecipe:
    """Rendered objects at 48×48 px, for a CPU: the steps, batches and loss of nvs-tiny, 64 patches per view.

    One head of 144 channels, as wide as the paper's: RayRoPE has its six frequencies per coordinate.
    """
    recipe = tiny(method)
    recipe = replace(
        recipe,
        model=replace(recipe.model, heads=1),
        data=ObjectsData(48, 48, recipe.data.batch, root, targets="mixed"),
    )
    return match_patch_phase(recipe)


def objects_paper(method: str, root: Path = OBJECTS) -> NVSRecipe:
    """The settings of nvs-paper on rendered objects.

    Training uses the targets of the original mixed protocol. The paper does not state its training targets; its
    11 dB at new viewpoints with changed FoV, next to 26 dB at the given ones, indicate that it never trained on the
    former.
    """
    return replace(paper(method), data=ObjectsData(256, 256, 4, root, targets="mixed"))


def re10k_paper(method: str) -> NVSRecipe:
    """The paper's training on RealEstate10K: square 256×256 crops without zoom; it is evaluated at 256×144."""
    return replace(paper(method), data=RE10KData(width=256, height=256, batch=4))


def paths_tiny(method: str) -> NVSRecipe:
    """The settings of nvs-tiny in rooms seen along real camera paths."""
    return use_paths(tiny(method))


def scene() -> NVSRecipe:
    """GTA + G-ray on your own scene (--data.folder DIR), 48×36 images, for a CPU; --init nvs-rooms starts trained."""
    return replace(
        tiny("gta_gray"),
        model=make_model("tiny", "gta_gray"),  # with α = 10, as the weights nvs-rooms have
        data=SceneData(width=48, height=36, batch=8),
        schedule=Schedule(lr=5e-4, steps=2000, warmup=50, start=5e-6),
    )


# Changes of recipes, of which rows of tables are made


def cache_pictures(recipe: NVSRecipe, out: Path) -> NVSRecipe:
    """Return the recipe with a cache in OUT: all rows of a seed see the same rooms, which are rendered once."""
    return replace(recipe, data=replace(recipe.data, cache=out / "pictures"))


def set_lpips(recipe: NVSRecipe, weight: float, weights: Path | None) -> NVSRecipe:
    """Return the recipe with another weight of LPIPS in the loss; 0 is the squared error alone."""
    return replace(recipe, loss=replace(recipe.loss, lpips=weight, lpips_weights=weights))


def clamp_angles(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe with ray angles limited to ±π/2."""
    options = {**recipe.model.encoding_options, "clamp_angles": True}
    return replace(recipe, model=replace(recipe.model, encoding_options=options))


def use_paths(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe on rooms along real camera paths."""
    data = recipe.data
    return replace(recipe, data=PathsData(data.width, data.height, data.batch))


def misread_paths(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe along camera paths whose poses are read with Blender's axes, which they do not have."""
    recipe = use_paths(recipe)
    return replace(recipe, data=replace(recipe.data, axes="blender"))


def train_longer(recipe: NVSRecipe, factor: int) -> NVSRecipe:
    """Return the recipe with that many times the steps."""
    return replace(recipe, schedule=replace(recipe.schedule, steps=factor * recipe.schedule.steps))


def use_objects(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe on scanned objects, with the cameras of rooms."""
    data = recipe.data
    assert isinstance(data, RoomsData)
    settings = ObjectArcsData(data.width, data.height, data.batch, fov_deg=data.fov_deg, cache=data.cache)
    return replace(recipe, data=settings)


def limit_scenes(count: int) -> Callable[[NVSRecipe], NVSRecipe]:
    """Return a change to that many different training scenes."""
    return lambda recipe: replace(recipe, data=replace(recipe.data, distinct=count))


def use_room_frame(recipe: NVSRecipe) -> NVSRecipe:
    """Return the recipe with poses in the frame of the room."""
    return replace(recipe, data=replace(recipe.data, pose_frame="room"))
