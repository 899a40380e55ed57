"""RayRoPE: rotate keys by where they are, and how far, as each query camera sees them."""

from dataclasses import dataclass
from math import asinh, pi
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.coordinates import RayCoordinate, coordinate
from g_ray.encodings.base import Encoding, check_choice, check_split
from g_ray.encodings.expected import EXPECTATIONS
from g_ray.encodings.frequencies import closed, periodic
from g_ray.encodings.per_camera import PerCamera, RangeCoordinates
from g_ray.geometry.pose import Pose
from g_ray.rays.views import CORNERS, Tokens

CENTRE_PERIOD = 4.0
PROJECTED_PERIOD = 8.0
ANGLE_PERIOD = 4 * pi  # 8 · MAX_FOV with MAX_FOV = π/2 (paper, appendix "RayRoPE + G-ray")
DEPTH_PERIODS = {"depth": 80.0, "inverse": 80.0, "asinh": 8 * asinh(10.0)}
RATIO = 3.0


@dataclass(frozen=True)
class RayRoPE(Encoding):
    """Twelve coordinates of a key token in the frame of the query camera, each with D/24 frequencies:

    the key camera's centre (3), the direction of the points at both ends of the token's depth interval on three
    rays (6), and their depth (3). Rotations are expected ones over the interval. With `coordinate="projected"`
    directions are projected pixels, as released; with `"tangent"` they are ray angles: RayRoPE + G-ray.

    `along`: whether predicted depths are measured along z (released; needs rays in front of the camera) or
    along the ray (any camera).
    """

    coordinate: str = "projected"
    depth: str = "depth"
    along: str = "z"
    expectation: str = "smooth"
    rotate_values: bool = True
    sign: int = 1

    needs_depth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("depth coordinate", self.depth, tuple(DEPTH_PERIODS))
        check_choice("depth direction", self.along, ("z", "ray"))
        check_choice("expectation", self.expectation, tuple(EXPECTATIONS))
        check_choice("sign", self.sign, (1, -1))
        if self.coordinate != "projected" and not isinstance(coordinate(self.coordinate), RayCoordinate):
            raise ValueError(
                f"RayRoPE cannot use coordinate {self.coordinate!r}: it needs 'projected' or ray angles"
            )
        check_split(self, 2 * self.coordinates, f"pairs for {self.coordinates} coordinates")

    @property
    def coordinates(self) -> int:
        return 3 + 3 * len(CORNERS)

    def frequencies(self, like: Tensor) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n coordinate"]]:
        """Banks for the camera centre and for the directions and depths, frequency-major."""
        count = self.head_dim // (2 * self.coordinates)
        axes = coordinate(self.coordinate).axes
        centre = periodic(count, CENTRE_PERIOD, RATIO)
        direction_bank = periodic(
            count, PROJECTED_PERIOD if self.coordinate == "projected" else ANGLE_PERIOD, RATIO
        )
        directions = [closed(direction_bank, axis) for axis in axes] * len(CORNERS)
        depths = [periodic(count, DEPTH_PERIODS[self.depth], RATIO)] * len(CORNERS)
        centres, ranges = torch.stack([centre] * 3, -1), torch.stack(directions + depths, -1)
        return self.sign * centres.to(like), self.sign * ranges.to(like)

    @property
    def tripling(self) -> bool:
        """Whether every bank is RayRoPE's own; frequencies that close over a period are not."""
        return RATIO == 3.0 and all(axis.period is None for axis in coordinate(self.coordinate).axes)

    def jumps(self, like: Tensor) -> Float[Tensor, "coordinate"]:
        """Branch cuts of the directions and depths: where an interval must take the short way."""
        directions = [axis.jump or float("inf") for axis in coordinate(self.coordinate).axes] * len(CORNERS)
        return like.new_tensor(directions + [float("inf")] * len(CORNERS))

    def _prepare(self, queries: Tokens, keys: Tokens) -> PerCamera:
        query_views = tuple(sorted({view for view, _ in queries.layout.runs() if view is not None}))
        query_cameras = queries.views.cam_from_world(type(self).__name__)[:, list(query_views), None]
        key_cameras = Pose(keys.views.cam_from_world(type(self).__name__)[:, None]).inverse()
        relative = Pose(query_cameras) @ key_cameras
        rays, device = self._rays(keys), queries.device
        view_of_key = keys.layout.view_of_token(device).clamp(min=0)
        centres, ranges = self.frequencies(rays)
        return PerCamera(
            self.head_dim,
            queries.views.batch,
            queries.layout,
            keys.layout,
            ranges=RangeCoordinates(
                self.coordinate, self.depth, self.expectation, ranges, self.jumps(rays), self.tripling
            ),
            query_views=query_views,
            own=rays if keys is queries else self._rays(queries),
            turned=(relative.rotation[:, :, view_of_key, None] @ rays[:, None, ..., None])[..., 0],
            shift=relative.translation[:, :, view_of_key],
            intrinsics=queries.views.intrinsics()[:, list(query_views)],
            centre_phases=relative.translation[..., None, :] * centres,
            camera_of_query=_place_in(query_views, queries.layout.view_of_token(device)),
            view_of_key=view_of_key,
            query_is_patch=queries.layout.is_patch(device),
            key_is_patch=keys.layout.is_patch(device),
            rotate_values=self.rotate_values,
        )

    def _rays(self, tokens: Tokens) -> Float[Tensor, "batch token sample 3"]:
        """Rays of unit length or, along z, of unit z, so that depth times ray is the point."""
        rays = tokens.rays(CORNERS)
        forward = rays.directions.new_tensor([0.0, 0.0, 1.0])
        directions = torch.where(rays.valid[..., None], rays.directions, forward)
        if self.along == "ray":
            return directions
        if bool((directions[..., 2] <= 1e-3).any()):
            raise ValueError(
                "RayRoPE along z needs rays in front of the camera, but some see 90° and more: use along='ray'"
            )
        return directions / directions[..., 2:]


def _place_in(views: tuple[int, ...], view_of_token: Int[Tensor, "token"]) -> Int[Tensor, "token"]:
    """Where each token's view stands among some views; any place for tokens that belong to none."""
    places = torch.zeros(max(views, default=0) + 1, dtype=torch.long, device=view_of_token.device)
    places[list(views)] = torch.arange(len(views), device=view_of_token.device)
    return places[view_of_token.clamp(min=0)]
