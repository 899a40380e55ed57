"""The encoder is DINOv2, with registers or without: the same numbers as transformers' on the same weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, DINOv2Config
from g_ray.models.foreign_weights import build_encoder, read_foreign, rename_from_transformers

transformers = pytest.importorskip("transformers")

SMALL = DINOv2Config(dim=48, layers=3, heads=4, patch=14, grid=5)
KINDS = {
    "registers": SMALL,
    "plain": replace(SMALL, registers=0),
    "swiglu": replace(SMALL, registers=0, swiglu=True),
}


def build_transformers(size):
    """Transformers' model of the same size."""
    settings = {
        "hidden_size": size.dim,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "image_size": size.grid * size.patch,
        "patch_size": size.patch,
        "use_swiglu_ffn": size.swiglu,
    }
    if size.registers:
        config = transformers.Dinov2WithRegistersConfig(**settings, num_register_tokens=size.registers)
        return transformers.Dinov2WithRegistersModel(config).eval()
    return transformers.Dinov2Model(transformers.Dinov2Config(**settings)).eval()


@pytest.fixture(scope="module", params=KINDS)
def pair(request):
    """Transformers' model with random weights everywhere, and ours with the same ones."""
    torch.manual_seed(0)
    size = KINDS[request.param]
    theirs, ours = build_transformers(size), DINOv2(size)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    state = rename_from_transformers(theirs.state_dict())
    state.pop("mask_token")
    ours.load_state_dict(state)
    return theirs, ours


@torch.no_grad()
@pytest.mark.parametrize(("height", "width"), [(70, 70), (42, 98), (140, 84)])
def test_patch_tokens_are_those_of_transformers(pair, height, width):
    theirs, ours = pair
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    wanted, special = theirs(images, output_hidden_states=True), 1 + ours.config.registers
    assert wanted.last_hidden_state.std() > 0.3
    assert (ours(images) - wanted.last_hidden_state[:, special:]).abs().max() < 1e-5
    numbers = range(1 + SMALL.layers)
    for state, theirs_state in zip(
        ours.compute_states(images, None, numbers), wanted.hidden_states, strict=True
    ):
        assert (state - theirs_state[:, special:]).abs().max() < 2e-6 * theirs_state.abs().max() + 2e-6


@torch.no_grad()
def test_taps_are_normalized_hidden_states_and_need_no_blocks_behind_them(pair):
    _, whole = pair
    tapped = DINOv2(whole.config, taps=(1, 2))
    tapped.load_state_dict(whole.state_dict(), strict=False)
    assert len(tapped.blocks) == 2 and not any(name.startswith("norm") for name in tapped.state_dict())
    images = torch.randn(2, 3, 42, 56, generator=torch.Generator().manual_seed(1))
    wanted = [F.layer_norm(state, (48,)) for state in whole.compute_states(images, None, (1, 2))]
    assert torch.equal(tapped(images), torch.cat(wanted, -1)) and tapped.width == 96
    for taps in ((2, 1), (0, 2), (4,), (1, 1)):
        with pytest.raises(ValueError, match="hidden states between 1 and 3 in ascending order"):
            DINOv2(whole.config, taps)


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


@pytest.mark.parametrize(
    ("size", "millions"),
    [
        ("vits14", 22.1),
        ("vitb14", 86.6),
        ("vitl14", 304.4),
        ("vitg14", 1136.5),
        ("vits14_noreg", 22.06),
        ("vitg14_noreg", 1136.5),
    ],
)
def test_sizes_are_the_released_ones(size, millions):
    with torch.device("meta"):
        net = DINOv2(DINOV2_SIZES[size])
    assert sum(parameter.numel() for parameter in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


# Real weights on a real photograph.


@pytest.fixture(scope="module")
def vits14(shared_data):
    path = shared_data / "dinov2_vits14" / "dinov2_vits14_fp16.safetensors"
    if not path.is_file():
        pytest.skip(f"no DINOv2 weights at {path}")
    return path


@pytest.fixture(scope="module")
def photograph(shared_data):
    """A frame of the red kitchen, resized as the reference values were, normalized as ImageNet's."""
    frame = Image.open(shared_data / "7scenes_redkitchen100" / "frame-000000.color.jpg")
    pixels = np.asarray(frame.resize((224, 168), Image.Resampling.BICUBIC), dtype=np.float32) / 255
    normalized = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return torch.from_numpy(normalized.astype(np.float32)).movedim(-1, 0)[None]


@torch.no_grad()
def test_real_weights_give_the_published_values(vits14, photograph):
    encoder, report = build_encoder(read_foreign(vits14))
    assert report.unused == ("mask_token",) and not report.missing
    (eighth,) = encoder.compute_states(photograph, None, [8])
    assert torch.allclose(eighth[0, 0, :4], torch.tensor([-0.0034, -0.1420, 0.0654, 0.0359]), atol=1e-4)
    last = torch.tensor([0.7735, -1.3581, -0.4646, -0.4965])
    assert torch.allclose(encoder(photograph)[0, 0, :4], last, atol=1e-4)


@torch.no_grad()
def test_every_hidden_state_of_real_weights_is_transformers(vits14, photograph):
    """In float32 to 1e-5 of the largest value; in float16, whose rounding adds up, as close to float32 as theirs is."""
    weights, images = read_foreign(vits14), photograph[..., :56, :70]
    theirs, (ours, _) = build_transformers(DINOV2_SIZES["vits14_noreg"]), build_encoder(weights)
    theirs.load_state_dict(weights)
    exact = [state[:, 1:] for state in theirs(images, output_hidden_states=True).hidden_states]
    for found, wanted in zip(ours.compute_states(images, None, range(13)), exact, strict=True):
        assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()
    theirs_half = theirs.half()(images.half(), output_hidden_states=True).hidden_states
    ours_half = ours.half().compute_states(images.half(), None, range(13))
    for found, other, wanted in zip(ours_half, theirs_half, exact, strict=True):
        error, usual = (found - wanted).norm() / wanted.norm(), (other[:, 1:] - wanted).norm() / wanted.norm()
        assert error < min(2e-3, 1.1 * float(usual) + 1e-5)
