"""Stereo as a predictor: structure from motion with the lenses as they are, then a sweep along their rays."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from g_ray.export.points import PointCloud
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.media.view import View
from g_ray.predictors.anchoring import count_pixels, estimate_matching
from g_ray.predictors.depth_filling import add_unconfirmed, fill_views
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import Cost, Prior, Progress, SceneInput, ScenePrediction
from g_ray.predictors.stored_depths import StoredDepths, hash_geometry
from g_ray.predictors.sweep_weights import STEREO_WEIGHTS, load_sweep_network
from g_ray.predictors.view_placement import place_views
from g_ray.runtime.device import choose_device
from g_ray.runtime.provenance import read_memory_gib
from g_ray.sfm import SfMOptions, SparseScene
from g_ray.stereo import (
    DepthMap,
    SparsePoints,
    StereoOptions,
    SweepNetwork,
    Uncertainty,
    choose_sources,
    estimate_depths,
    find_rough_points,
    fuse_points,
)
from g_ray.stereo.sweep import BAND, MAX_HYPOTHESES

# CPU seconds and bytes, measured on photographs of several sizes (docs: benchmarks).
SWEEP_SECONDS = 7e-8
"""Per pixel, hypothesis and source."""
CHECK_SECONDS = 1.7e-6
"""Of consistency and fusion, per pixel of a depth map."""
START_SECONDS, PLACE_SECONDS = 2.0, 0.4
"""To start, and of mapping, lens check and files, per view."""
NETWORK_SECONDS = 2.5e-6
"""Of the sweep network, per pixel and source."""
BASE_MEMORY = 450 * 2**20
PHOTO_BYTES = 40
"""Per pixel of the largest photograph: decoded, as floats, and as features."""
VIEW_BYTES = 75
"""Per pixel of the depth map of every view: image, depth, confidence, features, fused points."""
VOLUME_BYTES = 20
"""Per pixel and hypothesis: the cost volume, its aggregation and a copy."""
WIDE_PIXEL_DEG = 0.375
"""Angle of a pixel that makes a wide lens get more of them, unless --size is given."""
COARSER = 1.25
"""Factor by which that angle grows until memory holds the pixels."""
FEATURE_BYTES = 40
"""Per pixel of every view: features of the sweep network."""
NETWORK_MEMORY, NETWORK_BYTES = 60 * 2**20, 600
"""Of a sweep by the network, and per pixel."""
MIN_POINTS = 20
"""Points that a typical view must see for them to tell how far the scene is."""
MEMORY_SHARE = 0.5
"""Share of the machine's memory that simultaneous views may take, unless --max-memory is given."""


