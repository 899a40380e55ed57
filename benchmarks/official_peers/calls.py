"""Calls of official networks, as their documents say.

Each takes the network, images [view 3 h w] in [0, 1], K and world_from_cam (or None), and answers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Answer = dict[str, Tensor]
"""world_from_cam [view 4 4], depth [view h w], and lens: K [view 3 3] or rays [view h w 3]."""
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
