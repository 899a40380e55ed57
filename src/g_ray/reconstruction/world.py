"""The world of a result: where known poses, a distance, a board, a rig or GPS put it, and in which unit it is.

`SCALE_SOURCES` lists everything that may say how long a meter is, in the order in which it is believed; whatever else
is known is compared with the first, and a contradiction is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Unit
from g_ray.geometry.geodesy import Place
from g_ray.geometry.metric_scale import MetricScale, describe_contradictions
from g_ray.geometry.similarity import Similarity
from g_ray.predictors.predictor import ScenePrediction
from g_ray.reconstruction.alignment import Alignment, align_to_poses
from g_ray.reconstruction.gps_alignment import GpsAlignment, align_to_gps
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.known_lengths import scale_to_board, scale_to_length

MAX_POSITION_ERROR = 0.1
"""Share of the extent of known positions by which found ones may be off before the unit of the known ones is kept."""


@dataclass(frozen=True)
class WorldFrame:
    """How the world of a prediction becomes that of the result."""

    similarity: Similarity
    moved_poses: Similarity
    """What becomes of the world of known poses: it stays, unless these are estimated."""
    alignment: Alignment | None = None
    """How well poses agree with known ones that are not kept."""
    scale: MetricScale | None = None
    """None: distances are relative."""
    gps: GpsAlignment | None = None
    origin: Place | None = None
    """Place of the origin, with x east, y north and z up; None: not known."""
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit:
        return "unknown" if self.scale is None else "metre"


@dataclass(frozen=True)
class _Evidence:
    """What sources of scale look at. Poses and depth are in the world of known poses if there is one."""

    views: Sequence[ReconstructedView]
    known: KnownGeometry
    prediction: ScenePrediction
    base: Similarity
    """From the world of the prediction."""
    alignment: Alignment | None
    gps: GpsAlignment | None


def _scale_from_poses(evidence: _Evidence) -> MetricScale | None:
    known, alignment = evidence.known, evidence.alignment
    if not known.metric:
        return None
    if known.count_poses() < 2:
        raise ValueError("poses in meters were announced, but fewer than two placed views have a known pose")
    # Poses that contradict each other would still give some best scale.
    if alignment is not None and alignment.position_rmse > MAX_POSITION_ERROR * alignment.position_extent:
        raise ValueError(
            f"positions are off by {alignment.position_rmse:.2g} m of an extent of "
            f"{alignment.position_extent:.2g} m: the fit does not support meters"
        )
    return MetricScale("the known poses")


def _scale_from_distance(evidence: _Evidence) -> MetricScale | None:
    if evidence.known.distance is None:
        return None
    return scale_to_length(*evidence.known.distance, evidence.views)


def _scale_from_board(evidence: _Evidence) -> MetricScale | None:
    board = evidence.known.board
    return None if board is None else scale_to_board(board, evidence.views)


def _scale_from_rig(evidence: _Evidence) -> MetricScale | None:
    scale = None if evidence.prediction.sparse is None else evidence.prediction.sparse.scale
    return None if scale is None else _rebase(scale, evidence.base)


def _scale_from_gps(evidence: _Evidence) -> MetricScale | None:
    return None if evidence.gps is None else evidence.gps.to_scale()


def _scale_from_model(evidence: _Evidence) -> MetricScale | None:
    scale = evidence.prediction.scale
    return None if scale is None else _rebase(scale, evidence.base)


def _rebase(scale: MetricScale, base: Similarity) -> MetricScale:
    # The prediction's scale was measured before it was brought to the world of the known poses.
    return MetricScale(scale.source, scale.factor / float(base.scale), scale.low, scale.high, scale.detail)


SCALE_SOURCES: dict[str, Callable[[_Evidence], MetricScale | None]] = {
    "poses": _scale_from_poses,
    "distance": _scale_from_distance,
    "board": _scale_from_board,
    "rig": _scale_from_rig,
    "gps": _scale_from_gps,
    "model": _scale_from_model,
}
"""Each returns meters per unit, None where it does not apply, or says in a ValueError why it cannot tell."""


def find_world(
    views: Sequence[ReconstructedView], prediction: ScenePrediction, known: KnownGeometry
) -> WorldFrame:
    """Bring a prediction to what is known of its world and of its scale."""
    base, alignment = _align_to_known(views, prediction, known)
    views = [view.transform(base) for view in views]
    notes: list[str] = []
    gps = _align_to_places(views, known, notes)
    scales = _collect_scales(_Evidence(views, known, prediction, base, alignment, gps), notes)
    notes += describe_contradictions(scales)
    # In the order of the registry: what the user states comes before what devices and networks estimate.
    scale = scales[0] if scales else None
    identity = Similarity.identity()
    if known.count_poses() >= 2 and not known.estimated:
        if scale is not None and scale.factor != 1:
            notes.append(
                f"known poses are kept as they are; by {scale.describe()} one unit of them is {scale.factor:.4g} m"
            )
            scale = None
        if known.georeference:
            notes.append("known poses are kept as they are: the result is not brought to GPS")
        return WorldFrame(base, identity, alignment, scale, gps, None, tuple(notes))
    turned = gps is not None and gps.gives_rotation
    move = identity if scale is None else Similarity.from_scale(scale.factor)
    if gps is not None and turned and scale is not None:
        move = gps.with_factor(scale.factor)
    elif known.georeference:
        notes.append("the result is not georeferenced: GPS does not give its scale, heading and level")
    origin = gps.origin if gps is not None and turned and scale is not None else None
    return WorldFrame(move @ base, move, alignment, scale, gps, origin, tuple(notes))


def _align_to_known(
    views: Sequence[ReconstructedView], prediction: ScenePrediction, known: KnownGeometry
) -> tuple[Similarity, Alignment | None]:
    """Return the similarity to the world of known poses, and how well they agree if they are not kept."""
    if known.count_poses() < 2 or prediction.keeps_poses:
        return Similarity.identity(), None
    if known.distance is not None and not known.estimated:
        raise ValueError("known poses fix the scale already: leave out the known distance, or the alignment")
    alignment = align_to_poses([view.pose for view in views], known.poses)
    return alignment.similarity, alignment


def _align_to_places(
    views: Sequence[ReconstructedView], known: KnownGeometry, notes: list[str]
) -> GpsAlignment | None:
    """Align to GPS, if any photograph has it; says why not, and whose GPS is wrong, in notes."""
    if not any(known.places):
        return None
    centers = torch.stack([view.pose.translation.double() for view in views])
    try:
        found = align_to_gps(centers, known.places)
    except ValueError as error:
        notes.append(str(error))
        return None
    wrong = [views[number].name for number in found.list_wrong()]
    if wrong:
        some = ", ".join(wrong[:3]) + (", …" if len(wrong) > 3 else "")
        notes.append(f"GPS of {some} is not where the other photographs put it, and is not used")
    return found


def _collect_scales(evidence: _Evidence, notes: list[str]) -> list[MetricScale]:
    """Collect what all sources say, in their order; reasons why one cannot tell go to the notes."""
    scales = []
    for find in SCALE_SOURCES.values():
        try:
            scale = find(evidence)
        except ValueError as error:
            notes.append(str(error))
            continue
        if scale is not None:
            scales.append(scale)
    return scales
