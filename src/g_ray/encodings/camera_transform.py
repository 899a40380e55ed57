"""GTA and PRoPE: half of each head is multiplied with camera matrices, the other half is rotary.

    channel   0 1 2 3   4 5 6 7   …   D/2 − 1   D/2  …                         D − 1
              └─ M ──┘  └─ M ──┘                 └─ rotary: x block, y block ──────┘

Each group of four channels is a homogeneous point, multiplied with the 4×4 matrix M of the token's camera; the rotary
half is laid out as in `rotation`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.parameters import checks_enabled
from g_ray.encodings.encoding_base import DirectSum, Identity, TokenMap, Tokenwise, check_choice, check_split
from g_ray.encodings.rotary import Rotary
from g_ray.geometry.pose import Pose
from g_ray.rays.layout import Layout
from g_ray.rays.views import CORNERS, Tokens

MAX_CHANNELS = 24
"""Width of the block-diagonal matrix that multiplies several groups at once."""


@dataclass(frozen=True)
class CameraBlock(TokenMap):
    """Groups of four channels multiplied with the 4×4 matrix of the token's view.

    Tokens that belong to no view are left alone: they sit at the world's origin.
    """

    matrices: Float[Tensor, "batch view 4 4"]
    layout: Layout

    def apply_plain(self, x: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch head token dim"]:
        runs = [(view, x[..., span, :].unflatten(-1, (-1, 4))) for view, span in self.layout.find_runs()]
        transposed = self.matrices.mT[:, :, None, None]
        parts = [part if view is None else part @ transposed[:, view] for view, part in runs]
        return torch.cat(parts, -3).flatten(-2)

    def apply_into(
        self, x: Float[Tensor, "batch head token dim"], out: Float[Tensor, "batch head token dim"]
    ) -> None:
        # Products with 4×4 matrices are too small for a fast kernel: I ⊗ Mᵀ takes several groups in one product.
        width = self._choose_width(x.shape[-1])
        eye = torch.eye(width // 4, dtype=self.matrices.dtype, device=self.matrices.device)
        wide = torch.kron(eye, self.matrices.mT.contiguous())
        for view, span in self.layout.find_runs():
            if view is None:
                out[..., span, :] = x[..., span, :]
                continue
            for start in range(0, x.shape[-1], width):
                channels = slice(start, start + width)
                out[..., span, channels] = x[..., span, channels] @ wide[:, view, None]

    def adjoint(self) -> "CameraBlock":
        return CameraBlock(self.matrices.mT, self.layout)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.matrices,)

    @staticmethod
    def _choose_width(dim: int) -> int:
        """Choose the width of I ⊗ Mᵀ: wide enough for a fast product, narrow enough not to multiply mostly zeros."""
        return max(width for width in range(4, MAX_CHANNELS + 1, 4) if dim % width == 0)


@dataclass(frozen=True)
class TokenBlock(TokenMap):
    """Groups of four channels multiplied with a 4×4 matrix of the token's own."""

    matrices: Float[Tensor, "batch token 4 4"]

    def apply_plain(self, x: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch head token dim"]:
        vectors = x.unflatten(-1, (-1, 4))
        return (vectors @ self.matrices.mT[:, None]).flatten(-2)

    def apply_into(
        self, x: Float[Tensor, "batch head token dim"], out: Float[Tensor, "batch head token dim"]
    ) -> None:
        out.copy_(self.apply_plain(x))

    def adjoint(self) -> "TokenBlock":
        return TokenBlock(self.matrices.mT)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.matrices,)


