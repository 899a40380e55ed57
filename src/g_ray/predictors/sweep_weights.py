"""The shipped weights of the sweep network, with which stereo finds a depth for every pixel."""

from pathlib import Path

from g_ray.models.weights import load_weights, resolve_weights
from g_ray.stereo.sweep_network import SweepNetwork

STEREO_WEIGHTS = "g-ray-stereo"


def load_sweep_network(weights: Path = Path(STEREO_WEIGHTS)) -> SweepNetwork:
    """Load the network from a file or the shipped weights, prepared for inference.

    FileNotFoundError if the weights are not installed.
    """
    network = SweepNetwork()
    load_weights(network, resolve_weights(weights))
    return network.requires_grad_(False).eval()
