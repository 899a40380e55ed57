"""Novel-view synthesis from a user's own scene folders: batches are functions of (seed, step, rank)."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats import read_scene
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import fit_box, resample
from g_ray.rays.views import Views
from g_ray_lab.sources.batches import NVSBatch, NVSSource
from g_ray_lab.sources.draws import scale_to_baseline
from g_ray_lab.sources.nvs_settings import SceneData

Lenses = tuple[str | None, ...]
"""A camera model per view of a sample; None is any."""


class Sample(NamedTuple):
    """Views of one scene, contexts first."""

    scene: int
    views: tuple[int, ...]


class SceneNVS(NVSSource):
    """Photographs of scene folders, each cropped to the training aspect in its middle and resized, with its own lens.

    A target is drawn from all views, its contexts from the `near` views around it (by place and viewing direction), far
    enough apart to tell depth. Every `hold_out`-th view of a scene is never trained on. The samples of a batch have the
    same lenses view by view, those of its first sample, because a batch of cameras has one model. Poses are relative to
    the first context and scaled so that the farthest other context is `baseline` away: the unit of such files is
    arbitrary.
    """

    def __init__(self, settings: SceneData, seed: int = 0) -> None:
        _check_settings(settings, seed)
        self.settings, self.seed = settings, seed
        self.size = (settings.width, settings.height)
        self.scenes = tuple(read_scene(folder) for folder in settings.folder)
        for index in range(len(self.scenes)):
            self._check_count(index)
        self._lenses = [[camera.NAME for camera in scene.cameras] for scene in self.scenes]
        self._stock = [
            Counter(self._lenses[i][v] for v in self._find_training_views(i)) for i in range(len(self.scenes))
        ]
        self._photos: dict[Path, UInt8[Tensor, "3 h w"]] = {}

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        random = np.random.default_rng((self.seed, rank, step))
        first = self._draw_sample(random, (None,) * (self.settings.contexts + self.settings.targets))
        lenses = self._get_lenses(first)
        return self._load_samples(
            [first, *(self._draw_sample(random, lenses) for _ in range(self.settings.batch - 1))]
        )

    def make_held_out(self) -> NVSBatch:
        """Make a batch of views that are never trained on, from their nearest training views; one target each."""
        samples = [
            Sample(index, (*self._find_nearest(index, view)[: self.settings.contexts], view))
            for index, scene in enumerate(self.scenes)
            for view in range(len(scene))
            if self.is_held_out(view)
        ]
        alike = [sample for sample in samples if self._get_lenses(sample) == self._get_lenses(samples[0])]
        return self._load_samples(alike[: self.settings.batch])

    def is_held_out(self, view: int) -> bool:
        return view % self.settings.hold_out == 0

    # Which views

    def _draw_sample(self, random: np.random.Generator, lenses: Lenses) -> Sample:
        """Draw a target from all training views with its lens, and contexts and further targets around it."""
        wanted = Counter(lens for lens in lenses if lens is not None)
        anchors = [
            (index, view)
            for index, stock in enumerate(self._stock)
            if not wanted - stock
            for view in self._find_training_views(index)
            if lenses[-1] in (None, self._lenses[index][view])
        ]
        index, target = anchors[int(random.integers(len(anchors)))]
        around, chosen = self._find_nearest(index, target), []
        for lens in lenses[:-1]:
            fits = [v for v in around if v not in chosen and lens in (None, self._lenses[index][v])][
                : self.settings.near
            ]
            if chosen:  # of these, the half that is farther from the first context
                far = compute_view_distances(self.scenes[index].poses, chosen[0]).tolist()
                fits = sorted(fits, key=lambda view: -far[view])[: (len(fits) + 1) // 2]
            chosen.append(fits[int(random.integers(len(fits)))])
        return Sample(index, (*chosen, target))

    def _find_training_views(self, scene: int) -> list[int]:
        return [view for view in range(len(self.scenes[scene])) if not self.is_held_out(view)]

    def _find_nearest(self, scene: int, view: int) -> list[int]:
        """Return the other training views, the nearest first."""
        order = compute_view_distances(self.scenes[scene].poses, view).argsort(stable=True).tolist()
        return [other for other in order if other != view and not self.is_held_out(other)]

    def _get_lenses(self, sample: Sample) -> Lenses:
        return tuple(self._lenses[sample.scene][view] for view in sample.views)

    def _check_count(self, index: int) -> None:
        count, needed, scene = (
            len(self._find_training_views(index)),
            self.settings.contexts + self.settings.targets,
            self.scenes[index],
        )
        if count < needed:
            raise ValueError(
                f"{scene.folder}: {len(scene)} images leave {count} to train on when every "
                f"{self.settings.hold_out}th is held out, but a sample needs {needed}; add images"
            )

    # What they show

    def _load_samples(self, samples: list[Sample]) -> NVSBatch:
        known = self.settings.contexts
        cameras, pictures = [], []
        for slot in range(len(samples[0].views)):
            loaded = [self._load_view(sample.scene, sample.views[slot]) for sample in samples]
            pictures.append(torch.stack([picture for picture, _ in loaded]))
            cameras.append(type(loaded[0][1]).stack([camera for _, camera in loaded]))
        poses = torch.stack([self.scenes[s.scene].poses.world_from_cam[list(s.views)] for s in samples])
        views = Views(cameras, scale_to_baseline(Pose(poses), known, self.settings.baseline)).to(
            torch.float32
        )
        images = torch.stack(pictures, 1).to(torch.float32) / 255
        names = tuple(self._format_name(sample) for sample in samples)
        return NVSBatch.split(images, views, known, names)

    def _load_view(self, index: int, view: int) -> tuple[UInt8[Tensor, "3 h w"], Camera]:
        """Return picture and camera at the training size; pictures are cached as bytes, because decoding is slow."""
        scene = self.scenes[index]
        path, camera = scene.images[view], scene.cameras[view]
        box = fit_box(camera.width, camera.height, *self.size)
        if path not in self._photos:
            picture, _ = resample(scene.views[view].load_image(), camera, *self.size, box)
            self._photos[path] = (picture * 255).round().to(torch.uint8)
        return self._photos[path], camera.resize(*self.size, box)

    def _format_name(self, sample: Sample) -> str:
        scene = self.scenes[sample.scene]
        return f"{scene.folder.name}: " + " ".join(scene.names[view] for view in sample.views)


def _check_settings(settings: SceneData, seed: int) -> None:
    if not settings.folder:
        raise ValueError(
            "no scene: give --data.folder DIR, with transforms.json or a COLMAP model in sparse/"
        )
    counts = (settings.batch, settings.contexts, settings.targets)
    if min(counts) < 1 or settings.hold_out < 2 or settings.baseline <= 0 or seed < 0:
        raise ValueError(
            f"{settings.batch} samples of {settings.contexts} contexts and {settings.targets} targets, every "
            f"{settings.hold_out}th view held out, baseline {settings.baseline}, seed {seed}: give positive numbers, "
            "and hold out every 2nd view at most"
        )
    if settings.near < settings.contexts + settings.targets - 1:
        raise ValueError(
            f"{settings.near} near views are too few for {settings.contexts} contexts and {settings.targets} targets"
        )


def compute_view_distances(poses: Pose, view: int) -> Float[Tensor, "view"]:
    """Compute how far all views are from one: distance over the spread of cameras, plus the angle of axes in rad."""
    center, axis = poses.translation, poses.rotation[..., 2]
    spread = (center - center.mean(0)).norm(dim=-1).mean().clamp(min=1e-12)
    angle = (axis @ axis[view]).clamp(-1, 1).acos()
    return (center - center[view]).norm(dim=-1) / spread + angle
