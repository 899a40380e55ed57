"""A plain ViT learns to attend by ray angles: one line changed in its block, one line that prepares.

The ViT below is the textbook one. Compare the two lines marked (1) and (2) with what stood there before; the rest
of the network, its parameters and its weights stay as they were. Run it with: python examples/plain_vit.py
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from g_ray import OpenCVFisheye, Pinhole, Pose, Views, attention, encoding
from g_ray.demo.room import make_random_room

PATCH = 16


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor, position=None) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = attention(q, k, v, position)  # (1) was: F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Images of any sizes in, one feature per token out; a class token leads the sequence."""

    def __init__(self, dim: int = 128, heads: int = 4, depth: int = 4):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, images: Sequence[Tensor], position=None) -> Tensor:
        patches = [self.embed(image).flatten(2).mT for image in images]
        x = torch.cat([self.cls.expand(len(images[0]), -1, -1), *patches], 1)
        for block in self.blocks:
            x = block(x, position)
        return self.norm(x)


def main() -> None:
    torch.manual_seed(0)
    cameras = [
        Pinhole.from_fov(65.0, 128, 96),
        Pinhole.from_fov(30.0, 96, 96),
        OpenCVFisheye.make(128, 128, fx=55.0, fy=55.0, cx=64.0, cy=64.0, k1=0.01),
    ]
    eyes = torch.tensor([[-1.5, 0.0, -1.5], [-1.2, 0.1, -1.6], [-1.0, 0.0, -1.2]])
    poses = Pose.look_at(eyes, torch.tensor([0.3, 0.3, 0.4]).expand(3, 3))
    room = make_random_room(seed=1)
    images = [room.render(c, poses[i]).rgb.permute(2, 0, 1)[None] for i, c in enumerate(cameras)]

    model = ViT()
    tokens = Views(cameras, poses).tokens(PATCH, leading=1)  # leading: the class token, which looks nowhere
    position = encoding("gray", head_dim=32).prepare(tokens)  # (2) once per forward, shared by all blocks

    plain, aware = model(images), model(images, position)
    aware.square().mean().backward()
    sizes = ", ".join(f"{c.NAME} {c.width}×{c.height}" for c in cameras)
    print(f"{sizes}: {len(tokens)} tokens")
    change = ((aware - plain).norm() / plain.norm()).item()
    print(f"features change by {change:.1%} with the same weights")


if __name__ == "__main__":
    main()
