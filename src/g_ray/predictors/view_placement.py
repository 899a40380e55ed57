"""Place photographs for stereo: structure from motion, or triangulation with given poses, and how well it is known."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import Progress, SceneInput
from g_ray.sfm import SfMOptions, SparseScene, reconstruct_cameras, refine, triangulate
from g_ray.sfm.lens_check import check_lenses
from g_ray.sfm.pose_uncertainty import measure_excess_px, sample_poses
from g_ray.stereo import Uncertainty
from g_ray.stereo.expected_error import ASSUMED_NOISE_PX

MIN_FEATURES = 20
"""Features of a view from which its own reprojection error is known."""


@dataclass(frozen=True, eq=False)
class PlacedScene:
    """Poses and points of a scene."""

    sparse: SparseScene
    keeps_poses: bool
    """Whether the poses are the given ones."""
    options: SfMOptions
    figures: dict[str, Any] = field(default_factory=dict)
    """Of a refinement."""

    def measure_uncertainty(self, views: Sequence[View]) -> Uncertainty:
        """Measure the noise of features in pixels of the stereo images, and draw poses that these allow.

        `views` are the placed ones, in their order.
        """
        sparse, indices = self.sparse, list(self.sparse.registered)
        errors = sparse.compute_errors_px()
        noise = []
        for index, view in zip(indices, views, strict=True):
            own = errors[sparse.tracks.view == index]
            known = own if len(own) >= MIN_FEATURES else errors
            if not len(known):
                noise.append(ASSUMED_NOISE_PX)
                continue
            scale = max(view.size) / max(sparse.cameras[index].width, sparse.cameras[index].height)
            noise.append(float(known.median()) * scale)
        if not len(sparse.points):
            return Uncertainty(noise)
        return Uncertainty(noise, sample_poses(sparse, self.options, self.keeps_poses)[:, indices])

    def check_calibration(self) -> dict[str, Any]:
        """Return figures on the lens, and on given poses, compared with those that fit the same tracks best."""
        figures: dict[str, Any] = {}
        check = check_lenses(self.sparse, self.options)
        if check is not None:
            figures["lens"] = asdict(check) | {"undecided": check.undecided}
        if self.keeps_poses:
            figures["pose_excess_px"] = measure_excess_px(self.sparse, self.options)
        return figures


def place_views(
    scene: SceneInput,
    options: SfMOptions,
    adjusts: bool = False,
    unplaced: NetworkPredictor | None = None,
    work: Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> PlacedScene:
    """Find the poses of at least two views, or take the given ones, and the points that they see.

    With `adjusts` poses are refined by bundle adjustment if tracks that were held out improve; `unplaced` guesses the
    poses of photographs that matching cannot place.
    """
    keeps_poses = sum(view.pose is not None for view in scene.views) >= 2
    guess = None if unplaced is None else partial(_guess_poses, unplaced, scene)
    folder = None if work is None else work / "sfm"
    if keeps_poses:
        sparse = triangulate(
            scene.views, options=options, work_folder=folder, report=progress, guess_poses=guess
        )
    else:
        sparse = reconstruct_cameras(
            scene.views,
            rig=scene.rig,
            options=options,
            work_folder=folder,
            report=progress,
            guess_poses=guess,
        )
    _check_points(sparse)
    placed = PlacedScene(sparse, keeps_poses, options)
    placed = _refine(placed) if adjusts else placed
    count = len(placed.sparse.registered)
    if count < 2:
        raise ValueError(
            f"{count} of {len(scene.views)} photographs could be placed: depth needs two or more"
        )
    return placed


def _guess_poses(network: NetworkPredictor, scene: SceneInput) -> list[Pose]:
    """Predict the poses of all photographs, in the network's own world."""
    views = network.predict(SceneInput([replace(view, pose=None) for view in scene.views])).views
    return [view.pose for view in views if view is not None]


def _check_points(sparse: SparseScene) -> None:
    """Stop if all poses are guesses that nothing checks: depth found with them would be chance."""
    if sparse.guessed and not len(sparse.points):
        raise ValueError(
            "no feature of any photograph matches another one, so that nothing can be measured from the network's "
            "poses: give photographs that overlap, or take all from the network (--model network)"
        )


def _refine(placed: PlacedScene) -> PlacedScene:
    """Adjust poses; returns the better scene with both errors."""
    found = refine(placed.sparse, options=placed.options, measured=placed.keeps_poses)
    outcome = "kept" if found.kept else "not kept"
    note = (
        f"refinement {outcome}: reprojection error of {found.held_out} held-out tracks "
        f"{found.before_px:.2f} px before, {found.after_px:.2f} px after"
    )
    return replace(
        placed,
        sparse=found.scene.add_notes(note),
        keeps_poses=placed.keeps_poses and not found.kept,
        figures={"held_out_px_before": found.before_px, "held_out_px_after": found.after_px},
    )
