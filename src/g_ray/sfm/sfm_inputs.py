"""The photographs of a reconstruction with their cameras and masks, checked and identified by a hash."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.media.images import read_photo
from g_ray.media.photos import Loadable, LoadableMask, Photo

PhotoInput = Path | Loadable | Float[Tensor, "3 _ _"]
"""A file (pixels as stored), a photo that can be loaded, or red, green and blue in [0, 1]."""
MaskInput = Path | LoadableMask | Bool[Tensor, "_ _"] | None
"""True, or a pixel that is not black, means: use it."""


@dataclass(frozen=True, eq=False)
class InputView:
    """One photograph, its lens and the pixels of it that may be used."""

    name: str
    photo: PhotoInput
    camera: Camera
    mask: MaskInput = None

    def load_pixels(self) -> Float[Tensor, "3 h w"]:
        """Return red, green and blue in [0, 1]; ValueError if their size is not the camera's."""
        if isinstance(self.photo, Tensor):
            pixels = self.photo.detach().float().cpu()
        elif isinstance(self.photo, Path):
            pixels = read_photo(self.photo)
        else:
            pixels = self.photo.load()
        self._check_size("photograph", pixels)
        return pixels

    def load_mask(self) -> Bool[Tensor, "h w"] | None:
        if self.mask is None:
            return None
        if isinstance(self.mask, Tensor):
            mask = self.mask.detach().cpu()
        elif isinstance(self.mask, Path):
            mask = read_photo(self.mask).amax(0) > 0
        else:
            mask = self.mask.load()
        self._check_size("mask", mask)
        return mask

    def compute_hash(self) -> str:
        """Identify the pixels, the mask and the lens, whatever the file is called."""
        digest = hashlib.sha1()
        for part in (self.photo, self.mask):
            digest.update(_collect_bytes(part))
        digest.update(f"{self.camera.NAME} {self.camera.width} {self.camera.height}".encode())
        for tensor in self.camera._collect_tensors().values():
            digest.update(_collect_bytes(tensor))
        return digest.hexdigest()

    def _check_size(self, what: str, image: Tensor) -> None:
        height, width = image.shape[-2:]
        if (width, height) != (self.camera.width, self.camera.height):
            raise ValueError(
                f"{self.name}: {what} of {width}×{height} px, but its camera takes "
                f"{self.camera.width}×{self.camera.height}; give the calibration of this size"
            )


def collect_views(
    photos: Sequence[PhotoInput],
    cameras: Sequence[Camera],
    names: Sequence[str] | None = None,
    masks: Sequence[MaskInput] | None = None,
) -> list[InputView]:
    """Check that every photograph has one camera and a name of its own."""
    if len(cameras) != len(photos):
        raise ValueError(f"{len(photos)} photographs but {len(cameras)} cameras; give one for each")
    if masks is not None and len(masks) != len(photos):
        raise ValueError(f"{len(photos)} photographs but {len(masks)} masks; give one, or None, for each")
    names = _choose_names(photos) if names is None else list(names)
    if len(names) != len(photos):
        raise ValueError(f"{len(photos)} photographs but {len(names)} names; give one for each")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is the name of two photographs; rename one of them")
    for name, camera in zip(names, cameras, strict=True):
        if camera.batch_shape:
            raise ValueError(
                f"{name}: a batch of cameras of shape {camera.batch_shape}; give one camera for each view"
            )
    exact = _convert_to_float64(cameras)
    masks = masks if masks is not None else [None] * len(photos)
    return [InputView(*parts) for parts in zip(names, photos, exact, masks, strict=True)]


def _convert_to_float64(cameras: Sequence[Camera]) -> list[Camera]:
    """Keep shared cameras shared: they are one lens."""
    converted = {id(camera): camera.to("cpu").to(dtype=torch.float64) for camera in cameras}
    return [converted[id(camera)] for camera in cameras]


def _choose_names(photos: Sequence[PhotoInput]) -> list[str]:
    names = []
    for index, photo in enumerate(photos):
        if isinstance(photo, Tensor):
            names.append(f"view_{index:04d}")
        else:
            names.append(getattr(photo, "name", f"view_{index:04d}"))
    if len(set(names)) < len(names):
        # Folders tell files of one name apart.
        pairs = zip(photos, names, strict=True)
        names = [photo.as_posix() if isinstance(photo, Path) else name for photo, name in pairs]
    return names


def _collect_bytes(part: PhotoInput | MaskInput | Tensor) -> bytes:
    if part is None:
        return b"-"
    if isinstance(part, Tensor):
        return np.ascontiguousarray(part.detach().cpu().numpy()).tobytes()
    if isinstance(part, Photo):
        return f"{part.orientation} {part.upright} {part.time}".encode() + part.path.read_bytes()
    if not isinstance(part, Path):
        return _collect_bytes(part.load())
    try:
        return part.read_bytes()
    except OSError as error:
        raise ValueError(f"{part}: cannot be read ({error.strerror}); check its name and folder") from None
