"""One mask on disk: which pixels of a photograph may be used."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from g_ray.media.images import TURNED, open_photo, read_header, rotate_upright
from g_ray.media.photos import Photo, has_same_aspect


@dataclass(frozen=True)
class MaskFile:
    """A mask on disk for a photograph of `width` × `height` px, which is turned by `orientation` and then resized."""

    path: Path
    width: int
    height: int
    orientation: int = 1

    @staticmethod
    def fit(path: Path, photo: Photo) -> "MaskFile":
        """Decide how the mask is turned, and check that its shape is the photograph's."""
        header = read_header(path)
        size = (photo.width, photo.height)
        turns = (
            [header.orientation]
            if header.orientation != 1
            else [photo.orientation if photo.upright else 1, 1]
        )
        for turn in turns:
            shape = (header.height, header.width) if turn in TURNED else (header.width, header.height)
            if has_same_aspect(shape, size):
                return MaskFile(path, *size, turn)
        raise ValueError(
            f"{path} is {header.width}×{header.height} px, {photo.name} {photo.width}×{photo.height}: "
            "not of one shape; make the mask for the photograph as it is"
        )

    def load(self) -> Bool[Tensor, "h w"]:
        """Read which pixels may be used; an error names a file that cannot be read or that leaves no pixel."""
        with open_photo(self.path) as image:
            # Colors of palettes and of gray with alpha; alpha itself is no mask.
            values = np.asarray(image.convert("RGB") if image.mode in ("P", "LA", "RGBA", "PA") else image)
        used = torch.from_numpy(np.atleast_3d(values != 0).any(-1))
        used = rotate_upright(used[None], self.orientation)
        size = (self.height, self.width)
        if tuple(used.shape[1:]) != size:
            used = (
                torch.nn.functional.interpolate(used[None].float(), size=size, mode="nearest-exact")[0] > 0.5
            )
        if not bool(used.any()):
            raise ValueError(
                f"{self.path}: this mask hides the whole photograph; leave the photograph out instead"
            )
        return used[0].contiguous()