@dataclass(frozen=True)
class StereoPredictor:
    """Poses by structure from motion, or as given, and depth by comparing photographs along their rays."""

    USES: ClassVar[frozenset[Prior]] = frozenset({"poses", "masks", "rig"})

    sfm: SfMOptions = field(default_factory=SfMOptions)
    stereo: StereoOptions = field(default_factory=StereoOptions)
    refine: bool = False
    """Adjust poses by bundle adjustment; kept only if tracks that were held out improve."""
    device: str = "auto"
    max_memory: float | None = None
    """GiB of the whole process."""
    fill: NetworkPredictor | None = None
    """Fills pixels that have no depth."""
    unplaced: NetworkPredictor | None = None
    """Places photographs that matching cannot."""
    network: SweepNetwork | None = None
    """Finds a depth for every pixel, which is then refined and confirmed; None: all distances are compared."""
    notes: tuple[str, ...] = ()

    @property
    def NAME(self) -> str:
        return "stereo"

    @staticmethod
    def from_settings(settings: ModelSettings) -> "StereoPredictor":
        options = StereoOptions(near=settings.near, far=settings.far)
        if settings.size is None:
            options = replace(options, degrees_per_pixel=WIDE_PIXEL_DEG)
        else:
            options = replace(options, long_side=settings.size)
        network = None
        if settings.adds_network:
            network = NetworkPredictor.from_settings(
                replace(settings, size=None, max_memory=None, near=None, far=None)
            )
        sweep, notes = None, ()
        if settings.stereo == "learned":
            try:
                sweep = load_sweep_network()
            except FileNotFoundError as error:
                notes = (f"depth is found by the classical sweep: {error}",)
        return StereoPredictor(
            stereo=options,
            refine=settings.refine,
            device=settings.device,
            max_memory=settings.max_memory,
            fill=None if settings.fill is None else network,
            unplaced=None if settings.unplaced is None else network,
            network=sweep,
            notes=notes,
        )

    def describe_settings(self) -> dict[str, Any]:
        settings = {"sfm": asdict(self.sfm), "stereo": asdict(self.stereo), "refine": self.refine}
        if self.network is not None:
            settings["network"] = STEREO_WEIGHTS
        if self.fill is not None:
            settings["fill"] = self.fill.describe_settings()
        if self.unplaced is not None:
            settings["unplaced"] = self.unplaced.describe_settings()
        return settings

    def estimate_cost(self, scene: SceneInput) -> Cost:
        count = len(scene.views)
        sides = self._choose_sides(scene)
        pixels = _count_all_pixels(scene, sides)
        pairs, matching = estimate_matching([view.camera for view in scene.views], self.sfm)
        sources = min(self.stereo.sources, count - 1)
        sweep = SWEEP_SECONDS * sum(_count_samples(count, sources, self.stereo) for count in pixels)
        if self.network is not None:
            sweep = NETWORK_SECONDS * sources * sum(pixels)
        at_once = self._count_at_once(scene, sides)
        fixed_bytes, volume = self._estimate_memory(scene, sides)
        memory = fixed_bytes + at_once * volume
        if self.max_memory is not None and memory > self.max_memory * 2**30:
            raise ValueError(
                f"{count} views need about {memory / 2**30:.1f} GiB: raise --max-memory, lower --size, "
                "or give fewer photographs"
            )
        size = " to ".join(f"{side}" for side in sorted({min(sides), max(sides)}))
        text = f"{count} views: features, {pairs} pairs, depth at {size} px"
        once = START_SECONDS + PLACE_SECONDS * count + CHECK_SECONDS * sum(pixels)
        return Cost(matching + sweep / at_once + once, round(memory), text, round(fixed_bytes), sum(pixels))

    def _choose_sides(self, scene: SceneInput) -> list[int]:
        """Return the long side at which depth of each view is estimated: longer for wide lenses, as far as memory
        allows it."""
        options, cameras = self.stereo, {id(view.camera): view.camera for view in scene.views}
        while True:
            chosen = {key: options.choose_long_side(camera) for key, camera in cameras.items()}
            sides = [chosen[id(view.camera)] for view in scene.views]
            fixed_bytes, volume = self._estimate_memory(scene, sides)
            if options.degrees_per_pixel is None or fixed_bytes + volume <= self._allowed_bytes:
                return sides
            wider = options.degrees_per_pixel * COARSER
            options = replace(options, degrees_per_pixel=None if max(sides) == options.long_side else wider)

    @property
    def _allowed_bytes(self) -> float:
        """Memory that the process should take."""
        return 2**30 * (MEMORY_SHARE * read_memory_gib() if self.max_memory is None else self.max_memory)

    def _count_at_once(self, scene: SceneInput, sides: Sequence[int]) -> int:
        """Return the number of views whose depth is searched at the same time: one per core, if memory allows it."""
        fixed_bytes, volume = self._estimate_memory(scene, sides)
        fitting = int((self._allowed_bytes - fixed_bytes) / volume)
        return max(1, min(torch.get_num_threads(), len(scene.views), fitting))

    def _estimate_memory(self, scene: SceneInput, sides: Sequence[int]) -> tuple[float, float]:
        """Estimate the bytes that are held in any case, and those of each sweep."""
        pixels = _count_all_pixels(scene, sides)
        largest = max(view.camera.width * view.camera.height for view in scene.views)
        fixed_bytes = BASE_MEMORY + PHOTO_BYTES * largest + VIEW_BYTES * sum(pixels)
        if self.network is not None:
            return fixed_bytes + FEATURE_BYTES * sum(pixels), NETWORK_MEMORY + NETWORK_BYTES * max(pixels)
        whole = _sweeps_whole(max(pixels), min(self.stereo.sources, len(pixels) - 1), self.stereo)
        return fixed_bytes, VOLUME_BYTES * max(pixels) * (MAX_HYPOTHESES if whole else MAX_HYPOTHESES / 4)

    def predict(
        self, scene: SceneInput, work: Path | None = None, progress: Progress = lambda stage, share: None
    ) -> ScenePrediction:
        """Estimate cameras, then depth, then the points that views agree on."""
        if len(scene.views) < 2:
            raise ValueError(
                "one photograph has no parallax: stereo needs two or more, from different places"
            )
        sides = self._choose_sides(scene)
        for view, side in zip(scene.views, sides, strict=True):
            view.expect_copy(side)  # made when features are extracted
        scene_placed = place_views(scene, self.sfm, self.refine, self.unplaced, work, progress)
        sparse, keeps_poses = scene_placed.sparse, scene_placed.keeps_poses
        figures, placed = dict(scene_placed.figures), list(sparse.registered)
        device = choose_device(self.device)
        views = [
            replace(scene.views[i], pose=sparse.poses[i]).limit_size(sides[i]).to(device) for i in placed
        ]
        at_once = self._count_at_once(scene, sides)
        points = self._find_points(views, sparse, placed, keeps_poses, at_once)
        progress("uncertainty", 0.0)
        uncertainty = scene_placed.measure_uncertainty(views)
        depths = self._estimate_depths(scene, views, points, work, progress, uncertainty, at_once)
        progress("fusion", 0.0)
        sources = choose_sources(views, points, self.stereo, uncertainty)
        cloud = _fuse(views, depths, sources, placed, scene.views, self.stereo)
        # Results are in the order of the input: views that could not be placed stay None.
        predicted: list[ReconstructedView | None] = [None] * len(scene.views)
        for i, view, depth in zip(placed, views, depths, strict=True):
            predicted[i] = replace(_make_view(scene.views[i], view, depth), pose_guessed=i in sparse.guessed)
        figures |= sparse.compute_statistics()
        if self.unplaced is not None:
            figures["placed_by_network"] = [scene.views[i].name for i in sparse.guessed]
        if self.fill is not None:
            progress("fill", 0.0)
            predicted = _fill(self.fill, scene, placed, predicted, views)
            filled = sum(int(view.filled.sum()) for view in predicted if view and view.filled is not None)
            figures["share_filled"] = filled / sum(view.camera.width * view.camera.height for view in views)
        elif self.network is not None:
            figures["share_filled"] = _measure_unconfirmed(depths)
        figures["long_side_px"] = float(np.median([max(lens.width, lens.height) for lens in sparse.cameras]))
        figures["share_with_depth"] = _measure_coverage(depths, views)
        figures |= _summarize_errors(depths)
        figures |= scene_placed.check_calibration()
        return ScenePrediction(
            tuple(predicted),
            sparse.reasons,
            keeps_poses,
            sparse=sparse,
            cloud=cloud,
            figures=figures,
            notes=(*self.notes, *sparse.notes),
        )

    def _estimate_depths(
        self,
        scene: SceneInput,
        views: Sequence[View],
        points: SparsePoints | None,
        work: Path | None,
        progress: Progress,
        uncertainty: Uncertainty,
        at_once: int,
    ) -> list[DepthMap]:
        """Estimate the depth of all placed views; maps that an interrupted run left in `work` are used."""
        depths = estimate_depths(
            views,
            points,
            self.stereo,
            lambda done: progress("depth", done / len(views)),
            None if work is None else StoredDepths(work / "depth" / hash_geometry(views, points)),
            at_once,
            uncertainty,
            self.network,
        )
        knows_poses = all(view.pose is not None for view in scene.views) or (
            scene.rig is not None and scene.rig.place_at_once() is not None
        )
        if not any(bool(depth.valid.any()) for depth in depths) and not knows_poses:
            raise ValueError(
                "no pixel has a depth that two photographs agree on and parallax fixes to 20 %: they overlap too "
                "little, stand too close together, or their poses or lenses are wrong; --model network predicts depth "
                "for each photograph"
            )
        return depths

    def _find_points(
        self,
        views: Sequence[View],
        sparse: SparseScene,
        placed: Sequence[int],
        keeps_poses: bool,
        at_once: int,
    ) -> SparsePoints | None:
        """Return points that say where the scene lies: those of matches or, where known poses have hardly any, those
        at which small images agree. Without either the range is a guess (`guess_range`)."""
        points = collect_sparse_points(sparse, placed)
        typical = 0 if points is None or points.visible is None else int(points.visible.sum(1).median())
        given = self.stereo.near is not None and self.stereo.far is not None
        if not keeps_poses or typical >= MIN_POINTS or given:
            return points
        rough = find_rough_points(views, self.stereo, at_once)
        return rough or points

    def load_finished(self, scene: SceneInput, work: Path) -> ScenePrediction | None:
        """Return nothing: depth maps are checked against each other only when all are there."""
        return None


