"""Small networks with the class names, call signatures and module names of released ones, written for these tests.

Positions and rotations are computed here in another way than in g_ray: by complex numbers, from a grid of positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from g_ray import OpenCVFisheye, Pinhole, Pose

DIM, HEADS, PATCH, SPECIAL = 32, 4, 14, 3
WIDTH, HEIGHT = 4 * PATCH, 3 * PATCH


def called(name: str) -> Callable[[type], type]:
    """Say in which module a class would be, in the released package."""

    def rename(kind: type) -> type:
        kind.__module__ = name
        return kind

    return rename


class Rope(nn.Module):
    """Rotate the first half of a head by the row and the second by the column; channel i goes with i + D/4."""

    def __init__(self, base: float = 50.0):
        super().__init__()
        self.base = self.base_frequency = base
        self.F0 = self.scaling_factor = 1.0

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        parts = []
        for part, where in zip(x.chunk(2, -1), positions.unbind(-1), strict=True):
            first, second = part.chunk(2, -1)
            frequencies = self.base ** -(torch.arange(first.shape[-1]) / first.shape[-1])
            phases = where[:, None, :, None] * frequencies
            turned = torch.complex(first, second) * torch.polar(torch.ones_like(phases), phases)
            parts += [turned.real, turned.imag]
        return torch.cat(parts, -1)


def make_positions(batch: int, rows: int, columns: int, special: int = 0) -> Tensor:
    """Make (row, column) of every patch; with special tokens, which are at 0, patches count from 1."""
    grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)) + (special > 0)
    return torch.cat([torch.zeros(special, 2, dtype=torch.long), grid]).expand(batch, -1, -1)


class Attention(nn.Module):
    def __init__(self, rope: Rope | None, dim: int = DIM, qk_norm: bool = True):
        super().__init__()
        self.num_heads, self.rope = HEADS, rope
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)
        if qk_norm:
            self.q_norm, self.k_norm = nn.LayerNorm(dim // HEADS), nn.LayerNorm(dim // HEADS)

    def forward(self, x: Tensor, pos: Tensor | None = None, xpos=None, attn_mask=None) -> Tensor:
        pos = xpos if pos is None else pos
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None and pos is not None:
            q, k = self.rope(q, pos), self.rope(k, pos)
        weights = self.attn_drop((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
        return self.proj_drop(self.proj((weights @ v).transpose(1, 2).flatten(2)))


class CrossAttention(nn.Module):
    def __init__(self, rope: Rope, names: tuple[str, str, str], dim: int = DIM):
        super().__init__()
        self.num_heads, self.rope, self.names = HEADS, rope, names
        for name in (*names, "proj"):
            self.add_module(name, nn.Linear(dim, dim))
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, qpos: Tensor, kpos: Tensor) -> Tensor:
        q, k, v = (
            self.get_submodule(name)(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for name, x in zip(self.names, (query, key, value), strict=True)
        )
        out = F.scaled_dot_product_attention(self.rope(q, qpos), self.rope(k, kpos), v)
        return self.proj(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, rope: Rope | None, dim: int = DIM, qk_norm: bool = True):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(rope, dim, qk_norm)
        self.norm2, self.mlp = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, pos: Tensor | None = None, **kwargs: Any) -> Tensor:
        x = x + self.attn(self.norm1(x), pos, **kwargs)
        return x + self.mlp(self.norm2(x)).tanh()


# VGGT


@called("vggt.models.aggregator")
class Aggregator(nn.Module):
    def __init__(self, depth: int = 2):
        super().__init__()
        self.rope, self.patch_size, self.patch_start_idx = Rope(), PATCH, SPECIAL
        self.patch_embed = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.special = nn.Parameter(torch.randn(SPECIAL, DIM))
        self.frame_blocks = nn.ModuleList(Block(self.rope) for _ in range(depth))
        self.global_blocks = nn.ModuleList(Block(self.rope) for _ in range(depth))

    def forward(self, images: Tensor) -> Tensor:
        batch, views, _, height, width = images.shape
        patches = self.patch_embed(images.flatten(0, 1)).flatten(2).mT
        x = torch.cat([self.special.expand(batch * views, -1, -1), patches], 1)
        pos = make_positions(batch * views, height // PATCH, width // PATCH, SPECIAL)
        tokens = x.shape[1]
        for inside, across in zip(self.frame_blocks, self.global_blocks, strict=True):
            x = self.run(inside, x.view(batch * views, tokens, DIM), pos)
            x = self.run(across, x.view(batch, -1, DIM), pos.reshape(batch, -1, 2))
        return x

    def run(self, block: nn.Module, x: Tensor, pos: Tensor) -> Tensor:
        return checkpoint(block, x, pos, use_reentrant=False) if self.training else block(x, pos=pos)


@called("vggt.models.vggt")
class VGGT(nn.Module):
    def __init__(self):
        super().__init__()
        self.aggregator, self.head = Aggregator(), nn.Linear(DIM, 2)

    def forward(self, images: Tensor, query_points: Tensor | None = None) -> dict[str, Tensor]:
        return {"depth": self.head(self.aggregator(images[None] if images.ndim == 4 else images))}


# π³-X


class Decoder(nn.Module):
    def __init__(self, rope: Rope):
        super().__init__()
        self.blocks = nn.ModuleList([Block(rope, qk_norm=False)])

    def forward(self, x: Tensor, xpos: Tensor) -> Tensor:
        return self.blocks[0](x, xpos=xpos)


class MetricBlock(nn.Module):
    def __init__(self, rope: Rope):
        super().__init__()
        self.cross_attn = CrossAttention(rope, ("q_proj", "k_proj", "v_proj"))

    def forward(self, x: Tensor, y: Tensor, xpos: Tensor, ypos: Tensor) -> Tensor:
        return x + self.cross_attn(x, y, y, qpos=xpos, kpos=ypos)


@called("pi3.models.pi3x")
class Pi3X(nn.Module):
    def __init__(self):
        super().__init__()
        self.rope, self.patch_size, self.patch_start_idx = Rope(), PATCH, SPECIAL
        self.encoder = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.register_token = nn.Parameter(torch.randn(SPECIAL, DIM))
        self.metric_token = nn.Parameter(torch.randn(1, 1, DIM))
        self.decoder = nn.ModuleList(Block(self.rope) for _ in range(2))
        self.point_decoder, self.conf_decoder = Decoder(self.rope), Decoder(self.rope)
        self.camera_decoder = Decoder(self.rope)
        self.metric_decoder = nn.Module()
        self.metric_decoder.blocks = nn.ModuleList([MetricBlock(self.rope)])

    def forward(self, imgs: Tensor, poses: Tensor | None = None) -> dict[str, Tensor]:
        batch, views, _, height, width = imgs.shape
        patches = self.encoder(imgs.flatten(0, 1)).flatten(2).mT
        x = torch.cat([self.register_token.expand(batch * views, -1, -1), patches], 1)
        pos = make_positions(batch * views, height // PATCH, width // PATCH, SPECIAL)
        joined = pos.reshape(batch, -1, 2)
        tokens = x.shape[1]
        x = self.decoder[0](x, xpos=pos)
        x = self.decoder[1](x.reshape(batch, -1, DIM), xpos=joined)
        scale = self.metric_token.expand(batch, -1, -1)
        scale = self.metric_decoder.blocks[0](scale, x, joined[:, :1], joined)
        x = x.reshape(-1, tokens, DIM)
        parts = {"points": self.point_decoder, "conf": self.conf_decoder, "cameras": self.camera_decoder}
        out = {name: part(x, pos) for name, part in parts.items()}
        return {**out, "metric": scale, **({} if poses is None else {"poses": poses})}


# Depth Anything 3


class DinoVisionTransformer(nn.Module):
    def __init__(self, depth: int = 5, start: int = 2):
        super().__init__()
        self.rope, self.patch_size, self.patch_start_idx = Rope(), PATCH, 1
        self.alt_start = start
        self.patch_embed, self.cls_token = nn.Conv2d(3, DIM, PATCH, PATCH), nn.Parameter(torch.randn(1, DIM))
        self.blocks = nn.ModuleList(Block(self.rope if i >= start else None) for i in range(depth))

    def forward(self, x: Tensor, strategy: str) -> Tensor:
        batch, views, _, height, width = x.shape
        patches = self.patch_embed(x.flatten(0, 1)).flatten(2).mT
        x = torch.cat([self.cls_token.expand(batch * views, -1, -1), patches], 1)
        pos = make_positions(batch * views, height // PATCH, width // PATCH, 1)
        same = pos.clamp(max=1)
        tokens = x.shape[1]
        for index, block in enumerate(self.blocks):
            if index == self.alt_start and views > 2 and strategy != "first":
                x = x.unflatten(0, (batch, views)).flip(1).flatten(0, 1)
            crossing = index >= self.alt_start and index % 2 == 1
            where = (same if crossing else pos) if index >= self.alt_start else None
            size = (batch, -1) if crossing else (batch * views, -1)
            where = None if where is None else where.reshape(*size, 2)
            x = block(x.reshape(*size, DIM), pos=where, attn_mask=None)
        return x.reshape(batch, views, tokens, DIM)


@called("depth_anything_3.model.da3")
class DepthAnything3Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Module()
        self.backbone.pretrained = DinoVisionTransformer()

    def forward(
        self,
        x: Tensor,
        extrinsics: Tensor | None = None,
        intrinsics: Tensor | None = None,
        export_feat_layers: Any = None,
        infer_gs: bool = False,
        use_ray_pose: bool = False,
        ref_view_strategy: str = "saddle_balanced",
    ) -> dict[str, Tensor]:
        return {"depth": self.backbone.pretrained(x, ref_view_strategy)}


# DUSt3R


class DecoderBlock(nn.Module):
    def __init__(self, rope: Rope, dim: int):
        super().__init__()
        self.attn = Attention(rope, dim, qk_norm=False)
        self.cross_attn = CrossAttention(rope, ("projq", "projk", "projv"), dim)

    def forward(self, x: Tensor, y: Tensor, xpos: Tensor, ypos: Tensor) -> Tensor:
        x = x + self.attn(x, xpos)
        return x + self.cross_attn(x, y, y, xpos, ypos)


class PatchEmbed(nn.Module):
    patch_size = (PATCH, PATCH)

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, DIM, PATCH, PATCH)

    def forward(self, img: Tensor, true_shape: Tensor) -> tuple[Tensor, Tensor]:
        x = self.proj(img)
        return x.flatten(2).mT, make_positions(len(img), *x.shape[-2:])


@called("dust3r.model")
class AsymmetricCroCo3DStereo(nn.Module):
    """Heads of the decoder are larger than those of the encoder."""

    def __init__(self, inner: int = 64):
        super().__init__()
        self.rope, self.patch_embed = Rope(), PatchEmbed()
        self.enc_blocks = nn.ModuleList(Block(self.rope, qk_norm=False) for _ in range(2))
        self.decoder_embed = nn.Linear(DIM, inner)
        self.dec_blocks = nn.ModuleList(DecoderBlock(self.rope, inner) for _ in range(2))
        self.dec_blocks2 = nn.ModuleList(DecoderBlock(self.rope, inner) for _ in range(2))

    def _encode_image(self, image: Tensor, true_shape: Tensor) -> tuple[Tensor, Tensor, None]:
        x, pos = self.patch_embed(image, true_shape=true_shape)
        for block in self.enc_blocks:
            x = block(x, pos)
        return x, pos, None

    def _encode_image_pairs(self, img1, img2, true_shape1, true_shape2):
        shapes = torch.cat([true_shape1, true_shape2])
        x, pos, _ = self._encode_image(torch.cat([img1, img2]), shapes)
        return *x.chunk(2), *pos.chunk(2)

    def forward(self, view1: dict[str, Any], view2: dict[str, Any]) -> tuple[Tensor, Tensor]:
        images, shapes = zip(*((view["img"], view["true_shape"]) for view in (view1, view2)), strict=True)
        # A batch of pairs in both orders, (a, b), (b, a), …: every second one is enough for the encoder.
        both_orders = view1.get("symmetrized", False)
        step = 2 if both_orders else 1
        x, y, xpos, ypos = self._encode_image_pairs(*(part[::step] for part in (*images, *shapes)))
        if both_orders:
            x, y = (torch.stack(pair, 1).flatten(0, 1) for pair in ((x, y), (y, x)))
            xpos, ypos = (torch.stack(pair, 1).flatten(0, 1) for pair in ((xpos, ypos), (ypos, xpos)))
        x, y = self.decoder_embed(x), self.decoder_embed(y)
        for first, second in zip(self.dec_blocks, self.dec_blocks2, strict=True):
            x, y = first(x, y, xpos, ypos), second(y, x, ypos, xpos)
        return x, y


# LVSM


class Encoder(nn.Module):
    def __init__(self, depths: bool):
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM + 16, 3 * (DIM + 16)), nn.Linear(DIM + 16, DIM + 16)
        self.depth = nn.Linear(DIM + 16, 2) if depths else None

    def forward(self, x: Tensor, sdpa_fn: Callable[..., Tensor]) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        more = {} if self.depth is None else {"predicted_d": self.depth(x), "predicted_d_kv": None}
        out = sdpa_fn(q, k, v, dropout_p=0.0, **more)
        return x + self.out(out.transpose(1, 2).flatten(2))


@called("nvs.lvsm")
class LVSMDecoderOnlyModel(nn.Module):
    """With `pos_enc="none"`: its layers call the plain operator."""

    def __init__(self, depths: bool = False):
        super().__init__()
        kind = "predict_dsig" if depths else "none"
        layer = SimpleNamespace(d_model=DIM + 16, nhead=2, predict_d=kind)
        encoder = SimpleNamespace(layer=layer)
        self.config = SimpleNamespace(encoder=encoder, depth_type=kind, patch_size=PATCH)
        self.attention = None
        self.input = nn.Conv2d(3, DIM + 16, PATCH, PATCH)
        self.query = nn.Parameter(torch.randn(12, DIM + 16))
        self.encoder = Encoder(depths)

    def forward(self, ref_imgs: Tensor, ref_cams: Any, tar_cams: Any) -> Tensor:
        batch, context = ref_imgs.shape[:2]
        targets = tar_cams.camtoworld.shape[1]
        x = self.input(ref_imgs.flatten(0, 1).movedim(-1, 1)).flatten(2).mT
        x = x.reshape(batch, context * x.shape[1], -1).repeat_interleave(targets, 0)
        x = torch.cat([x, self.query.expand(len(x), -1, -1)], 1)

        def plain(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, **unused: Any) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        return self.encoder(x, sdpa_fn=plain)[:, -len(self.query) :]


# Networks with a call and cameras that fit it.


def make_cameras(count: int, width: int = WIDTH, height: int = HEIGHT) -> list[Any]:
    """Make pinholes and fisheyes in turn."""
    fisheye = {"fx": 0.4 * width, "fy": 0.4 * width, "cx": width / 2 + 1, "cy": height / 2, "k1": 0.01}
    lenses = [
        Pinhole.from_fov(70.0, width, height),
        OpenCVFisheye.make(width, height, **fisheye),
        Pinhole.from_fov(30.0, width, height),
    ]
    return [lenses[index % 3] for index in range(count)]


def make_poses(count: int) -> Pose:
    eyes = 0.3 * torch.randn(count, 3) - torch.tensor([0.0, 0.0, 2.0])
    return Pose.look_at(eyes, torch.zeros(count, 3))


@dataclass
class Example:
    """A network, what it is called with, its cameras, and the encoding that is its own."""

    model: nn.Module
    args: tuple[Any, ...]
    cameras: list[Any]
    own: str = "rope"
    kwargs: dict[str, Any] = field(default_factory=dict)


def make_vggt() -> Example:
    return Example(VGGT(), (torch.rand(2, 3, 3, HEIGHT, WIDTH),), make_cameras(3))


def make_aggregator() -> Example:
    return Example(Aggregator(), (torch.rand(1, 2, 3, HEIGHT, WIDTH),), make_cameras(2))


def make_pi3x() -> Example:
    return Example(Pi3X(), (torch.rand(2, 3, 3, HEIGHT, WIDTH),), make_cameras(3))


def make_da3() -> Example:
    images = torch.rand(2, 3, 3, HEIGHT, WIDTH)
    return Example(DepthAnything3Net(), (images,), make_cameras(3), kwargs={"ref_view_strategy": "first"})


def make_dust3r(both_orders: bool = False) -> Example:
    images = torch.rand(2, 2, 3, HEIGHT, WIDTH)
    if both_orders:
        images[1] = images[0].flip(0)
    shape = torch.tensor([[HEIGHT, WIDTH]] * 2)
    shown = [{"img": part, "true_shape": shape, "symmetrized": both_orders} for part in images]
    return Example(AsymmetricCroCo3DStereo(), tuple(shown), make_cameras(2))


def make_lvsm(depths: bool = False) -> Example:
    poses = make_poses(4).world_from_cam[None]
    cams = [SimpleNamespace(camtoworld=part) for part in (poses[:, :2], poses[:, 2:])]
    lenses = [*make_cameras(2), Pinhole.from_fov(50.0, WIDTH, HEIGHT), Pinhole.from_fov(40.0, WIDTH, HEIGHT)]
    return Example(
        LVSMDecoderOnlyModel(depths), (torch.rand(1, 2, HEIGHT, WIDTH, 3), *cams), lenses, own="none"
    )


def make_dinov3() -> Example:
    transformers = pytest.importorskip("transformers")
    config = transformers.DINOv3ViTConfig(
        hidden_size=DIM,
        intermediate_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_register_tokens=SPECIAL,
        patch_size=PATCH,
    )
    return Example(transformers.DINOv3ViTModel(config), (torch.rand(3, 3, HEIGHT, WIDTH),), make_cameras(3))


def make_dinov2(registers: int = 0) -> Example:
    transformers = pytest.importorskip("transformers")
    settings = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    settings |= {"image_size": WIDTH, "patch_size": PATCH}
    if registers:
        config = transformers.Dinov2WithRegistersConfig(**settings, num_register_tokens=registers)
        model = transformers.Dinov2WithRegistersModel(config)
    else:
        model = transformers.Dinov2Model(transformers.Dinov2Config(**settings))
    return Example(model, (torch.rand(3, 3, HEIGHT, WIDTH),), make_cameras(3), own="none")


EVA = {"rope_type": "cat", "ref_feat_shape": (3, 3), "swiglu_mlp": True, "scale_mlp": True}
"""As EVA-02: rows and columns stretched to the grid of pretraining, adjacent pairs, normalized attention."""
DINOV3 = {"rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True, "num_reg_tokens": 4}


def make_timm_eva(**settings: Any) -> Example:
    eva = pytest.importorskip("timm.models.eva")
    size = {
        "img_size": (HEIGHT, WIDTH),
        "patch_size": PATCH,
        "embed_dim": DIM,
        "depth": 2,
        "num_heads": HEADS,
    }
    model = eva.Eva(**size, num_classes=5, use_rot_pos_emb=True, **settings)
    return Example(model, (torch.rand(3, 3, HEIGHT, WIDTH),), make_cameras(3))


def make_timm_vit() -> Example:
    vit = pytest.importorskip("timm.models.vision_transformer")
    size = {
        "img_size": (HEIGHT, WIDTH),
        "patch_size": PATCH,
        "embed_dim": DIM,
        "depth": 2,
        "num_heads": HEADS,
    }
    model = vit.VisionTransformer(**size, num_classes=5, reg_tokens=2, qk_norm=True)
    for block in model.blocks:
        if hasattr(block.attn, "gate"):  # older versions have none; the network's constructor takes none
            block.attn.gate = nn.Linear(DIM, DIM)
    return Example(model, (torch.rand(3, 3, HEIGHT, WIDTH),), make_cameras(3), own="none")


def make_wan() -> Example:
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=20,
        in_channels=4,
        out_channels=4,
        text_dim=8,
        freq_dim=16,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=16,
    )
    # Time has 8 of the 20 channels, height and width 6 each; the video is 8 times as large as the latents.
    args = (torch.randn(2, 4, 3, 6, 8), torch.tensor([3, 5]), torch.randn(2, 4, 8))
    return Example(model, args, make_cameras(3, 64, 48), kwargs={"return_dict": False})


EXAMPLES: dict[str, Callable[[], Example]] = {
    "vggt": make_vggt,
    "aggregator": make_aggregator,
    "pi3x": make_pi3x,
    "da3": make_da3,
    "dust3r": make_dust3r,
    "lvsm": make_lvsm,
    "dinov3": make_dinov3,
    "dinov2": make_dinov2,
    "dinov2_registers": lambda: make_dinov2(registers=4),
    "timm_eva": lambda: make_timm_eva(**EVA, scale_attn_inner=True),
    "timm_dinov3": lambda: make_timm_eva(**DINOV3, qkv_fused=False, use_abs_pos_emb=False),
    "timm_heads": lambda: make_timm_eva(
        attn_type="rope",
        rope_grid_offset=1.0,
        qkv_fused=False,
        num_kv_heads=2,
        qk_norm=True,
        dynamic_img_size=True,
    ),
    "timm_vit": make_timm_vit,
    "wan": make_wan,
}


def make_example(name: str) -> Example:
    """Make the network of that name with random weights everywhere, in evaluation mode."""
    example = EXAMPLES[name]()
    with torch.no_grad():
        for parameter in example.model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    example.model.eval()
    return example


def list_tensors(output: Any) -> list[Tensor]:
    """List the tensors of whatever a network returns."""
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if hasattr(output, "values") else output
    return [tensor for part in parts if part is not None for tensor in list_tensors(part)]
