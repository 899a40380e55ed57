"""MODELS: whatever turns photographs with cameras into poses and depth, behind one interface.

A new model is a file with a `Predictor` and a line in MODELS; nothing here imports torch before a model is made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from g_ray.predictors.settings import DEFAULT_MODEL, WEIGHTS, ModelName, ModelSettings

if TYPE_CHECKING:
    from g_ray.predictors.base import Predictor

__all__ = ["DEFAULT_MODEL", "MODELS", "WEIGHTS", "ModelName", "ModelSettings", "make_predictor"]


def _make_stereo(settings: ModelSettings) -> "Predictor":
    """Structure from motion with the given lenses, then stereo along their rays."""
    from g_ray.predictors.stereo import StereoPredictor

    return StereoPredictor.from_settings(settings)


def _make_network(settings: ModelSettings) -> "Predictor":
    """The reconstruction network."""
    from g_ray.predictors.network import NetworkPredictor

    return NetworkPredictor.from_settings(settings)


MODELS: "dict[str, Callable[[ModelSettings], Predictor]]" = {
    "stereo": _make_stereo,
    "network": _make_network,
}


def make_predictor(name: str, settings: ModelSettings | None = None) -> "Predictor":
    """Make a model by its name; ValueError for an unknown one."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    return MODELS[name](settings or ModelSettings())
