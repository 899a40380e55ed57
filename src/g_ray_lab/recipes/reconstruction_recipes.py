"""Recipes of multi-view reconstruction: on rooms seen through pinholes, and on scene folders with depth."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray.models.reconstruction_config import ReconstructionNetwork, SizeName
from g_ray_lab.losses import ReconstructionWeights
from g_ray_lab.sources.reconstruction_settings import ReconstructionData, RoomsLenses, RoomsViews, ScenesViews
from g_ray_lab.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from g_ray_lab.training.task import Task

STEPS_PER_EPOCH = 800
"""As in VGGT's training code, whose other constants the paper shares."""


@dataclass(frozen=True, kw_only=True)
class ReconstructionRecipe(Recipe):
    """VGGT's trunk learns points, depths and poses of views whose rays are known."""

    model: ReconstructionNetwork
    data: ReconstructionData
    loss: ReconstructionWeights = field(default_factory=ReconstructionWeights)

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_task(self) -> "Task":
        from g_ray_lab.training.task import ReconstructionTask

        if self.model.freeze_encoder and self.model.encoder is None and self.init is None:
            raise ValueError(
                "a frozen encoder needs weights: give --model.encoder FILE or an id such as facebook/dinov2-small, "
                "or --model.encoder random"
            )
        config = self.model.build_config()
        return ReconstructionTask(
            config=config,
            data=self.data.build_source(self.seed, config.patch),
            weights=self.loss,
            network=self.model,
            batch_size=self.data.batch,
        )


def tiny(method: str) -> ReconstructionRecipe:
    """Rooms at 24×24 px, for a CPU: four views, 2,500 steps of four sets."""
    return ReconstructionRecipe(
        model=ReconstructionNetwork(method, size="tiny"),
        data=RoomsViews(width=24, height=24, batch=4, views=(4, 4)),
        schedule=Schedule(lr=2e-3, steps=2500, warmup=125, start=1e-6),
        optimizer=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.05, clip=1.0),
    )


def rooms(method: str = "gray") -> ReconstructionRecipe:
    """The shipped weights g-ray-rooms: rooms of 48×32 to 48×48 px, 2–8 views, two hours on two cores with torchrun.

    All views are pinholes, but of up to 110°: their rays are as far from the axis as most rays of a fisheye.
    """
    return ReconstructionRecipe(
        model=ReconstructionNetwork(method, size="rooms"),
        data=RoomsViews(
            width=48,
            height=56,
            batch=8,
            views=(2, 8),
            aspect=(0.58, 0.98),  # rounded down to whole patches: 32, 40 or 48 rows, equally often
            images_max=16,
            fov_deg=(40.0, 110.0),
        ),
        schedule=Schedule(lr=1.5e-3, steps=9000, warmup=450, start=1e-6),
        optimizer=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.05, clip=1.0),
    )


def converged(method: str) -> ReconstructionRecipe:
    """recon-tiny for twice the steps: pinholes' rays are then below 1°, after 13 minutes of a core."""
    recipe = tiny(method)
    return replace(recipe, schedule=replace(recipe.schedule, steps=5000, warmup=250))


def stage1(method: str, size: SizeName = "paper") -> ReconstructionRecipe:
    """The appendix's first stage, on rooms: 224 px, 2–24 views, 120 epochs, bf16."""
    epochs = 120
    return ReconstructionRecipe(
        model=ReconstructionNetwork(method, size=size, recompute=size == "paper"),
        data=RoomsViews(
            width=224,
            height=224,
            batch=120,
            views=(2, 24),
            aspect=(0.33, 1.0),
            images_max=240,
            coarse=False,
            color=True,
        ),
        schedule=Schedule(
            lr=5e-5,
            steps=epochs * STEPS_PER_EPOCH,
            warmup=epochs * STEPS_PER_EPOCH // 20,
            start=1e-8,
            final=1e-8,
        ),
        optimizer=OptimizerSettings(betas=(0.9, 0.999), weight_decay=0.05, clip=1.0),
        precision="bf16",
    )


def stage2(method: str, size: SizeName = "paper") -> ReconstructionRecipe:
    """The appendix's second stage, on rooms: 518 px, 60 epochs from the first stage's weights (`--init`)."""
    first = stage1(method, size)
    return replace(
        first,
        data=replace(first.data, width=518, height=518, batch=24, images_max=48),
        schedule=Schedule(lr=1e-7, steps=60 * STEPS_PER_EPOCH, final=1e-10),
    )


