"""`g-ray rays`: what does this camera see?"""

import re
from dataclasses import dataclass
from pathlib import Path

import tyro

from g_ray.cli.text import table


@dataclass(frozen=True)
class Rays:
    """Inspect the cameras of a file: field of view, range of ray angles, valid pixels; as text and as pictures."""

    file: tyro.conf.Positional[Path]
    """A cameras.json file."""
    name: str | None = None
    """Only the camera of this name."""
    out: Path = Path("out/rays")
    """Folder for the pictures, one PNG per camera."""

    def run(self) -> None:
        from g_ray.cameras.files import load_cameras
        from g_ray.viewer.camera_report import beyond_90_deg, describe, write_picture

        cameras = load_cameras(self.file)
        if self.name is not None:
            if self.name not in cameras:
                raise ValueError(f"{self.file} has no camera {self.name!r}: it has {', '.join(cameras)}")
            cameras = {self.name: cameras[self.name]}
        print(table([describe(name, camera) for name, camera in cameras.items()]))
        for name, camera in cameras.items():
            if beyond_90_deg(camera):
                print(
                    f"note: {name} sees beyond 90° from its axis, where θx, θy jump; see docs/conventions.md"
                )
        self.out.mkdir(parents=True, exist_ok=True)
        for name, camera in cameras.items():
            print(f"wrote {write_picture(name, camera, self.out / f'{_file_name(name)}.png')}")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
