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
        return {get_head_dim(layer) for part in _find_attention(model) for layer in part.values()}

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
        across = call.prepare(call.views.tokens(trunk.patch_size, special=trunk.patch_start_idx))
        inside = call.prepare_frames(across, len(images) if images.ndim == 5 else 1)
        frame_layers, global_layers = _find_attention(model)
        changed = bind_layers(frame_layers, JointAttention, inside)
        return replace_modules(model, changed | bind_layers(global_layers, JointAttention, across))


def _get_trunk(model: Any) -> Any:
    return model.aggregator if hasattr(model, "aggregator") else model


def _find_attention(model: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the attention inside views, and across them."""
    prefix = "aggregator." if hasattr(model, "aggregator") else ""
    return find_layers(model, f"{prefix}frame_blocks", "attn"), find_layers(
        model, f"{prefix}global_blocks", "attn"
    )
