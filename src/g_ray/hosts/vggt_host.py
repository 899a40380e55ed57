"""VGGT, and networks on its trunk: attention inside views and across them, with 2D RoPE in both."""

from typing import Any

from torch import nn

from g_ray.hosts.host_base import Host, HostCall, JointAttention, bind_layers, find_layers, get_head_dim
from g_ray.hosts.shared_modules import replace_modules


class VGGTHost(Host):
    """Camera and register tokens stand before the patches of every view; patches count from 1, special tokens are 0."""

    TITLE = "VGGT"
    CLASSES = ("vggt.models.vggt.VGGT", "vggt.models.aggregator.Aggregator")

    def find_head_dims(self, model: nn.Module) -> set[int]:
        return {get_head_dim(layer) for layer in _find_attention(model).values()}

    def get_options(self, model: nn.Module, name: str) -> dict[str, Any]:
        if name != "rope":
            return {"y_first": True}
        rope = _get_trunk(model).rope
        if rope is None:
            raise ValueError("this VGGT has no RoPE of its own: choose another encoding than 'rope'")
        own = {"base": float(rope.base_frequency), "scale": float(rope.scaling_factor)}
        return {"y_first": True, "coordinate": "grid_from_one", "rotate_values": False, **own}

    def bind(self, model: nn.Module, call: HostCall) -> nn.Module:
        images = call.get_argument("images", 0)
        trunk = _get_trunk(model)
        *_, count, _, height, width = images.shape  # [view 3 h w] or [batch view 3 h w]
        call.check_cameras(count, width, height)
        position = call.prepare(call.views.tokens(trunk.patch_size, special=trunk.patch_start_idx))
        return replace_modules(model, bind_layers(_find_attention(model), JointAttention, position))


def _get_trunk(model: Any) -> Any:
    return model.aggregator if hasattr(model, "aggregator") else model


def _find_attention(model: nn.Module) -> dict[str, Any]:
    prefix = "aggregator." if hasattr(model, "aggregator") else ""
    frame, across = (find_layers(model, f"{prefix}{name}_blocks", "attn") for name in ("frame", "global"))
    return {**frame, **across}
