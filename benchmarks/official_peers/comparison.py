"""Our adapters compared with the official code: images of the loaders, and answers of one network called by both."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from g_ray.cameras import Pinhole
from g_ray.formats.calibration_source import View
from g_ray.geometry.pose import Pose
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.peers import PEERS
from g_ray.predictors.peers.adapter import PeerImage
from g_ray.predictors.peers.peer_framing import resize_image
from g_ray.predictors.peers.peer_predictor import PeerPredictor
from official_peers.calls import Official
from official_peers.loaders import Loader
from official_peers.networks import randomize

SIZE = 112
"""Long side of the images that networks run on."""
SHAPES = {"landscape": [(640, 480)] * 2, "portrait": [(300, 420)] * 2, "mixed": [(640, 480), (480, 640)]}


def make_photo(width: int, height: int, seed: int) -> np.ndarray:
    """Make a smooth picture of a few waves and some noise."""
    draw = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(draw.uniform(5, 40) * x + draw.uniform(5, 40) * y + draw.uniform(0, 6)) for _ in range(3)]
    picture = 0.5 + 0.3 * np.stack(waves, -1) + 0.05 * draw.uniform(-1, 1, (height, width, 3))
    return (255 * picture.clip(0, 1)).astype(np.uint8)


def make_ours(name: str, model: Any, **settings: Any) -> PeerPredictor:
    """Make the predictor around a network that is there already."""
    card = PEERS[name]
    file, kind = card.adapter.split(":")
    adapter = getattr(__import__(f"g_ray.predictors.peers.{file}", fromlist=[kind]), kind)
    given = type("Given", (adapter,), {"load": lambda self: model})
    chosen = ModelSettings(device="cpu", **settings)
    return PeerPredictor(name, card, given(card, chosen), chosen)


def compare_loader(name: str, fit: str, load: Loader) -> dict[str, float]:
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
        View(
            f"v{number}.png", lens, image=torch.from_numpy(make_photo(160, 120, number)).movedim(-1, 0) / 255
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
            View(view.name, view.camera, stand if priors else None, image=view.photo)
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
