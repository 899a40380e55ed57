"""Adapted networks beside the released ones: the same numbers with their own coordinates, and what ray angles cost.

Networks have random weights and few layers, with heads and tokens of the released sizes. Give the folders of clones
whose code is not installed: python benchmarks/adapted_hosts.py --path ../vggt ../Pi3 --out hosts.json
RayRoPE's repository compiles parts of its attention; TORCHDYNAMO_DISABLE=1 leaves them as they are written.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from g_ray import OpenCVFisheye, Pinhole, Pose, Views, adapt
from g_ray.hosts import host_base, lvsm_host
from g_ray.runtime.files import write_json
from g_ray.runtime.provenance import collect_provenance

TESTS = Path(__file__).resolve().parents[1] / "tests"  # has the operator that writes out every score


@dataclass
class Subject:
    """A released network, a call, and cameras that fit it; `own` is the encoding that computes what it does, and `rays`
    the one with ray angles in its place."""

    model: nn.Module
    args: tuple[Any, ...]
    cameras: list[Any]
    own: str = "rope"
    rays: str = "gray"
    kwargs: dict[str, Any] = field(default_factory=dict)


def make_cameras(count: int, width: int, height: int) -> list[Any]:
    middle = {"fx": 0.4 * width, "fy": 0.4 * width, "cx": width / 2, "cy": height / 2}
    lenses = [Pinhole.from_fov(70.0, width, height), OpenCVFisheye.make(width, height, **middle, k1=0.01)]
    return [lenses[index % 2] for index in range(count)]


def make_poses(count: int) -> Pose:
    generator = torch.Generator().manual_seed(0)
    eyes = 0.3 * torch.randn(count, 3, generator=generator) - torch.tensor([0.0, 0.0, 2.0])
    return Pose.look_at(eyes, torch.zeros(count, 3))


# Networks. Sizes: (views, rows, columns) of patches; `small` ones are for errors, others for cost.


def build_vggt(small: bool) -> Subject:
    aggregator = importlib.import_module("vggt.models.aggregator").Aggregator
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 22, 28)
    layers = {"depth": 3 if small else 2, "num_heads": heads, "patch_embed": "conv", "init_values": 1.0}
    model = aggregator(img_size=518, patch_size=14, embed_dim=dim, **layers)
    return Subject(
        model, (torch.rand(1, 3, 3, 14 * rows, 14 * columns),), make_cameras(3, 14 * columns, 14 * rows)
    )


def build_pi3(small: bool, kind: str = "Pi3") -> Subject:
    """π³'s classes around narrower layers: its constructor only makes a ViT-L."""
    pi3 = importlib.import_module(f"pi3.models.{kind.lower()}")
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 22, 28)
    trunk: Any = getattr(pi3, kind)
    model: Any = trunk.__new__(trunk)
    nn.Module.__init__(model)
    model.rope, model.position_getter = pi3.RoPE2D(freq=100.0), pi3.PositionGetter()
    model.patch_size, model.patch_start_idx, model.pos_type = 14, 5, "rope100"
    model.register_token = nn.Parameter(torch.randn(1, 1, 5, dim))
    shared = {"mlp_ratio": 4, "qkv_bias": True, "proj_bias": True, "ffn_bias": True, "init_values": 1.0}
    block = partial(pi3.BlockRope, dim=dim, num_heads=heads, qk_norm=True, attn_class=pi3.FlashAttentionRope)
    model.decoder = nn.ModuleList(block(**shared, rope=model.rope) for _ in range(4))
    decoders = ["point_decoder", "conf_decoder", "camera_decoder"]
    for name in decoders:
        setattr(model, name, pi3.TransformerDecoder(2 * dim, dim, dim, 1, heads, rope=model.rope))
    if kind == "Pi3X":
        model.use_multimodal, model.metric_token = False, nn.Parameter(torch.randn(1, 1, 2 * dim))
        sizes = {"in_dim": 2 * dim, "out_dim": dim, "dec_embed_dim": dim, "depth": 1, "dec_num_heads": heads}
        model.metric_decoder = pi3.ContextOnlyTransformerDecoder(**sizes, rope=model.rope)

    class Trunk(trunk):
        """The decoders of π³ on given features: its heads amplify rounding errors."""

        def forward(self, imgs: Tensor) -> list[Tensor]:
            batch, views, _, height, width = imgs.shape
            patches = F.unfold(imgs.flatten(0, 1), 14, stride=14).mT[..., :dim]
            more = (None, None) if kind == "Pi3X" else ()
            hidden, pos = self.decode(patches, views, height, width, *more)
            outputs = [hidden, *(getattr(self, name)(hidden, xpos=pos) for name in decoders)]
            if kind == "Pi3X":
                context, places = (part.reshape(batch, -1, part.shape[-1]) for part in (hidden, pos))
                token = self.metric_token.repeat(batch, 1, 1)
                outputs.append(self.metric_decoder(token, context, xpos=places[:, :1], ypos=places))
            return outputs

    model.__class__ = Trunk
    return Subject(
        model, (torch.rand(1, 3, 3, 14 * rows, 14 * columns),), make_cameras(3, 14 * columns, 14 * rows)
    )


