"""MODELS: whatever turns photographs with cameras into poses and depth, behind one interface.

A new model is a file with a `Predictor` and a line in MODELS; nothing here imports torch before a model is made.
"""

from collections.abc import Callable
from dataclasses import replace
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

    return NetworkPredictor.from_settings(replace(settings, place_by=settings.place_by or "matches"))


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
    asks_network = settings.fill is not None or settings.unplaced is not None
    if name == "stereo" and settings.weights is not None and not asks_network:
        raise ValueError("--model stereo has no weights: leave out --weights, or add --fill network")
    if name != "stereo" and asks_network:
        raise ValueError(f"--fill and --unplaced add a network to stereo: leave them out with --model {name}")
    if name != "network" and settings.place_by is not None:
        raise ValueError(f"--place-by is for --model network: leave it out with --model {name}")
    if name == "network" and settings.refine:
        raise ValueError("--refine is for other models: leave it out, --model network has --place-by")
    if name not in PEERS and settings.lenses == "predicted":
        raise ValueError(f"--model {name} finds no lenses: leave out --lenses predicted")
    return MODELS[name](settings)


def choose_model(settings: ModelSettings) -> str:
    """Return the model that the given weights belong to, or the default."""
    if settings.weights is None or settings.fill is not None or settings.unplaced is not None:
        return DEFAULT_MODEL
    from g_ray.predictors.detection import detect_model

    return detect_model(settings.weights)
