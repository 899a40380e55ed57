"""How models are run, and which setting belongs to which model.

This module does not import torch, so that the command line can show the options at once.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

WEIGHTS = "g-ray-photos"
"""Weights that come with g-ray and are used by default: DINOv2 features, textured scenes, all lenses."""
ROOMS_WEIGHTS = "g-ray-rooms"
"""Weights that come with g-ray for procedural rooms; they know nothing of photographs."""

OVERLAP = 3
"""Views that neighboring chunks of a network share: enough for a robust scale."""
MIN_CHUNK = OVERLAP + 1
"""Smallest chunk that adds a view to those that it shares."""

ModelName = Literal[
    "stereo",
    "network",
    "vggt",
    "vggt-omega",
    "pi3",
    "pi3x",
    "mapanything",
    "da3",
    "da3-nested",
    "worldmirror",
    "omnivggt",
    "any3r",
    "wid3r",
    "moge",
    "unik3d",
]
"""The names of `MODELS`."""
Precision = Literal["fp32", "bf16", "int8"]
"""Arithmetic of encoder and trunk; heads always compute in float32."""
PlaceBy = Literal["matches", "network"]
StereoMethod = Literal["learned", "classical"]
DEFAULT_MODEL: ModelName = "stereo"


@dataclass(frozen=True)
class ModelSettings:
    """Settings of all models; each uses those that concern it."""

    size: int | None = None
    """Long side, in pixels, at which depth is estimated; by default 480, more for lenses beyond 180° (stereo), or as
    in the model's training."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""
    max_memory: float | None = None
    """GiB that the whole process may take."""
    weights: str | None = None
    """network, vggt, …: a file, a Hugging Face id owner/name, or the name of weights that come with g-ray. Without
    --model they say which model it is."""
    lenses: Literal["given", "predicted"] = "given"
    """vggt, …: use the given calibration, or see images alone and keep the lenses that the model finds."""
    fit: Literal["crop", "pad"] = "crop"
    """vggt: crop photographs that are taller than wide to a square, or pad all to squares."""
    precision: Precision = "fp32"
    """network, vggt, …: arithmetic of encoder and trunk. int8: network and vggt on CPUs."""
    at_once: int | None = None
    """network, vggt, …: views in a chunk, instead of as many as the memory allows."""
    near: float | None = None
    """stereo: smallest distance that is searched, in the unit of the known poses or of the rig; by default, as the
    triangulated points lie."""
    far: float | None = None
    """stereo: largest distance that is searched."""
    refine: bool = False
    """stereo, vggt, …: adjust the poses with the true lenses, kept if tracks that were held out improve."""
    place_by: PlaceBy | None = None
    """network: place photographs by their matches (default, but not of `g-ray evaluate`), by the network's poses where
    these fail, and correct its depth by the matched points; or take poses and depth from the network alone."""
    stereo: StereoMethod | None = None
    """stereo: learned searches depth with a small network along the rays of any lens, refines it by comparing patches
    and lets other photographs confirm it; classical (default) compares patches at all distances."""
    fill: Literal["network"] | None = None
    """stereo: fill pixels without depth by a network's, scaled to the stereo depth and marked in all outputs."""
    unplaced: Literal["network"] | None = None
    """stereo: give photographs that matching cannot place a network's poses, aligned to the others and marked."""

    def __post_init__(self) -> None:
        if self.at_once is not None and self.at_once < MIN_CHUNK:
            raise ValueError(f"--at-once {self.at_once}: chunks need {MIN_CHUNK} views or more to be joined")
        if self.max_memory is not None and not 0 < self.max_memory < math.inf:
            raise ValueError(f"--max-memory {self.max_memory} GiB: give a number above 0")
        if self.at_once is not None and self.max_memory is not None:
            raise ValueError("--at-once and --max-memory both fix the views in a chunk: give one of them")
        for name in ("near", "far"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} {value}: give a distance above 0")
        if self.near is not None and self.far is not None and self.near >= self.far:
            raise ValueError(f"--near {self.near} is not below --far {self.far}")
        if self.size is not None and self.size < 1:
            raise ValueError(f"--size {self.size}: give a number of pixels")

    @property
    def adds_network(self) -> bool:
        """Whether a network completes what stereo leaves open."""
        return self.fill is not None or self.unplaced is not None

    def adapt_to(self, model: str) -> "ModelSettings":
        """Return the settings with the defaults of a model; ValueError for one that the model would ignore."""
        if model == "stereo" and not self.adds_network:
            if self.weights is not None:
                raise ValueError("--model stereo has no weights: leave out --weights, or add --fill network")
            if self.at_once is not None or self.precision != "fp32":
                raise ValueError("--model stereo is no network: leave out --at-once and --precision")
        if model != "stereo" and (self.near is not None or self.far is not None):
            raise ValueError(f"--near and --far are for --model stereo: leave them out with --model {model}")
        if model != "stereo" and self.adds_network:
            raise ValueError(
                f"--fill and --unplaced add a network to stereo: leave them out with --model {model}"
            )
        if self.stereo == "learned" and self.fill is not None:
            raise ValueError(
                "--stereo learned fills pixels itself: leave out --fill, or use --stereo classical"
            )
        if model != "stereo" and self.stereo is not None:
            raise ValueError(f"--stereo is for --model stereo: leave it out with --model {model}")
        if model != "network" and self.place_by is not None:
            raise ValueError(f"--place-by is for --model network: leave it out with --model {model}")
        if model == "network" and self.refine:
            raise ValueError("--refine is for other models: leave it out, --model network has --place-by")
        if model in ("stereo", "network") and self.lenses == "predicted":
            raise ValueError(f"--model {model} finds no lenses: leave out --lenses predicted")
        if model not in ("stereo", "network", "vggt") and self.precision == "int8":
            raise ValueError(f"--model {model} runs in its own code, which has no int8: use fp32 or bf16")
        if model == "network":
            return replace(self, weights=self.weights or WEIGHTS, place_by=self.place_by or "matches")
        return self