def ablation(method: str) -> ReconstructionRecipe:
    """The paper's ablation: ViT-S/14 and width 384, 45 epochs of the first stage."""
    first = stage1(method, "small")
    steps = 45 * STEPS_PER_EPOCH
    return replace(first, schedule=replace(first.schedule, steps=steps, warmup=steps // 20))


def see_through_all_lenses(recipe: ReconstructionRecipe) -> ReconstructionRecipe:
    """Return a recipe on rooms with views through pinholes, fisheyes of up to 230° and panoramas."""
    if not isinstance(recipe.data, RoomsViews):
        raise ValueError("only procedural rooms can be seen through any lens: use a recipe on rooms")
    return replace(recipe, data=RoomsLenses(**vars(recipe.data)))


# Pretrained features: DINOv2 as it is, and a trunk that two cores can train, on scene folders at the network's size.


def dino(method: str) -> ReconstructionRecipe:
    """Scene folders of 168 px (--data.folders DIR) on frozen DINOv2 ViT-S/14 (--model.encoder FILE), 2–8 views."""
    return _build_dino(method, "dino", long_side=168, batch=4, images_max=16, steps=20_000)


def dino_small(method: str) -> ReconstructionRecipe:
    """Scene folders of 112 px (--data.folders DIR) on frozen DINOv2 ViT-S/14 (--model.encoder FILE), 2–8 views."""
    return _build_dino(method, "dino_small", long_side=112, batch=4, images_max=16, steps=6000)


def _build_dino(
    method: str, size: SizeName, *, long_side: int, batch: int, images_max: int, steps: int
) -> ReconstructionRecipe:
    return ReconstructionRecipe(
        model=ReconstructionNetwork(method, size=size, freeze_encoder=True),
        data=ScenesViews(
            width=long_side,
            height=long_side,
            batch=batch,
            views=(2, 8),
            images_max=images_max,
            # Photographs as they are: other pixels would have features of their own, which no cache has.
            zoom_max=1.0,
            off_center=0.0,
            color=False,
            stored_shape=True,
        ),
        schedule=Schedule(lr=1.5e-3, steps=steps, warmup=steps // 20, start=1e-6),
        optimizer=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.05, clip=1.0),
    )


# Data of one's own: scene folders with depth, alone or mixed with rooms.


def scenes_tiny() -> ReconstructionRecipe:
    """G-ray on your own scenes with depth (--data.folders DIR), 24×24 px, for a CPU."""
    return _replace_rooms_by_scenes(tiny("gray"))


def scenes_rooms() -> ReconstructionRecipe:
    """The shipped network on your own scenes with depth (--data.folders DIR), 48×48 px; --init g-ray-rooms helps."""
    return _replace_rooms_by_scenes(rooms())


def scenes_stage1() -> ReconstructionRecipe:
    """The appendix's first stage with G-ray on your own scenes with depth (--data.folders DIR), 224 px."""
    return _replace_rooms_by_scenes(stage1("gray"))


def scenes_stage2() -> ReconstructionRecipe:
    """The appendix's second stage with G-ray on your own scenes with depth, 518 px; --init takes the first."""
    return _replace_rooms_by_scenes(stage2("gray"))


MIXTURE = (
    "arkitscenes",
    "blendedmvs",
    "hm3d",
    "hypersim",
    "matrixcity",
    "megadepth",
    "midair",
    "matterport3d",
    "omniobject3d",
    "omniworld-game",
    "ase",
    "scannetpp",
    "taskonomy",
    "unrealstereo4k",
    "wildrgbd",
    "dynamic-replica",
    "mvs-synth",
    "tartanair",
    "virtual-kitti-2",
    "waymo",
)
"""The paper's training sets, in its order, as folders below `MIXTURE_ROOT` (docs: training data)."""
MIXTURE_ROOT = Path("data/train")


def mixture_stage1() -> ReconstructionRecipe:
    """The appendix's first stage with G-ray on the paper's mixture of 20 data sets in data/train, equally often."""
    return _mix_training_sets(scenes_stage1())


def mixture_stage2() -> ReconstructionRecipe:
    """The appendix's second stage with G-ray on the paper's mixture in data/train; --init takes the first's weights."""
    return _mix_training_sets(scenes_stage2())


def _mix_training_sets(recipe: ReconstructionRecipe) -> ReconstructionRecipe:
    """Return the recipe with the paper's sets. The paper gives no weights: here all are equally frequent."""
    folders = tuple(MIXTURE_ROOT / name for name in MIXTURE)
    return replace(recipe, data=replace(recipe.data, folders=folders, weights=(1.0,) * len(folders)))


def scenes_and_rooms(folder: Path, frames: tuple[float, float]) -> ReconstructionRecipe:
    """Rooms and a part of a scene's photographs, half of the sets each."""
    recipe = scenes_tiny()
    return replace(recipe, data=replace(recipe.data, folders=(folder,), rooms=0.5, frames=frames))


def _replace_rooms_by_scenes(recipe: ReconstructionRecipe) -> ReconstructionRecipe:
    """Return the recipe with photographs instead of rooms, in batches of the same shape."""
    return replace(recipe, data=ScenesViews(**recipe.data.get_shape()))
