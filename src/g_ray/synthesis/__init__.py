"""Photographs and their cameras in, the picture of any other camera out: what `g-ray synthesize` does, as a library.

It stands right below the command line, since it joins what others keep apart: weights and the recipe inside them
(recipes), the network (models), and resampling of image and camera together (data).
"""

from g_ray.synthesis.network import Network, load_network
from g_ray.synthesis.synthesiser import Synthesizer

__all__ = ["Network", "Synthesizer", "load_network"]
