"""A photograph of any lens as overlapping pinhole crops, for tools that know nothing but pinholes.

All crops of a photograph share its center of projection and have one size and one focal length; crop i is turned by
`photo_from_crop[i]`. A ray of the photograph is therefore the same ray in every crop that sees it:

    r_photo = photo_from_crop[i] · r_crop,    ‖X‖ equal in both,    z differs.

Keypoints go through that equation and back; depths are merged in `g_ray.rays.pinhole_merge`, as ray distances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_grid import pixel_centers
from g_ray.geometry.pose import Pose
from g_ray.rays.crop_layout import choose_rotations, look_along

MAX_FOV_DEG = 90.0
"""In its corners, 55° from the axis, a crop of 90° already magnifies areas by 1/cos³ 55° ≈ 5."""

MAX_FINER = 6
"""Most samples per axis of a crop's pixel, where it covers many pixels of the photograph."""

_STEP, _SMOOTH_PX = 4, 0.02
"""Every so many pixels of a crop are projected, and those between interpolated where that is off by less."""
_LAYOUT_SAMPLES = 48
_EDGE_SAMPLES = 256


@dataclass(frozen=True, eq=False)
class VirtualPinholes:
    """Pinhole crops of one photograph. `mask` is true where the photograph may be used."""

    photo: Camera
    crop: Pinhole
    photo_from_crop: Float[Tensor, "crop 3 3"]
    mask: Bool[Tensor, "height width"] | None = None

    def __len__(self) -> int:
        return len(self.photo_from_crop)

    @property
    def cameras(self) -> list[Pinhole]:
        """One camera per crop, all the same."""
        return [self.crop] * len(self)

    @property
    def poses(self) -> Pose:
        """`photo_from_crop` as rigid motions with zero translation: poses of the crops in a rig of their own."""
        return Pose.from_parts(self.photo_from_crop, torch.zeros_like(self.photo_from_crop[..., 0]))

    def cast_rays(self, index: int) -> Float[Tensor, "h w 3"]:
        """Unit rays of a crop's pixel centers in the photograph's frame."""
        rays, _ = self.crop.unproject_grid()
        return rays @ self.photo_from_crop[index].mT

    def map_to_photo(
        self, pixels: Float[Tensor, "*n 2"], index: int
    ) -> tuple[Float[Tensor, "*n 2"], Bool[Tensor, "*n"]]:
        """Pixels of a crop to pixels of the photograph, and whether the photograph may be used there."""
        rays, _ = self.crop.unproject(pixels)
        return self._locate(rays @ self.photo_from_crop[index].mT)

    def map_to_crop(
        self, pixels: Float[Tensor, "*n 2"], index: int
    ) -> tuple[Float[Tensor, "*n 2"], Bool[Tensor, "*n"]]:
        """Pixels of the photograph to pixels of a crop, and whether the crop shows them; inverse of `map_to_photo`."""
        rays, valid = self.photo.unproject(pixels)
        places, ahead = self.crop.project(rays @ self.photo_from_crop[index])
        return places, valid & ahead & self.crop.contains(places)

    def render(
        self, image: Float[Tensor, "channel height width"], crops: Sequence[int] | None = None
    ) -> tuple[Float[Tensor, "crop channel h w"], Bool[Tensor, "crop h w"]]:
        """Render some crops (all without a list) with a mask of pixels of which at least half shows usable photograph.

        Colors are interpolated bilinearly and averaged over the crop's pixel, so that nothing is aliased where a pixel
        covers several of the photograph's. Masked pixels take no part; pixels that are not valid are 0.
        """
        if image.shape[-2:] != (self.photo.height, self.photo.width):
            raise ValueError(
                f"image of {image.shape[-1]}×{image.shape[-2]} px, but its camera takes "
                f"{self.photo.width}×{self.photo.height}: resize them together"
            )
        usable = image.new_ones(1, *image.shape[-2:]) if self.mask is None else self.mask[None].to(image)
        layers = torch.cat([image * usable, usable])
        wraps = is_closed(self.photo)
        # A column from the other side on both ends lets bilinear interpolation cross the panorama's seam.
        layers = F.pad(layers[None], (1, 1, 0, 0), mode="circular" if wraps else "replicate")[0]
        parts = [self._render_crop(layers, index) for index in crops or range(len(self))]
        images, valid = zip(*parts, strict=True)
        return torch.stack(images), torch.stack(valid)

    def _render_crop(self, layers: Tensor, index: int) -> tuple[Tensor, Tensor]:
        finer = self._choose_supersampling(index)
        fine = self.crop.resize(finer * self.crop.width, finer * self.crop.height)
        total = layers.new_zeros(layers.shape[0], self.crop.height, self.crop.width)
        rows = max(1, (1 << 18) // (finer * fine.width))
        for top in range(0, self.crop.height, rows):
            bottom = min(top + rows, self.crop.height)
            strip = fine.crop(0, finer * top, fine.width, finer * (bottom - top))
            pixels, seen = project_crop(self.photo, strip, self.photo_from_crop[index])
            place = (pixels + pixels.new_tensor([1.0, 0.0])) / pixels.new_tensor(
                [self.photo.width + 2, self.photo.height]
            )
            values = F.grid_sample(
                layers[None],
                (2 * place - 1)[None].to(layers),
                mode="bilinear",
                padding_mode="border",
                align_corners=False,
            )
            total[:, top:bottom] = F.avg_pool2d(values * seen, finer)[0]
        valid = total[-1] >= 0.5
        return torch.where(valid, total[:-1] / total[-1].clamp(min=0.5), 0.0), valid

    def _choose_supersampling(self, index: int) -> int:
        """Samples per axis so that they lie about a pixel of the photograph apart in nearly all of the crop."""
        step = max(1, self.crop.width // 32)
        grid = pixel_centers(
            self.crop.width, self.crop.height, dtype=self.crop.dtype, device=self.crop.device
        )
        grid = grid[::step, ::step]
        corners = [grid + grid.new_tensor(shift) for shift in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5))]
        (here, seen), (right, _), (below, _) = (self._locate(self._turn(corner, index)) for corner in corners)
        moved = 2 * torch.stack([right - here, below - here]).abs().amax((0, -1))[seen]
        moved = moved[moved < self.photo.width / 2]  # not across the seam of a panorama
        if not len(moved):
            return 1
        return min(MAX_FINER, max(1, round(float(torch.quantile(moved.float(), 0.95)))))

    def _turn(self, pixels: Tensor, index: int) -> Tensor:
        return self.crop.unproject(pixels)[0] @ self.photo_from_crop[index].mT

    def _locate(self, rays: Float[Tensor, "*n 3"]) -> tuple[Float[Tensor, "*n 2"], Bool[Tensor, "*n"]]:
        pixels, valid = self.photo.project(rays)
        valid = valid & self.photo.contains(pixels)
        if self.mask is None:
            return pixels, valid
        limit = torch.tensor([self.photo.width - 1, self.photo.height - 1], device=pixels.device)
        column, row = torch.minimum(pixels.floor().long().clamp(min=0), limit).unbind(-1)
        return pixels, valid & self.mask[row, column]


