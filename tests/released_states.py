"""Makes a miniature state dict of RayRoPE's LVSM, with the names of official code and weights drawn by name."""

from zlib import crc32

import numpy as np
import torch

DIM, LAYERS, HEAD, FFN, PATCH = 48, 2, 24, 32, 4


def make_shapes(patch: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes as their training writes them."""
    shapes: dict[str, tuple[int, ...]] = {
        "query_tokenizer.weight": (DIM, 6 * patch**2),
        "input_tokenizer.weight": (DIM, 9 * patch**2),
        "encoder.in_norm.weight": (DIM,),
        "encoder.out_norm.weight": (DIM,),
        "output_layer.weight": (3 * patch**2, DIM),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"encoder.layers.{layer}.{name}": shape
            for name, shape in {
                "self_attn.in_proj_weight": (3 * DIM, DIM),
                "self_attn.d_proj_weight": (2, DIM),
                "self_attn.d_proj_bias": (2,),
                "self_attn.out_proj.weight": (DIM, DIM),
                "self_attn.q_norm.weight": (HEAD,),
                "self_attn.k_norm.weight": (HEAD,),
                "linear1.weight": (FFN, DIM),
                "linear2.weight": (DIM, FFN),
                "norm1.weight": (DIM,),
                "norm2.weight": (DIM,),
            }.items()
        }
    return shapes


def draw_weights(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """As benchmarks/parity_lvsm.py drew them for the stored prediction of official code."""
    noise = torch.from_numpy(np.random.RandomState(crc32(name.encode())).standard_normal(shape))
    if name.endswith("d_proj_bias"):
        return (torch.tensor([0.0, 1.0]) + 0.3 * noise).float()
    if name.endswith("d_proj_weight"):
        return (0.5 * noise / shape[-1] ** 0.5).float()
    return (1 + 0.2 * noise if len(shape) == 1 else 1.5 * noise / shape[-1] ** 0.5).float()


def make_state(patch: int = PATCH, **changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """A whole state dict; changes replace tensors, or remove them where they are None."""
    state = {name: draw_weights(name, shape) for name, shape in make_shapes(patch).items()}
    return {name: value for name, value in {**state, **changes}.items() if value is not None}
