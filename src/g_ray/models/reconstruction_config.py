"""Settings of the reconstruction network: its methods (rows of the tables) and sizes by name.

Importing this module does not import torch; what needs it is imported inside of functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import pi
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g_ray.models.lvsm_config import EncodingOptions

if TYPE_CHECKING:
    from g_ray.encodings import Encoding


@dataclass(frozen=True)
class Position:
    """An encoding by name with its options; y first, so that VGGT's weights fit all of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, head_dim: int, changes: dict[str, Any]) -> "Encoding":
        """Build the encoding; `changes` replace its options."""
        from g_ray.encodings import encoding

        if self.name == "none":
            return encoding("none", head_dim)
        return encoding(self.name, head_dim, **{"y_first": True, **self.options, **changes})


GRAY = Position("gray")
GRAY_QK = Position("gray", {"rotate_values": False})
GRID_VO = Position("rope", {"coordinate": "grid_from_one"})
GRID = Position("rope", {"coordinate": "grid_from_one", "rotate_values": False})
# Phases 2π c ω with c in [−1, 1] over each side of the image; ours run from −½ to ½.
NORMALIZED = Position("rope", {"coordinate": "normalized_grid", "rotate_values": False, "scale": 4 * pi})


@dataclass(frozen=True)
class ReconstructionMethod:
    """Encodings of attention inside views and across them, and whether rays are added to the image features."""

    frame: Position
    across: Position
    camray: bool = False
    camray_gain: float = 1.0
    """Last layer of the rays' branch at the beginning, in units of torch's own initial weights."""

    def build_encodings(self, head_dim: int, changes: dict[str, Any]) -> "tuple[Encoding, Encoding]":
        """Build the encodings of attention inside views and across them."""
        return self.frame.build(head_dim, changes), self.across.build(head_dim, changes)

    def describe_ray_usage(self, head_dim: int, changes: dict[str, Any]) -> str:
        """Say where the network uses the rays of a view: "input", "attention", both, or "nothing"."""
        inputs = ["input"] if self.camray else []
        if any(_uses_ray_coordinate(part) for part in self.build_encodings(head_dim, changes)):
            inputs.append("attention")
        return " and ".join(inputs) or "nothing"


def _uses_ray_coordinate(part: "Encoding") -> bool:
    from g_ray.coordinates import RayCoordinate, get_coordinate
    from g_ray.encodings import Rotary

    return isinstance(part, Rotary) and isinstance(get_coordinate(part.coordinate), RayCoordinate)


RECONSTRUCTION_METHODS: dict[str, ReconstructionMethod] = {
    "gray": ReconstructionMethod(GRAY, GRAY),
    "gray_qk": ReconstructionMethod(GRAY_QK, GRAY_QK),
    "rope": ReconstructionMethod(GRID, GRID),
    "rope_vo": ReconstructionMethod(GRID_VO, GRID_VO),
    "camray": ReconstructionMethod(GRID, GRID, camray=True),
    "camray_faint": ReconstructionMethod(GRID, GRID, camray=True, camray_gain=0.01),
    "gray_camray": ReconstructionMethod(GRAY, GRAY, camray=True),
    "none_global": ReconstructionMethod(GRID, Position("none")),
    "rope_normalized": ReconstructionMethod(NORMALIZED, NORMALIZED),
}
"""The four rows of the paper's ablation (gray, gray_qk, rope, camray), and five that it lacks."""


def get_reconstruction_method(name: str) -> ReconstructionMethod:
    """Return a method by its name, or raise ValueError with the names that exist."""
    if name not in RECONSTRUCTION_METHODS:
        raise ValueError(f"unknown method {name!r}: choose one of {', '.join(RECONSTRUCTION_METHODS)}")
    return RECONSTRUCTION_METHODS[name]


# The network as a recipe or a file of weights describes it.


