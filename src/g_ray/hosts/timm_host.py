"""Eva (EVA-02, DINOv3, PE, …) and VisionTransformer in timm: images that do not see each other, one camera each."""

from math import pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from g_ray.encodings import Prepared
from g_ray.hosts.dino_host import ImageHost
from g_ray.hosts.host_base import HostCall, attend, check_plain
from g_ray.nn.attention import is_private


class TimmAttention(nn.Module):
    """Self-attention with the names of timm's `EvaAttention`, `AttentionRope` and `Attention`.

    Positions that the network passes itself are not used.
    """

    num_heads: int
    head_dim: int
    q_norm: nn.Module
    k_norm: nn.Module
    attn_drop: nn.Dropout
    norm: nn.Module
    proj: nn.Module
    proj_drop: nn.Module
    position: Prepared

    def forward(
        self, x: Tensor, rope: Any = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        dropout = self.attn_drop.p if self.training else 0.0
        check_plain("attention", dropout, attn_mask=attn_mask, is_causal=is_causal or None)
        projections = [
            part for name in ("qkv", "q_proj", "k_proj", "v_proj") if (part := getattr(self, name, None))
        ]
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in self._project(x))
        q, k = self.q_norm(q), self.k_norm(k)
        if k.shape[1] < q.shape[1]:  # heads that share keys and values
            k, v = (part.repeat_interleave(self.num_heads // part.shape[1], dim=1) for part in (k, v))
        private = is_private(projections, [self.q_norm, self.k_norm])
        out = self.norm(attend(q, k, v, self.position, private))
        if (gate := getattr(self, "gate", None)) is not None:
            out = out * gate(x).sigmoid()
        return self.proj_drop(self.proj(out))

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        layer: Any = self
        if layer.qkv is None:
            return layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)
        if getattr(layer, "q_bias", None) is None:
            return layer.qkv(x).chunk(3, -1)
        # Keys have a bias of zeros, so that the projection is one.
        bias = torch.cat((layer.q_bias, layer.k_bias, layer.v_bias))
        if layer.qkv_bias_separate:
            return (layer.qkv(x) + bias).chunk(3, -1)
        return F.linear(x, layer.qkv.weight, bias).chunk(3, -1)


class TimmHost(ImageHost):
    """Prefix tokens stand before the patches of every image.

    Learned positions that are added to the input stay. Eva also turns patches by their row and column ("cat") or by
    their normalized position ("dinov3"); where it does not, and for VisionTransformer, the own encoding is "none".
    """

    TITLE = "Eva and VisionTransformer of timm"
    CLASSES = ("timm.models.eva.Eva", "timm.models.vision_transformer.VisionTransformer")
    IMAGES = "x"
    LAYERS = ("EvaAttention", "AttentionRope", "Attention")
    ATTENTION = TimmAttention
    VERSION = "timm 1"

    def get_patches(self, model: Any) -> tuple[tuple[int, int], int]:
        return model.patch_embed.feat_ratio(as_scalar=False), model.num_prefix_tokens

    def get_options(self, model: Any, name: str) -> dict[str, Any]:
        rope = getattr(model, "rope", None)
        half = rope is None or any(getattr(layer, "rotate_half", False) for layer in model.modules())
        y_first = getattr(rope, "grid_indexing", "ij") == "ij"
        layout = {"y_first": y_first, "pairing": "half" if half else "interleaved"}
        if name != "rope" or rope is None:
            return layout
        return {**layout, "rotate_values": False, **_get_coordinate(rope), "base": float(rope.temperature)}

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        if model.training and getattr(getattr(model, "patch_drop", None), "prob", 0.0):
            raise ValueError(f"{type(model).__name__} drops patches in training: set patch_drop_rate to 0")
        return super().bind(model, call)


def _get_coordinate(rope: Any) -> dict[str, Any]:
    """Get the coordinate in which a rotary embedding measures patches, with its scale and offset."""
    kind = type(rope).__name__
    grid: Any = getattr(rope, "feat_shape", None)
    reference: Any = getattr(rope, "ref_feat_shape", None)
    if kind == "RotaryEmbeddingDinoV3" and rope.normalize_coords == "separate" and not rope.min_period:
        # Phases 2π c ω with c in [−1, 1] over each side of the image; ours run from −½ to ½.
        scale, shift = 4 * pi, (0.0, rope.grid_offset)
    elif kind == "RotaryEmbeddingCat" and not rope.in_pixels and reference is None:
        return {"coordinate": "grid", "offset": (rope.grid_offset, rope.grid_offset)}
    elif kind == "RotaryEmbeddingCat" and not rope.in_pixels and reference[0] == reference[1]:
        # Indices are stretched to the grid of pretraining, and count from its edge, not from its center.
        scale, shift = float(reference[0]), (0.5, rope.grid_offset - 0.5)
    else:
        raise ValueError(
            f"rope: {kind} of this network has no such form (cat or dinov3, one scale): choose 'gray' or 'none'"
        )
    if shift[1] and grid is None:
        raise ValueError(
            "rope: offsets depend on the grid of patches: build the network without dynamic_img_size"
        )
    rows, columns = grid or (1, 1)
    offset = (shift[0] + shift[1] / columns, shift[0] + shift[1] / rows)
    return {"coordinate": "normalized_grid", "scale": scale, "offset": offset}
