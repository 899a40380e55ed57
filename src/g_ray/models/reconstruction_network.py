"""The reconstruction network: views of any cameras in; points, depths, confidences and poses out.

A VGGT trunk over DINOv2 features, with a DPT head for camera-space points, a linear patch head for world-space points
and a pose head (paper, appendix "3D Reconstruction"). What it knows of cameras is the config's `method`, a row of
RECONSTRUCTION_METHODS; nothing else differs between rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.models.aggregator import Aggregator
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, PatchEmbed
from g_ray.models.dpt import DPTHead
from g_ray.models.frozen_features import FrozenFeatures
from g_ray.models.heads import LinearPointHead, PoseHead, Prediction
from g_ray.models.reconstruction_config import ReconstructionConfig, get_reconstruction_method
from g_ray.nn.conditioning import RayFeatures
from g_ray.nn.int8 import check_int8, quantize_blocks
from g_ray.rays.views import Tokens, Views

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, per channel: what DINOv2 and VGGT were trained with."""

Mask = Bool[Tensor, "batch token"] | None
"""Tokens that others attend to; None for all."""


class Group(NamedTuple):
    """Views of one size: what is done view by view is done for them at once."""

    views: tuple[int, ...]
    rows: int
    columns: int


class ReconstructionModel(nn.Module):
    """Any number of views of any camera models; the first one is the world."""

    def __init__(self, config: ReconstructionConfig) -> None:
        super().__init__()
        self.config = config
        method = get_reconstruction_method(config.method)
        frame, across = method.build_encodings(config.head_dim, config.encoding_options)
        dim, patch = config.dim, config.patch
        self.encoder = (
            PatchEmbed(dim, patch)
            if config.encoder == "patch"
            else DINOv2(DINOV2_SIZES[config.encoder], config.encoder_taps, recompute=config.recompute)
        )
        self.projection = (
            nn.Linear(self.encoder.width, dim)
            if isinstance(self.encoder, DINOv2) and config.encoder_taps
            else None
        )
        self.frozen_features: FrozenFeatures | None = None
        self.camray = (
            RayFeatures(dim, patch, config.camray_scale, method.camray_gain) if method.camray else None
        )
        self.aggregator = Aggregator(
            dim, config.pairs, frame, across, layer_scale=config.layer_scale, recompute=config.recompute
        )
        self.camera_head = DPTHead(
            2 * dim,
            patch,
            features=config.dpt_features,
            channels=config.dpt_channels,
            activate=config.camera_points,
            frames_chunk=config.frames_chunk,
            recompute=config.recompute,
        )
        self.world_head = LinearPointHead(2 * dim, patch, activate=config.world_points)
        self.pose_head = PoseHead(2 * dim, config.pose_dim)
        self.is_quantized = False

    def quantize(self) -> "ReconstructionModel":
        """Turn encoder and trunk into 8-bit integers, in place and for good; heads stay float32."""
        check_int8(next(self.parameters()).device)
        if not self.is_quantized:
            self.eval()
            quantize_blocks(self.encoder)
            quantize_blocks(self.aggregator)
            self.is_quantized = True
        return self

    def train(self, mode: bool = True) -> "ReconstructionModel":
        """Set training or evaluation mode; ValueError for training a quantized network."""
        if mode and self.is_quantized:
            raise ValueError("a network in int8 cannot be trained: load its weights again")
        super().train(mode)
        return self

    def forward(
        self,
        images: Float[Tensor, "batch view 3 h w"],
        views: Views,
        *,
        content: Bool[Tensor, "view h w"] | None = None,
        query_chunk: int | None = None,
    ) -> Prediction:
        """Predict for views of one size, [batch view h w …]; images in [0, 1], sides in whole patches.

        `content` is False for padding: such pixels are masked out as keys. `query_chunk` bounds the memory of global
        attention, exactly. Poses of the views, if there are any, are not used.
        """
        masks = None if content is None else content.unbind()
        ((_, prediction),) = self._run(images.unbind(1), views, masks, query_chunk)
        return prediction

    def predict(
        self,
        images: Sequence[Float[Tensor, "batch 3 _ _"]],
        views: Views,
        *,
        content: Sequence[Bool[Tensor, "_ _"]] | None = None,
        query_chunk: int | None = None,
    ) -> list[Prediction]:
        """Predict for views of different sizes: one prediction [batch h w …] per view, in their order."""
        results = {}
        for group, prediction in self._run(images, views, content, query_chunk):
            results |= {view: prediction.select_view(index) for index, view in enumerate(group.views)}
        return [results[view] for view in range(len(views))]

    def _run(
        self,
        images: Sequence[Tensor],
        views: Views,
        content: Sequence[Tensor] | None,
        query_chunk: int | None,
    ) -> list[tuple[Group, Prediction]]:
        _check(images, views)
        tokens = views.tokens(self.config.patch, special=self.aggregator.special)
        mask = _make_key_mask(tokens, len(images[0]), content, self.config.patch)
        # The trunk takes sequences of any length, but encoder and heads take images of one size.
        groups = _group_views(tokens)
        taps = self.aggregator(
            self._encode(images, tokens, groups, mask),
            tokens,
            self.config.taps,
            key_mask=mask,
            query_chunk=query_chunk,
        )
        return [(group, self._apply_heads(taps, tokens, group, mask)) for group in groups]

    def _encode(
        self, images: Sequence[Tensor], tokens: Tokens, groups: Sequence[Group], mask: Mask
    ) -> list[Float[Tensor, "batch patch dim"]]:
        """Compute the patch features of every view."""
        features: dict[int, Tensor] = {}
        for group in groups:
            stacked = normalize_images(torch.stack([images[view] for view in group.views], 1)).flatten(0, 1)
            keys = None if mask is None else _select_patches(mask[..., None], tokens, group)[..., 0]
            encoded = self._run_encoder(stacked, keys)
            each = encoded.unflatten(0, (-1, len(group.views))).unbind(1)
            features |= dict(zip(group.views, each, strict=True))
        if self.camray is not None:
            for view in features:
                # Added to the features: the widths, and weights trained without rays, stay as they are.
                features[view] = features[view] + self.camray(tokens.views, view, len(images[0]))
        return [features[view] for view in range(len(images))]

    def _run_encoder(
        self, images: Float[Tensor, "image 3 h w"], keys: Bool[Tensor, "image patch"] | None
    ) -> Float[Tensor, "image patch dim"]:
        if not isinstance(self.encoder, DINOv2):
            return self.encoder(images)
        if self.frozen_features is not None:
            features = self.frozen_features.encode(self.encoder, images, keys)
        else:
            features = self.encoder(images, keys)
        return features if self.projection is None else self.projection(features)

    def freeze_encoder(self, features: FrozenFeatures | None, trained_blocks: int = 0) -> None:
        """Stop training DINOv2, but for its last `trained_blocks`; `features` then computes what it gives, or None."""
        if not isinstance(self.encoder, DINOv2):
            raise ValueError(f"encoder {self.config.encoder!r} is not pretrained: there is nothing to freeze")
        blocks = self.encoder.blocks
        if not 0 <= trained_blocks <= len(blocks):
            raise ValueError(f"{trained_blocks} blocks of the encoder to be trained: it has {len(blocks)}")
        if trained_blocks and features is not None:
            raise ValueError("features change while blocks of the encoder are trained: they cannot be kept")
        self.encoder.requires_grad_(False)
        for block in blocks[len(blocks) - trained_blocks :]:
            block.requires_grad_()
        # The final norm follows the statistics of the blocks before it, so it trains with them.
        if trained_blocks:
            self.encoder.norm.requires_grad_()
        self.frozen_features = features

    def _apply_heads(self, taps: dict[int, Tensor], tokens: Tokens, group: Group, mask: Mask) -> Prediction:
        patches = {index: _select_patches(tap, tokens, group) for index, tap in taps.items()}
        last = patches[max(taps)]
        # The DPT head reads four depths of the trunk: edges need fine features. The other heads read the last one.
        local = self.camera_head([patches[tap] for tap in self.config.taps], group.rows, group.columns)
        world = self.world_head(last, group.rows, group.columns)
        keys = None if mask is None else _select_patches(mask[..., None], tokens, group)[..., 0]
        translation, quaternion = self.pose_head(last, keys)
        flat = Prediction(
            world.points, world.confidence, local.points, local.confidence, translation, quaternion
        )
        return flat.map_tensors(lambda tensor: tensor.unflatten(0, (-1, len(group.views))))


