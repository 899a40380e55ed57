"""LVSM as released with RayRoPE (Lucas-707/RayRoPE): its names here, and the network that its tensors describe.

Sizes are read off shapes. What no tensor shows (input channels, the encoding where no depth is predicted, RayRoPE's
depth coordinate) has to be said.
"""

import re
from collections.abc import Mapping
from math import isqrt
from typing import get_args

from torch import Tensor

from g_ray.encodings import ENCODINGS
from g_ray.models.lvsm_config import METHODS, Conditioning, EncodingOptions, LVSMConfig, Method
from g_ray.nn.conditioning import CHANNELS

MARK = "query_tokenizer.weight"
"""A tensor that every such checkpoint has, and no other that we read."""

NAMES = (
    (r"^(module\.|_orig_mod\.)+", ""),  # of DistributedDataParallel and torch.compile
    (r"^input_tokenizer\.", "context_tokens."),
    (r"^query_tokenizer\.", "target_tokens."),
    (r"^output_layer\.", "pixels."),
    (r"^shared_rays$", "ray_channels.noise"),
    (r"^encoder\.in_norm\.", "input_norm."),
    (r"^encoder\.out_norm\.", "output_norm."),
    (r"^encoder\.layers\.(\d+)\.", r"blocks.\1."),
    (r"\.norm1\.", ".attention_norm."),
    (r"\.norm2\.", ".ffn_norm."),
    (r"\.linear1\.", ".widen."),
    (r"\.linear2\.", ".narrow."),
    (r"\.self_attn\.in_proj_weight$", ".attention.qkv.weight"),
    (r"\.self_attn\.out_proj\.", ".attention.out."),
    (r"\.self_attn\.d_proj_(weight|bias)$", r".attention.depth.linear.\1"),
    (r"\.self_attn\.", ".attention."),
)
"""Patterns of their names and ours, applied in this order."""

COLORS = 3
DEPTH_OUTPUTS = 2
"""Logarithm of the depth and half the width of its interval."""


def rename_from_released(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a released LVSM to ours."""
    renamed = {}
    for name, value in state.items():
        for pattern, ours in NAMES:
            name = re.sub(pattern, ours, name)
        renamed[name] = value
    return renamed


def read_released_config(state: Mapping[str, Tensor], method: str | None, depth: str) -> LVSMConfig:
    """Return the config of renamed tensors, or raise ValueError for a variant that has no counterpart here.

    `method` is a row of METHODS or CONDITIONING+ENCODING, e.g. plucker+none; None only where depths are predicted,
    which is RayRoPE.
    """
    layers = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    dim, inputs = state["context_tokens.weight"].shape
    patch = isqrt(state["pixels.weight"].shape[0] // COLORS)
    if inputs != (COLORS + CHANNELS) * patch**2:
        raise ValueError(
            f"its context tokens take {inputs / patch**2:g} channels of {patch}×{patch} patches, not "
            f"{COLORS + CHANNELS}: networks with depth among their inputs cannot be converted"
        )
    biased = [name for name in state if name.endswith("bias") and ".depth." not in name]
    if biased or "blocks.0.attention.q_norm.weight" not in state:
        raise ValueError(
            "it has biases, or no norm of queries and keys: networks of scripts/nvs.sh have none, and one"
        )
    conditioning, encoding = choose_method(state, method)
    heads = dim // len(state["blocks.0.attention.q_norm.weight"])
    ffn = state["blocks.0.widen.weight"].shape[0]
    options = make_released_options(encoding, depth)
    return LVSMConfig(dim, layers, heads, ffn, patch, conditioning, encoding, options)


def choose_method(state: Mapping[str, Tensor], method: str | None) -> Method:
    """Return the input channels and the encoding, checked against what the tensors show of them."""
    predicted = state.get("blocks.0.attention.depth.linear.weight")
    if predicted is not None and len(predicted) != DEPTH_OUTPUTS:
        raise ValueError("it predicts a depth without an interval: only predict_dsig can be converted")
    if method is None:
        if predicted is None:
            raise ValueError(
                f"its tensors do not show how it uses cameras: give --method, one of {', '.join(METHODS)} or "
                "CONDITIONING+ENCODING, e.g. plucker+none"
            )
        method = "rayrope"
    chosen = METHODS[method] if method in METHODS else parse_method(method)
    if (chosen.encoding in ("rayrope", "rayrope_gray")) != (predicted is not None):
        has = "predicts depths, which RayRoPE does" if predicted is not None else "predicts no depths"
        raise ValueError(f"--method {method}: the network {has}; give the method it was trained with")
    if (chosen.conditioning == "none") != ("ray_channels.noise" in state):
        raise ValueError(f"--method {method}: input channels none and a tensor shared_rays go together")
    return chosen


def parse_method(text: str) -> Method:
    """Parse CONDITIONING+ENCODING."""
    for conditioning in get_args(Conditioning):
        for encoding in ENCODINGS:
            if text == f"{conditioning}+{encoding}":
                return Method(conditioning, encoding)
    raise ValueError(
        f"--method {text}: give one of {', '.join(METHODS)}, or CONDITIONING+ENCODING with one of "
        f"{', '.join(get_args(Conditioning))} and one of {', '.join(ENCODINGS)}"
    )


def make_released_options(encoding: str, depth: str) -> EncodingOptions:
    """Return the options with which an encoding computes what released code does."""
    if encoding == "none":
        return {}
    if not encoding.startswith("rayrope"):
        return {"sign": -1}  # released code rotates the other way
    # Narrow intervals are points in released code; our default has no such threshold.
    return {"sign": -1, "expectation": "threshold", "depth": depth}
