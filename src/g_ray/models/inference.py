"""One pass of the reconstruction network: photos of any sizes with any calibrations in, points, depths and poses out,
with a record of how each calibration was used.

Framing turns any image into whole patches together with its camera, and maps results back to its own pixels.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_robustly
from g_ray.models.heads import Prediction
from g_ray.models.reconstruction_config import get_reconstruction_method
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import Box, compute_resampling_weights, resample
from g_ray.rays.views import Views

PADDING = 1.0
"""White, as VGGT pads."""


@dataclass(frozen=True)
class FramedImage:
    """An image as the network sees it, with the camera that takes such images."""

    image: Float[Tensor, "3 h w"]
    camera: Camera
    content: Bool[Tensor, "h w"]
    """False for padding."""
    original: Camera
    """The camera of the image as it was given."""
    box: Box
    """Where the given image lies in this one: left, top, right, bottom in pixels."""

    def restore(
        self, maps: Float[Tensor, "h w channel"], valid: Bool[Tensor, "h w"]
    ) -> tuple[Float[Tensor, "height width channel"], Bool[Tensor, "height width"]]:
        """Resample maps from this frame's pixels to the given image's: bilinear where it is larger, antialiased where
        it is smaller. Invalid pixels have no part in it; where most of a pixel comes from them it is invalid, and 0.
        """
        return restore_maps(maps, valid, self.original.width, self.original.height, self.box)


def restore_maps(
    maps: Float[Tensor, "h w channel"], valid: Bool[Tensor, "h w"], width: int, height: int, box: Box
) -> tuple[Float[Tensor, "height width channel"], Bool[Tensor, "height width"]]:
    """Resample maps to the pixels of a `width` × `height` image at `box` in them (see `FramedImage.restore`)."""
    left, top, right, bottom = box
    across = compute_resampling_weights(valid.shape[1], width, left, right).to(maps)
    down = compute_resampling_weights(valid.shape[0], height, top, bottom).to(maps)
    share = down @ valid.to(maps) @ across.mT
    planes = torch.where(valid[..., None], maps, 0.0).movedim(-1, 0)
    known = share >= 0.5
    values = (down @ planes @ across.mT) / torch.where(known, share, 1.0)
    return torch.where(known, values, 0.0).movedim(0, -1), known


@dataclass(frozen=True)
class PatchFraming:
    """How images of any size become multiples of the patch; `size` is the long side in pixels.

    "stretch" scales each side to the nearest multiple: aspect ratios change by a few per cent at most and nothing is
    cut or added, and because the camera is scaled alike every pixel keeps its ray. "pad" keeps the aspect ratio and
    fills up to a square, for networks that must see one size.
    """

    size: int
    patch: int
    fit: str = "stretch"

    def __post_init__(self) -> None:
        if self.fit not in ("stretch", "pad"):
            raise ValueError(f"unknown fit {self.fit!r}: choose stretch or pad")
        if self.size < self.patch or self.size % self.patch:
            raise ValueError(
                f"long side {self.size} px is not a multiple of the patch of {self.patch} px: "
                f"choose {max(1, round(self.size / self.patch)) * self.patch}"
            )

    def __call__(self, image: Float[Tensor, "3 height width"], camera: Camera) -> FramedImage:
        """Frame an image with its camera, a single one of the same size."""
        return self._stretch(image, camera) if self.fit == "stretch" else self._pad(image, camera)

    def compute_stretched_size(self, camera: Camera) -> tuple[int, int]:
        """Compute width and height in whole patches, as near to the camera's aspect ratio as they come."""
        scale = self.size / max(camera.width, camera.height)
        sides = (camera.width, camera.height)
        width, height = (max(1, round(side * scale / self.patch)) * self.patch for side in sides)
        return width, height

    def _stretch(self, image: Tensor, camera: Camera) -> FramedImage:
        width, height = self.compute_stretched_size(camera)
        small, lens = resample(image, camera, width, height)
        content = torch.ones(height, width, dtype=torch.bool, device=image.device)
        return FramedImage(small, lens, content, camera, (0.0, 0.0, float(width), float(height)))

    def _pad(self, image: Tensor, camera: Camera) -> FramedImage:
        scale = self.size / max(camera.width, camera.height)
        width, height = (max(1, round(side * scale)) for side in (camera.width, camera.height))
        small, lens = resample(image, camera, width, height)
        left, top = (self.size - width) // 2, (self.size - height) // 2
        right, bottom = self.size - width - left, self.size - height - top
        content = torch.ones(height, width, dtype=torch.bool, device=image.device)
        return FramedImage(
            F.pad(small, (left, right, top, bottom), value=PADDING),
            lens.pad(left, top, right, bottom),
            F.pad(content, (left, right, top, bottom), value=False),
            camera,
            (float(left), float(top), float(left + width), float(top + height)),
        )


