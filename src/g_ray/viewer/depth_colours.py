"""Depth as colour: near is bright, what is not valid is black."""

import torch
from jaxtyping import Bool, Float
from matplotlib import colormaps
from torch import Tensor


def color_depth(
    depth: Float[Tensor, "*view h w"], valid: Bool[Tensor, "*view h w"]
) -> Float[Tensor, "*view 3 h w"]:
    """Of depths between 0 and 1; beyond, colours end."""
    near = (1 - depth).clamp(0, 1).cpu().numpy()
    colors = torch.from_numpy(colormaps["viridis"](near)[..., :3]).to(torch.float32)
    return (colors * valid.cpu()[..., None]).movedim(-1, -3)
