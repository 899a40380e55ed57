"""Official loaders: files in, images [view 3 h w] in [0, 1] out."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

Loader = Callable[[Sequence[str]], Tensor]


def load_vggt(paths: Sequence[str]) -> Tensor:
    from vggt.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths))


def load_vggt_padded(paths: Sequence[str]) -> Tensor:
    from vggt.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths), mode="pad")


def load_omega(paths: Sequence[str]) -> Tensor:
    from vggt_omega.utils.load_fn import load_and_preprocess_images  # pyright: ignore[reportMissingImports]

    return load_and_preprocess_images(list(paths))


def load_pi3(paths: Sequence[str]) -> Tensor:
    from pi3.utils.basic import load_images_as_tensor  # pyright: ignore[reportMissingImports]

    return load_images_as_tensor(str(Path(paths[0]).parent), verbose=False)


def load_da3(paths: Sequence[str]) -> Tensor:
    from depth_anything_3.utils.io.input_processor import (  # pyright: ignore[reportMissingImports]
        InputProcessor,
    )

    images, _, _ = InputProcessor()(list(paths), sequential=True)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    return images.reshape(-1, *images.shape[-3:]) * deviation + mean


def load_mapanything(paths: Sequence[str]) -> Tensor:
    from mapanything.utils.image import load_images  # pyright: ignore[reportMissingImports]

    views = load_images(list(paths))
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    return torch.cat([view["img"] for view in views]) * deviation + mean