# One pass of the network, with a record of how each calibration was used.


CalibrationInput = Views | Sequence[Camera | RayMap]
"""One calibration per image: cameras of any models, or unit rays per pixel."""


@dataclass(frozen=True)
class Calibration:
    """Which calibration a view was reconstructed with."""

    model: str
    """Name of the camera model; "ray_map" for a table of rays."""
    parameters: dict[str, float]
    """As given, for an image of `width` × `height` px; a table of rays has none."""
    width: int
    height: int
    network_size: tuple[int, int]
    """Width and height of what the network saw; its rays were scaled to it together with the image."""
    used_by: str
    """"attention", "input", both, or "nothing": grid-index encodings do not look at calibration."""

    @classmethod
    def from_camera(cls, camera: Camera, network_camera: Camera, used_by: str) -> "Calibration":
        table = isinstance(camera, RayMapCamera)
        values = {} if table else dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        size = (network_camera.width, network_camera.height)
        return cls(camera.NAME, values, camera.width, camera.height, size, used_by)


def convert_to_cameras(calibrations: CalibrationInput) -> list[Camera]:
    """Convert to one unbatched camera per view; raise for what would otherwise be ignored."""
    if isinstance(calibrations, Views):
        if calibrations.poses is not None:
            raise ValueError(
                "poses were given, but reconstruction finds poses itself and would ignore them: pass Views(cameras)"
            )
        calibrations = calibrations.cameras
    cameras = [_convert_to_camera(view, one) for view, one in enumerate(calibrations)]
    for view, camera in enumerate(cameras):
        if camera.batch_shape:
            raise ValueError(
                f"camera of view {view} is a batch {camera.batch_shape}: reconstruct one scene at a time, camera[i]"
            )
    return cameras


def _convert_to_camera(view: int, calibration: Camera | RayMap) -> Camera:
    if isinstance(calibration, Camera):
        return calibration
    if calibration.origins is not None:
        raise ValueError(
            f"ray map of view {view} has origins, which would be ignored: give camera-local rays of one center"
        )
    return RayMapCamera.from_rays(calibration.directions, calibration.valid)


@dataclass(frozen=True)
class InferredView:
    """What was found for one view, over the pixels of `camera`."""

    maps: Prediction
    """Points, confidences, depths, rays [h w …] and the pose."""
    valid: Bool[Tensor, "h w"]
    """False where the lens has no ray, and for padding."""
    camera: Camera
    """Takes images of exactly these pixels."""
    calibration: Calibration
    frame: FramedImage

    def fit_pose(self) -> Pose:
        """Fit world_from_cam: the rigid motion from the points along the true rays to the points in the world.

        Thousands of points average out their errors, where the pose head has a pooled token: with the shipped networks
        these camera centers are closer to the truth than `maps.poses` on every test. With fewer than three points the
        pose is that of the head.
        """
        # Predicted depth along true rays: an error of the predicted direction would move the camera.
        rays = RayMap.from_camera(self.camera.to(self.maps.camera_points))
        local = (rays.directions * self.maps.ray_depth[..., None])[self.valid]
        world = self.maps.world_points[self.valid]
        if len(local) < 3:
            return self.maps.poses
        # A pair of points is as good as the worse of the two.
        trust = torch.minimum(self.maps.camera_confidence, self.maps.world_confidence)[self.valid]
        moved = fit_similarity_robustly(local, world, trust, rigid=True)
        return Pose.from_parts(moved.rotation, moved.translation).to(local)

    def to_original(self) -> "InferredView":
        """Resample to the pixels of the image as it was given. Depth edges are interpolated."""
        if self.camera is self.frame.original:
            return self
        maps = vars(self.maps)
        names = ["world_points", "camera_points", "world_confidence", "camera_confidence"]
        stacked = torch.cat(
            [maps[name] if maps[name].ndim == 3 else maps[name][..., None] for name in names], -1
        )
        restored, valid = self.frame.restore(stacked, self.valid)
        world, local, trust, local_trust = restored.split((3, 3, 1, 1), -1)
        maps_at_original = replace(
            self.maps,
            world_points=world,
            camera_points=local,
            world_confidence=trust[..., 0],
            camera_confidence=local_trust[..., 0],
        )
        return replace(self, maps=maps_at_original, valid=valid, camera=self.frame.original)


