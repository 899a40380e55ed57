"""MODELS: whatever turns photographs with cameras into poses and depth, behind one interface.

A new model is a file with a `Predictor` and a line in MODELS; nothing here imports torch before a model is made.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from g_ray.predictors.model_settings import DEFAULT_MODEL, WEIGHTS, ModelName, ModelSettings
from g_ray.predictors.peers import PEERS, make_peer

if TYPE_CHECKING:
    from g_ray.predictors.predictor import Predictor

__all__ = [
    "DEFAULT_MODEL",
    "MODELS",
    "WEIGHTS",
    "ModelName",
    "ModelSettings",
    "choose_model",
    "make_predictor",
]


def _make_stereo(settings: ModelSettings) -> "Predictor":
    """Structure from motion with the given lenses, then stereo along their rays."""
    from g_ray.predictors.stereo_predictor import StereoPredictor

    return StereoPredictor.from_settings(settings)


def _make_network(settings: ModelSettings) -> "Predictor":
    """The reconstruction network."""
    from g_ray.predictors.network_predictor import NetworkPredictor

    return NetworkPredictor.from_settings(settings)


MODELS: "dict[str, Callable[[ModelSettings], Predictor]]" = {
    "stereo": _make_stereo,
    "network": _make_network,
    **{name: partial(make_peer, name) for name in PEERS},
}


def make_predictor(name: str | None, settings: ModelSettings | None = None) -> "Predictor":
    """Make a model by its name, or the one that the weights belong to; ValueError for settings that it would ignore."""
    settings = settings or ModelSettings()
    name = name or choose_model(settings)
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    return MODELS[name](settings.adapt_to(name))


def choose_model(settings: ModelSettings) -> str:
    """Return the model that the given weights belong to, or the default."""
    if settings.weights is None or settings.adds_network:
        return DEFAULT_MODEL
    from g_ray.predictors.network_predictor import detect_model

    return detect_model(settings.weights)