@dataclass(frozen=True)
class TrunkOptions:
    """Settings that can be chosen for every size."""

    method: str
    """How attention uses cameras: a name from RECONSTRUCTION_METHODS."""
    camray_scale: float = field(default=4.0, kw_only=True)
    """Rays that are an input (camray methods only) are multiplied by this."""
    recompute: bool = field(default=False, kw_only=True)
    """Compute activations of encoder, trunk and dense head again in the backward pass: slower, less memory."""
    encoding_options: EncodingOptions = field(default_factory=dict, kw_only=True)
    """Changes of the method's encodings: `coordinate spherical` for lenses beyond 180°, `scale 2` for α = 2."""

    def __post_init__(self) -> None:
        get_reconstruction_method(self.method)


@dataclass(frozen=True)
class ReconstructionConfig(TrunkOptions):
    """All sizes of the network."""

    encoder: str
    """"patch" (one linear map, as VGGT's "conv") or a size of DINOv2."""
    dim: int
    pairs: int
    """Pairs of layers: attention inside views, then across them."""
    heads: int
    patch: int
    """Pixels per side of a patch."""
    taps: tuple[int, int, int, int]
    """Pairs whose output the DPT heads read."""
    dpt_features: int
    dpt_channels: tuple[int, int, int, int]
    pose_dim: int
    layer_scale: float = 0.01
    camera_points: str = "inverse_log"
    world_points: str = "inverse_log"
    frames_chunk: int = 8
    long_side: int = 518
    """Pixels of the long side that commands give it: that of the end of its training, unless another one did better."""
    encoder_taps: tuple[int, ...] = ()
    """Hidden states of DINOv2 that are projected to `dim`, which may then differ from its width; without any, its
    output is taken as it is. Blocks behind the last one are left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.dim, self.pairs, self.heads, self.patch) < 1 or self.dim % self.heads:
            raise ValueError(
                f"reconstruction: {self.pairs} pairs, width {self.dim}, {self.heads} heads, patch {self.patch}: "
                "give positive numbers, and a width that the heads divide"
            )
        if not all(0 <= tap < self.pairs for tap in self.taps):
            raise ValueError(
                f"reconstruction: taps {self.taps} must name pairs between 0 and {self.pairs - 1}"
            )
        if max(self.taps) != self.pairs - 1:
            raise ValueError(
                f"reconstruction: taps {self.taps} end before the last of {self.pairs} pairs, whose weights would "
                f"never be trained: let them end with {self.pairs - 1}, or use {max(self.taps) + 1} pairs"
            )
        if self.encoder != "patch":
            self._check_encoder()
        elif self.encoder_taps:
            raise ValueError("encoder_taps are hidden states of DINOv2, but the encoder is 'patch'")

    def _check_encoder(self) -> None:
        from g_ray.models.dinov2 import DINOV2_SIZES, check_taps

        if self.encoder not in DINOV2_SIZES:
            raise ValueError(
                f"unknown encoder {self.encoder!r}: choose one of patch, {', '.join(DINOV2_SIZES)}"
            )
        size = DINOV2_SIZES[self.encoder]
        check_taps(size, self.encoder_taps)
        if self.patch != size.patch or (self.dim != size.dim and not self.encoder_taps):
            raise ValueError(
                f"{self.encoder} has width {size.dim} and patches of {size.patch} px, but the trunk "
                f"{self.dim} and {self.patch}: make them equal, or the widths differ with encoder_taps"
            )

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


RECONSTRUCTION_SIZES: dict[str, Callable[..., ReconstructionConfig]] = {
    # For images of 24 px on a CPU: 0.9 M parameters, no pretrained encoder, so no other cue of the grid.
    "tiny": partial(
        ReconstructionConfig,
        encoder="patch",
        dim=96,
        pairs=3,
        heads=3,
        patch=4,
        taps=(0, 1, 2, 2),
        dpt_features=16,
        dpt_channels=(16, 16, 32, 32),
        pose_dim=96,
        layer_scale=1.0,
        long_side=24,
    ),
    # For images of 48 px: 4.4 M parameters, what two cores can train in two hours.
    "rooms": partial(
        ReconstructionConfig,
        encoder="patch",
        dim=192,
        pairs=4,
        heads=6,
        patch=8,
        taps=(0, 1, 2, 3),
        dpt_features=32,
        dpt_channels=(32, 32, 64, 64),
        pose_dim=192,
        layer_scale=1.0,
        long_side=48,
    ),
    # On pretrained features at 168 px: what two cores can train in a night. The taps match best (docs: network).
    "dino": partial(
        ReconstructionConfig,
        encoder="vits14_noreg",
        encoder_taps=(6, 8),
        dim=256,
        pairs=6,
        heads=4,
        patch=14,
        taps=(1, 2, 4, 5),
        dpt_features=32,
        dpt_channels=(32, 32, 64, 64),
        pose_dim=256,
        layer_scale=1.0,
        long_side=168,
    ),
    # The same at 112 px, small enough to train many rows of a table.
    "dino_small": partial(
        ReconstructionConfig,
        encoder="vits14_noreg",
        encoder_taps=(6, 8),
        dim=192,
        pairs=4,
        heads=3,
        patch=14,
        taps=(0, 1, 2, 3),
        dpt_features=32,
        dpt_channels=(32, 32, 64, 64),
        pose_dim=192,
        layer_scale=1.0,
        long_side=112,
    ),
    # The paper's ablation: ViT-S/14, width 384. Pairs and the DPT head's widths are ours; the paper gives none.
    "small": partial(
        ReconstructionConfig,
        encoder="vits14",
        dim=384,
        pairs=12,
        heads=6,
        patch=14,
        taps=(2, 5, 8, 11),
        dpt_features=64,
        dpt_channels=(48, 96, 192, 384),
        pose_dim=384,
    ),
    # ViT-L/14 and 24 pairs, with VGGT's taps and DPT head.
    "paper": partial(
        ReconstructionConfig,
        encoder="vitl14",
        dim=1024,
        pairs=24,
        heads=16,
        patch=14,
        taps=(4, 11, 17, 23),
        dpt_features=256,
        dpt_channels=(256, 512, 1024, 1024),
        pose_dim=512,
    ),
}
"""Functions from a method to its config; further keyword arguments replace settings of the size."""

if TYPE_CHECKING:
    SizeName = str
else:
    SizeName = Literal[tuple(RECONSTRUCTION_SIZES)]  # the choices on the command line


WITHOUT_REGISTERS = "_noreg"
"""End of the names of encoders of DINOv2's first release."""

