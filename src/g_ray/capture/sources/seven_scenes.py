"""A folder of RGB-D frames as 7-Scenes stores them: one matrix for all photos, a pose for each."""

from pathlib import Path

import torch
from PIL import Image

from g_ray.cameras.pinhole import Pinhole
from g_ray.capture.sources.base import CalibrationSource, Example, Lens
from g_ray.data.scenes.seven_scenes import INTRINSICS, is_seven_scenes, read_seven_scenes
from g_ray.files import write_atomically
from g_ray.formats.documents import ParsedFile


class SevenScenesSource(CalibrationSource):
    """The folder with camera-intrinsics.txt and frame-*.pose.txt; metres."""

    NAME, TITLE, CENTER, PER_PHOTO = "seven_scenes", "7-Scenes", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.path.is_dir() and is_seven_scenes(file.path)

    @classmethod
    def open(cls, file: ParsedFile) -> "SevenScenesSource":
        scene = read_seven_scenes(file.path, check=False)
        lenses = [
            Lens.from_camera(name, camera, scene.poses[index])
            for index, (name, camera) in enumerate(zip(scene.names, scene.cameras, strict=True))
        ]
        return cls(file.path, lenses)

    @classmethod
    def example(cls, folder: Path) -> Example:
        name = "frame-000000.color.png"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / name)
        write_atomically(folder / INTRINSICS, "585 0 320\n0 585 240\n0 0 1\n")
        write_atomically(folder / "frame-000000.pose.txt", "1 0 0 0.5\n0 1 0 0\n0 0 1 2\n0 0 0 1\n")
        camera = Pinhole.make(640, 480, fx=585.0, fy=585.0, cx=320.0, cy=240.0, dtype=torch.float64)
        return Example(folder, name, camera)