def collect_sparse_points(sparse: SparseScene, placed: Sequence[int]) -> SparsePoints | None:
    """Return the points with the views that observe them; None if there are none."""
    if not len(sparse.points):
        return None
    visible: Bool[Tensor, "view point"] = torch.zeros(len(placed), len(sparse.points), dtype=torch.bool)
    row = torch.full((len(sparse.names),), -1)
    row[list(placed)] = torch.arange(len(placed))
    tracks = sparse.tracks.select(row[sparse.tracks.view] >= 0)
    visible[row[tracks.view], tracks.point] = True
    return SparsePoints(sparse.points.float(), visible)


def _fuse(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    sources: Sequence[Sequence[int]],
    placed: Sequence[int],
    inputs: Sequence[View],
    options: StereoOptions,
) -> PointCloud | None:
    """Fuse depth maps; None if no two views agree anywhere."""
    fused = fuse_points(views, depths, sources, options)
    if not len(fused.positions):
        return None
    index = np.asarray(placed)[fused.view.numpy(force=True)]
    sizes = np.array([[view.camera.width, view.camera.height] for view in inputs], dtype=np.float64)
    small = np.array([[view.size[1], view.size[0]] for view in views], dtype=np.float64)
    scale = sizes[index] / small[fused.view.numpy(force=True)]
    return PointCloud(
        fused.positions.double().numpy(force=True),
        (255 * fused.colors.clamp(0, 1)).round().to(torch.uint8).numpy(force=True),
        fused.views.float().numpy(force=True),
        index,
        fused.pixels.double().numpy(force=True) * scale,
        fused.normals.float().numpy(force=True),
    )


