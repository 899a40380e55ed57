"""`g-ray rays`: what does this camera see?"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rays:
    """Inspect the cameras of a file: field of view, range of ray angles, valid pixels; as text and as a picture."""

    file: Path
    """A cameras.json file."""
    name: str | None = None
    """Only the camera of this name."""
    out: Path = Path("out/rays")
    """Folder for the pictures, one PNG per camera."""

    def run(self) -> None:
        raise ValueError("not yet")
