"""Multi-view reconstruction: eight methods at four sizes, trained on pinhole views alone."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from g_ray.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from g_ray.data.reconstruction import ReconstructionSource
    from g_ray.models.reconstruction_config import ReconstructionConfig
    from g_ray.training.task import Task

METHODS = ("gray", "gray_qk", "rope", "rope_vo", "camray", "gray_camray", "none_global", "rope_normalised")
"""Rows of the ablation; what each is stands in `g_ray.models.reconstruction_config`."""

SizeName = Literal["tiny", "rooms", "small", "paper"]

STEPS_AN_EPOCH = 800
"""As in VGGT's training code, whose other constants the paper shares."""


@dataclass(frozen=True)
class ReconstructionNetwork:
    """The network by its size and by what it knows of cameras."""

    size: SizeName
    """tiny, rooms: for CPUs, without a pretrained encoder; small: ViT-S/14, the paper's ablation; paper: ViT-L/14."""
    method: str
    """What attention knows of cameras."""
    camray_scale: float = 4.0
    """Rays that are an input (camray rows only) are multiplied by this."""
    recompute: bool = False
    """Compute activations again in the backward pass: slower, but with less memory."""
    encoder: Path | None = None
    """Pretrained DINOv2 weights for the encoder: a checkpoint of the official release."""

    def build_config(self) -> "ReconstructionConfig":
        from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES

        make = RECONSTRUCTION_SIZES[self.size]
        return make(self.method, camray_scale=self.camray_scale, recompute=self.recompute)


@dataclass(frozen=True)
class ReconstructionData(ABC):
    """Where sets of views come from, and their size."""

    KIND: ClassVar[str]
    """Stands in stored recipes, so that they find back to their class (DATA in `stored`)."""

    width: int
    """Pixels of the long side."""
    height: int
    """Pixels of the tallest images."""
    batch: int
    """Sets per process and step, at most."""
    views: tuple[int, int]
    """Views of a set, drawn between these for every step."""
    aspect: tuple[float, float] = (1.0, 1.0)
    """Height over `height`, drawn between these for every step."""
    images_max: int | None = None
    """Images per process and step, at most: sets are left out to stay below."""

    @abstractmethod
    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        """The stream of sets; here the data's own errors are raised, before a model is made."""


@dataclass(frozen=True)
class RoomsViews(ReconstructionData):
    """Rooms made on the fly, with exact depth, through pinholes of varied field of view."""

    KIND = "rooms-views"

    fov_deg: tuple[float, float] = (50.0, 90.0)
    """Horizontal field of view, drawn for every view."""
    off_centre: float = 0.1
    """The principal point is up to this far from the middle, in image sizes."""
    yaw_deg: float = 18.0
    """From one view to the next the camera turns by up to this much."""
    step_m: float = 1.0
    """From one view to the next it goes up to this far along each horizontal axis."""
    solids: int = 5
    """Pieces of furniture."""
    coarse: bool = True
    """Textures for images of a few dozen pixels."""
    colour: bool = False
    """Colour augmentation."""

    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        from g_ray.data.color import ColorJitter
        from g_ray.data.rooms.reconstruction import RoomsReconstruction

        settings = {name: value for name, value in vars(self).items() if name not in ("batch", "colour")}
        color = ColorJitter() if self.colour else None
        return RoomsReconstruction(seed=seed, batch_size=self.batch, patch=patch, colour=color, **settings)


@dataclass(frozen=True)
class ReconstructionObjective:
    """λ of the camera loss, γ and α of confidences, the quantile of outliers (appendix "3D Reconstruction")."""

    camera: float = 5.0
    """Weight of the pose's L1 loss."""
    gamma: float = 1.0
    """Of confidence times error."""
    alpha: float = 0.2
    """Of the logarithm that keeps confidences from falling to nothing."""
    quantile: float = 0.98
    """Pixels with an error above it are left out."""
    normal_scales: int = 3
    """Normals between pixels 1, 2, 4, … apart."""


