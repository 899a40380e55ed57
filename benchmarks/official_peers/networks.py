"""Official networks, narrow or short where their classes allow it, and random weights for them."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

NARROW = 256
"""Width of networks whose classes let one choose it."""


def randomize(model: nn.Module) -> nn.Module:
    """Draw every parameter: gains near 1, the rest so that activations keep their size."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.empty_like(value).normal_(generator=generator)
            if name.endswith("gamma") or (name.endswith("weight") and value.ndim == 1):
                value.copy_(0.7 + 0.3 * noise)
            elif value.ndim < 2:
                value.copy_(0.1 * noise)
            else:
                value.copy_(0.7 * noise / value[0].numel() ** 0.5)
        for value in model.buffers():  # DINOv3 has masks that only a checkpoint fills
            if value.is_floating_point():
                value.nan_to_num_(1.0)
    return model.eval().requires_grad_(False)


def build_vggt() -> nn.Module:
    from vggt.models.vggt import VGGT  # pyright: ignore[reportMissingImports]

    return VGGT(enable_track=False, enable_point=False)


def build_omega() -> nn.Module:
    from vggt_omega.models import VGGTOmega  # pyright: ignore[reportMissingImports]

    return VGGTOmega(embed_dim=NARROW)


def build_omnivggt() -> nn.Module:
    from omnivggt.heads.camera_head import CameraHead  # pyright: ignore[reportMissingImports]
    from omnivggt.heads.dpt_head import DPTHead  # pyright: ignore[reportMissingImports]
    from omnivggt.models.omnivggt import OmniVGGT  # pyright: ignore[reportMissingImports]
    from omnivggt.models.omnivggt_aggregator import ZeroAggregator  # pyright: ignore[reportMissingImports]

    # Its class fixes the encoder, and with it the width: the same parts are put together narrower.
    model = OmniVGGT.__new__(OmniVGGT)
    nn.Module.__init__(model)
    model.aggregator = ZeroAggregator(embed_dim=NARROW, patch_embed="conv", pose_hidden_dim=9)
    model.camera_head = CameraHead(dim_in=2 * NARROW)
    model.point_head = None
    model.depth_head = DPTHead(dim_in=2 * NARROW, output_dim=2, activation="exp", conf_activation="expp1")
    return model


def shorten(model: Any, layers: int = 10) -> nn.Module:
    """Keep the first layers of π³'s decoder: all kinds of them are among these, and a CPU is done sooner."""
    model.decoder = model.decoder[:layers]
    return model


def build_pi3() -> nn.Module:
    from pi3.models.pi3 import Pi3  # pyright: ignore[reportMissingImports]

    return shorten(Pi3())


def build_pi3x() -> nn.Module:
    from pi3.models.pi3x import Pi3X  # pyright: ignore[reportMissingImports]

    return shorten(Pi3X())


def build_da3() -> nn.Module:
    from depth_anything_3.api import DepthAnything3  # pyright: ignore[reportMissingImports]

    return DepthAnything3("da3-small")


def build_mapanything() -> nn.Module:
    """A narrow network from its own config files; DINOv2 from its package instead of torch.hub."""
    import mapanything  # pyright: ignore[reportMissingImports]
    from mapanything.models import MapAnything  # pyright: ignore[reportMissingImports]
    from mapanything.models.external.dinov2.hub import backbones  # pyright: ignore[reportMissingImports]
    from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]

    folder = Path(mapanything.__file__).parents[1] / "configs" / "model"

    def read(name: str) -> Any:
        config = OmegaConf.load(folder / f"{name}.yaml")
        config.pop("defaults", None)
        return config

    OmegaConf.register_new_resolver("special_float", float, replace=True)
    parts = {
        "encoder": OmegaConf.merge(read("encoder/dinov2_large"), {"size": "small"}),
        "info_sharing": read("info_sharing/aat_ifr_24_layers"),
        "pred_head": read("pred_head/dpt_pose_scale"),
        "task": OmegaConf.merge(read("task/default"), read("task/images_only")),
    }
    narrow = {"depth": 8, "indices": [3, 5], "size": None, "dim": 384, "num_heads": 6}
    parts["info_sharing"].module_args = OmegaConf.merge(parts["info_sharing"].module_args, narrow)
    parts["pred_head"].adaptor_config = read(
        "pred_head/adaptor_config/raydirs_depth_pose_confidence_mask_scale"
    )
    config: Any = OmegaConf.to_container(OmegaConf.create({"model": parts}), resolve=True)
    torch.hub.load = lambda *_, **__: backbones.dinov2_vits14(pretrained=False)
    return MapAnything(
        name="narrow",
        encoder_config=config["model"]["encoder"],
        info_sharing_config=config["model"]["info_sharing"],
        pred_head_config=config["model"]["pred_head"],
        geometric_input_config=config["model"]["task"],
    )


def build_worldmirror() -> nn.Module:
    from src.models.models.worldmirror import WorldMirror  # pyright: ignore[reportMissingImports]

    return WorldMirror(
        embed_dim=NARROW, patch_embed="conv", enable_gs=False, enable_pts=False, enable_norm=False
    )


def build_moge() -> nn.Module:
    from moge.model.v2 import MoGeModel  # pyright: ignore[reportMissingImports]

    widths = [32] * 5
    shared = {"num_res_blocks": [1] * 5, "resamplers": ["bilinear"] * 4}
    return MoGeModel(
        encoder={"backbone": "dinov2_vits14", "intermediate_layers": [5, 11], "dim_out": 32},
        neck={"dim_in": [34, 2, 2, 2, 2], "dim_out": widths, "dim_res_blocks": widths, **shared},
        points_head={"dim_in": widths, "dim_out": [None] * 4 + [3], "dim_res_blocks": widths, **shared},
        num_tokens_range=[100, 200],
    )


def build_unik3d() -> nn.Module:
    import unik3d  # pyright: ignore[reportMissingImports]
    from unik3d.models import UniK3D  # pyright: ignore[reportMissingImports]

    torch.hub.load_state_dict_from_url = lambda *_, **__: {}
    config = Path(unik3d.__file__).parents[1] / "configs" / "eval" / "vits.json"
    model = UniK3D(json.loads(config.read_text()))
    model.resolution_level = 0
    return model