@dataclass(frozen=True)
class CameraTransform(Rotary):
    """score = qᵀ M_c M_d⁻¹ k in the first half of the head; the second half is rotary.

    `matrices`: "pose" takes M = cam_from_world (GTA); "projection" takes M = K' cam_from_world with the central
    pinhole K' of the view (PRoPE); "token projection" takes the pinhole that agrees with the lens around each
    token (per-token PRoPE, for lenses that are not pinholes). With the coordinate `tangent` in place of `grid`,
    GTA becomes GTA + G-ray.
    """

    coordinate: str = "grid"
    matrices: str = "pose"

    compares_poses: ClassVar[bool] = True
    CHOICES: ClassVar[tuple[str, ...]] = ("pose", "projection", "token projection")

    def __post_init__(self) -> None:
        check_choice("camera matrices", self.matrices, self.CHOICES)
        multiple = 8 if self.time or self.split else max(8, 4 * self.blocks)
        check_split(self, multiple, "half in groups of four channels, half in pairs for every axis")
        super().__post_init__()

    @property
    def rotary_channels(self) -> int:
        return self.head_dim // 2

    def _prepare(self, queries: Tokens, keys: Tokens) -> Tokenwise:
        forward, backward = self._build_camera_maps(queries)
        turn = key_turn = self.compute_rotation(queries)
        if keys is not queries:
            backward, key_turn = self._build_camera_maps(keys)[1], self.compute_rotation(keys)
        # M of the query's camera and M⁻¹ of the key's meet in the score: qᵀ M_c M_d⁻¹ k, so q is mapped by M_cᵀ.
        query, key = (
            self._build_direct_sum(forward.adjoint(), turn),
            self._build_direct_sum(backward, key_turn),
        )
        value, output = Identity(), Identity()
        if self.rotate_values:
            value, output = key, self._build_direct_sum(forward, turn.adjoint())
        return Tokenwise(
            self.head_dim, queries.views.batch, queries.layout, keys.layout, query, key, value, output
        )

    def _build_direct_sum(self, camera: TokenMap, turn: TokenMap) -> DirectSum:
        half = self.head_dim // 2
        return DirectSum((camera, turn), (half, half))

    def _build_camera_maps(self, tokens: Tokens) -> tuple[TokenMap, TokenMap]:
        """Build the maps by M of every token's view (or of the token), and by its closed-form inverse."""
        cam_from_world = tokens.views.cam_from_world(type(self).__name__)
        # In closed form: errors of a general float32 inverse would break M M⁻¹ = I, and the invariance with it.
        world_from_cam = Pose(cam_from_world).inverse().world_from_cam
        if self.matrices == "pose":
            return CameraBlock(cam_from_world, tokens.layout), CameraBlock(world_from_cam, tokens.layout)
        if self.matrices == "projection":
            lift, unlift = _lift_intrinsics(tokens.views.intrinsics())
            forward, backward = lift @ cam_from_world, world_from_cam @ unlift
            return CameraBlock(forward, tokens.layout), CameraBlock(backward, tokens.layout)
        lift, unlift = _lift_intrinsics(compute_local_intrinsics(tokens))
        owner = tokens.layout.get_view_of_token(tokens.device)
        inside, nowhere = (owner >= 0)[:, None, None], torch.eye(4).to(cam_from_world)
        forward, backward = lift @ cam_from_world[:, owner], world_from_cam[:, owner] @ unlift
        return TokenBlock(forward.where(inside, nowhere)), TokenBlock(backward.where(inside, nowhere))


def compute_local_intrinsics(tokens: Tokens) -> Float[Tensor, "batch token 3 3"]:
    """Compute the pinhole, in units of the image, that agrees with the lens at three corners of each patch.

    From the rays alone: f = Δu / Δ(rx/rz). For a pinhole camera this is its own K'; for a fisheye it is what
    PRoPE's authors advise. Special tokens take the central pinhole of their view.
    """
    rays = tokens.rays(CORNERS)
    directions = rays.directions
    is_patch = tokens.layout.get_patch_mask(tokens.device)
    behind = (directions[..., 2] <= 1e-3) & is_patch[:, None]
    if checks_enabled() and bool(behind.any()):
        owner = tokens.layout.get_view_of_token(tokens.device)
        views = sorted(set(owner[behind.any(0).any(-1)].tolist()))
        raise ValueError(
            f"per-token PRoPE needs rays in front of the camera, but views {views} see 90° and more: "
            "use gray, gta or gta_gray"
        )
    position = tokens.layout.compute_grid_positions(CORNERS, normalized=True, device=tokens.device).to(
        directions
    )
    slope = directions[..., :2] / directions[..., 2:]
    # CORNERS are top left, top right, bottom left: u changes from sample 0 to 1, v from 0 to 2.
    focal_x = (position[:, 1, 0] - position[:, 0, 0]) / _replace_zeros(slope[..., 1, 0] - slope[..., 0, 0])
    focal_y = (position[:, 2, 1] - position[:, 0, 1]) / _replace_zeros(slope[..., 2, 1] - slope[..., 0, 1])
    owner = tokens.layout.get_view_of_token(tokens.device).clamp(min=0)
    central = tokens.views.intrinsics()[:, owner]
    local = central.clone()
    local[..., 0, 0], local[..., 1, 1] = focal_x, focal_y
    # The principal point that puts the first corner where it is: u = f rx/rz + c.
    local[..., 0, 2] = position[:, 0, 0] - focal_x * slope[..., 0, 0]
    local[..., 1, 2] = position[:, 0, 1] - focal_y * slope[..., 0, 1]
    return torch.where(is_patch[:, None, None], local, central)


def _replace_zeros(difference: Tensor) -> Tensor:
    """Replace zeros by 1: special tokens have one ray for all samples, and their quotient is not used."""
    return torch.where(difference == 0, 1.0, difference)


def _lift_intrinsics(
    intrinsics: Float[Tensor, "*batch 3 3"],
) -> tuple[Float[Tensor, "*batch 4 4"], Float[Tensor, "*batch 4 4"]]:
    """Return K' and its inverse as 4×4 matrices; closed form, K' has no skew."""
    focal_x, focal_y = intrinsics[..., 0, 0], intrinsics[..., 1, 1]
    lift = torch.eye(4).to(intrinsics).expand(*intrinsics.shape[:-2], 4, 4).clone()
    unlift = lift.clone()
    lift[..., :3, :3] = intrinsics
    unlift[..., 0, 0], unlift[..., 1, 1] = 1 / focal_x, 1 / focal_y
    unlift[..., 0, 2], unlift[..., 1, 2] = -intrinsics[..., 0, 2] / focal_x, -intrinsics[..., 1, 2] / focal_y
    return lift, unlift
