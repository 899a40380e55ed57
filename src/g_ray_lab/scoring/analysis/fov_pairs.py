"""Pairs of a wide image and a narrow one that is cut from it: the same center of projection, another field of view."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats import find_scenes, read_scene
from g_ray.models.framing import Frame, Framing
from g_ray.rays.resample import Box, place_box, resample

ZOOM = 2.0
"""The narrow image shows 1/ZOOM of each side, a quarter of the wide one."""


@dataclass(frozen=True)
class FovPair:
    """A wide image and its crop, both as the network sees them."""

    name: str
    wide: Frame
    narrow: Frame
    box: Box
    """The shared field of view, in pixels of the wide frame."""

    @property
    def frames(self) -> tuple[Frame, Frame]:
        return self.wide, self.narrow

    def compute_coverage(self, patch: int) -> Float[Tensor, "row column"]:
        """Compute the share of every patch of the wide image that lies in the shared field of view."""
        left, top, right, bottom = self.box
        across = _compute_overlap(self.wide.camera.width // patch, patch, left, right)
        down = _compute_overlap(self.wide.camera.height // patch, patch, top, bottom)
        return down[:, None] * across

    def measure_texture(self) -> float:
        """Return the mean absolute difference of neighboring pixels in the wide image: low without texture."""
        gray = self.wide.image.mean(0)
        return float((gray.diff(dim=0).abs().mean() + gray.diff(dim=1).abs().mean()) / 2)


def _compute_overlap(count: int, patch: int, start: float, stop: float) -> Float[Tensor, "patch"]:
    """Compute the share of each of `count` stretches of `patch` pixels that lies between start and stop."""
    edges = torch.arange(count + 1, dtype=torch.float64) * patch
    return (edges[1:].clamp(max=stop) - edges[:-1].clamp(min=start)).clamp(min=0) / patch


def make_pair(
    name: str,
    image: Float[Tensor, "3 h w"],
    camera: Camera,
    framing: Framing,
    place: tuple[float, float] = (0.5, 0.5),
    zoom: float = ZOOM,
) -> FovPair:
    """Cut the narrow image out of the wide one at `place` (in [0, 1]², see `place_box`) and frame both alike."""
    wide = framing(image, camera)
    width, height = wide.camera.width, wide.camera.height
    box = place_box(camera.width, camera.height, camera.width, camera.height, zoom=zoom, place=place)
    crop, lens = resample(image, camera, width, height, box)
    narrow = Frame(crop, lens, wide.content, lens, (0.0, 0.0, float(width), float(height)))
    across, down = width / camera.width, height / camera.height
    inside = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
    return FovPair(name, wide, narrow, inside)


@dataclass(frozen=True)
class PairSource:
    """Pairs of the images of scene folders, evenly spread over scenes and their views."""

    folder: Path
    """A scene folder, or a folder of scene folders."""
    count: int = 48
    is_centered: bool = True
    """Cut from the middle; anywhere otherwise, so that attention that prefers the middle gains nothing."""
    seed: int = 0

    def make_pairs(self, framing: Framing) -> list[FovPair]:
        """Make all pairs, always the same."""
        random = np.random.default_rng(self.seed)
        scenes = [read_scene(folder, check=False) for folder in find_scenes(self.folder)]
        pairs = []
        for number in range(self.count):
            scene = scenes[number % len(scenes)]
            rounds = -(-self.count // len(scenes))  # images of each scene
            view = (number // len(scenes)) * len(scene) // rounds
            place = (0.5, 0.5) if self.is_centered else tuple(random.random(2).tolist())
            name = f"{scene.folder.name}/{scene.names[view]}"
            photo = scene.views[view].load_image().clamp(0, 1)
            pairs.append(make_pair(name, photo, scene.cameras[view].to(torch.float32), framing, place))
        return pairs


def split_by_texture(textures: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return the indices of the third with the least texture and of the third with the most."""
    order = sorted(range(len(textures)), key=lambda index: textures[index])
    third = len(order) // 3
    return sorted(order[:third]), sorted(order[len(order) - third :])


def choose_examples(group: Sequence[FovPair]) -> list[FovPair]:
    """Return a pair with little texture and one with much: at the borders of the outer sixths."""
    ordered = sorted(group, key=lambda pair: pair.measure_texture())
    return [ordered[len(ordered) // 6], ordered[-1 - len(ordered) // 6]]
