"""Linear patch head: each token writes the points of its own pixels."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.geometry.precision import disable_autocast
from g_ray.models.pointmap import Pointmap, get_activation


class LinearPointHead(nn.Module):
    """LayerNorm, then one linear map to a point and a confidence for every pixel of the patch (appendix "3D
    Reconstruction"; the confidence is there because the loss weights with it)."""

    def __init__(self, dim: int, patch: int, *, activate: str = "inverse_log") -> None:
        super().__init__()
        self.patch, self.activate = patch, get_activation(activate)
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.pixels = nn.Linear(dim, 4 * patch**2)

    def forward(self, features: Float[Tensor, "image patch dim"], rows: int, columns: int) -> Pointmap:
        with disable_autocast(features):
            raw = self.pixels(self.norm(features.to(self.norm.weight.dtype)))
            maps = F.pixel_shuffle(raw.mT.unflatten(-1, (rows, columns)), self.patch)
            return Pointmap.from_raw(maps.movedim(1, -1), self.activate)
