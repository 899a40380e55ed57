"""VGGT: images in; cameras, z-depth and confidence out, with the weights of facebook/VGGT-1B as they are downloaded.

Trunk and DPT head are those of the reconstruction network, with positions on the pixel grid. VGGT's point head is left
out (its authors find depth and cameras more accurate), as is its track head.

Parameters are named as in its checkpoints. It encodes a camera in nine numbers, "absT_quaR_FoV":

    0 1 2    t of cam_from_world
    3 4 5 6  quaternion (x, y, z, w) of cam_from_world, of any length
    7 8      vertical and horizontal field of view in radians; the principal point is the middle of the image
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.cameras.pinhole import Pinhole
from g_ray.encodings import NoPosition
from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.models.aggregator import Aggregator
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, PatchEmbed
from g_ray.models.dpt import DPTHead
from g_ray.models.foreign_weights import count_layers, read_foreign, read_vggt_sizes, rename_from_hub
from g_ray.models.reconstruction_config import get_reconstruction_method
from g_ray.models.reconstruction_network import normalize_images
from g_ray.models.weights import FILE, find_file
from g_ray.nn.transformer import MLP, Block
from g_ray.rays.views import Views
from g_ray.runtime.device import disable_autocast

TAPS = (4, 11, 17, 23)
"""Pairs of layers that VGGT-1B's dense heads read; the weights do not name them."""
LEFT_OUT = ("point_head.", "track_head.", "aggregator.patch_embed.mask_token")
"""What is not needed for cameras and depth."""
HUB_FILES = {"facebook/VGGT-1B-Commercial": "vggt_1B_commercial.pt"}
"""Repositories on the hub whose weights are not called model.safetensors."""
GRID_VIEW_DEG = 60.0
"""Any field of view: positions on the pixel grid do not depend on it."""
CODE = 9
"""Numbers of an encoded camera."""


