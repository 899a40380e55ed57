"""Photographs on their way to a peer and back: whole, or as virtual pinholes where a peer would not understand them.

A plan knows the sizes of its images before any photograph is loaded; the peer's rule then places all images of a scene,
and the plan makes the images and brings results back to the rays of the photograph.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.peers import Lenses
from g_ray.predictors.peers.adapter import PeerImage, PeerView
from g_ray.predictors.peers.peer_framing import Filter, Placement, Size, resize_image
from g_ray.rays.pinhole_merge import merge_depths
from g_ray.rays.virtual_pinholes import VirtualPinholes, cover_with_pinholes

Kind = Literal["z", "ray"]

MIN_Z = 0.1
"""Rays count as forward if their z is above: up to 84° from the axis."""
MAX_SPREAD_DEG = 3.0
"""Rotation between the poses from crops of one photograph, beyond which a warning is issued."""


@dataclass(frozen=True, eq=False)
class PhotoPlan(ABC):
    """One photograph of a scene, before it is loaded."""

    view: View

    @property
    @abstractmethod
    def sizes(self) -> list[Size]:
        """Sizes of its images before the peer resizes them."""

    @abstractmethod
    def show(self, places: Sequence[Placement], filter: Filter) -> "Shown":
        """Load the photograph and make the images."""


class Shown(ABC):
    """One photograph as a peer sees it."""

    images: list[PeerImage]

    @abstractmethod
    def restore(self, results: Sequence[PeerView], kind: Kind) -> tuple[ReconstructedView, list[str]]:
        """Bring what a peer said of the images back to the photograph; also notes. Poses are the peer's or 1."""


def plan_photographs(views: Sequence[View], accepts: Lenses, *, given: bool = True) -> list[PhotoPlan]:
    """Plan how photographs reach a peer; with `given` false their calibration is not used, and all go as they are."""
    covers: dict[int, VirtualPinholes] = {}
    plans: list[PhotoPlan] = []
    for view in views:
        if not given or understands(view.camera, accepts):
            plans.append(WholePlan(view, given))
            continue
        mask = view.load_mask()
        key = id(view.camera)
        # Photographs of one lens share their camera: without a mask they share the layout of crops too.
        if mask is not None or key not in covers:
            cover = cover_with_pinholes(view.camera, mask=mask)
            plans.append(CropsPlan(view, cover))
            if mask is None:
                covers[key] = cover
        else:
            plans.append(CropsPlan(view, covers[key]))
    return plans


def understands(camera: Camera, accepts: Lenses) -> bool:
    """Tell whether a peer understands photographs of this lens as they are."""
    if accepts == "any" or isinstance(camera, Pinhole):
        return True
    if accepts == "pinhole":
        return False
    small = shrink_camera(camera, min(1.0, 64 / max(camera.width, camera.height)))
    rays, valid = small.unproject_grid()
    return bool(valid.all()) and bool((rays[..., 2] > MIN_Z).all())


def shrink_camera(camera: Camera, scale: float) -> Camera:
    """Resize a camera by one factor."""
    width, height = (max(2, round(side * scale)) for side in (camera.width, camera.height))
    return camera.resize(width, height)


# Whole photographs


@dataclass(frozen=True, eq=False)
class WholePlan(PhotoPlan):
    """The photograph as it is."""

    given: bool = True
    """Whether its calibration is used."""

    @property
    def sizes(self) -> list[Size]:
        return [(self.view.camera.width, self.view.camera.height)]

    def show(self, places: Sequence[Placement], filter: Filter) -> "ShownPhoto":
        (place,) = places
        small = resize_image(self.view.load_image(), place.width, place.height, filter)
        camera = place.place_camera(self.view.camera) if self.given else None
        image = PeerImage(place.place_image(small), camera, self.view.pose)
        return ShownPhoto([image], self.view, place, self.given)


@dataclass(frozen=True, eq=False)
class ShownPhoto(Shown):
    """A whole photograph."""

    images: list[PeerImage]
    view: View
    place: Placement
    given: bool

    def restore(self, results: Sequence[PeerView], kind: Kind) -> tuple[ReconstructedView, list[str]]:
        (result,) = results
        depth, inside = self.place.restore_map(result.depth)
        confidence, _ = self.place.restore_map(result.confidence)
        camera, original = self._choose_lens(result)
        rays, seen = (part.cpu() for part in camera.unproject_grid())
        along = rays[..., 2].to(depth)
        if kind == "z":
            # z / cos of the angle to the axis; rays at 90° or more from the axis have no positive z.
            seen = seen & (along > 1e-3)
            depth = depth / along.clamp(min=1e-3)
        valid = seen & inside & torch.isfinite(depth) & (depth > 0) & self._resize_mask()
        if result.valid is not None:
            valid = valid & (self.place.restore_map(result.valid.float())[0] > 0.5)
        size = (self.view.camera.width, self.view.camera.height)
        notes = self.place.describe_losses(self.view.name, size)
        view = ReconstructedView(
            self.view.name,
            camera,
            result.pose or Pose.identity(),
            torch.where(valid, depth, 0.0),
            torch.where(valid, confidence, 0.0),
            valid,
            photo_camera=original,
        )
        return view, notes

    def _choose_lens(self, result: PeerView) -> tuple[Camera, Camera]:
        """Return the camera of the resized photograph and of the photograph: the given one, or the peer's own."""
        photo = self.view.camera
        if self.given:
            return photo.resize(self.place.width, self.place.height), photo
        if result.camera is None:
            raise ValueError(
                f"no lens was found for {self.view.name}: use the given calibration (--lenses given)"
            )
        camera = self.place.restore_camera(result.camera)
        return camera, camera.resize(photo.width, photo.height)

    def _resize_mask(self) -> Bool[Tensor, "h w"]:
        mask = self.view.load_mask()
        if mask is None:
            return torch.ones(self.place.height, self.place.width, dtype=torch.bool)
        return resize_mask(mask, self.place.width, self.place.height)


