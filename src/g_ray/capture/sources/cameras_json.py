"""Our own cameras.json (`g_ray.cameras.files`): cameras by name; a single one serves every photo of its size."""

from pathlib import Path

import torch

from g_ray.cameras.eucm import EUCM
from g_ray.cameras.files import NamedCamera, read_cameras, write_cameras
from g_ray.capture.sources.base import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile
from g_ray.formats.photos import Photo


class CamerasJsonSource(CalibrationSource):
    """Names are those of photos, with or without suffix; also of folders, if the file has no photo of that name."""

    NAME, TITLE, CENTER, PER_PHOTO = "cameras_json", "G-ray", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.document is not None and file.document.get("format") == "g-ray-cameras"

    @classmethod
    def open(cls, file: ParsedFile) -> "CamerasJsonSource":
        return cls(file.path, [Lens.from_camera(c.name, c.camera, c.pose) for c in read_cameras(file.path)])

    def _find_lens(self, photo: Photo) -> Lens | None:
        match = self._find_by_image(photo)
        if match is not None:
            return match
        folders = set(Path(photo.name).parent.parts)
        devices = (
            self.lenses if len(self.lenses) == 1 else [lens for lens in self.lenses if lens.label in folders]
        )
        if len(devices) != 1:
            return None
        # A pose belongs to one photo; here the lens is a device's.
        return self._check_without_pose(devices[0])

    def _check_without_pose(self, lens: Lens) -> Lens:
        if lens.pose is None:
            return lens
        raise ValueError(
            f"{self.path}: camera {lens.label!r} has a pose and serves photos of other names: "
            "name it as its photo, or remove world_from_cam"
        )

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine = {"fx": 260.0, "fy": 261.0, "cx": 320.0, "cy": 240.0}
        camera = EUCM.make(640, 480, **affine, alpha=0.6, beta=1.1, dtype=torch.float64)
        write_cameras(folder / "cameras.json", [NamedCamera("left", camera)])
        return Example(folder / "cameras.json", "left.png", camera)
