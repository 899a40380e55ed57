"""`g-ray rays`: field of view and ray angles of cameras, as text and pictures."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from g_ray.cli.text import format_table, make_file_name


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
        from g_ray.formats.cameras_json import read_cameras
        from g_ray.runtime.out_folder import claim_out
        from g_ray.viewer.angle_maps import describe_camera, write_picture

        cameras = {view.name: view.camera for view in read_cameras(self.file)}
        if not cameras:
            raise ValueError(f"{self.file} has no cameras: add one")
        if self.name is not None and self.name not in cameras:
            raise ValueError(f"{self.file} has no camera {self.name!r}: it has {', '.join(cameras)}")
        cameras = {name: camera for name, camera in cameras.items() if self.name in (None, name)}
        claim_out(self.out, "rays")
        reports = {name: describe_camera(name, camera) for name, camera in cameras.items()}
        print(format_table([report.row for report in reports.values()]))
        for name, report in reports.items():
            if report.beyond_90_deg:
                print(
                    f"note: {name} sees beyond 90° from its axis, where θx, θy jump; see docs/conventions.md"
                )
        for name, camera in cameras.items():
            print(f"wrote {write_picture(name, camera, self.out / f'{make_file_name(name)}.png')}")
