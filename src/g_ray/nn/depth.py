"""RayRoPE's depth predictor: one linear layer that starts as 'anything between e⁻³ and e³'."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class DepthPredictor(nn.Module):
    """raw (ℓ, σ) = W x + b per token, shared by all heads; W starts at zero, b at (0, 3)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 2)
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.bias.copy_(torch.tensor([0.0, 3.0]))

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token 2"]:
        return self.linear(x)
