"""Any peer as a predictor: photographs are made understandable to it, and its results put on their rays."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.similarity import Similarity
from g_ray.media.view import View
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.predictors.anchoring import Anchored, keep_given_poses, place_by_matches, refine_views
from g_ray.predictors.chunks import StoredChunks, join_chunks, predict_chunks, split_into_chunks
from g_ray.predictors.model_settings import MIN_CHUNK, OVERLAP, ModelSettings
from g_ray.predictors.network_cost import (
    BASE_MEMORY,
    EFFICIENCY,
    count_weights,
    estimate_chunk_cost,
    measure_operations_per_second,
)
from g_ray.predictors.peers import PeerCard
from g_ray.predictors.peers.adapter import Adapter, PeerImage, PeerView
from g_ray.predictors.peers.peer_framing import Placement
from g_ray.predictors.peers.peer_photographs import CropsPlan, PhotoPlan, Shown, plan_photographs
from g_ray.predictors.predictor import Cost, Prior, Progress, SceneInput, ScenePrediction
from g_ray.sfm import SfMOptions

GIB = 2**30
TYPICAL = RECONSTRUCTION_SIZES["paper"]("rope")
"""Sizes of VGGT-1B."""


@dataclass(frozen=True, eq=False)
class PeerPredictor:
    """Runs an adapter over chunks of photographs, and anchors the result to what else is known."""

    USES: ClassVar[frozenset[Prior]] = frozenset({"poses", "masks"})

    NAME: str
    card: PeerCard
    adapter: Adapter
    settings: ModelSettings = field(default_factory=ModelSettings)
    sfm: SfMOptions = field(default_factory=SfMOptions)

    def describe_settings(self) -> dict[str, Any]:
        chosen, weights = self.settings, Path(self.adapter.weights)
        return {
            "weights": self.adapter.weights,
            "size": chosen.size,
            "lenses": chosen.lenses,
            "fit": chosen.fit,
            "precision": chosen.precision,
            "at_once": chosen.at_once,
            "max_memory": chosen.max_memory,
            "refine": chosen.refine,
            "weights_bytes": weights.stat().st_size if weights.is_file() else None,
        }

    # Cost

    def estimate_cost(self, scene: SceneInput) -> Cost:
        """Estimate roughly, as if the peer were VGGT with this number of weights: nearly all are built alike."""
        plans = self._plan(scene.views)
        patches = self._count_patches(plans)
        chunks = [
            estimate_chunk_cost(
                TYPICAL, self._weights, [count for photo in chunk for count in patches[photo]]
            )
            for chunk in self._split(len(plans), self.count_at_once(plans))
        ]
        speed = EFFICIENCY * measure_operations_per_second(self.adapter.device)
        crops = sum(len(plan.sizes) for plan in plans if isinstance(plan, CropsPlan))
        photos = sum(isinstance(plan, CropsPlan) for plan in plans)
        text = f"{len(plans)} views"
        if crops:
            text += f", {photos} of them as {crops} virtual pinholes"
        return Cost(
            sum(chunk.operations for chunk in chunks) / speed,
            max(chunk.memory for chunk in chunks) + BASE_MEMORY,
            f"{text}, by {self.card.title}",
        )

    def count_at_once(self, plans: Sequence[PhotoPlan]) -> int:
        """Return the number of photographs in a chunk."""
        limit = self.settings.max_memory
        if limit is None:
            return min(self.settings.at_once or len(plans), len(plans))
        largest = max(self._count_patches(plans), key=sum)
        smallest = min(MIN_CHUNK, len(plans))
        for count in range(len(plans), smallest - 1, -1):
            if self._estimate_memory(count * largest) <= limit * GIB:
                return count
        need = self._estimate_memory(smallest * largest) / GIB
        raise ValueError(f"{smallest} views need about {need:.2f} GiB: raise --max-memory or lower --size")

    @property
    def _weights(self) -> int:
        model = self.adapter.model
        return count_weights(model) if isinstance(model, torch.nn.Module) else 0

    def _estimate_memory(self, patches: Sequence[int]) -> int:
        return estimate_chunk_cost(TYPICAL, self._weights, patches).memory + BASE_MEMORY

    def _count_patches(self, plans: Sequence[PhotoPlan]) -> list[list[int]]:
        """Count the patches of every image of every photograph."""
        area = TYPICAL.patch**2
        return [
            [max(1, place.canvas[0] * place.canvas[1] // area) for place in places]
            for places in self._place(plans)
        ]

    # Prediction

    def predict(
        self, scene: SceneInput, work: Path | None = None, progress: Progress = lambda stage, share: None
    ) -> ScenePrediction:
        """Predict chunks, join them, and use known poses, or matches where --refine asks for them."""
        notes: dict[str, None] = {}  # each once, in the order in which they come up
        views = self._predict_chunks(scene, work, progress, notes)
        anchored = self._anchor(views, scene, work, progress)
        keeps_poses = self._count_poses(scene) >= 2
        metric = self.card.metric and not keeps_poses
        scale = MetricScale(f"{self.card.title}'s own estimate") if metric else None
        return ScenePrediction(
            tuple(anchored.views),
            tuple(anchored.reasons),
            keeps_poses,
            scale,
            anchored.sparse,
            figures=anchored.figures,
            notes=(*notes, *anchored.notes),
        )

    def load_finished(self, scene: SceneInput, work: Path) -> ScenePrediction | None:
        """Return nothing: a scene that is not anchored yet would be in another world than the finished one."""
        return None

    def _predict_chunks(
        self, scene: SceneInput, work: Path | None, progress: Progress, notes: dict[str, None]
    ) -> list[ReconstructedView]:
        chunks = self._split(len(scene.views), self.count_at_once(self._plan(scene.views)))
        # Stored chunks do not hold lenses: those that a peer found itself would be lost.
        stored = None if work is None or self.settings.lenses == "predicted" else StoredChunks(work)
        predicted = predict_chunks(
            lambda views: self.predict_few(views, notes),
            scene.views,
            chunks,
            stored,
            lambda done, count: progress(self.NAME, done / count),
        )
        if not self.card.many:
            views = {view.name: view for chunk in predicted for view in chunk}
            return [views[view.name] for view in scene.views]
        views, more = join_chunks(predicted)
        notes |= dict.fromkeys(more)
        # The first photograph is the world, also for peers that have no such view.
        first = views[0].pose.to(torch.float64).inverse()
        to_first = Similarity(torch.ones(()).double(), first.rotation, first.translation)
        return [view.transform(to_first) for view in views]

    def predict_few(
        self, views: Sequence[View], notes: dict[str, None] | None = None
    ) -> list[ReconstructedView]:
        """Predict photographs that fit into memory together, in a world of their own; `notes` are added to."""
        notes = {} if notes is None else notes
        plans = self._plan(views)
        places = self._place(plans)
        shown = [plan.show(mine, self.adapter.FILTER) for plan, mine in zip(plans, places, strict=True)]
        images = self._choose_inputs([image for photo in shown for image in photo.images], notes)
        with torch.inference_mode(), self._open_precision():
            results = self._run(images)
        self._check_results(images, results)
        return self._restore(shown, results, notes)

    def _run(self, images: Sequence[PeerImage]) -> list[PeerView]:
        if self.card.many:
            return self.adapter.predict(images)
        return [self.adapter.predict([image])[0] for image in images]

    def _restore(
        self, shown: Sequence[Shown], results: Sequence[PeerView], notes: dict[str, None]
    ) -> list[ReconstructedView]:
        views, start = [], 0
        for photo in shown:
            stop = start + len(photo.images)
            view, more = photo.restore(results[start:stop], self.adapter.KIND)
            notes |= dict.fromkeys(more)
            views.append(view)
            start = stop
        return views

    def _choose_inputs(self, images: Sequence[PeerImage], notes: dict[str, None]) -> list[PeerImage]:
        """Keep what the peer can use; notes name what it is not given, and what happens with it instead."""
        card, given = self.card, [image.pose is not None for image in images]
        allowed = {
            "no": False,
            "all": all(given),
            "first": given[0] and any(given[1:]),
            "two": sum(given) > 1,
        }
        alone = self.settings.lenses == "predicted"
        with_poses = any(given) and allowed[card.poses] and (card.poses_alone or not alone)
        if any(given) and not with_poses:
            need = "calibration with them" if allowed[card.poses] else _POSE_NEEDS[card.poses]
            why = "takes no poses" if card.poses == "no" else f"needs {need} to take poses"
            notes[f"{card.title} {why}: its result is moved to the known poses instead"] = None
        with_lenses = not alone and (
            card.calibration == "yes" or (card.calibration == "with poses" and with_poses)
        )
        if not alone and not with_lenses:
            why = "takes no calibration" if card.calibration == "no" else "takes calibration with poses only"
            notes[f"{card.title} {why}: its depth is put on the given rays"] = None
        elif not alone and card.takes:
            notes[f"{card.title} takes {card.takes} alone: its depth is put on the given rays"] = None
        return [
            replace(
                image,
                camera=image.camera if with_lenses else None,
                pose=image.pose if with_poses else None,
            )
            for image in images
        ]

    def _anchor(
        self, views: list[ReconstructedView], scene: SceneInput, work: Path | None, progress: Progress
    ) -> Anchored:
        options: dict[str, Any] = {"options": self.sfm, "work": work, "progress": progress}
        if self._count_poses(scene) >= 2:
            if self.settings.refine:
                raise ValueError(
                    "--refine changes poses, but known ones are kept: add --poses align, or leave it out"
                )
            return keep_given_poses(views, scene, placed=self.card.many, **options)
        if not self.card.many and len(views) > 1:
            return place_by_matches(views, scene, placed=False, **options)
        if self.settings.refine:
            return refine_views(views, scene, **options)
        return Anchored(list(views), [None] * len(views))

    # Shared parts

    def _plan(self, views: Sequence[View]) -> list[PhotoPlan]:
        return plan_photographs(views, self.card.lenses, given=self.settings.lenses == "given")

    def _place(self, plans: Sequence[PhotoPlan]) -> list[list[Placement]]:
        """Place all images of all photographs together: peers see them in one size."""
        flat = iter(self.adapter.place([size for plan in plans for size in plan.sizes]))
        return [[next(flat) for _ in plan.sizes] for plan in plans]

    def _split(self, count: int, at_once: int) -> list[tuple[int, ...]]:
        if not self.card.many:
            return [(index,) for index in range(count)]
        return split_into_chunks(count, at_once, min(OVERLAP, at_once - 1))

    def _open_precision(self) -> AbstractContextManager[Any]:
        low = self.settings.precision == "bf16"
        return torch.autocast(self.adapter.device.type, torch.bfloat16) if low else nullcontext()

    def _check_results(self, images: Sequence[PeerImage], results: Sequence[PeerView]) -> None:
        """Raise ValueError for what cannot be a prediction of these images."""
        advice = f"install the version that this adapter knows ({self.card.install})"
        if len(results) != len(images):
            raise ValueError(
                f"{self.card.title} gave {len(results)} views for {len(images)} images: {advice}"
            )
        for number, (image, result) in enumerate(zip(images, results, strict=True)):
            size, found = tuple(image.image.shape[-2:]), tuple(result.depth.shape)
            if found != size:
                raise ValueError(
                    f"{self.card.title} gave depth of {found[1]}×{found[0]} px for image {number} of "
                    f"{size[1]}×{size[0]}: {advice}"
                )
            good = torch.isfinite(result.depth) & (result.depth > 0)
            if not bool(good.any()) or (
                result.pose is not None and not bool(torch.isfinite(result.pose.world_from_cam).all())
            ):
                raise ValueError(
                    f"{self.card.title} gave no finite pose or no positive depth for image {number}: "
                    "check its weights, or use --precision fp32"
                )

    @staticmethod
    def _count_poses(scene: SceneInput) -> int:
        return sum(view.pose is not None for view in scene.views)


_POSE_NEEDS = {
    "no": "",
    "all": "poses of all views",
    "first": "poses of the first view and another",
    "two": "poses of two views or more",
}
