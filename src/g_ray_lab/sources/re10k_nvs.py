"""Novel-view synthesis from the clips of RealEstate10K, and matches for a check of their poses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import fit_box, resample
from g_ray.rays.views import Views
from g_ray_lab.datasets.re10k import Clip, Clips
from g_ray_lab.sources.axes_check import MatchedViews, match_images
from g_ray_lab.sources.batches import NVSBatch, NVSSource, compute_zoom_factors
from g_ray_lab.sources.clip_sampling import (
    check_sampling,
    draw_frames,
    hash_to_unit,
    normalize_poses,
)
from g_ray_lab.sources.draws import check_draws, draw_all_readable, make_generator
from g_ray_lab.sources.nvs_settings import RE10KData

STEP = 15
"""Frames between two views of a pair: enough motion for rays to part, little enough to recognize things."""
PAIRS = 4
"""Pairs per clip."""


def match_clips(clips: Clips, count: int) -> list[MatchedViews]:
    """Match pixels in `count` clips, always the same ones, for `check_axes`."""
    chosen = sorted(clips.keys, key=hash_to_unit)[:count]
    return [pair for key in chosen for pair in match_pairs(clips.get_clip(key))]


def match_pairs(clip: Clip) -> list[MatchedViews]:
    """Match pixels in pairs of frames, spread over the clip."""
    step = min(STEP, len(clip) - 1)
    if not step:
        return []
    matched = []
    for first in sorted({int(start) for start in torch.linspace(0, len(clip) - 1 - step, PAIRS)}):
        one, other = clip.frame(first), clip.frame(first + step)
        poses = Pose(clip.poses.world_from_cam[[first, first + step]])
        pixels = match_images(one.image, other.image)
        matched.append(MatchedViews(pixels, (one.camera, other.camera), poses))
    return matched


# Batches, as the paper trains and evaluates on them.


TRIES = 64
"""Clips drawn for a scene before giving up."""
HELD_OUT = 16
"""Clips that are kept for validation; a tenth of all if there are few."""


@dataclass(frozen=True)
class ClipFrames:
    """A scene: frames of a clip, contexts before targets, and how much each is zoomed."""

    clip: Clip
    frames: Sequence[int]
    contexts: int
    zoom: Float[Tensor, "view"]


@dataclass(frozen=True)
class RE10KNVS(NVSSource):
    """Random ranges of random clips: a scene is a function of (seed, rank, number), for any batch size.

    A clip that is too short is drawn again from the same random numbers.
    """

    clips: Clips
    settings: RE10KData
    seed: int = 0
    keys: tuple[str, ...] = field(init=False, repr=False)
    kept: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        settings = self.settings
        check_draws(self.seed, batch=settings.batch)
        check_sampling(settings.gap, settings.contexts, settings.targets)
        compute_zoom_factors(torch.zeros(1), settings.zoom_max)
        ordered = sorted(self.clips.keys, key=hash_to_unit)
        if len(ordered) < 2:
            raise ValueError(
                f"{len(ordered)} clip: at least 2 are needed, to train on one and validate on the other"
            )
        kept = min(HELD_OUT, max(1, len(ordered) // 10))
        object.__setattr__(self, "kept", tuple(sorted(ordered[:kept])))
        object.__setattr__(self, "keys", tuple(sorted(ordered[kept:])))

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        batch = self.settings.batch
        return self._load(self.keys, rank, range(step * batch, (step + 1) * batch))

    def make_held_out(self) -> NVSBatch:
        return self._load(self.kept, 0, range(self.settings.batch))

    def with_zoom(self, zoom_max: float) -> "RE10KNVS":
        """Return the same scenes with zooms up to `zoom_max`."""
        return replace(self, settings=replace(self.settings, zoom_max=zoom_max))

    def _load(self, keys: tuple[str, ...], rank: int, numbers: range) -> NVSBatch:
        scenes, redrawn = draw_all_readable(partial(self._load_clip, keys, rank), numbers, self.settings.root)
        return replace(_stack_scenes(scenes), redrawn=redrawn)

    def _load_clip(self, keys: tuple[str, ...], rank: int, number: int, attempt: int) -> "LoadedClip":
        frames = self._draw_frames(keys, make_generator(attempt, self.seed, rank, number))
        return _load_scene(frames, self.settings.width, self.settings.height)

    def _draw_frames(self, keys: tuple[str, ...], random: np.random.Generator) -> ClipFrames:
        contexts, targets, gap = self.settings.contexts, self.settings.targets, self.settings.gap
        unit = torch.from_numpy(random.random(contexts + targets))
        for _ in range(TRIES):
            clip = self.clips.get_clip(keys[int(random.integers(len(keys)))])
            if len(clip) > gap[0]:
                frames = draw_frames(random, len(clip), gap, contexts, targets)
                return ClipFrames(clip, frames, contexts, compute_zoom_factors(unit, self.settings.zoom_max))
        raise ValueError(f"none of {TRIES} clips drawn has more than {gap[0]} frames: change the frame gap")


def load_scenes(scenes: Sequence[ClipFrames], width: int, height: int) -> NVSBatch:
    """Load scenes of equally many views; each frame is cropped and resized together with its camera in one step."""
    return _stack_scenes([_load_scene(scene, width, height) for scene in scenes])


class LoadedClip(NamedTuple):
    """A scene with its pictures, cameras and poses."""

    scene: ClipFrames
    pictures: Float[Tensor, "view 3 h w"]
    cameras: list[Pinhole]
    poses: Float[Tensor, "view 4 4"]


def _stack_scenes(loaded: Sequence[LoadedClip]) -> NVSBatch:
    contexts = loaded[0].scene.contexts
    views = Views(
        [Pinhole.stack(per_view) for per_view in zip(*(each.cameras for each in loaded), strict=True)],
        normalize_poses(Pose(torch.stack([each.poses for each in loaded])), contexts).to(torch.float32),
    )
    pictures = torch.stack([each.pictures for each in loaded])
    names = tuple(f"clip {each.scene.clip.key}, frames {list(each.scene.frames)}" for each in loaded)
    return NVSBatch.split(pictures, views, contexts, names)


def _load_scene(scene: ClipFrames, width: int, height: int) -> LoadedClip:
    beyond = [number for number in scene.frames if not 0 <= number < len(scene.clip)]
    if beyond:
        raise ValueError(
            f"clip {scene.clip.key} has no frame {beyond[0]}, only {len(scene.clip)}: the clip is not complete"
        )
    pictures, cameras = [], []
    for number, zoom in zip(scene.frames, scene.zoom.tolist(), strict=True):
        frame = scene.clip.frame(number)
        box = fit_box(frame.camera.width, frame.camera.height, width, height, zoom)
        picture, camera = resample(frame.image, frame.camera, width, height, box)
        pictures.append(picture)
        cameras.append(camera)
    poses = scene.clip.poses.world_from_cam[list(scene.frames)]
    return LoadedClip(scene, torch.stack(pictures), cameras, poses)