def _group_views(tokens: Tokens) -> list[Group]:
    members: dict[tuple[int, int], list[int]] = {}
    for segment in tokens.layout.segments:
        if segment.is_patches and segment.view is not None:
            members.setdefault((segment.rows, segment.columns), []).append(segment.view)
    return [Group(tuple(views), rows, columns) for (rows, columns), views in members.items()]


def _select_patches(
    x: Float[Tensor, "batch token c"] | Bool[Tensor, "batch token c"], tokens: Tokens, group: Group
) -> Tensor:
    """Select [(batch view) patch c] of a group of views; no copy if all views are of one size and the batch is 1."""
    if len(group.views) == len(tokens.views):
        special = len(tokens) // len(group.views) - group.rows * group.columns
        return x.unflatten(1, (len(group.views), -1))[:, :, special:].flatten(0, 1)
    spans = {segment.view: span for segment, span in tokens.layout.iterate_spans() if segment.is_patches}
    return torch.stack([x[:, spans[view]] for view in group.views], 1).flatten(0, 1)


def normalize_images(images: Float[Tensor, "batch view 3 h w"]) -> Float[Tensor, "batch view 3 h w"]:
    return (images - images.new_tensor(MEAN)[:, None, None]) / images.new_tensor(DEVIATION)[:, None, None]


