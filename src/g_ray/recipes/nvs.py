"""Novel-view synthesis: six methods that differ in nothing but what the network knows of cameras, at two sizes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from g_ray.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from g_ray.data.nvs import NVSSource
    from g_ray.training.task import Task

Conditioning = Literal["plucker", "camray", "raymap", "none"]

METHODS: dict[str, tuple[Conditioning, str]] = {
    "plucker": ("plucker", "rope"),
    "prope": ("camray", "prope"),
    "gta": ("camray", "gta"),
    "gta_gray": ("camray", "gta_gray"),
    "rayrope": ("camray", "rayrope"),
    "rayrope_gray": ("camray", "rayrope_gray"),
}
"""Rows of the paper's tables: (conditioning, encoding)."""


@dataclass(frozen=True)
class NVSModel:
    """LVSM, decoder only."""

    dim: int
    """Width."""
    layers: int
    """Transformer layers."""
    heads: int
    """Attention heads; they divide the width."""
    ffn: int
    """Width inside the feed-forward network."""
    patch: int
    """Pixels per side of a patch."""
    conditioning: Conditioning
    """Camera as input channels."""
    encoding: str
    """Camera inside attention; a name from ENCODINGS."""
    encoding_options: dict[str, float] = field(default_factory=dict)
    """Options of the encoding, e.g. its frequency scale."""


@dataclass(frozen=True)
class NVSData(ABC):
    """Where scenes come from, and how large their images are."""

    KIND: ClassVar[str]
    """Stands in stored recipes, so that they find back to their class (DATA in `stored`)."""

    width: int
    """Pixels."""
    height: int
    """Pixels."""
    batch: int
    """Scenes per process and step."""

    @abstractmethod
    def build_source(self, seed: int) -> "NVSSource":
        """The stream of scenes; here the data's own errors are raised, before a model is made."""

    def check_patch(self, patch: int) -> None:
        if self.width % patch or self.height % patch:
            raise ValueError(
                f"images of {self.width}×{self.height} px cannot be cut into patches of {patch} px: "
                "change --data.width, --data.height or --model.patch"
            )


@dataclass(frozen=True)
class RoomsData(NVSData):
    """Rooms made on the fly: contexts and targets of one scene per sample."""

    KIND = "rooms"

    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views that are asked for."""
    fov_deg: tuple[float, float] = (60.0, 80.0)
    """Horizontal field of view of a scene's cameras, drawn between these."""
    zoom_max: float = 1.0
    """Views but the first context are zoomed by z ~ U[1, zoom_max]."""
    arc_deg: tuple[float, float] = (10.0, 35.0)
    """Angle around the room between the first and the last context, drawn between these."""
    solids: int = 5
    """Pieces of furniture."""
    antialias: int = 1
    """Rays per pixel and axis."""
    cache: Path | None = None
    """Keep rendered pictures in this folder: further runs over the same rooms read them (12 kB a scene)."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray.data.rooms.nvs import RoomsNVS

        settings = {name: value for name, value in vars(self).items() if name != "batch"}
        return RoomsNVS(seed=seed, batch_size=self.batch, **settings)


@dataclass(frozen=True)
class NVSLoss:
    """MSE + lpips · LPIPS."""

    lpips: float = 0.5
    """Weight of AlexNet LPIPS; 0 trains with the squared error alone and needs no AlexNet weights."""
    lpips_weights: Path | None = None
    """File with AlexNet and LPIPS weights; None looks in the cache."""


@dataclass(frozen=True, kw_only=True)
class NVSRecipe(Recipe):
    """LVSM learns to render a scene from views with known cameras."""

    model: NVSModel
    data: NVSData
    loss: NVSLoss

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        settings["data"].pop("cache", None)  # where pictures are kept changes nothing about the run
        return {**settings, "data": {"kind": self.data.KIND, **settings["data"]}}

    def build_task(self) -> "Task":
        from g_ray.losses.nvs import nvs_loss
        from g_ray.metrics.lpips import load_lpips
        from g_ray.models.lvsm import LVSMConfig
        from g_ray.training.tasks.nvs import NVSTask

        self.data.check_patch(self.model.patch)
        files = () if self.loss.lpips_weights is None else (self.loss.lpips_weights,)
        return NVSTask(
            config=LVSMConfig(**vars(self.model)),
            data=self.data.build_source(self.seed),
            objective=nvs_loss,
            perceptual=load_lpips(*files) if self.loss.lpips else None,
            weight=self.loss.lpips,
            batch_size=self.data.batch,
        )


def tiny(method: str) -> NVSRecipe:
    """36×36 images, for a CPU: 1,200 steps of 16 scenes, squared error alone."""
    conditioning, encoding = METHODS[method]
    return NVSRecipe(
        model=NVSModel(144, 4, 2, 288, 6, conditioning, encoding),
        data=RoomsData(width=36, height=36, batch=16),
        loss=NVSLoss(lpips=0.0),
        schedule=Schedule(lr=1e-3, steps=1200, warmup=50, start=1e-5),
        optimiser=OptimizerSettings(weight_decay=0.05, clip=1.0),
    )


def paper(method: str) -> NVSRecipe:
    """The appendix "Novel View Synthesis": 256×256, batch 4 on one GPU, fp16, 80,000 steps.

    The warm-up starts at a hundredth of the peak, as released code does; the paper gives no start. No gradient
    clipping: the paper names none for synthesis.
    """
    conditioning, encoding = METHODS[method]
    return NVSRecipe(
        model=NVSModel(1152, 6, 8, 1024, 8, conditioning, encoding),
        data=RoomsData(width=256, height=256, batch=4),
        loss=NVSLoss(lpips=0.5),
        schedule=Schedule(lr=4e-4, steps=80_000, warmup=2_500, start=4e-6),
        optimiser=OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.5, clip=None),
        precision="fp16",
    )