@dataclass(frozen=True, kw_only=True)
class ReconstructionRecipe(Recipe):
    """VGGT's trunk learns points, depths and poses of views whose rays are known."""

    model: ReconstructionNetwork
    data: ReconstructionData
    loss: ReconstructionObjective = field(default_factory=ReconstructionObjective)

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_task(self) -> "Task":
        from g_ray.losses.reconstruction import ReconstructionWeights, reconstruction_loss
        from g_ray.training.tasks.reconstruction import ReconstructionTask

        config = self.model.build_config()
        return ReconstructionTask(
            config=config,
            data=self.data.build_source(self.seed, config.patch),
            objective=reconstruction_loss,
            weights=ReconstructionWeights(**vars(self.loss)),
            encoder=self.model.encoder,
            batch_size=self.data.batch,
        )


def tiny(method: str) -> ReconstructionRecipe:
    """For a CPU: rooms at 24×24 px, four views, 2,500 steps of four sets."""
    return ReconstructionRecipe(
        model=ReconstructionNetwork("tiny", method),
        data=RoomsViews(width=24, height=24, batch=4, views=(4, 4)),
        schedule=Schedule(lr=2e-3, steps=2500, warmup=125, start=1e-6),
        optimiser=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.05, clip=1.0),
    )


def rooms() -> ReconstructionRecipe:
    """The shipped weights g-ray-rooms: rooms of 48×32 to 48×48 px, 2–8 views, two hours on two cores with torchrun.

    Pinholes alone, but of up to 110°: rays as far from the axis as most of what a fisheye sees.
    """
    return ReconstructionRecipe(
        model=ReconstructionNetwork("rooms", "gray"),
        data=RoomsViews(
            width=48,
            height=56,
            batch=8,
            views=(2, 8),
            aspect=(0.58, 0.98),  # cut down to whole patches: 32, 40 or 48 rows, alike often
            images_max=16,
            fov_deg=(40.0, 110.0),
        ),
        schedule=Schedule(lr=1.5e-3, steps=9000, warmup=450, start=1e-6),
        optimiser=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.05, clip=1.0),
    )


def stage1(method: str, size: SizeName = "paper") -> ReconstructionRecipe:
    """The appendix's first stage: 224 px, 2–24 views, 120 epochs, bf16; on rooms until other data are named."""
    epochs = 120
    return ReconstructionRecipe(
        model=ReconstructionNetwork(size, method, recompute=size == "paper"),
        data=RoomsViews(
            width=224,
            height=224,
            batch=120,
            views=(2, 24),
            aspect=(0.33, 1.0),
            images_max=240,
            coarse=False,
            colour=True,
        ),
        schedule=Schedule(
            lr=5e-5,
            steps=epochs * STEPS_AN_EPOCH,
            warmup=epochs * STEPS_AN_EPOCH // 20,
            start=1e-8,
            final=1e-8,
        ),
        optimiser=OptimizerSettings(betas=(0.9, 0.999), weight_decay=0.05, clip=1.0),
        precision="bf16",
    )


def stage2(method: str, size: SizeName = "paper") -> ReconstructionRecipe:
    """The appendix's second stage: 518 px, 60 epochs from the first stage's weights (`--init`)."""
    first = stage1(method, size)
    return replace(
        first,
        data=replace(first.data, width=518, height=518, batch=24, images_max=48),
        schedule=Schedule(lr=1e-7, steps=60 * STEPS_AN_EPOCH, final=1e-10),
    )


def ablation(method: str) -> ReconstructionRecipe:
    """The paper's ablation: ViT-S/14 and width 384, 45 epochs of the first stage."""
    first = stage1(method, "small")
    steps = 45 * STEPS_AN_EPOCH
    return replace(first, schedule=replace(first.schedule, steps=steps, warmup=steps // 20))