def build_da3(small: bool) -> Subject:
    trunk = importlib.import_module("depth_anything_3.model.dinov2.vision_transformer").DinoVisionTransformer
    network = importlib.import_module("depth_anything_3.model.da3").DepthAnything3Net
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 22, 28)
    model: Any = network.__new__(network)
    nn.Module.__init__(model)
    starts = {"alt_start": 2, "qknorm_start": 2, "rope_start": 2}
    vit = trunk(img_size=14 * 8, patch_size=14, embed_dim=dim, depth=6, num_heads=heads, **starts)

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pretrained = vit

        def forward(self, x: Tensor, **kwargs: Any) -> Any:
            return vit_features(self.pretrained, x, **kwargs)

    def vit_features(pretrained: Any, x: Tensor, **kwargs: Any) -> Any:
        return pretrained.get_intermediate_layers(x, [3, 5], **kwargs)

    class Head(nn.Module):
        def forward(self, feats: Any, *_: Any, **__: Any) -> Any:
            result = importlib.import_module("addict").Dict()
            result.depth = torch.cat([features for features, _ in feats], -1)
            return result

    model.backbone, model.head, model.cam_dec, model.cam_enc = Backbone(), Head(), None, None
    images = torch.rand(1, 3, 3, 14 * rows, 14 * columns)
    cameras = make_cameras(3, 14 * columns, 14 * rows)
    return Subject(model, (images,), cameras, kwargs={"ref_view_strategy": "first"})


def build_dust3r(small: bool) -> Subject:
    network = importlib.import_module("dust3r.model").AsymmetricCroCo3DStereo
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 24, 32)
    sizes = {"enc_embed_dim": dim, "enc_depth": 2, "enc_num_heads": heads}
    sizes |= {"dec_embed_dim": dim, "dec_depth": 2, "dec_num_heads": heads}
    size = (16 * rows, 16 * columns)
    model = network(patch_size=16, img_size=size, pos_embed="RoPE100", landscape_only=False, **sizes)
    shape = torch.tensor([size])
    shown = [{"img": torch.rand(1, 3, *size), "true_shape": shape, "instance": [name]} for name in "ab"]
    return Subject(model, tuple(shown), make_cameras(2, size[1], size[0]))


def build_mast3r(small: bool) -> Subject:
    network = importlib.import_module("mast3r.model").AsymmetricMASt3R

    class Trunk(network):
        """Encoder and decoders of MASt3R: its heads, with random weights, amplify rounding errors."""

        def _downstream_head(self, head_num: int, decout: list[Tensor], img_shape: Any) -> dict[str, Any]:
            return {"pts3d": decout[-1], "tokens": decout[1:-1]}

    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 24, 32)
    size, everything = (16 * rows, 16 * columns), (-float("inf"), float("inf"))
    layers = {"enc_embed_dim": dim, "enc_depth": 2, "enc_num_heads": heads, "dec_embed_dim": dim}
    layers |= {"dec_depth": 12, "dec_num_heads": heads}  # its head reads layers 6, 9 and 12
    head = {"head_type": "catmlp+dpt", "output_mode": "pts3d+desc24", "depth_mode": ("exp", *everything)}
    head |= {"conf_mode": ("exp", 1, everything[1]), "desc_conf_mode": ("exp", 0, everything[1])}
    model = Trunk(patch_size=16, img_size=size, pos_embed="RoPE100", landscape_only=False, **layers, **head)
    shape = torch.tensor([size])
    shown = [{"img": torch.rand(1, 3, *size), "true_shape": shape, "instance": [name]} for name in "ab"]
    return Subject(model, tuple(shown), make_cameras(2, size[1], size[0]))


