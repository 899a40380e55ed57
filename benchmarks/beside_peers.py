"""Adapters of `g_ray.predictors.peers` beside the official code that they call, with random weights.

    PYTHONPATH=folders/of/clones python benchmarks/beside_peers.py vggt pi3 pi3x omnivggt vggt-omega da3 mapanything

(or worldmirror, moge, unik3d.)

Needs the packages of the named peers to be importable; nothing of them is part of g-ray. For each peer

- its own loader reads photographs of several shapes from files, and the images are compared with ours;
- one network with random weights runs twice on the same images, called as its documents say and by our adapter, without
  priors and, if it takes any, with calibration and poses; poses, depth and lenses are compared after conversion.

All weights are random, gates and adapters that start at zero too: otherwise priors would change nothing. "priors change
the depth by" says how much they matter; agreement means something only beside it.
"""

import argparse
import gc
import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from g_ray.cameras import Pinhole
from g_ray.formats.calibration import CalibratedView
from g_ray.geometry.pose import Pose
from g_ray.predictors.peers import PEERS
from g_ray.predictors.peers.adapter import PeerImage
from g_ray.predictors.peers.framing import resize_image
from g_ray.predictors.peers.predictor import PeerPredictor
from g_ray.predictors.settings import ModelSettings

SIZE = 112
"""Long side of the images that networks run on."""
NARROW = 256
"""Width of networks whose classes let one choose it."""
SHAPES = {"landscape": [(640, 480)] * 2, "portrait": [(300, 420)] * 2, "mixed": [(640, 480), (480, 640)]}

Answer = dict[str, Tensor]
"""world_from_cam [view 4 4], depth [view h w], and lens: K [view 3 3] or rays [view h w 3]."""


def allow_torchvision() -> None:
    """Let torchvision be imported where its compiled operators do not load (a CUDA build beside a CPU torch)."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for file in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(file)
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []


def make_photo(width: int, height: int, seed: int) -> np.ndarray:
    """Make a smooth picture of a few waves and some noise."""
    draw = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(draw.uniform(5, 40) * x + draw.uniform(5, 40) * y + draw.uniform(0, 6)) for _ in range(3)]
    picture = 0.5 + 0.3 * np.stack(waves, -1) + 0.05 * draw.uniform(-1, 1, (height, width, 3))
    return (255 * picture.clip(0, 1)).astype(np.uint8)


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


# Official calls. Each takes the network, images [view 3 h w] in [0, 1], K and world_from_cam (or None), and answers.


Official = Callable[[Any, Tensor, Tensor | None, Tensor | None], Answer]


def decode_vggt(module: str, decode: str, code: Tensor, depth: Tensor) -> Answer:
    """Decode cameras by the peer's own function."""
    function = getattr(__import__(module, fromlist=[decode]), decode)
    extrinsics, intrinsics = function(code, tuple(depth.shape[2:4]))
    return {"poses": _invert(extrinsics[0]), "depth": depth[0, ..., 0], "lens": intrinsics[0]}


