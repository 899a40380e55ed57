"""What a training step at the paper's size keeps for its backward pass, counted without computing anything."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from g_ray.cameras import Pinhole
from g_ray.encodings import rotation
from g_ray.models import reconstruction_network as reconstruction
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.views import Views
from g_ray_lab.recipes import get_recipe

GIB = 2**30
ADAM = 16
"""Bytes per parameter: weight, gradient and two moments in float32."""


@contextmanager
def count_saved(model):
    """Yield a dictionary of the storages that autograd keeps, by identity, with their bytes; parameters not counted."""
    kept, held = {}, []
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            held.append(storage)  # alive, so that no other storage gets its address
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


def count_bytes(name: str, views: int, recompute: bool, monkeypatch) -> tuple[float, float]:
    """Return the bytes kept by a step of a stage at its most images, and those of weights and optimizer.

    All pairs of layers are alike: what the whole network keeps follows from networks of four and of five pairs.
    """
    whole = RECONSTRUCTION_SIZES["paper"]("gray", recompute=recompute)
    four, five = (
        count_pairs(name, views, replace(whole, pairs=pairs, taps=(0, 1, 2, pairs - 1)), monkeypatch)
        for pairs in (4, 5)
    )
    kept, weights = (a + (whole.pairs - 4) * (b - a) for a, b in zip(four, five, strict=True))
    print(f"{name}: {kept / GIB:.1f} GiB kept, {weights / GIB:.1f} GiB of weights and moments")
    return kept, weights


def count_pairs(name, views, config, monkeypatch):
    data = get_recipe(name).data
    sets = min(data.batch, data.images_max // views)
    # Pinholes reach every patch: no mask. Asking for the numbers would need numbers.
    monkeypatch.setattr(reconstruction, "_make_key_mask", lambda *_: None)
    # All tokens at once, as on a GPU: without numbers every stretch that a CPU would take costs as much as all of them.
    monkeypatch.setattr(rotation, "NUMBERS_AT_ONCE", 2**50)
    cameras = [Pinhole.from_fov(60.0, data.width, data.height) for _ in range(views)]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = ReconstructionModel(config)
        images = torch.rand(sets, views, 3, data.height, data.width)
        with count_saved(model) as kept, torch.autocast("cpu", torch.bfloat16):
            prediction = model(images, Views(cameras))
    assert prediction.world_points.shape == (sets, views, data.height, data.width, 3)
    return sum(kept.values()), ADAM * sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("stage", "views"), [("recon-stage1", 2), ("recon-stage2", 24)])
def test_a_stage_of_the_paper_fits_80_gb(stage, views, monkeypatch):
    assert get_recipe(stage).model.recompute
    kept, weights = count_bytes(stage, views, True, monkeypatch)
    assert kept + weights < 46 * GIB


def test_without_recomputation_it_does_not(monkeypatch):
    kept, weights = count_bytes("recon-stage1", 24, False, monkeypatch)
    assert kept + weights > 100 * GIB