def project_crop(
    photo: Camera, crop: Camera, photo_from_crop: Float[Tensor, "3 3"]
) -> tuple[Float[Tensor, "h w 2"], Bool[Tensor, "h w"]]:
    """Project the pixel centers of a crop into the photograph, and whether it has them.

    A lens is smooth: pixels between nodes are interpolated where second differences of the nodes are small, and
    projected one by one elsewhere (at the rim, at a seam).
    """
    rows, columns = (-(-(n - 1) // _STEP) + 1 for n in (crop.height, crop.width))
    nodes = pixel_centers(columns, rows, dtype=crop.dtype, device=crop.device)
    places, seen = _project(photo, crop, photo_from_crop, _STEP * (nodes - 0.5) + 0.5)
    smooth = _find_smooth_nodes(places) & seen
    size = [_STEP * (n - 1) + 1 for n in (rows, columns)]
    dense = F.interpolate(places.movedim(-1, 0)[None], size, mode="bilinear", align_corners=True)[0]
    near = F.interpolate(
        torch.stack([smooth, grow(seen, 1)])[None].to(places), size, mode="bilinear", align_corners=True
    )
    inner, some = (part[: crop.height, : crop.width] for part in near[0])
    dense, valid = dense.movedim(0, -1)[: crop.height, : crop.width].contiguous(), inner >= 1 - 1e-5
    # A rim between nodes that all lie outside is at most a corner: neighbors of a node inside are enough.
    rest = ((some > 0) & ~valid).nonzero()
    pixels, inside = _project(photo, crop, photo_from_crop, rest.flip(-1).to(crop.dtype) + 0.5)
    dense[rest[:, 0], rest[:, 1]], valid[rest[:, 0], rest[:, 1]] = pixels, inside
    return dense, valid


def _project(photo: Camera, crop: Camera, photo_from_crop: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    pixels, seen = photo.project(crop.unproject(at)[0] @ photo_from_crop.mT)
    return pixels, seen & photo.contains(pixels)


def _find_smooth_nodes(places: Float[Tensor, "h w 2"]) -> Bool[Tensor, "h w"]:
    """Find nodes around which interpolation is exact enough: linear interpolation is off by an eighth of the second
    difference."""
    rough = torch.full(places.shape[:2], min(places.shape[:2]) < 3, device=places.device)
    for axis in (0, 1):
        bend = places.diff(n=2, dim=axis).abs().amax(-1) > 4 * _SMOOTH_PX
        rough.narrow(axis, 1, bend.shape[axis]).logical_or_(bend)
    return ~grow(rough, 1)


def grow(mask: Bool[Tensor, "h w"], reach: int) -> Bool[Tensor, "h w"]:
    """Grow a mask by `reach` pixels to all sides."""
    for kernel, pad in (((2 * reach + 1, 1), (reach, 0)), ((1, 2 * reach + 1), (0, reach))):
        mask = F.max_pool2d(mask.float()[None, None], kernel, 1, pad)[0, 0] > 0
    return mask


def cover_with_pinholes(
    photo: Camera,
    *,
    fov_deg: float = MAX_FOV_DEG,
    overlap_deg: float = 10.0,
    size: int | None = None,
    multiple: int = 2,
    mask: Bool[Tensor, "height width"] | None = None,
) -> VirtualPinholes:
    """Cover all usable rays of a lens with pinhole crops of at most `fov_deg`.

    A lens that fits gets one crop of its own shape; any other gets square crops of `fov_deg` that overlap by
    `overlap_deg` or more, and none that sees masked or invalid pixels only. Without `size`, the longer side in pixels,
    crops have the photograph's median angular resolution on their axis. Sizes are multiples of `multiple`.
    """
    _check_request(photo, fov_deg, overlap_deg, mask)
    rays, _, clipped = _sample_rays(photo, mask, _EDGE_SAMPLES)
    density = _measure_density(photo)
    half = math.radians(fov_deg) / 2
    # Border rays lie between the samples where invalid pixels clip the image.
    slack_rad = 1.5 * max(photo.width, photo.height) / _EDGE_SAMPLES / density if clipped else 0.0
    for rotation in _propose_single_axes(rays):
        x, y, z = (rays @ rotation).unbind(-1)
        if bool((z > 0).all()):
            angles = [float(torch.atan(side.abs() / z).max()) + slack_rad for side in (x, y)]
            if max(angles) + 1.5 / density <= half:
                crop = _make_fitting_crop(angles, density, size, multiple).to(photo.device, photo.dtype)
                return VirtualPinholes(photo, crop, rotation[None].to(photo.params), mask)
    rays, _, _ = _sample_rays(photo, mask, _LAYOUT_SAMPLES)
    rotations = choose_rotations(rays, fov_deg - overlap_deg)
    side = size or _round_up(2 * math.tan(half) * density, multiple)
    crop = Pinhole.from_fov(fov_deg, side, side, dtype=photo.dtype, device=photo.device)
    return VirtualPinholes(photo, crop, rotations.to(photo.params), mask)


def is_closed(camera: Camera) -> bool:
    """Tell whether the left edge of the image continues its right edge, as in a full panorama."""
    edges = camera.params.new_tensor([[0.0, camera.height / 2], [camera.width, camera.height / 2]])
    rays, valid = camera.unproject(edges)
    one_pixel = 2 * math.pi / camera.width
    return bool(valid.all()) and float(torch.linalg.vector_norm(rays[0] - rays[1])) < 1e-3 * one_pixel


def _check_request(photo: Camera, fov_deg: float, overlap_deg: float, mask: Tensor | None) -> None:
    if photo.batch_shape:
        raise ValueError(f"camera with batch shape {photo.batch_shape}: cover one photograph at a time")
    if not 20 <= fov_deg <= MAX_FOV_DEG:
        raise ValueError(f"crops of {fov_deg:g}°: choose between 20° and {MAX_FOV_DEG:g}°")
    if not 0 < overlap_deg <= fov_deg / 2:
        raise ValueError(
            f"crops of {fov_deg:g}° that overlap by {overlap_deg:g}°: give more than 0° and at most {fov_deg / 2:g}°"
        )
    if mask is not None and mask.shape != (photo.height, photo.width):
        raise ValueError(
            f"mask of {mask.shape[1]}×{mask.shape[0]} px for an image of {photo.width}×{photo.height} px: "
            "give one of the same size"
        )


def _sample_rays(photo: Camera, mask: Tensor | None, samples: int) -> tuple[Tensor, Tensor, bool]:
    """Usable rays at some pixel centers, the image's border among them; their pixels; whether some were unusable."""
    rows, columns = (
        torch.linspace(0, n - 1, min(n, samples), dtype=torch.float64).round().long().to(photo.device)
        for n in (photo.height, photo.width)
    )
    v, u = torch.meshgrid(rows, columns, indexing="ij")
    pixels = torch.stack([u, v], -1).to(photo.dtype) + 0.5
    rays, valid = photo.unproject(pixels)
    if mask is not None:
        valid = valid & mask[v, u]
    if not bool(valid.any()):
        raise ValueError("no pixel of the photograph is usable: check its calibration and its mask")
    return rays[valid].double().cpu(), pixels[valid], not bool(valid.all())


def _propose_single_axes(rays: Float[Tensor, "ray 3"]) -> list[Float[Tensor, "3 3"]]:
    """The optical axis, then the middle of the rays: rotations of a crop that might see all of them."""
    middle = (rays.amin(0) + rays.amax(0)) / 2
    axes = [torch.eye(3, dtype=rays.dtype)]
    return axes if float(middle.norm()) < 0.1 else [*axes, look_along(middle)]


def _make_fitting_crop(angles: list[float], density: float, size: int | None, multiple: int) -> Pinhole:
    """The smallest crop that shows half angles (across, down), with a border of a pixel for interpolation."""
    tangents = [math.tan(angle) for angle in angles]
    focal = density if size is None else (size / 2 - 1) / max(tangents)
    width, height = (_round_up(2 * focal * tangent + 2, multiple) for tangent in tangents)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64)


def _measure_density(photo: Camera) -> float:
    """Median of the pixels per radian over the image, √(pixels per solid angle)."""
    _, pixels, _ = _sample_rays(photo, None, _LAYOUT_SAMPLES)
    moves = pixels.new_tensor([[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]])
    rays, valid = photo.unproject(pixels[:, None] + moves)
    left, right, above, below = rays[valid.all(1)].double().unbind(1)
    solid_angle = torch.linalg.vector_norm(torch.linalg.cross(right - left, below - above), dim=-1)
    return float(solid_angle.clamp(min=1e-12).rsqrt().median())


def _round_up(value: float, multiple: int) -> int:
    return max(multiple, math.ceil(value / multiple - 1e-6) * multiple)
