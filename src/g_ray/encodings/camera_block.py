"""Camera blocks: the part of GTA and PRoPE that multiplies channels with camera matrices."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.encodings.token_map import TokenMap
from g_ray.rays.layout import Layout


@dataclass(frozen=True)
class CameraBlock(TokenMap):
    """Groups of four channels multiplied with the 4×4 matrix of the token's view.

    Tokens that belong to no view are left alone: they sit at the world's origin.
    """

    matrices: Float[Tensor, "batch view 4 4"]
    layout: Layout

    def plain(self, x: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch head token dim"]:
        wide = self._widened(x.shape[-1])
        runs = [(view, x[..., span, :]) for view, span in self.layout.runs()]
        return torch.cat([part if view is None else part @ wide[:, view, None] for view, part in runs], -2)

    def write(
        self, x: Float[Tensor, "batch head token dim"], out: Float[Tensor, "batch head token dim"]
    ) -> None:
        wide = self._widened(x.shape[-1])
        for view, span in self.layout.runs():
            part = x[..., span, :]
            out[..., span, :] = part if view is None else part @ wide[:, view, None]

    def adjoint(self) -> "CameraBlock":
        return CameraBlock(self.matrices.mT, self.layout)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.matrices,)

    def _widened(self, dim: int) -> Float[Tensor, "batch view dim dim"]:
        """I ⊗ Mᵀ: one matrix product of the block's width runs faster than many of width four."""
        eye = torch.eye(dim // 4, dtype=self.matrices.dtype, device=self.matrices.device)
        return torch.kron(eye, self.matrices.mT.contiguous())


@dataclass(frozen=True)
class TokenBlock(TokenMap):
    """Groups of four channels multiplied with a 4×4 matrix of the token's own."""

    matrices: Float[Tensor, "batch token 4 4"]

    def plain(self, x: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch head token dim"]:
        vectors = x.unflatten(-1, (-1, 4))
        return (vectors @ self.matrices.mT[:, None]).flatten(-2)

    def write(
        self, x: Float[Tensor, "batch head token dim"], out: Float[Tensor, "batch head token dim"]
    ) -> None:
        out.copy_(self.plain(x))

    def adjoint(self) -> "TokenBlock":
        return TokenBlock(self.matrices.mT)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.matrices,)
