"""Settings of LVSM, without torch: its sizes, and the six methods of the paper's tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Conditioning = Literal["plucker", "camray", "raymap", "none"]

EncodingOptions = dict[str, int | float | bool | str]


class Method(NamedTuple):
    """How a row of the paper's tables gives cameras to the network: as input channels, and inside attention."""

    conditioning: Conditioning
    encoding: str


METHODS: dict[str, Method] = {
    "plucker": Method("plucker", "rope"),
    "prope": Method("camray", "prope"),
    "gta": Method("camray", "gta"),
    "gta_gray": Method("camray", "gta_gray"),
    "rayrope": Method("camray", "rayrope"),
    "rayrope_gray": Method("camray", "rayrope_gray"),
}
"""Rows of the paper's tables; they differ in nothing else."""


@dataclass(frozen=True)
class LVSMConfig:
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
    encoding_options: EncodingOptions = field(default_factory=dict)
    """Options of the encoding, e.g. its frequency scale, or `along ray` for RayRoPE with lenses of 180° and more."""

    def __post_init__(self) -> None:
        if min(self.dim, self.layers, self.heads, self.ffn, self.patch) < 1 or self.dim % self.heads:
            raise ValueError(
                f"LVSM: {self.layers} layers, width {self.dim}, {self.heads} heads, FFN {self.ffn}, patch "
                f"{self.patch}: give positive numbers, and a width that the heads divide"
            )

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def tiny(encoding: str, conditioning: Conditioning, **options: float | bool | str) -> LVSMConfig:
    """Return the size for images of a few dozen pixels, on a CPU.

    Heads have 72 channels, so that RayRoPE has three frequencies per coordinate; with 48 it would have two.
    """
    return LVSMConfig(144, 4, 2, 288, 6, conditioning, encoding, options)


def paper(encoding: str, conditioning: Conditioning, **options: float | bool | str) -> LVSMConfig:
    """Return the paper's size: 47 M parameters, for 256×256 (training) and 256×144 (RealEstate10K tables)."""
    return LVSMConfig(1152, 6, 8, 1024, 8, conditioning, encoding, options)


SIZES: dict[str, Callable[..., LVSMConfig]] = {"tiny": tiny, "paper": paper}
