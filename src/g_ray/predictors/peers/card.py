"""What a peer takes and gives, and where it comes from. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

Lenses = Literal["pinhole", "forward", "any"]
"""Images that a peer understands: of pinholes; of any lens whose rays all point forward (z > 0); of any lens.

Photographs that a peer does not understand reach it as virtual pinholes.
"""

Calibration = Literal["no", "yes", "with poses"]
"""Whether a peer takes calibration, and whether it uses it without poses."""

Poses = Literal["no", "all", "first", "two"]
"""Whether a peer takes poses: of all views, of some with the first among them, or of two views or more."""


@dataclass(frozen=True)
class PeerCard:
    """One line of `PEERS`."""

    title: str
    adapter: str
    """module:class below `g_ray.predictors.peers`."""
    package: str | None
    """What must be importable; None for what g-ray implements itself."""
    install: str
    """The command that brings the package."""
    weights: str
    """Hugging Face id or file that is loaded without --weights."""
    license: str
    """Of the weights."""
    lenses: Lenses = "pinhole"
    calibration: Calibration = "no"
    poses: Poses = "no"
    many: bool = True
    """Whether it compares views; otherwise it estimates depth of single photographs."""
    metric: bool = False
    """Whether its depth is in meters."""
    poses_alone: bool = False
    """Whether it takes poses without calibration."""
    takes: str | None = None
    """What it takes of a calibration, where that is less than all of it."""

    def describe_inputs(self) -> str:
        """Say in a few words what it takes beside photographs."""
        if self.calibration == "no":
            taken = []
        elif self.calibration == "with poses":
            taken = ["calibration together with poses"]
        else:
            rays = {"pinhole": "intrinsics", "forward": "rays with z > 0", "any": "rays of any lens"}
            taken = [self.takes or rays[self.lenses]]
        if self.poses != "no" and self.calibration != "with poses":
            taken.append("poses")
        return ", ".join(taken) or "nothing"