LVSM_RAYS = {"none": "gray", "gta": "gta_gray", "prope": "gta_gray", "rayrope": "rayrope_gray"}


def build_lvsm(small: bool, encoding: str) -> Subject:
    lvsm = importlib.import_module("nvs.lvsm")
    transformer = importlib.import_module("pos_enc.utils.transformer")
    camera = importlib.import_module("pos_enc.utils.functional").Camera
    dim, heads, side = (96, 2, 32) if small else (576, 4, 128)
    layer = transformer.TransformerEncoderLayerConfig(
        d_model=dim, nhead=heads, dim_feedforward=dim, dropout=0.0, batch_first=True, norm_first=True, bias=False,
        qk_norm=True,
    )  # fmt: skip
    encoder = transformer.TransformerEncoderConfig(
        layer=layer, num_layers=3, input_norm=True, output_norm=True
    )
    official = {"pos_enc": encoding}
    if encoding == "rayrope":
        official = {"pos_enc": "d_pj+0_3d", "depth_type": "predict_dsig"}
    config = lvsm.LVSMDecoderOnlyModelConfig(
        ref_views=2, encoder=encoder, img_shape=(side, side, 3), cam_shape=(side, side, 6), ray_encoding="camray",
        **official,
    )  # fmt: skip
    lenses = [Pinhole.from_fov(fov, side, side) for fov in (60.0, 40.0, 70.0)]
    intrinsics = torch.stack([lens.central_intrinsics() for lens in lenses])
    world_from_cam = make_poses(3).world_from_cam
    context, target = (
        camera(K=intrinsics[None, part], camtoworld=world_from_cam[None, part], height=side, width=side)
        for part in (slice(0, 2), slice(2, 3))
    )
    model = lvsm.LVSMDecoderOnlyModel(config)
    call = (torch.rand(1, 2, side, side, 3), context, target)
    return Subject(model, call, lenses, own=encoding, rays=LVSM_RAYS[encoding])


def build_dinov3(small: bool) -> Subject:
    transformers = importlib.import_module("transformers")
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 28, 32)
    config = transformers.DINOv3ViTConfig(
        hidden_size=dim, intermediate_size=2 * dim, num_hidden_layers=3, num_attention_heads=heads,
        num_register_tokens=4,
    )  # fmt: skip
    images = torch.rand(2, 3, 16 * rows, 16 * columns)
    return Subject(transformers.DINOv3ViTModel(config), (images,), make_cameras(2, 16 * columns, 16 * rows))


def build_dinov2(small: bool) -> Subject:
    transformers = importlib.import_module("transformers")
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 28, 32)
    config = transformers.Dinov2Config(
        hidden_size=dim,
        mlp_ratio=2,
        num_hidden_layers=3,
        num_attention_heads=heads,
        patch_size=14,
        image_size=112,
    )
    images = torch.rand(2, 3, 14 * rows, 14 * columns)
    return Subject(
        transformers.Dinov2Model(config), (images,), make_cameras(2, 14 * columns, 14 * rows), own="none"
    )


def build_timm(small: bool, kind: str) -> Subject:
    """DINOv3 and EVA-02 as timm has them (both by its class Eva), and its ViT with learned positions."""
    dim, heads, rows, columns = (64, 4, 6, 8) if small else (384, 6, 28, 32)
    size = {"img_size": (16 * rows, 16 * columns), "patch_size": 16, "embed_dim": dim}
    size |= {"depth": 3, "num_heads": heads, "mlp_ratio": 2.0, "num_classes": 0}
    call = (torch.rand(2, 3, 16 * rows, 16 * columns),), make_cameras(2, 16 * columns, 16 * rows)
    if kind == "vit":
        vit = importlib.import_module("timm.models.vision_transformer")
        return Subject(vit.VisionTransformer(**size), *call, own="none")
    rope: dict[str, Any] = {"rope_type": "cat", "ref_feat_shape": (16, 16), "qkv_fused": False}
    rope |= {"swiglu_mlp": True, "scale_mlp": True, "scale_attn_inner": True}
    if kind == "dinov3":
        rope = {
            "rope_type": "dinov3",
            "rope_temperature": 100.0,
            "rope_rotate_half": True,
            "num_reg_tokens": 4,
        }
        rope |= {"init_values": 1.0, "use_abs_pos_emb": False}
    eva = importlib.import_module("timm.models.eva")
    return Subject(eva.Eva(**size, use_rot_pos_emb=True, **rope), *call)