def resize_mask(mask: Bool[Tensor, "_ _"], width: int, height: int) -> Bool[Tensor, "h w"]:
    """Keep pixels that are wholly usable: a network's pixel covers several of the photograph's."""
    blocked = torch.nn.functional.adaptive_max_pool2d((~mask)[None].float(), (height, width))[0]
    return blocked == 0


# Virtual pinholes


@dataclass(frozen=True, eq=False)
class CropsPlan(PhotoPlan):
    """Overlapping pinhole crops of the photograph, at its own resolution."""

    cover: VirtualPinholes

    @property
    def sizes(self) -> list[Size]:
        return [(self.cover.crop.width, self.cover.crop.height)] * len(self.cover)

    def show(self, places: Sequence[Placement], filter: Filter) -> "ShownCrops":
        first = places[0]
        # Crops are rendered at the size that the peer sees: one resampling instead of two.
        crop = self.cover.crop.resize(first.width, first.height)
        cover = replace(self.cover, crop=crop)
        rendered, valid = cover.render(self.view.load_image())
        images = []
        for index, (place, pixels) in enumerate(zip(places, rendered, strict=True)):
            turned = None
            if self.view.pose is not None:
                photo_from_crop = cover.poses[index].to(self.view.pose.dtype)
                turned = self.view.pose @ photo_from_crop
            images.append(
                PeerImage(place.place_image(pixels.clamp(0, 1).float()), place.place_camera(crop), turned)
            )
        return ShownCrops(images, self.view, list(places), cover, valid, self.sizes[0])


@dataclass(frozen=True, eq=False)
class ShownCrops(Shown):
    """Crops of a photograph."""

    images: list[PeerImage]
    view: View
    places: list[Placement]
    cover: VirtualPinholes
    """Virtual pinholes, with crops at their size on the canvas."""
    seen: Bool[Tensor, "crop h w"]
    """Pixels of the crops that show a usable part of the photograph."""
    full_size: Size
    """Size of a crop at the resolution of the photograph."""

    def restore(self, results: Sequence[PeerView], kind: Kind) -> tuple[ReconstructedView, list[str]]:
        depths, confidences, valid = [], [], []
        for place, result, seen in zip(self.places, results, self.seen, strict=True):
            depth, inside = place.restore_map(result.depth)
            depths.append(depth)
            confidences.append(place.restore_map(result.confidence)[0])
            usable = inside & seen.cpu()
            if result.valid is not None:
                usable = usable & (place.restore_map(result.valid.float())[0] > 0.5)
            valid.append(usable)
        # The result has no more detail than the crops that the peer saw, so it gets no more pixels either.
        photo = self._choose_size()
        merged = merge_depths(
            self.cover,
            torch.stack(depths),
            kind=kind,
            confidence=torch.stack(confidences),
            valid=torch.stack(valid),
            photo=photo,
        )
        pose, notes = self._average_poses(results)
        notes += self.places[0].describe_losses(f"every crop of {self.view.name}", self.full_size)
        groups = len(set(merged.groups.tolist()))
        if groups > 1:
            notes.append(
                f"crops of {self.view.name} form {groups} groups without common pixels: "
                "their scales are not comparable"
            )
        view = ReconstructedView(
            self.view.name,
            photo,
            pose,
            merged.ray_depth.float(),
            merged.confidence.float(),
            merged.valid,
            photo_camera=self.view.camera,
        )
        return view, notes

    def _choose_size(self) -> Camera:
        """Return the camera at a size where it resolves what the crops do."""
        return shrink_camera(self.view.camera, min(1.0, self.cover.crop.width / self.full_size[0]))

    def _average_poses(self, results: Sequence[PeerView]) -> tuple[Pose, list[str]]:
        """Average the poses of the photograph that its crops give: world_from_crop · crop_from_photo."""
        found = [result.pose for result in results]
        if any(pose is None for pose in found):
            return Pose.identity(), []
        crops = Pose(torch.stack([pose.world_from_cam.double() for pose in found if pose is not None]))
        photos = crops @ self.cover.poses.to("cpu", torch.float64).inverse()
        rotation = average_rotations(photos.rotation)
        cosine = ((photos.rotation * rotation).sum((-1, -2)) - 1) / 2
        spread = float(cosine.clamp(-1, 1).arccos().rad2deg().max())
        notes = []
        if spread > MAX_SPREAD_DEG:
            notes.append(f"crops of {self.view.name} disagree on its orientation by up to {spread:.0f}°")
        center = photos.translation.quantile(0.5, dim=0)
        return Pose.from_parts(rotation, center).to(torch.float32), notes


def average_rotations(rotations: Float[Tensor, "n 3 3"]) -> Float[Tensor, "3 3"]:
    """Find the rotation nearest to all in the sum of squared differences: the polar factor of their mean."""
    left, _, right = torch.linalg.svd(rotations.mean(0))
    flip = torch.ones(3, dtype=rotations.dtype)
    flip[2] = torch.linalg.det(left @ right).sign()
    return left * flip @ right