@dataclass(frozen=True)
class Inference:
    """All views of a scene, in the frame of the first and up to scale."""

    views: tuple[InferredView, ...]

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, view: int) -> InferredView:
        return self.views[view]

    @property
    def calibrations(self) -> tuple[Calibration, ...]:
        return tuple(view.calibration for view in self.views)

    def to_original(self) -> "Inference":
        return Inference(tuple(view.to_original() for view in self.views))


@torch.no_grad()
def run_inference(
    model: ReconstructionModel,
    images: Sequence[Float[Tensor, "3 _ _"]],
    calibrations: CalibrationInput,
    *,
    size: int = 518,
    fit: str = "stretch",
    query_chunk: int | None = None,
    precision: str = "fp32",
    masks: Sequence[Bool[Tensor, "_ _"] | None] | None = None,
) -> Inference:
    """Reconstruct one scene from images in [0, 1] with one calibration each; the first view is the world.

    `size` is the long side that the network sees, `fit` how sides become multiples of its patch (see `PatchFraming`).
    `query_chunk` and `precision="bf16"` save memory; the heads always compute in float32. "int8" needs a network that
    `model.quantize()` has prepared.
    Patches without a pixel of the `masks` are masked out as keys, and masked pixels are not valid.
    """
    if precision not in ("fp32", "bf16", "int8"):
        raise ValueError(f"unknown precision {precision!r}: choose fp32, bf16 or int8")
    if (precision == "int8") != model.is_quantized:
        raise ValueError(
            'precision "int8" and a network after model.quantize() belong together: give both or neither'
        )
    cameras = convert_to_cameras(calibrations)
    _check(images, cameras)
    framing = PatchFraming(size, model.config.patch, fit)
    frames = [framing(image, camera) for image, camera in zip(images, cameras, strict=True)]
    if masks is not None:
        frames = [_mask_frame(frame, mask) for frame, mask in zip(frames, masks, strict=True)]
    partial = any(not bool(frame.content.all()) for frame in frames)
    like = next(model.parameters())
    lenses = [frame.camera.to(device=like.device, dtype=like.dtype) for frame in frames]
    views = Views(lenses)
    low = torch.autocast(like.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    with low:
        predictions = model.predict(
            [frame.image.to(like)[None] for frame in frames],
            views,
            content=[frame.content.to(like.device) for frame in frames] if partial else None,
            query_chunk=query_chunk,
        )
    rows = get_reconstruction_method(model.config.method)
    used_by = rows.describe_ray_usage(model.config.head_dim, model.config.encoding_options)
    inferred = []
    for index, (frame, prediction) in enumerate(zip(frames, predictions, strict=True)):
        valid = views.cast_pixel_rays(index).valid & frame.content.to(like.device)
        record = Calibration.from_camera(frame.original, frame.camera, used_by)
        inferred.append(
            InferredView(prediction.map_tensors(lambda part: part[0]), valid, frame.camera, record, frame)
        )
    return Inference(tuple(inferred))


def _mask_frame(frame: FramedImage, mask: Bool[Tensor, "_ _"] | None) -> FramedImage:
    """Leave out the pixels of a frame that lie outside of a mask of the original image."""
    if mask is None:
        return frame
    height, width = frame.content.shape
    left, top, right, bottom = frame.box
    rows = ((torch.arange(height) + 0.5 - top) / (bottom - top) * mask.shape[0]).long()
    columns = ((torch.arange(width) + 0.5 - left) / (right - left) * mask.shape[1]).long()
    usable = mask[rows.clamp(0, mask.shape[0] - 1)[:, None], columns.clamp(0, mask.shape[1] - 1)]
    return replace(frame, content=frame.content & usable.to(frame.content.device))


def _check(images: Sequence[Tensor], cameras: Sequence[Camera]) -> None:
    if len(images) != len(cameras) or not images:
        raise ValueError(
            f"{len(images)} images but {len(cameras)} calibrations: give one calibration per image, in the same order"
        )
    for view, (image, camera) in enumerate(zip(images, cameras, strict=True)):
        if tuple(image.shape[-2:]) != (camera.height, camera.width):
            raise ValueError(
                f"image {view} has {image.shape[-1]}×{image.shape[-2]} px, but its calibration is for "
                f"{camera.width}×{camera.height}: calibrate or resize them together (camera.resize, camera.crop)"
            )
        if not (bool(image.isfinite().all()) and 0 <= float(image.min()) <= float(image.max()) <= 1):
            raise ValueError(f"image {view} has values outside of [0, 1]: divide bytes by 255")
