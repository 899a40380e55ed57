"""π³ and π³-X: attention inside views and across them, and three decoders; the scale token of π³-X attends to all."""

from typing import Any

from torch import nn

from g_ray.hosts.host_base import (
    CrossAttention,
    Host,
    HostCall,
    JointAttention,
    bind_layers,
    find_layers,
    get_head_dim,
)
from g_ray.hosts.shared_modules import replace_modules
from g_ray.rays.layout import Layout, Segment
from g_ray.rays.views import Tokens

TRUNK = "decoder"
FRAME_BLOCKS = ("point_decoder.blocks", "conf_decoder.blocks", "camera_decoder.blocks")
CROSS_BLOCKS = "metric_decoder.blocks"


class Pi3CrossAttention(CrossAttention):
    PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class Pi3Host(Host):
    """Register tokens stand before the patches of every view; patches count from 1, special tokens are 0.

    π³-X takes `poses` itself: give `cameras=Views(cameras)` then. Its layers that read poses stay as they are.
    """

    TITLE = "π³"
    CLASSES = ("pi3.models.pi3.Pi3", "pi3.models.pi3x.Pi3X")

    def find_head_dims(self, model: nn.Module) -> set[int]:
        layers = [*_find_attention(model), _find_cross(model)]
        return {get_head_dim(layer) for part in layers for layer in part.values()}

    def get_options(self, model: nn.Module, name: str) -> dict[str, Any]:
        if name != "rope":
            return {"y_first": True}
        rope: Any = model.rope
        own = {"base": float(rope.base), "scale": float(rope.F0)}
        return {"y_first": True, "coordinate": "grid_from_one", "rotate_values": False, **own}

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        images = call.get_images("imgs", "batch view 3 h w")
        call.check_cameras(images.shape[1], images.shape[4], images.shape[3])
        tokens = call.views.tokens(model.patch_size, special=model.patch_start_idx)
        across = call.prepare(tokens)
        inside = call.prepare_frames(across, len(images))
        frame_layers, global_layers = _find_attention(model)
        changed = bind_layers(frame_layers, JointAttention, inside)
        changed |= bind_layers(global_layers, JointAttention, across)
        crossing = _find_cross(model)
        if crossing:
            scale_token = Tokens(call.views, Layout((Segment(None, special=1),)))
            changed |= bind_layers(crossing, Pi3CrossAttention, call.prepare(scale_token, tokens))
        return replace_modules(model, changed)


def _find_attention(model: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the attention inside views, and across them: every second layer of the trunk."""
    trunk = list(find_layers(model, TRUNK, "attn").items())
    inside = dict(trunk[::2])
    for name in FRAME_BLOCKS:
        inside |= find_layers(model, name, "attn")
    return inside, dict(trunk[1::2])


def _find_cross(model: nn.Module) -> dict[str, Any]:
    return find_layers(model, CROSS_BLOCKS, "cross_attn") if hasattr(model, "metric_decoder") else {}
