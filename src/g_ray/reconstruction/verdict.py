"""Report how good a reconstruction is: figures, and sentences that compare them with cameras that stand still."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.media.view import View
from g_ray.predictors.model_settings import ROOMS_WEIGHTS
from g_ray.predictors.predictor import Predictor, SceneInput, ScenePrediction
from g_ray.reconstruction.alignment import Alignment
from g_ray.reconstruction.grade import grade_result
from g_ray.reconstruction.world import WorldFrame
from g_ray.stereo import DepthMap, StereoOptions, check_consistency, choose_sources

FOCAL_CHANGE = 0.02
"""Relative change of a focal length that is named."""
AGREEMENT = 0.05
"""Relative difference up to which depths of two views agree, where a model does not compare pictures itself."""


def judge(
    scene: SceneInput,
    prediction: ScenePrediction,
    views: Sequence[ReconstructedView],
    world: WorldFrame,
    predictor: Predictor,
) -> dict[str, Any]:
    """Return figures by name, the "grade" with its worst "limit", and "verdict", readable sentences."""
    figures: dict[str, Any] = {"model": predictor.NAME, "views": len(scene.views), "placed": len(views)}
    figures |= prediction.figures
    sentences = [_describe_placed(scene, prediction, len(views))]
    sentences.append(_describe_guesses(figures))
    if prediction.sparse is not None:
        figures["standing_still_px"] = _measure_standing_still(prediction)
        sentences.append(_describe_reprojection(figures))
    if "share_with_depth" not in figures and len(views) > 1:  # stereo has removed what no other view confirms
        figures["agreeing_share"] = _measure_agreeing(views)
    sentences.append(_describe_depth(prediction, figures))
    sentences.append(_describe_lens(figures))
    sentences.append(_describe_given_poses(figures))
    if world.alignment is not None:
        figures |= _compare_with_standing_still(world.alignment, views)
        sentences.append(_describe_alignment(figures))
    elif prediction.keeps_poses:
        kind = "Estimated" if any(view.is_estimated for view in scene.views) else "Known"
        sentences.append(_describe_kept_poses(kind, prediction, figures))
    sentences.append(_describe_scale(world))
    if world.scale is not None:
        figures["scale"] = world.scale.to_figures()
    if predictor.describe_settings().get("weights") == ROOMS_WEIGHTS:
        sentences.append(
            f"{ROOMS_WEIGHTS} was trained on procedural rooms of 48 px: its poses and depth of photographs are not "
            "reliable. Use --model stereo."
        )
    grade, limit = grade_result(figures, prediction.sparse is not None)
    return {
        "grade": grade,
        "limit": limit,
        "verdict": [sentence for sentence in sentences if sentence],
        **figures,
    }


def _describe_placed(scene: SceneInput, prediction: ScenePrediction, placed: int) -> str:
    total = len(scene.views)
    if total == 1:
        return "One photograph alone has no parallax: nothing but the model says how far anything is."
    if placed == total:
        return f"All {total} photographs are placed."
    missing = [
        view.name for view, result in zip(scene.views, prediction.views, strict=True) if result is None
    ]
    some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
    return f"{placed} of {total} photographs are placed; left out: {some}."


def _describe_guesses(figures: dict[str, Any]) -> str:
    names = figures.get("placed_by_network", ())
    if not names:
        return ""
    some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"{len(names)} of them stand where the network put them, because matching could not: {some}."


def _measure_standing_still(prediction: ScenePrediction) -> float:
    """Return the median motion of features between views, in pixels: the error of cameras that stand still.

    Each observation is compared with the mean ray of its point's other observations, as if all cameras shared one
    pose.
    """
    sparse = prediction.sparse
    assert sparse is not None
    rays = torch.zeros(len(sparse.tracks), 3, dtype=torch.float64)
    focal = torch.ones(len(sparse.tracks), dtype=torch.float64)
    for index in sparse.registered:
        rows = (sparse.tracks.view == index).nonzero()[:, 0]
        camera = sparse.cameras[index].to(torch.float64)
        rays[rows] = camera.unproject(sparse.tracks.pixel[rows])[0]
        # Pixels per radian across the whole image turn an angle into pixels.
        focal[rows] = camera.width / math.radians(float(camera.fov().horizontal_deg))
    total = torch.zeros(len(sparse.points), 3, dtype=torch.float64).index_add_(0, sparse.tracks.point, rays)
    others = torch.nn.functional.normalize(total[sparse.tracks.point] - rays, dim=-1)
    angle = 2 * torch.asin(((others - rays).norm(dim=-1) / 2).clamp(max=1))
    return float((angle * focal).median()) if len(angle) else math.nan


def _describe_reprojection(figures: dict[str, Any]) -> str:
    if not figures.get("observations"):
        figures["relative_error"] = math.inf
        return "No feature could be triangulated: the range of depth is a guess."
    figures["relative_error"] = figures["median_error_px"] / figures["long_side_px"]
    return (
        f"Reprojection error {figures['median_error_px']:.2f} px, median of {figures['observations']:,.0f} "
        f"features ({figures['standing_still_px']:.0f} px if the cameras stood still)."
    )


def _measure_agreeing(views: Sequence[ReconstructedView]) -> float:
    """Return the share of depths with which another view's agree."""
    options = StereoOptions(max_depth_error=AGREEMENT, max_expected_error=math.inf)
    inputs = [View(view.name, view.camera, view.pose) for view in views]
    depths = [DepthMap(view.ray_depth, torch.ones_like(view.ray_depth), view.valid) for view in views]
    try:
        sources = choose_sources(inputs, None, options)
    except ValueError:  # all cameras in one place: nothing to compare
        return 0.0
    checked = check_consistency(inputs, depths, sources, options, max_reprojection_px=math.inf)
    count = sum(int(depth.valid.sum()) for depth in depths)
    return sum(int(depth.valid.sum()) for depth in checked) / max(1, count)