RANDOM_ENCODER = Path("random")
"""In the place of an encoder's file: the weights that it is built with."""


@dataclass(frozen=True)
class ReconstructionNetwork(TrunkOptions):
    """The network by the name of its size."""

    size: SizeName
    """tiny, rooms: for CPUs, without a pretrained encoder; dino, dino_small: for CPUs, on features of DINOv2 ViT-S/14;
    small: ViT-S/14, the paper's ablation; paper: ViT-L/14."""
    encoder: Path | None = None
    """Pretrained DINOv2 weights for the encoder: a file of the official release or of transformers, or the name of a
    repository on the Hugging Face hub, e.g. facebook/dinov2-small; "random" freezes an encoder that has learned
    nothing, to compare with."""
    registers: bool | None = None
    """Whether DINOv2 has registers: dinov2_vitl14_reg4 and so on have, its first release (dinov2_vitl14) has none. If
    not given: small and paper have, dino and dino_small have none."""
    freeze_encoder: bool = False
    """Keep the encoder as it is. What it makes of an image is then computed once per image with --cache."""
    trained_blocks: int = 0
    """Last blocks of a frozen encoder that are trained all the same."""

    def build_config(self) -> ReconstructionConfig:
        """Return all sizes."""
        make = RECONSTRUCTION_SIZES[self.size]
        config = make(
            self.method,
            camray_scale=self.camray_scale,
            recompute=self.recompute,
            encoding_options=self.encoding_options,
        )
        if self.registers is None:
            return config
        if config.encoder == "patch":
            raise ValueError(f"size {self.size} has no DINOv2, and no registers: leave them out")
        plain = config.encoder.removesuffix(WITHOUT_REGISTERS)
        return replace(config, encoder=plain if self.registers else plain + WITHOUT_REGISTERS)