def _make_view(view: View, stereo: View, depth: DepthMap) -> ReconstructedView:
    made = ReconstructedView(
        view.name,
        stereo.camera.to("cpu"),
        stereo.get_pose().to("cpu"),
        depth.ray_depth.cpu(),
        depth.confidence.cpu(),
        depth.valid.cpu(),
        photo_camera=view.camera,
        expected_error=None if depth.expected_error is None else depth.expected_error.cpu(),
    )
    return add_unconfirmed(made, depth)


def _fill(
    network: NetworkPredictor,
    scene: SceneInput,
    placed: Sequence[int],
    predicted: Sequence[ReconstructedView | None],
    views: Sequence[View],
) -> list[ReconstructedView | None]:
    """Fill the placed views by a network that sees all of them."""
    inputs = SceneInput([replace(scene.views[i], pose=None) for i in placed])
    guesses = [view for view in network.predict(inputs).views if view is not None]
    filled = fill_views([predicted[i] for i in placed], guesses, [_find_usable(view).cpu() for view in views])
    result = list(predicted)
    for i, view in zip(placed, filled, strict=True):
        result[i] = view
    return result


def _summarize_errors(depths: Sequence[DepthMap]) -> dict[str, float]:
    """Return the median and the 90 % quantile of the errors to expect."""
    known = [depth.expected_error[depth.valid] for depth in depths if depth.expected_error is not None]
    if not sum(map(len, known)):
        return {}
    errors = torch.cat(known)[:: max(1, sum(map(len, known)) // 1_000_000)]
    middle, high = errors.quantile(errors.new_tensor([0.5, 0.9])).tolist()
    return {"expected_error": middle, "expected_error_90": high}


def _measure_unconfirmed(depths: Sequence[DepthMap]) -> float:
    """Return the share of pixels whose depth only the sweep network supports."""
    unconfirmed = sum(int((depth.candidates > 0).sum()) for depth in depths if depth.candidates is not None)
    return unconfirmed / sum(depth.valid.numel() for depth in depths)


def _measure_coverage(depths: Sequence[DepthMap], views: Sequence[View]) -> float:
    """Return the share of usable pixels that have a depth."""
    pixels = sum(int(_find_usable(view).sum()) for view in views)
    return sum(int(depth.valid.sum()) for depth in depths) / max(1, pixels)


def _find_usable(view: View) -> Bool[Tensor, "h w"]:
    valid, mask = view.camera.unproject_grid()[1], view.load_mask()
    return valid if mask is None else valid & mask


def _count_all_pixels(scene: SceneInput, sides: Sequence[int]) -> list[float]:
    return [count_pixels(view.camera, side) for view, side in zip(scene.views, sides, strict=True)]


def _sweeps_whole(pixels: float, sources: int, options: StereoOptions) -> bool:
    """Whether a sweep runs at full resolution, instead of half of it and then a band."""
    return pixels * MAX_HYPOTHESES * sources <= options.full_volume


def _count_samples(pixels: float, sources: int, options: StereoOptions) -> float:
    """Pixels × hypotheses × sources that a sweep samples."""
    if _sweeps_whole(pixels, sources, options):
        return pixels * MAX_HYPOTHESES * sources
    return pixels * (MAX_HYPOTHESES / 8 + 2 * BAND + 1) * sources
