"""Camera blocks: the part of GTA and PRoPE that multiplies channels with camera matrices."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.encodings.token_map import TokenMap
from g_ray.rays.layout import Layout

MAX_CHANNELS = 24


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
        """Of I ⊗ Mᵀ: wide enough for a fast matrix product, narrow enough not to multiply mostly zeros."""
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
