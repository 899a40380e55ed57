"""The interface of whatever predicts a scene: views in; pose, ray distance, confidence and validity of each out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.media.view import View

if TYPE_CHECKING:
    from g_ray.export.points import PointCloud
    from g_ray.geometry.metric_scale import MetricScale
    from g_ray.sfm.rig import Rig
    from g_ray.sfm.sparse_scene import SparseScene

Prior = Literal["poses", "masks", "rig"]
"""What a user may know in addition to photographs and cameras."""

Progress = Callable[[str, float], None]
"""Called with the name of a stage and the share of it that is done."""


@dataclass(frozen=True, eq=False)
class SceneInput:
    """Photographs with cameras; a view's `pose` and `mask` are given where they are known."""

    views: Sequence[View]
    rig: "Rig | None" = None
    """Cameras that move together."""

    def __post_init__(self) -> None:
        names = [view.name for view in self.views]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two views are named {twice!r}: give every view its own name")

    def select(self, views: Sequence[int]) -> "SceneInput":
        """Return some of the views."""
        rig = None if self.rig is None else self.rig.select(views)
        return SceneInput([self.views[view] for view in views], rig)

    def list_priors(self) -> list[Prior]:
        """List what is known in addition to photographs and cameras."""
        known: dict[Prior, bool] = {
            "poses": any(view.pose is not None for view in self.views),
            "masks": any(view.mask is not None for view in self.views),
            "rig": self.rig is not None,
        }
        return [name for name, given in known.items() if given]


@dataclass(frozen=True, eq=False)
class ScenePrediction:
    """A model's prediction for a scene: all views in one world, whose scale is unknown unless poses or a rig fix it."""

    views: tuple[ReconstructedView | None, ...]
    """In the order of the input; None for a view that the model could not place."""
    reasons: tuple[str | None, ...] = ()
    """Why a view is None."""
    keeps_poses: bool = False
    """The world is that of the given poses, which were not changed."""
    scale: "MetricScale | None" = None
    """The model's own estimate of the unit of its world; None if it is arbitrary, or that of poses or of a rig."""
    sparse: "SparseScene | None" = None
    """Structure from motion: points with their tracks."""
    cloud: "PointCloud | None" = None
    """Points that several views agree on; None: take the pixels of the views."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Quality figures."""
    notes: tuple[str, ...] = ()

    def select(self, views: Sequence[int]) -> "ScenePrediction":
        """Return the prediction of some views; all that have one must be among them."""
        number = np.full(len(self.views), -1)
        number[list(views)] = np.arange(len(views))
        return replace(
            self,
            views=tuple(self.views[view] for view in views),
            reasons=tuple(self.reasons[view] for view in views),
            sparse=None if self.sparse is None else self.sparse.select(views),
            cloud=None if self.cloud is None else replace(self.cloud, view=number[self.cloud.view]),
            figures=self.figures | {"views": float(len(views))},
        )


@dataclass(frozen=True)
class Cost:
    """What a run takes, estimated beforehand."""

    seconds: float
    memory: int
    """Bytes of the whole process at its peak."""
    text: str
    """Human-readable form: what is done, and in which steps."""
    held: int = 0
    """Bytes of the process while files are written."""
    fused: float = 0.0
    """Pixels of the depth maps that are fused into points, from which a mesh is made; 0: none are."""


@runtime_checkable
class Predictor(Protocol):
    """A model that reconstructs scenes. `MODELS` in `g_ray.predictors` names them."""

    USES: ClassVar[frozenset[Prior]]
    """Priors that it uses; callers must not give it others (`check_priors`)."""

    @property
    def NAME(self) -> str:
        """The name in `MODELS`."""
        ...

    def estimate_cost(self, scene: SceneInput) -> Cost:
        """Estimate time and memory of `predict`."""
        ...

    def describe_settings(self) -> dict[str, Any]:
        """Return the settings that decide the result, for result.json and for the key of a resumed run."""
        ...

    def predict(
        self, scene: SceneInput, work: Path | None = None, progress: Progress = lambda stage, share: None
    ) -> ScenePrediction:
        """Predict all views; ValueError in one line if the scene cannot be predicted.

        With a `work` folder finished parts are kept there, and an interrupted run resumes from them.
        """
        ...

    def load_finished(self, scene: SceneInput, work: Path) -> ScenePrediction | None:
        """Return what an interrupted run has finished, if it can be looked at."""
        ...


def check_priors(predictor: Predictor, scene: SceneInput) -> None:
    """Raise ValueError for a prior that the model would ignore."""
    for prior in scene.list_priors():
        if prior not in predictor.USES:
            raise ValueError(
                f"--model {predictor.NAME} cannot use the given {prior}: leave them out, or use --model stereo"
            )
