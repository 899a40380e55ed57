"""VGGT's camera head: the camera tokens of all views become poses and fields of view, in a few refining steps.

Parameters are named as in its checkpoints. The encoding of a camera is called "absT_quaR_FoV" there, nine numbers:

    0 1 2    t of cam_from_world
    3 4 5 6  quaternion (x, y, z, w) of cam_from_world, of any length
    7 8      vertical and horizontal field of view in radians; the principal point is the middle of the image
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.encodings import NoPosition
from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.geometry.precision import disable_autocast
from g_ray.nn.transformer import Block

CODE = 9
"""Numbers of an encoded camera."""


class CameraHead(nn.Module):
    """Refine an encoded camera per view, from the camera tokens of all views.

    Each step modulates the normalized tokens by the estimate so far, x + g ⊙ (LN(x) ⊙ (1 + s) + b) with (b, s, g) from
    the estimate, lets the views attend to each other in the trunk, and adds what a small MLP reads there.
    """

    def __init__(
        self, dim: int, *, blocks: int = 4, heads: int = 16, layer_scale: float = 0.01, steps: int = 4
    ) -> None:
        super().__init__()
        self.steps = steps
        self.token_norm = nn.LayerNorm(dim, eps=1e-5)
        self.empty_pose_tokens = nn.Parameter(torch.zeros(1, 1, CODE))
        self.embed_pose = nn.Linear(CODE, dim)
        self.poseLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 3 * dim))
        # Without weights of its own: they come from the estimate.
        self.adaln_norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        encoding = NoPosition(dim // heads)
        self.trunk = nn.ModuleList(
            Block(dim, encoding, layer_scale=layer_scale, eps=1e-5) for _ in range(blocks)
        )
        self.trunk_norm = nn.LayerNorm(dim, eps=1e-5)
        self.pose_branch = PoseBranch(dim)

    def forward(self, tokens: Float[Tensor, "batch view dim"]) -> list[Float[Tensor, "batch view 9"]]:
        """Return the encoded cameras after each step; the last is the result. Float32 whatever autocast says."""
        with disable_autocast(tokens):
            tokens = self.token_norm(tokens.to(self.token_norm.weight.dtype))
            raw = self._compute_change(tokens, self.empty_pose_tokens.expand(*tokens.shape[:2], -1))
            found = [raw]
            for _ in range(1, self.steps):
                # Gradients reach each step by its own change alone.
                raw = raw.detach() + self._compute_change(tokens, raw.detach())
                found.append(raw)
            # Fields of view are made non-negative for the result only: steps go on from the raw numbers.
            return [torch.cat([code[..., :7], code[..., 7:].relu()], -1) for code in found]

    def _compute_change(self, tokens: Tensor, estimate: Tensor) -> Float[Tensor, "batch view 9"]:
        shift, scale, gate = self.poseLN_modulation(self.embed_pose(estimate)).chunk(3, -1)
        x = tokens + gate * (self.adaln_norm(tokens) * (1 + scale) + shift)
        for block in self.trunk:
            x = block(x)
        return self.pose_branch(self.trunk_norm(x))


class PoseBranch(nn.Module):
    """W₂ GELU(W₁ x) to an encoded camera."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, dim // 2)
        self.fc2 = nn.Linear(dim // 2, CODE)

    def forward(self, x: Float[Tensor, "batch view dim"]) -> Float[Tensor, "batch view 9"]:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


@dataclass(frozen=True)
class EncodedCameras:
    """Cameras in VGGT's nine numbers."""

    code: Float[Tensor, "*batch 9"]

    @property
    def poses(self) -> Pose:
        """world_from_cam; the code holds its inverse."""
        rotation = rotation_from_quaternion(self.code[..., 3:7])
        return Pose.from_parts(rotation, self.code[..., :3]).inverse()

    def compute_intrinsics(self, width: int, height: int) -> Float[Tensor, "*batch 3 3"]:
        """Compute K in pixels of an image of this size, which count from its corner: W/2 is the middle.

        A field of view of zero has an infinite focal length.
        """
        sides = self.code.new_tensor([width, height])
        fx, fy = (sides / 2 / (self.code[..., [8, 7]] / 2).tan()).unbind(-1)
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        rows = [fx, zero, one * width / 2, zero, fy, one * height / 2, zero, zero, one]
        return torch.stack(rows, -1).unflatten(-1, (3, 3))
