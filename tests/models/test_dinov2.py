"""The encoder is DINOv2 with registers: the same numbers as transformers' on the same weights."""

import pytest
import torch

from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, DINOv2Config
from g_ray.models.foreign import rename_from_transformers

transformers = pytest.importorskip("transformers")

SMALL = DINOv2Config(dim=48, layers=3, heads=4, patch=14, grid=5)


@pytest.fixture(scope="module")
def pair():
    """Transformers' model with random weights everywhere, and ours with the same ones."""
    torch.manual_seed(0)
    theirs = transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(
            hidden_size=SMALL.dim,
            num_hidden_layers=SMALL.layers,
            num_attention_heads=SMALL.heads,
            image_size=SMALL.grid * SMALL.patch,
            patch_size=SMALL.patch,
            num_register_tokens=4,
        )
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours = DINOv2(SMALL)
    state = rename_from_transformers(theirs.state_dict())
    state.pop("mask_token")
    ours.load_state_dict(state)
    return theirs, ours


@torch.no_grad()
@pytest.mark.parametrize(("height", "width"), [(70, 70), (42, 98), (140, 84)])
def test_patch_tokens_are_those_of_transformers(pair, height, width):
    theirs, ours = pair
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    wanted = theirs(images).last_hidden_state[:, 5:]
    assert wanted.std() > 0.3
    assert (ours(images) - wanted).abs().max() < 1e-5


@torch.no_grad()
def test_patches_outside_the_mask_do_not_reach_the_others(pair):
    _, ours = pair
    images = torch.randn(1, 3, 42, 56)
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[:, 3::4] = False
    before = ours(images, mask)
    images[..., 42:] = 0.0
    after = ours(images, mask)
    assert torch.equal(before[mask], after[mask])
    assert not torch.allclose(before[~mask], after[~mask])
    assert not torch.allclose(ours(images), after)


@pytest.mark.parametrize(("size", "millions"), [("vits14", 22.1), ("vitb14", 86.6), ("vitl14", 304.4)])
def test_sizes_are_the_released_ones(size, millions):
    with torch.device("meta"):
        net = DINOv2(DINOV2_SIZES[size])
    assert sum(parameter.numel() for parameter in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)
