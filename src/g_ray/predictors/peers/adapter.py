"""The interface of adapters: images at the size that a network sees in; poses, depth and its own lenses out."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.models.reconstruction_network import DEVIATION, MEAN
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.network_cost import check_precision
from g_ray.predictors.peers import PeerCard
from g_ray.predictors.peers.peer_framing import Filter, Placement, Size
from g_ray.runtime.device import choose_device


@dataclass(frozen=True, eq=False)
class PeerImage:
    """An image as a peer sees it. Camera and pose are there if it is to use them."""

    image: Float[Tensor, "3 h w"]
    """Pixel values in [0, 1]."""
    camera: Camera | None = None
    """The lens at this size; pixels count from the corner, centers are at +0.5."""
    pose: Pose | None = None


@dataclass(frozen=True, eq=False)
class PeerView:
    """A peer's prediction for one image."""

    depth: Float[Tensor, "h w"]
    """z or distance along the ray, depending on the adapter's `KIND`; not positive or not finite where unknown."""
    confidence: Float[Tensor, "h w"]
    pose: Pose | None = None
    """None from peers that see single photographs."""
    camera: Camera | None = None
    """The lens that it found; None if it finds none."""
    valid: Bool[Tensor, "h w"] | None = None
    """Where the peer itself marks depth as valid; None: everywhere."""


class Adapter(ABC):
    """Calls one peer by its own conventions."""

    KIND: ClassVar[Literal["z", "ray"]] = "z"
    """What `PeerView.depth` is."""
    FILTER: ClassVar[Filter] = "bicubic"
    """Resampling filter of the peer's own loader."""

    def __init__(self, card: PeerCard, settings: ModelSettings) -> None:
        self.card, self.settings = card, settings
        self.weights = settings.weights or card.weights
        self.device = choose_device(settings.device)
        check_precision(settings.precision, self.device)
        self.model = self.load()

    @abstractmethod
    def load(self) -> Any:
        """Load the network; raises OSError naming the missing package."""

    @abstractmethod
    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        """Say at which size the peer sees images of these sizes."""

    @abstractmethod
    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        """Predict images of one size together, or one image for peers that see single photographs."""

    def import_module(self, module: str) -> Any:
        """Import a module of the peer's own package."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise OSError(
                f"{self.card.title} needs the package {self.card.package}, which cannot be imported "
                f"({' '.join(str(error).split())}): {self.card.install}"
            ) from None

    def prepare(self, model: Any) -> Any:
        """Put a loaded network on the device, for inference."""
        return model.to(self.device).eval()

    def load_state(self, model: Any, state: Mapping[str, Tensor]) -> Any:
        """Load weights of a file into a network; ValueError in one line if they are others'."""
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            first = str(error).split("\n")[1:2] or [str(error)]
            raise ValueError(
                f"{self.weights} are not the weights of {self.card.title}: {first[0].strip()[:200]}"
            ) from None
        return self.prepare(model)

    def round_size(self, multiple: int) -> int:
        """Return --size, or the peer's own, as a multiple of the patch."""
        return max(1, round((self.settings.size or self.card.side) / multiple)) * multiple

    def stack_images(self, images: Sequence[PeerImage]) -> Float[Tensor, "1 view 3 h w"]:
        return torch.stack([one.image for one in images])[None].to(self.device)


# Conventions that several peers share


def split_views(
    depth: Float[Tensor, "view h w"],
    confidence: Float[Tensor, "view h w"],
    poses: Pose | None = None,
    cameras: Sequence[Camera | None] | None = None,
) -> list[PeerView]:
    """Make one `PeerView` per view, in float32 on the CPU."""
    depth, confidence = depth.detach().float().cpu(), confidence.detach().float().cpu()
    return [
        PeerView(
            depth[index],
            confidence[index],
            None if poses is None else poses[index].to("cpu", torch.float32),
            None if cameras is None else cameras[index],
        )
        for index in range(len(depth))
    ]


def invert_extrinsics(cam_from_world: Float[Tensor, "view _ 4"]) -> Pose:
    """world_from_cam from 3×4 or 4×4 cam_from_world."""
    # Rotations out of bf16 networks are orthogonal to three digits; inverting in float64 adds nothing to that.
    matrix = cam_from_world.detach().double().cpu()
    return Pose.from_parts(matrix[..., :3, :3], matrix[..., :3, 3]).inverse()


def normalize_imagenet(images: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 3 h w"]:
    """Subtract ImageNet's mean and divide by its deviation, for peers that leave this to the caller."""
    return (images - images.new_tensor(MEAN)[:, None, None]) / images.new_tensor(DEVIATION)[:, None, None]


def read_poses(world_from_cam: Float[Tensor, "view 4 4"]) -> Pose:
    return Pose(world_from_cam.detach().double().cpu())


def make_pinholes(intrinsics: Float[Tensor, "view 3 3"], width: int, height: int) -> list[Camera | None]:
    """Cameras from K of the network's image whose middle is W/2, H/2: pixels count from the corner.

    None where a focal length makes no sense.
    """
    cameras: list[Camera | None] = []
    for k in intrinsics.detach().double().cpu():
        values = {"fx": k[0, 0], "fy": k[1, 1], "cx": k[0, 2], "cy": k[1, 2]}
        numbers = {name: float(value) for name, value in values.items()}
        sane = bool(torch.isfinite(k).all()) and min(numbers["fx"], numbers["fy"]) > 0
        cameras.append(Pinhole.make(width, height, **numbers) if sane else None)
    return cameras


def make_ray_cameras(rays: Float[Tensor, "view h w 3"]) -> list[Camera | None]:
    """Cameras from rays of pixel centers, of any length."""
    return [RayMapCamera.from_rays(one) for one in rays.detach().float().cpu()]


def get_lens(image: PeerImage) -> Camera:
    assert image.camera is not None
    return image.camera


def collect_intrinsics(images: Sequence[PeerImage]) -> Float[Tensor, "view 3 3"]:
    """K of pinholes; the middle of the image is W/2, H/2, as peers that turn K into fields of view have it."""
    return torch.stack([get_lens(one).central_intrinsics().float() for one in images])


def collect_rays(images: Sequence[PeerImage]) -> Float[Tensor, "view h w 3"]:
    """Unit rays of pixel centers: exact for every lens, and no question of where pixels have their centers."""
    return torch.stack([get_lens(one).unproject_grid()[0].float() for one in images])


def collect_poses(images: Sequence[PeerImage]) -> Float[Tensor, "view 4 4"]:
    """world_from_cam of all images; the identity for those without."""
    eye = torch.eye(4)
    return torch.stack([eye if one.pose is None else one.pose.world_from_cam.float().cpu() for one in images])
