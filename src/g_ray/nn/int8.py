"""Transformer layers in 8-bit integers, for inference on CPUs.

Weights are quantized once, with one scale per output channel; activations in every call, with one scale per token:

    y = (round(x / s_x) · round(W / s_w)ᵀ) s_x s_w + b,    s_x = max|x| / 127 per token, s_w = max|W| / 127 per row

The product of integers is exact. Everything between the linear maps (norms, rotations, attention, GELU) stays float32.
"""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.nn.transformer import Block
from g_ray.runtime.device import has_int8_instructions

Network = TypeVar("Network", bound=nn.Module)

LARGEST = 127
"""Symmetric, so that zero stays zero and no offset has to be corrected."""


class Int8Linear(nn.Module):
    """A linear map whose weights and inputs are 8-bit integers; it cannot be trained."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        # A row of zeros has no scale of its own; any will do.
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())

    def forward(self, x: Float[Tensor, "*batch channel"]) -> Float[Tensor, "*batch out"]:
        flat = x.reshape(-1, x.shape[-1]).float()
        # Ten times as fast as aminmax along an axis, which has no vector instructions.
        largest = flat.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        codes = (flat * (LARGEST / largest)).round_().to(torch.int8)
        product = torch._int_mm(codes, self.weight.T)  # pyright: ignore[reportPrivateImportUsage]
        product = product.float().mul_(largest / LARGEST)
        out = product.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, product, self.scale)
        return out.unflatten(0, x.shape[:-1])


def quantize_blocks(network: Network) -> Network:
    """Quantize the linear maps of all transformer blocks of a network, in place."""
    for block in network.modules():
        if isinstance(block, Block):
            for parent in (block.attn, block.mlp):
                for name, child in list(parent.named_children()):
                    if isinstance(child, nn.Linear):
                        setattr(parent, name, Int8Linear(child))
    return network


def check_int8(device: torch.device) -> None:
    """Raise ValueError where 8-bit integers are not faster."""
    if device.type != "cpu":
        raise ValueError(f"--precision int8 is for CPUs, not for {device.type}: use bf16")
    if not has_int8_instructions():
        raise ValueError("--precision int8: this CPU has no VNNI instructions, so fp32 is faster: use fp32")