def call_vggt(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    found = model(images)
    return decode_vggt(
        "vggt.utils.pose_enc", "pose_encoding_to_extri_intri", found["pose_enc"], found["depth"]
    )


def call_omega(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    found = model(images)
    return decode_vggt("vggt_omega.utils.pose_enc", "encoding_to_camera", found["pose_enc"], found["depth"])


def call_omnivggt(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    count = len(images)
    known = [] if poses is None else list(range(count))
    found = model(
        images=images,
        extrinsics=None if poses is None else torch.linalg.inv(poses)[None, :, :3],
        intrinsics=None if k is None else k[None],
        depth=torch.zeros(1, count, *images.shape[-2:]),
        mask=torch.zeros(1, count, *images.shape[-2:], dtype=torch.bool),
        depth_gt_index=[],
        camera_gt_index=known,
    )
    return decode_vggt(
        "omnivggt.utils.pose_enc", "pose_encoding_to_extri_intri", found["pose_enc"], found["depth"]
    )


def call_pi3(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    return _read_points(model(images[None]))


def call_pi3x(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    priors = {"intrinsics": k[None], "poses": poses[None]} if k is not None and poses is not None else {}
    return _read_points(model(images[None], **priors, with_prior=bool(priors)))


def call_da3(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    """Its `inference`, but for the float16 that it would use on a CPU and the alignment to given poses."""
    pictures = [(255 * image).round().byte().movedim(0, -1).numpy() for image in images]
    extrinsics = None if poses is None else torch.linalg.inv(poses).numpy()
    long_side = max(images.shape[-2:])
    prepared = model._preprocess_inputs(pictures, extrinsics, None if k is None else k.numpy(), long_side)
    stacked, extrinsics, intrinsics = model._prepare_model_inputs(*prepared)
    extrinsics = model._normalize_extrinsics(extrinsics)
    found = model.model(stacked, extrinsics, intrinsics, [], False, False, "first")
    depth = found["depth"].reshape(len(images), *images.shape[-2:])
    return {"poses": _invert(found["extrinsics"][0]), "depth": depth, "lens": found["intrinsics"][0]}


def call_mapanything(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    from torchvision.transforms.functional import normalize  # pyright: ignore[reportMissingImports]

    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    views = []
    for index, image in enumerate(images):
        view = {"img": normalize(image, mean, deviation)[None], "data_norm_type": ["dinov2"]}
        if k is not None and poses is not None:
            integer = k[index].clone()
            integer[:2, 2] -= 0.5  # its pixels have their centers at integers
            view |= {"intrinsics": integer[None], "camera_poses": poses[index][None]}
            view["is_metric_scale"] = torch.tensor([False])
        views.append(view)
    found = model.infer(views, use_amp=False, apply_mask=False, mask_edges=False)
    return {
        "poses": torch.cat([view["camera_poses"] for view in found]),
        "depth": torch.cat([view["depth_along_ray"] for view in found])[..., 0],
        "lens": torch.cat([view["ray_directions"] for view in found]),
    }


def call_worldmirror(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    views, flags = {"img": images[None]}, [0, 0, 0]
    if k is not None and poses is not None:
        views |= {"camera_poses": poses[None], "camera_intrs": k[None]}
        flags = [1, 0, 1]
    found = model(views=views, cond_flags=flags)
    return {
        "poses": found["camera_poses"][0],
        "depth": found["depth"][0, ..., 0],
        "lens": found["camera_intrs"][0],
    }


def call_moge(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    height, width = images.shape[-2:]
    fov = [None] * len(images) if k is None else (2 * torch.atan(width / 2 / k[:, 0, 0])).rad2deg().tolist()
    found = [
        model.infer(image, fov_x=angle, apply_mask=False, use_fp16=False)
        for image, angle in zip(images, fov, strict=True)
    ]
    pixels = torch.tensor([[width], [height], [1]])
    lens = torch.stack([one["intrinsics"] for one in found]) * pixels
    return {"depth": torch.stack([one["depth"] for one in found]), "lens": lens}


def call_unik3d(model: Any, images: Tensor, k: Tensor | None, poses: Tensor | None) -> Answer:
    """With rays from K. Its own camera objects are no reference: their rays come back 0.9° off at 640 px."""
    height, width = images.shape[-2:]
    v, u = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    found = []
    for index, image in enumerate(images):
        rays = None
        if k is not None:
            fx, fy, cx, cy = k[index][[0, 1, 0, 1], [0, 1, 2, 2]]
            rays = nn.functional.normalize(
                torch.stack([(u - cx) / fx, (v - cy) / fy, torch.ones_like(u)]), dim=0
            )
        found.append(model.infer((255 * image).round(), rays=rays))
    rays = torch.cat([one["rays"] for one in found]).movedim(1, -1)
    return {"depth": torch.cat([one["distance"][:, 0] for one in found]), "lens": rays}


def _read_points(found: Any) -> Answer:
    points = found["local_points"][0]
    return {"poses": found["camera_poses"][0], "depth": points.norm(dim=-1), "lens": points}


def _invert(extrinsics: Tensor) -> Tensor:
    square = torch.eye(4).repeat(len(extrinsics), 1, 1)
    square[:, :3] = extrinsics[:, :3]
    return torch.linalg.inv(square.double()).float()


# Loaders: files in, images [view 3 h w] in [0, 1] out.


def load_vggt(paths: Sequence[str]) -> Tensor:
    from vggt.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths))


def load_vggt_padded(paths: Sequence[str]) -> Tensor:
    from vggt.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths), mode="pad")


def load_omega(paths: Sequence[str]) -> Tensor:
    from vggt_omega.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths))


def load_pi3(paths: Sequence[str]) -> Tensor:
    from pi3.utils.basic import load_images_as_tensor  # pyright: ignore[reportMissingImports]

    return load_images_as_tensor(str(Path(paths[0]).parent), verbose=False)


def load_da3(paths: Sequence[str]) -> Tensor:
    from depth_anything_3.utils.io.input_processor import (  # pyright: ignore[reportMissingImports]
        InputProcessor,
    )

    images, _, _ = InputProcessor()(list(paths), sequential=True)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    return images.reshape(-1, *images.shape[-3:]) * deviation + mean


def load_mapanything(paths: Sequence[str]) -> Tensor:
    from mapanything.utils.image import load_images  # pyright: ignore[reportMissingImports]

    views = load_images(list(paths))
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    return torch.cat([view["img"] for view in views]) * deviation + mean


# Networks


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


CALLS: dict[str, tuple[Callable[[], nn.Module], Official, dict[str, Callable[[Sequence[str]], Tensor]]]] = {
    "vggt": (build_vggt, call_vggt, {"crop": load_vggt, "pad": load_vggt_padded}),
    "vggt-omega": (build_omega, call_omega, {"crop": load_omega}),
    "pi3": (build_pi3, call_pi3, {"crop": load_pi3}),
    "pi3x": (build_pi3x, call_pi3x, {"crop": load_pi3}),
    "omnivggt": (build_omnivggt, call_omnivggt, {}),
    "da3": (build_da3, call_da3, {"crop": load_da3}),
    "worldmirror": (build_worldmirror, call_worldmirror, {}),
    "moge": (build_moge, call_moge, {}),
    "unik3d": (build_unik3d, call_unik3d, {}),
    "mapanything": (build_mapanything, call_mapanything, {"crop": load_mapanything}),
}


# Ours


def make_ours(name: str, model: Any, **settings: Any) -> PeerPredictor:
    """Make the predictor around a network that is there already."""
    card = PEERS[name]
    file, kind = card.adapter.split(":")
    adapter = getattr(__import__(f"g_ray.predictors.peers.{file}", fromlist=[kind]), kind)
    given = type("Given", (adapter,), {"load": lambda self: model})
    chosen = ModelSettings(device="cpu", **settings)
    return PeerPredictor(name, card, given(card, chosen), chosen)


def compare_loader(name: str, fit: str, load: Callable[[Sequence[str]], Tensor]) -> dict[str, float]:
    """Compare images of the peer's loader with ours, for several shapes; 1/255 is a step of a color."""
    settings: Any = {"fit": fit}
    predictor = make_ours(name, _NoModel(), **settings)
    result = {}
    for shape, sizes in SHAPES.items():
        photos = [make_photo(width, height, seed) for seed, (width, height) in enumerate(sizes)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / f"{number}.png") for number in range(len(photos))]
            for path, photo in zip(paths, photos, strict=True):
                Image.fromarray(photo).save(path)
            wanted = load(paths)
        places = predictor.adapter.place(sizes)
        tensors = [torch.from_numpy(photo).movedim(-1, 0).float() / 255 for photo in photos]
        found = [
            place.place_image(resize_image(image, place.width, place.height, predictor.adapter.FILTER))
            for image, place in zip(tensors, places, strict=True)
        ]
        same = all(image.shape == other.shape for image, other in zip(found, wanted, strict=True))
        text = f"{fit}, {shape} {tuple(wanted.shape[-2:])}"
        result[text] = float((torch.stack(found) - wanted).abs().max()) if same else float("inf")
    return result


class _NoModel(nn.Module):
    class config:
        patch = 14


@torch.inference_mode()
def compare_outputs(name: str, build: Callable[[], nn.Module], call: Official) -> dict[str, float]:
    """Run one network by both ways, without priors and with those that it takes."""
    model = randomize(build())
    ours = model
    if name == "vggt":
        from g_ray.models.vggt import build_vggt as build_ours

        ours = build_ours(model.state_dict())
    lenses = [Pinhole.make(160, 120, fx=130.0, fy=135.0, cx=80.0, cy=60.0), Pinhole.from_fov(70.0, 160, 120)]
    stands = [Pose.look_at((0.0, 0.0, 0.0), (0.1, 0.0, 1.0)), Pose.look_at((0.6, 0.1, 0.2), (0.0, 0.1, 2.0))]
    views = [
        CalibratedView(
            f"v{number}.png", lens, photo=torch.from_numpy(make_photo(160, 120, number)).movedim(-1, 0) / 255
        )
        for number, lens in enumerate(lenses)
    ]
    result, plain = {}, None
    for priors in (False, True) if PEERS[name].calibration != "no" else (False,):
        kind = "given" if priors else "predicted"
        predictor = make_ours(name, ours, size=SIZE, lenses=kind)
        shown: list[PeerImage] = []
        answered: list[Any] = []
        run = predictor.adapter.predict

        def spy(images: Any, run: Any = run, shown: Any = shown, answered: Any = answered) -> Any:
            results = run(images)
            shown.extend(images)
            answered.extend(results)
            return results

        predictor.adapter.predict = spy
        posed = [
            CalibratedView(view.name, view.camera, stand if priors else None, photo=view.photo)
            for view, stand in zip(views, stands, strict=True)
        ]
        try:
            predictor.predict_few(posed)
        except ValueError as error:
            if "no lens was found" not in str(error):  # a field of view of zero, from random weights
                raise
        images = torch.stack([image.image for image in shown])
        k = poses = None
        if priors:
            cameras = [image.camera for image in shown if image.camera is not None]
            k = torch.stack([camera.central_intrinsics().float() for camera in cameras])
            poses = torch.stack([stand.world_from_cam.float() for stand in stands])
        wanted = call(model, images, k, poses)
        text = "with calibration and poses" if priors else "images alone"
        depth = torch.stack([view.depth for view in answered])
        result[f"{text}: depth"] = _relative(depth, wanted["depth"])
        if "poses" in wanted:
            found = torch.stack([view.pose.world_from_cam for view in answered]).float()
            result[f"{text}: poses"] = _relative(found, wanted["poses"])
        result[f"{text}: lenses"] = _compare_lenses(answered, wanted["lens"])
        if plain is not None:
            result["priors change the depth by"] = _relative(depth, plain)
        plain = depth
    return result


def _compare_lenses(answered: Sequence[Any], wanted: Tensor) -> float:
    """Compare K, or the directions of rays."""
    if any(view.camera is None for view in answered):
        return float("nan")  # random weights gave no field of view
    if wanted.shape[-2:] == (3, 3):
        found = torch.stack([view.camera.central_intrinsics().float() for view in answered])
        return _relative(found, wanted)
    found = torch.stack([view.camera.unproject_grid()[0] for view in answered])
    return float((found - nn.functional.normalize(wanted.float(), dim=-1)).abs().max())


def _relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted.cpu()).abs().max() / wanted.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="+", choices=CALLS)
    parser.add_argument("--loaders-only", action="store_true", help="do not run networks")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    allow_torchvision()
    results = {}
    for name in asked.peers:
        build, call, loaders = CALLS[name]
        result: dict[str, float] = {}
        for fit, load in loaders.items():
            result |= {f"loader, {key}": value for key, value in compare_loader(name, fit, load).items()}
        if not asked.loaders_only:
            result |= compare_outputs(name, build, call)
            gc.collect()
        results[name] = result
        print(name)
        for key, value in result.items():
            print(f"  {key}: {value:.2e}", flush=True)
        if asked.json:
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps({"torch": torch.__version__, "peers": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