def build_wan(small: bool) -> Subject:
    diffusers = importlib.import_module("diffusers")
    heads, size, rows, columns = (2, 32, 8, 12) if small else (3, 128, 32, 48)
    model = diffusers.WanTransformer3DModel(
        num_attention_heads=heads, attention_head_dim=size, in_channels=16, out_channels=16, text_dim=64,
        freq_dim=64, ffn_dim=2 * heads * size, num_layers=2,
    )  # fmt: skip
    args = (torch.randn(1, 16, 4, rows, columns), torch.tensor([5]), torch.randn(1, 32, 64))
    return Subject(model, args, make_cameras(4, 8 * columns, 8 * rows), kwargs={"return_dict": False})


SUBJECTS: dict[str, Callable[[bool], Subject]] = {
    "VGGT": build_vggt,
    "π³": build_pi3,
    "π³-X": partial(build_pi3, kind="Pi3X"),
    "Depth Anything 3": build_da3,
    "DUSt3R": build_dust3r,
    "MASt3R": build_mast3r,
    "LVSM (ray map)": partial(build_lvsm, encoding="none"),
    "LVSM (GTA)": partial(build_lvsm, encoding="gta"),
    "LVSM (PRoPE)": partial(build_lvsm, encoding="prope"),
    "LVSM (RayRoPE)": partial(build_lvsm, encoding="rayrope"),
    "DINOv3": build_dinov3,
    "DINOv2": build_dinov2,
    "DINOv3 of timm": partial(build_timm, kind="dinov3"),
    "EVA-02 of timm": partial(build_timm, kind="eva"),
    "ViT of timm": partial(build_timm, kind="vit"),
    "Wan": build_wan,
}


# Errors


def list_tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, int | float | str | None):
        return []
    parts = output.values() if hasattr(output, "values") else output
    return [tensor for part in parts for tensor in list_tensors(part)]


def run(network: Any, subject: Subject, **inputs: Any) -> tuple[list[Tensor], list[Tensor]]:
    outputs = list_tensors(network(*subject.args, **subject.kwargs, **inputs))
    total = sum((part.square().mean() for part in outputs if part.requires_grad), torch.zeros(()))
    parameters = [part for part in subject.model.parameters() if part.requires_grad]
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return outputs, [gradient for gradient in gradients if gradient is not None]


