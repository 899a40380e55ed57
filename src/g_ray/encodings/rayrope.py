"""RayRoPE: rotate keys by where they are, and how far, as each query camera sees them."""

from dataclasses import dataclass
from math import asinh, pi
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.cameras.parameters import checks_enabled
from g_ray.coordinates import RayCoordinate, get_coordinate
from g_ray.encodings.encoding_base import Encoding, check_choice, check_split
from g_ray.encodings.expected_rotation import EXPECTATIONS, PerCamera, RangeCoordinates
from g_ray.encodings.rotary import make_periodic_frequencies, round_to_period
from g_ray.geometry.pose import Pose
from g_ray.rays.views import CORNERS, Tokens

CENTER_PERIOD = 4.0
PROJECTED_PERIOD = 8.0
ANGLE_PERIOD = 4 * pi  # 8 · MAX_FOV with MAX_FOV = π/2 (paper, appendix "RayRoPE + G-ray")
# Longest periods of the depth coordinates, as released.
DEPTH_PERIODS = {"depth": 80.0, "inverse": 80.0, "asinh": 8 * asinh(10.0)}
RATIO = 3.0
"""Between frequencies, as released. With 3, all follow from the first by cubing (`expected_cos_sin_tripling`)."""


@dataclass(frozen=True)
class RayRoPE(Encoding):
    """Twelve coordinates of a key token in the frame of the query camera, each with D/24 frequencies:

    the key camera's center (3), the direction of the points at both ends of the token's depth interval on three
    rays (6), and their depth (3). Rotations are expected ones over the interval. With `coordinate="projected"`
    directions are projected pixels, as released; with `"tangent"` they are ray angles: RayRoPE + G-ray.

    `along`: whether predicted depths are measured along z (released; needs rays in front of the camera) or
    along the ray (any camera).

    `clamp_angles` limits ray angles to ±π/2, the range of points in front of the camera: points behind it all lie on
    the border then. Without, angles have their full range.
    """

    coordinate: str = "projected"
    depth: str = "depth"
    along: str = "z"
    expectation: str = "smooth"
    rotate_values: bool = True
    sign: int = 1
    clamp_angles: bool = False

    needs_depth: ClassVar[bool] = True
    compares_poses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("depth coordinate", self.depth, tuple(DEPTH_PERIODS))
        check_choice("depth direction", self.along, ("z", "ray"))
        check_choice("expectation", self.expectation, tuple(EXPECTATIONS))
        check_choice("sign", self.sign, (1, -1))
        if self.coordinate != "projected" and not isinstance(get_coordinate(self.coordinate), RayCoordinate):
            raise ValueError(
                f"RayRoPE cannot use coordinate {self.coordinate!r}: it needs 'projected' or ray angles"
            )
        if self.clamp_angles and self.coordinate == "projected":
            raise ValueError("clamp_angles limits ray angles, but the coordinate 'projected' has none")
        check_split(self, 2 * self.coordinates, f"pairs for {self.coordinates} coordinates")

    @property
    def coordinates(self) -> int:
        return 3 + 3 * len(CORNERS)

    def make_frequencies(self, like: Tensor) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n coordinate"]]:
        """Make the banks for the camera center and for the directions and depths, frequency-major."""
        count = self.head_dim // (2 * self.coordinates)
        axes = get_coordinate(self.coordinate).axes
        center = make_periodic_frequencies(count, CENTER_PERIOD, RATIO)
        direction_bank = make_periodic_frequencies(
            count, PROJECTED_PERIOD if self.coordinate == "projected" else ANGLE_PERIOD, RATIO
        )
        directions = [round_to_period(direction_bank, axis) for axis in axes] * len(CORNERS)
        depths = [make_periodic_frequencies(count, DEPTH_PERIODS[self.depth], RATIO)] * len(CORNERS)
        centers, ranges = torch.stack([center] * 3, -1), torch.stack(directions + depths, -1)
        return self.sign * centers.to(like), self.sign * ranges.to(like)

    @property
    def tripling(self) -> bool:
        """Whether every bank is RayRoPE's own; frequencies that close over a period are not."""
        return RATIO == 3.0 and all(axis.period is None for axis in get_coordinate(self.coordinate).axes)

    def make_jumps(self, like: Tensor) -> Float[Tensor, "coordinate"]:
        """Make the heights of branch cuts of directions and depths, where an interval must take the short way.

        Clamped angles end before the cut.
        """
        axes = get_coordinate(self.coordinate).axes
        cuts = [float("inf") if self.clamp_angles else axis.jump or float("inf") for axis in axes]
        directions = cuts * len(CORNERS)
        return like.new_tensor(directions + [float("inf")] * len(CORNERS))

    def _prepare(self, queries: Tokens, keys: Tokens) -> PerCamera:
        # Keys are rotated again for every view that asks, so views without queries are left out.
        query_views = tuple(sorted({view for view, _ in queries.layout.find_runs() if view is not None}))
        query_cameras = queries.views.cam_from_world(type(self).__name__)[:, list(query_views), None]
        key_cameras = Pose(keys.views.cam_from_world(type(self).__name__)[:, None]).inverse()
        # query_from_key, [batch, query view, key view]: only relative poses enter, whatever the world's frame.
        relative = Pose(query_cameras).compose(key_cameras)
        rays, device = self._cast_rays(keys), queries.device
        view_of_key = keys.layout.get_view_of_token(device).clamp(min=0)
        centers, ranges = self.make_frequencies(rays)
        return PerCamera(
            self.head_dim,
            queries.views.batch,
            queries.layout,
            keys.layout,
            ranges=RangeCoordinates(
                self.coordinate,
                self.depth,
                self.expectation,
                ranges,
                self.make_jumps(rays),
                self.tripling,
                self.clamp_angles,
            ),
            query_views=query_views,
            own=rays if keys is queries else self._cast_rays(queries),
            turned=(relative.rotation[:, :, view_of_key, None] @ rays[:, None, ..., None])[..., 0],
            shift=relative.translation[:, :, view_of_key],
            intrinsics=queries.views.intrinsics()[:, list(query_views)],
            center_phases=relative.translation[..., None, :] * centers,
            camera_of_query=_find_view_positions(query_views, queries.layout.get_view_of_token(device)),
            view_of_key=view_of_key,
            query_is_patch=queries.layout.get_patch_mask(device),
            key_is_patch=keys.layout.get_patch_mask(device),
            rotate_values=self.rotate_values,
        )

    def _cast_rays(self, tokens: Tokens) -> Float[Tensor, "batch token sample 3"]:
        """Cast rays of unit length or, along z, of unit z, so that depth times ray is the point."""
        rays = tokens.rays(CORNERS)
        forward = rays.directions.new_tensor([0.0, 0.0, 1.0])
        # Rays outside of the lens are not attended to, but must not make the rotations of a whole token NaN.
        directions = torch.where(rays.valid[..., None], rays.directions, forward)
        if self.along == "ray":
            return directions
        if checks_enabled() and bool((directions[..., 2] <= 1e-3).any()):
            raise ValueError(
                "RayRoPE along z needs rays in front of the camera, but some see 90° and more: use along='ray'"
            )
        return directions / directions[..., 2:]


def _find_view_positions(views: tuple[int, ...], view_of_token: Int[Tensor, "token"]) -> Int[Tensor, "token"]:
    """Find where each token's view stands among some views; any place for tokens that belong to none."""
    places = torch.zeros(max([0, *views]) + 1, dtype=torch.long, device=view_of_token.device)
    places[list(views)] = torch.arange(len(views), device=view_of_token.device)
    return places[view_of_token.clamp(min=0)]
