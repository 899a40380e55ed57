"""What every camera can do: project, unproject, crop, pad, resize.

Conventions. Camera frame: OpenCV (x right, y down, z forward). Pixels: the origin is the top-left corner of
the image, pixel centers sit at +0.5 (as COLMAP). OpenCV puts centers at integers: add 0.5 to its cx, cy and
pixels.
"""

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.field_of_view import FieldOfView, compute_field_of_view
from g_ray.cameras.parameters import check_box, check_parameters, check_sizes, checks_enabled
from g_ray.cameras.ray_grid import compute_ray_grid
from g_ray.runtime.device import disable_autocast

CameraType = TypeVar("CameraType", bound="Camera")


@dataclass(frozen=True, eq=False)
class Camera(ABC):
    """A lens model with its parameters and the size of its image.

    A model maps a ray to its normalized plane and back; this class adds the affine part, the same for all
    models:

        u = fx · a + cx,   v = fy · b + cy   with (a, b) the point on the normalized plane.

    All leading dimensions of ``params`` are the batch. Points and pixels have shape [*batch, *n, ·].
    ``check=False`` skips the checks of the parameters (for optimizers); they are also skipped under
    torch.compile.
    """

    params: Float[Tensor, "*batch parameter"]
    width: int
    height: int
    circle: Float[Tensor, "*batch 4"] | None = field(default=None, kw_only=True)
    """Center u, v and semi-axes in pixels of the ellipse beyond which the optics give no image; None: none known."""
    check: InitVar[bool] = field(default=True, kw_only=True)

    NAME: ClassVar[str]
    PARAMETERS: ClassVar[tuple[str, ...]]  # fx, fy, cx, cy first, always
    SMOOTH: ClassVar[bool] = True  # rays are a smooth function of pixels, up to the rim
    DEFAULTS: ClassVar[dict[str, float]] = {}  # of optional parameters that are not 0 when absent

    def __post_init__(self, check: bool) -> None:
        if check and checks_enabled():
            check_sizes(self.NAME, self.width, self.height)
            check_parameters(self.NAME, self.PARAMETERS, self.params)
            self._check_lens()

    # Factories

    @classmethod
    def make(
        cls: type[CameraType],
        width: int,
        height: int,
        *,
        dtype: Any = None,
        device: Any = None,
        **parameters: Any,
    ) -> CameraType:
        """Make a camera from named parameters, numbers or [*batch] tensors; distortion that is not named is zero."""
        return cls(cls.pack(dtype=dtype, device=device, **parameters), width, height)

    @classmethod
    def pack(
        cls, *, dtype: Any = None, device: Any = None, **parameters: Any
    ) -> Float[Tensor, "*batch parameter"]:
        """Pack named parameters into one tensor, in the order of PARAMETERS."""
        unknown = sorted(set(parameters) - set(cls.PARAMETERS))
        if unknown:
            known = " ".join(cls.PARAMETERS)
            raise ValueError(f"{cls.NAME}: unknown parameter {', '.join(unknown)}; this model has {known}")
        missing = [name for name in ("fx", "fy", "cx", "cy") if name not in parameters]
        if missing:
            raise ValueError(
                f"{cls.NAME}: parameter {', '.join(missing)} is missing; give fx, fy, cx and cy in pixels"
            )
        values = [parameters.get(name, cls.DEFAULTS.get(name, 0.0)) for name in cls.PARAMETERS]
        like = next(
            (value for value in values if isinstance(value, Tensor) and value.is_floating_point()), None
        )
        dtype = dtype or (torch.get_default_dtype() if like is None else like.dtype)
        device = device or (None if like is None else like.device)
        columns = [torch.as_tensor(value, dtype=dtype, device=device) for value in values]
        return torch.stack(torch.broadcast_tensors(*columns), -1)

    @classmethod
    def stack(cls: type[CameraType], cameras: Sequence[CameraType]) -> CameraType:
        """Stack cameras of one model and one image size as one batch [len(cameras), *batch]."""
        first = cameras[0]
        if len({camera.circle is None for camera in cameras}) > 1:
            raise ValueError("stack: cameras with an image circle and cameras without; keep a list instead")
        for camera in cameras:
            if (type(camera), camera.width, camera.height) != (type(first), first.width, first.height):
                raise ValueError(
                    f"stack: {camera.NAME} {camera.width}x{camera.height} and {first.NAME} "
                    f"{first.width}x{first.height}; a batch has one model and one size, keep a list instead"
                )
        tensors = {
            name: torch.stack([getattr(c, name) for c in cameras]) for name in first._collect_tensors()
        }
        return first._replace(**tensors)

    @classmethod
    @abstractmethod
    def example(
        cls: type[CameraType], seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> CameraType:
        """Make a random but sensible camera of this model, for tests and documentation."""

    # Accessors

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.params.shape[:-1])

    @property
    def dtype(self) -> torch.dtype:
        return self.params.dtype

    @property
    def device(self) -> torch.device:
        return self.params.device

    @property
    def requires_grad(self) -> bool:
        """Whether gradients may flow to the parameters (or to a table of rays)."""
        return any(tensor.requires_grad for tensor in self._collect_tensors().values())

    def parameter(self, name: str) -> Float[Tensor, "*batch"]:
        if name not in self.PARAMETERS:
            raise ValueError(
                f"{self.NAME}: unknown parameter {name}; this model has {' '.join(self.PARAMETERS)}"
            )
        return self.params[..., self.PARAMETERS.index(name)]

    def to(self: CameraType, *args: Any, **kwargs: Any) -> CameraType:
        """Move to a device or a floating dtype, as ``Tensor.to``; masks keep their dtype."""
        return self._replace(
            **{name: _move_tensor(value, *args, **kwargs) for name, value in self._collect_tensors().items()}
        )

    def __getitem__(self: CameraType, index: Any) -> CameraType:
        """Index the batch."""
        index = index if isinstance(index, tuple) else (index,)
        batch = len(self.batch_shape)
        tail = {
            name: (slice(None),) * (value.ndim - batch) for name, value in self._collect_tensors().items()
        }
        return self._replace(**{n: v[(*index, ..., *tail[n])] for n, v in self._collect_tensors().items()})

    def compute_digest(self) -> str:
        """Return a digest of the model, the size and every number of the lens, its image circle included."""
        digest = hashlib.sha256(f"{self.NAME} {self.width} {self.height}".encode())
        for name, value in sorted(self._collect_tensors().items()):
            digest.update(name.encode() + value.numpy(force=True).tobytes())
        return digest.hexdigest()[:16]

    # Geometry

    def project(
        self, points: Float[Tensor, "*shape 3"]
    ) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
        """Project camera-frame points [*batch, *n, 3] to pixels, with a mask of those that the model images.

        A point may have an image outside of the frame (see `contains`). Only the direction of a point matters. Pixels
        of invalid points are finite but mean nothing; points with infinite or undefined coordinates are invalid.
        """
        _check_last_dim(self.NAME, "points", points, 3)
        params = self._align(self.params, points)
        # Replaced before the lens sees them: NaN in an unused branch of `where` still makes the gradient NaN.
        finite = points.detach().isfinite().all(-1)
        with disable_autocast(points):
            plane, valid = self._to_plane(torch.where(finite[..., None], points, 1.0), params)
        pixels, valid = plane * params[..., 0:2] + params[..., 2:4], valid & finite
        # The slack lets rays of pixels on the rim come back to their pixel.
        return pixels, valid if self.circle is None else valid & self._is_in_circle(pixels, slack=1e-6)

    def unproject(
        self, pixels: Float[Tensor, "*shape 2"]
    ) -> tuple[Float[Tensor, "*shape 3"], Bool[Tensor, "*shape"]]:
        """Unproject pixels [*batch, *n, 2] to unit bearings in the camera frame (eq:camera_ray), with a mask.

        False where no ray lands on the pixel; its bearing is finite but means nothing.
        """
        _check_last_dim(self.NAME, "pixels", pixels, 2)
        params = self._align(self.params, pixels)
        plane = (pixels - params[..., 2:4]) / params[..., 0:2]
        with disable_autocast(pixels):
            bearings, valid = self._from_plane(plane, params)
        return bearings, valid if self.circle is None else valid & self._is_in_circle(pixels)

    def unproject_grid(self) -> tuple[Float[Tensor, "*batch h w 3"], Bool[Tensor, "*batch h w"]]:
        """Compute unit bearings and validity at all pixel centers, see `ray_grid`."""
        return compute_ray_grid(self)

    def contains(self, pixels: Float[Tensor, "*shape 2"]) -> Bool[Tensor, "*shape"]:
        """Whether pixels lie in the frame [0, width] x [0, height]."""
        u, v = pixels.unbind(-1)
        return (u >= 0) & (u <= self.width) & (v >= 0) & (v <= self.height)

    def fov(self) -> FieldOfView:
        """Compute angles in degrees swept along the middle row, the middle column and the diagonal, over valid
        rays."""
        return compute_field_of_view(self)

    def central_intrinsics(self) -> Float[Tensor, "*batch 3 3"]:
        """Compute the pinhole K that agrees with the lens to first order on the optical axis.

        This is what a host that knows nothing but pinholes (PRoPE) has to be given.
        """
        fx, fy, cx, cy = self.params[..., 0:4].unbind(-1)
        # A fisheye's f is per radian, a division model's per unit of x/z: the slope on the axis makes them comparable.
        fx, fy = fx * self._compute_central_scale(), fy * self._compute_central_scale()
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        return torch.stack(
            [fx, self._compute_central_skew(), cx, zero, fy, cy, zero, zero, one], -1
        ).unflatten(-1, (3, 3))

    def limit_to_circle(self: CameraType, radius_px: float | int) -> CameraType:
        """Declare pixels invalid that are further than that from the principal point: the rim of the image circle."""
        if not radius_px > 0:
            raise ValueError(f"{self.NAME}: radius of the image circle {radius_px} px; give a number above 0")
        radii = torch.full_like(self.params[..., 2:4], radius_px)
        return self._replace(circle=torch.cat([self.params[..., 2:4], radii], -1))

    # Image operations: u' = sx u + tx, v' = sy v + ty

    def crop(self: CameraType, left: float | int, top: float | int, width: int, height: int) -> CameraType:
        """Keep the rectangle with its top-left corner at (left, top)."""
        if left < 0 or top < 0 or left + width > self.width or top + height > self.height:
            raise ValueError(
                f"crop: rectangle ({left}, {top}) + {width}x{height} leaves the "
                f"{self.width}x{self.height} image; use pad to enlarge an image"
            )
        return self._warp(1.0, 1.0, -left, -top, width, height)

    def pad(self: CameraType, left: int, top: int, right: int, bottom: int) -> CameraType:
        """Add a border; the lens model gives the rays of the new pixels, valid or not."""
        if min(left, top, right, bottom) < 0:
            raise ValueError(
                f"pad: negative border {(left, top, right, bottom)}; use crop to cut pixels away"
            )
        return self._warp(1.0, 1.0, left, top, self.width + left + right, self.height + top + bottom)

    def resize(
        self: CameraType, width: int, height: int, box: Sequence[float | int] | None = None
    ) -> CameraType:
        """Scale the image, each axis by its own factor; with `box` = (left, top, right, bottom), in pixels and
        not necessarily whole ones, only that part of it."""
        left, top, right, bottom = map(float, box or (0, 0, self.width, self.height))
        check_box(self.NAME, (left, top, right, bottom), self.width, self.height)
        # With the corner as origin a resize is a pure scale; with centers at integers it would shift by (s − 1)/2, too.
        sx, sy = width / (right - left), height / (bottom - top)
        return self._warp(sx, sy, -left * sx, -top * sy, width, height)

    # What a model supplies

    @abstractmethod
    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Map points [*s 3] and aligned parameters [*s n] to (plane [*s 2], valid [*s])."""

    @abstractmethod
    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Map plane [*s 2] and aligned parameters [*s n] to (unit bearings [*s 3], valid [*s])."""

    def _check_lens(self) -> None:  # noqa: B027
        """Raise ValueError if the distortion makes no sense."""

    def _compute_rim(self) -> Float[Tensor, "*batch"] | None:
        """Compute the radius at which the image of a radially symmetric lens ends, inf where it does not.

        None for lenses without a radially symmetric part. If there is more to a lens, this part follows
        `_undistort_plane`.
        """
        return None

    def _undistort_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Map the plane to that of the radially symmetric part [*s 2], with a mask of points that have an original."""
        return plane, torch.ones_like(plane[..., 0], dtype=torch.bool)

    def _lift_core(self, core: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Map the plane of the radially symmetric part to (unit bearings [*s 3], valid [*s])."""
        return self._from_plane(core, params)

    def _compute_central_scale(self) -> Float[Tensor, "*batch"]:
        """Compute how much of the plane a unit of x/z covers on the optical axis."""
        return torch.ones_like(self.params[..., 0])

    def _compute_central_skew(self) -> Float[Tensor, "*batch"]:
        return torch.zeros_like(self.params[..., 0])

    def _scale_params(self, sx: float, sy: float, tx: float | int, ty: float | int) -> Tensor:
        """Compute the parameters after u' = sx u + tx, v' = sy v + ty."""
        scale, shift = torch.ones_like(self.params), torch.zeros_like(self.params)
        # Distortion acts on the normalized plane, before the affine part, so its coefficients stay as they are.
        scale[..., 0], scale[..., 1], scale[..., 2], scale[..., 3] = sx, sy, sx, sy
        shift[..., 2], shift[..., 3] = tx, ty
        return self.params * scale + shift

    # Internals

    def _warp(
        self: CameraType, sx: float, sy: float, tx: float | int, ty: float | int, width: int, height: int
    ) -> CameraType:
        check_sizes(self.NAME, width, height)
        circle = self.circle
        if circle is not None:
            scale, shift = circle.new_tensor([sx, sy, sx, sy]), circle.new_tensor([tx, ty, 0.0, 0.0])
            circle = circle * scale + shift
        params = self._scale_params(sx, sy, tx, ty)
        return self._replace(params=params, width=width, height=height, circle=circle)

    def _replace(self: CameraType, **changes: Any) -> CameraType:
        # Checked when it was made; crops of a valid lens are valid, and checks would wait for the GPU.
        return dataclasses.replace(self, check=False, **changes)

    def _collect_tensors(self) -> dict[str, Tensor]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def _is_in_circle(self, pixels: Tensor, slack: float = 0.0) -> Tensor:
        assert self.circle is not None
        circle = self._align(self.circle, pixels)
        offset = (pixels - circle[..., 0:2]) / circle[..., 2:4]
        return (offset * offset).sum(-1) <= (1 + slack) ** 2

    def _align(self, tensor: Tensor, points: Tensor) -> Tensor:
        """Reshape [*batch, ·] to [*batch, 1, …, 1, ·] so that it broadcasts against points [*batch, *n, ·]."""
        batch = self.batch_shape
        head, extra = tuple(points.shape[: len(batch)]), points.ndim - 1 - len(batch)
        if extra < 0 or any(b != p and b != 1 for b, p in zip(batch, head, strict=True)):
            raise ValueError(
                f"{self.NAME}: input of shape {tuple(points.shape)} does not start with the camera's "
                f"batch shape {batch}; give [*batch, *n, {points.shape[-1]}]"
            )
        return tensor.reshape((*batch, *(1,) * extra, *tensor.shape[len(batch) :]))


def _check_last_dim(name: str, what: str, values: Tensor, size: int) -> None:
    if values.ndim == 0 or values.shape[-1] != size:
        raise ValueError(f"{name}: {what} of shape {tuple(values.shape)}; the last dimension must be {size}")


def _move_tensor(value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if value.is_floating_point():
        return value.to(*args, **kwargs)
    kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
    return value.to(*[a for a in args if not isinstance(a, torch.dtype)], **kwargs)
