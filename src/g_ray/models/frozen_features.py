"""Features of a frozen encoder: a function of the image alone, computed once and kept on disk.

FOLDER/ENCODER/ab/abcdef….npy holds one image's features in float16. ENCODER is a digest of the encoder's weights and
taps, the file's name one of the pixels that the encoder is given and of its mask. A file is complete or absent, so that
any number of processes can share a folder, and a run that was stopped goes on with what is there.
"""

import hashlib
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.models.dinov2 import DINOv2
from g_ray.runtime.device import disable_autocast
from g_ray.runtime.files import atomic_path

DIGEST = 16
"""Bytes of a digest."""
RECOUNT_EVERY = 256
"""Files written between two looks at what other processes have written."""


class FrozenFeatures:
    """Computes features of images one at a time, rounded to float16, with or without a folder to keep them in.

    What comes out depends neither on the other images of a batch nor on what is already stored: training with and
    without a folder, from its start or resumed, gives the same weights.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int = 0) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._encoder_digest: str | None = None
        self._stored_bytes = self._writes = 0

    def encode(
        self,
        encoder: DINOv2,
        images: Float[Tensor, "image 3 h w"],
        key_mask: Bool[Tensor, "image patch"] | None = None,
    ) -> Float[Tensor, "image patch width"]:
        """Return the encoder's features of normalized images, read from the folder where they are there."""
        masks = [None] * len(images) if key_mask is None else key_mask.unbind()
        features = [
            self._get_features(encoder, image, None if mask is None or bool(mask.all()) else mask).to(images)
            for image, mask in zip(images, masks, strict=True)
        ]
        return torch.stack(features)

    def _get_features(
        self, encoder: DINOv2, image: Tensor, mask: Tensor | None
    ) -> Float[Tensor, "patch width"]:
        if self.folder is None:
            return _compute_features(encoder, image, mask)
        path = self._find_path(encoder, image, mask)
        stored = _read_features(path)
        if stored is None:
            stored = _compute_features(encoder, image, mask).cpu()
            self._store(path, stored.numpy())
        return stored

    def _find_path(self, encoder: DINOv2, image: Tensor, mask: Tensor | None) -> Path:
        assert self.folder is not None
        if self._encoder_digest is None:
            weights = (f"{name} {value.numel()}" for name, value in encoder.state_dict().items())
            description = f"{encoder.config} {encoder.taps} {' '.join(weights)}"
            self._encoder_digest = _compute_digest(description, encoder.state_dict().values())
        parts = [image] if mask is None else [image, mask]
        name = _compute_digest(str(tuple(image.shape)), parts)
        return self.folder / self._encoder_digest / name[:2] / f"{name}.npy"

    def _store(self, path: Path, features: np.ndarray) -> None:
        """Write a file if there is room for it."""
        assert self.folder is not None
        if self._writes % RECOUNT_EVERY == 0:
            self._stored_bytes = _count_bytes(self.folder)
        self._writes += 1
        if self._stored_bytes + features.nbytes > self.max_bytes:
            warnings.warn(
                f"{self.folder} holds {self._stored_bytes / 1e9:.1f} GB, which is all that it may: further features "
                "are computed again each time; raise --cache-gb, or remove what is not used",
                stacklevel=2,
            )
            return
        with atomic_path(path) as scratch:
            np.save(scratch, features)
        self._stored_bytes += features.nbytes


@torch.no_grad()
def _compute_features(encoder: DINOv2, image: Tensor, mask: Tensor | None) -> Float[Tensor, "patch width"]:
    with disable_autocast(image):
        features = encoder(image[None], None if mask is None else mask[None])[0]
    return features.half()


def _read_features(path: Path) -> Float[Tensor, "patch width"] | None:
    """Read a file; None if there is none, or if it is damaged."""
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (FileNotFoundError, ValueError, EOFError):
        return None


def _compute_digest(description: str, tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(description.encode(), digest_size=DIGEST)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/*/*.npy"))