def _make_key_mask(tokens: Tokens, batch: int, content: Sequence[Tensor] | None, patch: int) -> Mask:
    """Mask out patches whose center no ray reaches (the corners of a fisheye), and those that are all padding."""
    valid = tokens.valid()
    if content is not None:
        filled = [_reduce_any_to_patches(mask, patch).to(valid.device) for mask in content]
        special = [
            span.stop - span.start
            for segment, span in tokens.layout.iterate_spans()
            if not segment.is_patches
        ]
        ones = [torch.ones(count, dtype=torch.bool, device=valid.device) for count in special]
        valid = valid & torch.cat([part for pair in zip(ones, filled, strict=True) for part in pair])
    # Without a mask the fused kernel is faster; asking costs one synchronization with a GPU.
    if not torch.compiler.is_compiling() and bool(valid.all()):
        return None
    return valid.expand(batch, -1)


def _reduce_any_to_patches(mask: Bool[Tensor, "h w"], patch: int) -> Bool[Tensor, "token"]:
    return mask.unflatten(0, (-1, patch)).unflatten(-1, (-1, patch)).any(1).any(-1).flatten()


def _check(images: Sequence[Tensor], views: Views) -> None:
    image_sizes = [(image.shape[-1], image.shape[-2]) for image in images]
    camera_sizes = [(camera.width, camera.height) for camera in views.cameras]
    if image_sizes != camera_sizes:
        raise ValueError(
            f"images of {_format_sizes(image_sizes)} px, but cameras of {_format_sizes(camera_sizes)} px: "
            "one camera per image; resize them together"
        )
    if views.batch not in (1, len(images[0])):
        raise ValueError(f"{len(images[0])} scenes, but views of batch {views.batch}: make them equal or 1")


def _format_sizes(sizes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{width}×{height}" for width, height in sizes)