def compute_error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Largest difference, relative to the largest number."""
    largest = max(part.abs().max().item() for part in wanted)
    pairs = zip(found, wanted, strict=True)
    return max((first - second).abs().max().item() for first, second in pairs) / largest


def measure_errors(build: Callable[[bool], Subject]) -> dict[str, float]:
    torch.manual_seed(0)
    subject = build(True)
    with torch.no_grad():
        for parameter in subject.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    subject.model.eval()
    inputs = {"cameras": subject.cameras, "poses": make_poses(len(subject.cameras))}
    wanted = run(subject.model, subject)
    own = run(adapt(subject.model, subject.own), subject, **inputs)
    gray = adapt(subject.model, subject.rays)
    fast = run(gray, subject, **inputs)
    modules: tuple[Any, ...] = (host_base, lvsm_host)
    kept = [module.attention for module in modules]
    try:
        for module in modules:
            module.attention = importlib.import_module("naive_attention").naive_attention
        plain = run(gray, subject, **inputs)
    finally:
        for module, function in zip(modules, kept, strict=True):
            module.attention = function
    names = ("identity", "identity_gradient"), ("gray", "gray_gradient")
    pairs = ((own, wanted), (fast, plain))
    return {
        name: compute_error(found[index], right[index])
        for keys, (found, right) in zip(names, pairs, strict=True)
        for index, name in enumerate(keys)
    }


# Cost


VARIANTS: dict[str, dict[str, Any]] = {"gray": {}, "gray_qk": {"rotate_values": False}}


class AttentionClock:
    """CPU seconds in attention layers; those of an adapted network share the hooks of the original.

    LVSM passes a function to layers that stay as they are: they count, not the encoder that is exchanged around them.
    """

    def __init__(self, subject: Subject, inputs: dict[str, Any]) -> None:
        self.seconds, self.start = 0.0, 0.0
        views = Views(inputs["cameras"], inputs["poses"])
        bound: Any = adapt(subject.model, subject.rays).bind(views, subject.args, subject.kwargs)
        layers = dict(bound.named_modules())
        for path, module in subject.model.named_modules():
            kinds = type(module), lvsm_host.FixedAttention
            if (path in layers and type(layers[path]) not in kinds) or type(
                module
            ).__name__ == "MultiheadAttention":
                module.register_forward_pre_hook(self._begin)
                module.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self.start = time.process_time()

    def _end(self, *_: Any) -> None:
        self.seconds += time.process_time() - self.start


def measure_cost(build: Callable[[bool], Subject], repeats: int) -> dict[str, float]:
    """CPU seconds of the network itself and with ray angles, in turns; quotients of the shortest ones.

    Of the whole network without gradients and of its attention layers, and of a step forward and backward. What is
    computed once per call about the cameras is given apart: these networks have fewer layers that share it.
    """
    torch.manual_seed(0)
    subject = build(False)
    subject.model.eval()
    inputs = {"cameras": subject.cameras, "poses": make_poses(len(subject.cameras))}
    clock = AttentionClock(subject, inputs)
    adapted = {name: adapt(subject.model, subject.rays, **more) for name, more in VARIANTS.items()}
    parts: dict[str, dict[str, list[float]]] = {
        part: {name: [] for name in ("itself", *adapted)}
        for part in ("prepare", "network", "attention", "training")
    }
    for _ in range(repeats + 1):
        for name in ("itself", *adapted):
            clock.seconds, times = 0.0, [time.process_time()]
            network = subject.model
            if name != "itself":
                network = adapted[name].bind(Views(**inputs), subject.args, subject.kwargs)
            times.append(time.process_time())
            with torch.no_grad():
                network(*subject.args, **subject.kwargs)
            times.append(time.process_time())
            parts["attention"][name].append(clock.seconds)
            run(network, subject)
            times.append(time.process_time())
            for part, start, end in zip(
                ("prepare", "network", "training"), times[:-1], times[1:], strict=True
            ):
                parts[part][name].append(end - start)
    # The first round warms up.
    shortest = {part: {name: min(one[1:]) for name, one in rows.items()} for part, rows in parts.items()}
    found = {f"{part}_seconds": shortest[part]["itself"] for part in ("network", "attention", "training")}
    for name in adapted:
        found[f"prepare_seconds_{name}"] = shortest["prepare"][name]
        for part in ("network", "attention", "training"):
            found[f"{part}_{name}"] = shortest[part][name] / shortest[part]["itself"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", nargs="*", default=[], help="folders of clones to import networks from")
    parser.add_argument("--only", nargs="*", help=f"some of {', '.join(SUBJECTS)}")
    parser.add_argument("--repeats", type=int, default=4, help="rounds whose shortest counts; 0: errors only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sys.path[:0] = [*options.path, str(TESTS)]
    torch.set_num_threads(1)
    stored = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"rows": {}}
    rows = stored["rows"]  # of networks that are not asked for
    for name in options.only or SUBJECTS:
        try:
            rows[name] = measure_errors(SUBJECTS[name])
            if options.repeats:
                rows[name] |= measure_cost(SUBJECTS[name], options.repeats)
        except ModuleNotFoundError as error:
            print(f"{name}: {error}")
            continue
        print(name, " ".join(f"{key} {value:.3g}" for key, value in rows[name].items()), flush=True)
        if options.out:
            write_json(options.out, {**collect_provenance(), "rows": rows})


if __name__ == "__main__":
    main()
