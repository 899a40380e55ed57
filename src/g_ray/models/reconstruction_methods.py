"""What the aggregator knows of cameras: rows of the reconstruction tables by name."""

from dataclasses import dataclass, field
from math import pi
from typing import Any

from g_ray.coordinates import RayCoordinate, get_coordinate
from g_ray.encodings import Encoding, Rotary, encoding


@dataclass(frozen=True)
class Position:
    """An encoding by name with its options; y first, so that VGGT's weights fit all of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, head_dim: int, changes: dict[str, Any]) -> Encoding:
        if self.name == "none":
            return encoding("none", head_dim)
        return encoding(self.name, head_dim, **{"y_first": True, **self.options, **changes})


GRAY = Position("gray")
GRAY_QK = Position("gray", {"rotate_values": False})
GRID_VO = Position("rope", {"coordinate": "grid_from_one"})
GRID = Position("rope", {"coordinate": "grid_from_one", "rotate_values": False})
# Phases 2π c ω with c in [−1, 1] over each side of the image; ours run from −½ to ½.
NORMALIZED = Position("rope", {"coordinate": "normalised_grid", "rotate_values": False, "scale": 4 * pi})


@dataclass(frozen=True)
class ReconstructionMethod:
    """Encodings of attention inside views and across them, and whether rays are added to the image features."""

    frame: Position
    across: Position
    camray: bool = False

    def build_encodings(self, head_dim: int, changes: dict[str, Any]) -> tuple[Encoding, Encoding]:
        return self.frame.build(head_dim, changes), self.across.build(head_dim, changes)

    def describe_ray_usage(self, head_dim: int, changes: dict[str, Any]) -> str:
        """Through which doors the calibration of a view reaches the network."""
        inputs = ["input"] if self.camray else []
        if any(_uses_ray_coordinate(part) for part in self.build_encodings(head_dim, changes)):
            inputs.append("attention")
        return " and ".join(inputs) or "nothing"


def _uses_ray_coordinate(part: Encoding) -> bool:
    return isinstance(part, Rotary) and isinstance(get_coordinate(part.coordinate), RayCoordinate)


RECONSTRUCTION_METHODS: dict[str, ReconstructionMethod] = {
    "gray": ReconstructionMethod(GRAY, GRAY),
    "gray_qk": ReconstructionMethod(GRAY_QK, GRAY_QK),
    "rope": ReconstructionMethod(GRID, GRID),
    "rope_vo": ReconstructionMethod(GRID_VO, GRID_VO),
    "camray": ReconstructionMethod(GRID, GRID, camray=True),
    "gray_camray": ReconstructionMethod(GRAY, GRAY, camray=True),
    "none_global": ReconstructionMethod(GRID, Position("none")),
    "rope_normalised": ReconstructionMethod(NORMALIZED, NORMALIZED),
}
"""The four rows of the paper's ablation (gray, gray_qk, rope, camray), and four that it lacks."""


def get_reconstruction_method(name: str) -> ReconstructionMethod:
    if name not in RECONSTRUCTION_METHODS:
        raise ValueError(f"unknown method {name!r}: choose one of {', '.join(RECONSTRUCTION_METHODS)}")
    return RECONSTRUCTION_METHODS[name]