class CameraHead(nn.Module):
    """Refine an encoded camera per view, from the camera tokens of all views.

    Each step modulates the normalized tokens by the estimate so far, x + g ⊙ (LN(x) ⊙ (1 + s) + b) with (b, s, g) from
    the estimate, lets the views attend to each other in the trunk, and adds what a small MLP reads there.
    """

    def __init__(
        self, dim: int, *, blocks: int = 4, heads: int = 16, layer_scale: float = 0.01, steps: int = 4
    ) -> None:
        super().__init__()
        self.steps = steps
        self.token_norm = nn.LayerNorm(dim, eps=1e-5)
        self.empty_pose_tokens = nn.Parameter(torch.zeros(1, 1, CODE))
        self.embed_pose = nn.Linear(CODE, dim)
        self.poseLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 3 * dim))
        # Without weights of its own: they come from the estimate.
        self.adaln_norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        encoding = NoPosition(dim // heads)
        self.trunk = nn.ModuleList(
            Block(dim, encoding, layer_scale=layer_scale, eps=1e-5) for _ in range(blocks)
        )
        self.trunk_norm = nn.LayerNorm(dim, eps=1e-5)
        self.pose_branch = MLP(dim, dim // 2, CODE)

    def forward(self, tokens: Float[Tensor, "batch view dim"]) -> list[Float[Tensor, "batch view 9"]]:
        """Return the encoded cameras after each step; the last is the result. Float32 also under autocast."""
        with disable_autocast(tokens):
            tokens = self.token_norm(tokens.to(self.token_norm.weight.dtype))
            raw = self._compute_change(tokens, self.empty_pose_tokens.expand(*tokens.shape[:2], -1))
            found = [raw]
            for _ in range(1, self.steps):
                # Gradients reach each step by its own change alone.
                raw = raw.detach() + self._compute_change(tokens, raw.detach())
                found.append(raw)
            # Fields of view are made non-negative for the result only: steps go on from the raw numbers.
            return [torch.cat([code[..., :7], code[..., 7:].relu()], -1) for code in found]

    def _compute_change(self, tokens: Tensor, estimate: Tensor) -> Float[Tensor, "batch view 9"]:
        shift, scale, gate = self.poseLN_modulation(self.embed_pose(estimate)).chunk(3, -1)
        x = tokens + gate * (self.adaln_norm(tokens) * (1 + scale) + shift)
        for block in self.trunk:
            x = block(x)
        return self.pose_branch(self.trunk_norm(x))


@dataclass(frozen=True)
class EncodedCameras:
    """Cameras in VGGT's nine numbers."""

    code: Float[Tensor, "*batch 9"]

    @property
    def poses(self) -> Pose:
        """world_from_cam; the code holds its inverse."""
        rotation = rotation_from_quaternion(self.code[..., 3:7])
        return Pose.from_parts(rotation, self.code[..., :3]).inverse()

    def compute_intrinsics(self, width: int, height: int) -> Float[Tensor, "*batch 3 3"]:
        """Compute K in pixels of an image of this size, which count from its corner: W/2 is the middle.

        A field of view of zero has an infinite focal length.
        """
        sides = self.code.new_tensor([width, height])
        fx, fy = (sides / 2 / (self.code[..., [8, 7]] / 2).tan()).unbind(-1)
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        rows = [fx, zero, one * width / 2, zero, fy, one * height / 2, zero, zero, one]
        return torch.stack(rows, -1).unflatten(-1, (3, 3))


@dataclass(frozen=True)
class VGGTConfig:
    """All sizes of the network."""

    encoder: str
    """"patch" or a size of DINOv2."""
    dim: int
    pairs: int
    heads: int
    patch: int
    taps: tuple[int, int, int, int]
    dpt_features: int
    dpt_channels: tuple[int, int, int, int]
    camera_blocks: int
    camera_heads: int = 16


@dataclass(frozen=True)
class VGGTPrediction:
    """VGGT's output for views of one size; the first one is the world, and the scale is unknown."""

    cameras: EncodedCameras
    """[batch view]"""
    depth: Float[Tensor, "batch view h w"]
    """z, along the axis of the camera."""
    confidence: Float[Tensor, "batch view h w"]
    """Confidence of the depth, at least 1."""


class VGGT(nn.Module):
    """DINOv2, alternating attention, camera head and depth head."""

    def __init__(self, config: VGGTConfig) -> None:
        super().__init__()
        self.config = config
        dim, patch = config.dim, config.patch
        frame, across = get_reconstruction_method("rope").build_encodings(dim // config.heads, {})
        self.encoder = (
            PatchEmbed(dim, patch) if config.encoder == "patch" else DINOv2(DINOV2_SIZES[config.encoder])
        )
        self.aggregator = Aggregator(dim, config.pairs, frame, across)
        self.camera_head = CameraHead(2 * dim, blocks=config.camera_blocks, heads=config.camera_heads)
        self.depth_head = DPTHead(
            2 * dim,
            patch,
            features=config.dpt_features,
            channels=config.dpt_channels,
            outputs=1,
            activate="exponential",
        )

    def forward(
        self, images: Float[Tensor, "batch view 3 h w"], *, query_chunk: int | None = None
    ) -> VGGTPrediction:
        """Predict from images in [0, 1] whose sides are whole patches."""
        taps = self.compute_taps(images, query_chunk=query_chunk)
        count, special = images.shape[1], self.aggregator.special
        rows, columns = (side // self.config.patch for side in images.shape[-2:])
        views = {index: tap.unflatten(1, (count, -1)) for index, tap in taps.items()}
        codes = self.camera_head(views[self.config.pairs - 1][:, :, 0])
        patches = [views[index][:, :, special:].flatten(0, 1) for index in self.config.taps]
        depth = self.depth_head(patches, rows, columns)
        shape = (len(images), count)
        return VGGTPrediction(
            EncodedCameras(codes[-1]),
            depth.points[..., 0].unflatten(0, shape),
            depth.confidence.unflatten(0, shape),
        )

    def compute_taps(
        self, images: Float[Tensor, "batch view 3 h w"], *, query_chunk: int | None = None
    ) -> dict[int, Float[Tensor, "batch token two_dims"]]:
        """Compute what the trunk hands to the heads: features [frame ‖ global] of the tapped pairs and the last."""
        height, width = images.shape[-2:]
        patch = self.config.patch
        if height % patch or width % patch:
            raise ValueError(f"images of {width}×{height} px: give sides that are multiples of {patch} px")
        camera = Pinhole.from_fov(GRID_VIEW_DEG, width, height, device=images.device)
        tokens = Views([camera] * images.shape[1]).tokens(patch, special=self.aggregator.special)
        features = self.encoder(normalize_images(images).flatten(0, 1))
        each = features.unflatten(0, images.shape[:2]).unbind(1)
        return self.aggregator(
            each, tokens, (*self.config.taps, self.config.pairs - 1), query_chunk=query_chunk
        )


# Weights


def load_vggt(source: str | Path, *, revision: str | None = None) -> VGGT:
    """Load VGGT in float32 from a file, a folder with model.safetensors or a Hugging Face id, for inference."""
    path = find_file(source, HUB_FILES.get(str(source), FILE), revision=revision)
    state = read_foreign(path)
    try:
        return build_vggt(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def build_vggt(state: Mapping[str, Tensor]) -> VGGT:
    """Build VGGT around tensors of its checkpoint; ValueError if they are not those of one VGGT."""
    config = read_config(state)
    named = rename_tensors(state)
    with torch.device("meta"):
        model = VGGT(config)
    _check_tensors(model, named)
    # Tensors are taken as they are, without a second copy: the weights are most of the memory.
    model.load_state_dict({name: named[name].float() for name in model.state_dict()}, assign=True)
    return model.requires_grad_(False).eval()


def is_vggt(names: Mapping[str, object]) -> bool:
    """Tell whether a checkpoint with these names has VGGT's trunk, camera head and depth head."""
    marks = ("aggregator.camera_token", "camera_head.empty_pose_tokens", "depth_head.norm.weight")
    return all(mark in names for mark in marks)


def read_config(state: Mapping[str, Tensor]) -> VGGTConfig:
    """Read the sizes off the shapes of the tensors.

    Taps cannot be read: 24 pairs have VGGT-1B's, other numbers the ends of four equal parts.
    """
    if not is_vggt(state):
        some = ", ".join(sorted(state)[:3]) or "no tensors"
        raise ValueError(f"not VGGT with camera and depth heads: it has {some}, …")
    sizes = read_vggt_sizes(state, "depth_head")
    taps = TAPS if sizes["pairs"] == 24 else _spread_taps(sizes["pairs"])
    return VGGTConfig(taps=taps, camera_blocks=count_layers(state, "camera_head.trunk."), **sizes)


def rename_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename to the names of our modules, without the parts that are left out."""
    kept = {name: value for name, value in state.items() if not name.startswith(LEFT_OUT)}
    return {
        name.replace("aggregator.patch_embed.", "encoder.", 1): value
        for name, value in rename_from_hub(kept).items()
    }


def _spread_taps(pairs: int) -> tuple[int, int, int, int]:
    first, second, third, last = (max(0, (part * pairs + 3) // 4 - 1) for part in (1, 2, 3, 4))
    return first, second, third, last


def _check_tensors(model: VGGT, named: Mapping[str, Tensor]) -> None:
    """Compare names and shapes with those of the network; a strange tensor means another network of the same family."""
    own = model.state_dict()
    missing = [name for name in own if name not in named]
    strange = [name for name in named if name not in own]
    for names, text in ((missing, "are missing"), (strange, "are none of VGGT's")):
        if names:
            raise ValueError(
                f"{len(names)} tensors {text}, e.g. {names[0]}: give the weights of facebook/VGGT-1B"
            )
    wrong = [name for name in own if own[name].shape != named[name].shape]
    if wrong or named["camera_head.empty_pose_tokens"].shape[-1] != CODE:
        name = wrong[0] if wrong else "camera_head.empty_pose_tokens"
        raise ValueError(
            f"{name} has shape {list(named[name].shape)}, but the rest of the file needs {list(own[name].shape)}"
        )
