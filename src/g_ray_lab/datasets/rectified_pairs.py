"""Rectified stereo pairs with true disparity, in two layouts.

OpenCV's copy of Middlebury: datasets.xml with scales; NAME/im2.png (left), im6.png (right), disp2.png, disp6.png.
Archives: NAME_left.png, NAME_right.png, NAME_disp.npz (disparity of the left image in pixels; not finite: unknown).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.media.images import FORMATS

INDEX = "datasets.xml"


@dataclass(frozen=True)
class DisparityFile:
    """Disparities of an image: an array, or a gray image that holds them times a scale."""

    path: Path
    scale: float = 1.0

    def read(self) -> Float[Tensor, "h w"]:
        """Return pixels by which the other image is displaced; 0 is unknown. OSError for a file that is none."""
        try:
            if self.path.suffix == ".npz":
                with np.load(self.path, allow_pickle=False) as file:
                    stored = np.nan_to_num(file[file.files[0]], posinf=0.0).astype(np.float32)
            else:
                stored = np.asarray(Image.open(self.path, formats=FORMATS).convert("L"), dtype=np.float32)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, EOFError, IndexError) as error:
            raise OSError(f"{self.path}: no disparities can be read ({error})") from None
        return torch.from_numpy(stored / np.float32(self.scale))


@dataclass(frozen=True)
class PairFiles:
    """The files of a pair."""

    name: str
    left: Path
    right: Path
    disparity: DisparityFile
    """Of the left image."""
    right_disparity: DisparityFile | None = None


def find_pairs(folder: Path) -> list[PairFiles]:
    """List the pairs of a folder, none if it has neither layout."""
    return list(_find_scaled(folder) if (folder / INDEX).is_file() else _find_archives(folder))


def _find_scaled(folder: Path) -> Iterator[PairFiles]:
    words = (ElementTree.parse(folder / INDEX).getroot()[0].text or "").split()
    for name, scale, _ in zip(words[::3], words[1::3], words[2::3], strict=True):
        place, factor = folder / name, float(scale.strip('"'))
        right = place / "disp6.png"
        yield PairFiles(
            name,
            place / "im2.png",
            place / "im6.png",
            DisparityFile(place / "disp2.png", factor),
            DisparityFile(right, factor) if right.is_file() else None,
        )


def _find_archives(folder: Path) -> Iterator[PairFiles]:
    for path in sorted(folder.glob("*_disp.npz")):
        name = path.name.removesuffix("_disp.npz")
        left, right = (folder / f"{name}_{side}.png" for side in ("left", "right"))
        yield PairFiles(name, left, right, DisparityFile(path))