def _describe_depth(prediction: ScenePrediction, figures: dict[str, Any]) -> str:
    if "share_with_depth" not in figures:
        if "agreeing_share" not in figures:
            return ""
        return (
            f"{figures['agreeing_share']:.0%} of the depths agree among the views to {AGREEMENT:.0%}; they come from "
            "one model, so that this does not show that they are right."
        )
    figures["fused_points"] = 0 if prediction.cloud is None else len(prediction.cloud)
    expected = ""
    if "expected_error" in figures:
        middle, high = figures["expected_error"], figures["expected_error_90"]
        expected = (
            f", expected to be off by {middle:.1%} in the median (a tenth of them by more than {high:.1%})"
        )
    return (
        f"{figures['share_with_depth']:.0%} of the pixels have a depth that another view confirms{expected}."
        + (
            f" {figures['share_filled']:.0%} are filled by the network."
            if figures.get("share_filled")
            else ""
        )
    )


def _describe_lens(figures: dict[str, Any]) -> str:
    """Say whether another lens would fit the same tracks better, and what photographs cannot tell."""
    if "share_with_depth" not in figures:
        return ""
    lens = figures.get("lens")
    if lens is None:
        return "The calibration is taken as given: nothing here has checked it."
    errors = "both halves of the features find it"
    if lens["free_px"] < lens["given_px"]:
        errors = (
            f"error of features not used for it {lens['free_px']:.2f} px instead of {lens['given_px']:.2f}"
        )
    focal = f"{lens['better_px']:.0f} px instead of {lens['focal_px']:.0f}"
    if lens["contradicts"]:
        moved = abs(math.log(lens["better_px"] / lens["focal_px"])) > FOCAL_CHANGE
        what = f"a focal length of {focal}" if moved else "another center or distortion"
        return f"The calibration does not fit these photographs: {what} would ({errors})."
    if lens["undecided"]:
        return (
            f"These photographs cannot tell the focal length: {focal} would fit as well. The calibration is taken as "
            "given."
        )
    return "The calibration fits the photographs, which do not show whether they are mirrored."


def _describe_given_poses(figures: dict[str, Any]) -> str:
    excess = figures.get("pose_excess_px")
    if excess is None or excess <= 1e-3 * figures["long_side_px"]:
        return ""
    return (
        f"Poses estimated from these photographs would fit them better than the given ones (by {excess:.1f} px of "
        "reprojection error): compare with --poses align."
    )


def _compare_with_standing_still(
    alignment: Alignment, views: Sequence[ReconstructedView]
) -> dict[str, float]:
    known = [view.true_pose for view in views if view.true_pose is not None]
    estimated = [view.pose for view in views if view.true_pose is not None]
    return {
        "position_error_of_extent": alignment.position_rmse / max(alignment.position_extent, 1e-12),
        "rotation_between_views_deg": _measure_relative_rotation(
            [pose.rotation.double() for pose in estimated], [pose.rotation.double() for pose in known]
        ),
        "rotation_standing_still_deg": _measure_relative_rotation(
            [torch.eye(3, dtype=torch.float64)] * len(known), [pose.rotation.double() for pose in known]
        ),
    }


def _measure_relative_rotation(estimated: Sequence[Tensor], known: Sequence[Tensor]) -> float:
    """Return the median error of the rotation between two views, over all pairs, in degrees."""
    one, other = torch.stack(list(estimated)), torch.stack(list(known))
    # R_ij = R_iᵀ R_j of both sides, compared by the angle of the product.
    estimated_pairs = torch.einsum("iba,jbc->ijac", one, one)
    known_pairs = torch.einsum("iba,jbc->ijac", other, other)
    first, second = torch.triu_indices(len(one), len(one), 1)
    off = (estimated_pairs - known_pairs)[first, second].flatten(-2).norm(dim=-1) / 8**0.5
    return float((2 * torch.asin(off.clamp(max=1))).rad2deg().median())


def _describe_alignment(figures: dict[str, Any]) -> str:
    return (
        f"Against known poses: positions off by {figures['position_error_of_extent']:.2%} of their extent "
        f"(100 % if the cameras stood still), rotations between views by {figures['rotation_between_views_deg']:.2f}° "
        f"({figures['rotation_standing_still_deg']:.0f}° if they stood still)."
    )


def _describe_kept_poses(kind: str, prediction: ScenePrediction, figures: dict[str, Any]) -> str:
    agreement = None if prediction.sparse is None else prediction.sparse.agreement
    if agreement is None or not agreement.matches:
        return f"{kind} poses are kept; no matches of the photographs could check them."
    figures["pose_agreement"] = agreement.match_share
    return (
        f"{kind} poses are kept: {agreement.match_share:.0%} of {agreement.matches:,} matches agree with them "
        f"(median distance to the epipolar line {agreement.match_median_px:.2f} px)."
    )


def _describe_scale(world: WorldFrame) -> str:
    if world.scale is None:
        return "Scale unknown: distances are relative."
    return f"Distances are in meters, from {world.scale.describe()}."
