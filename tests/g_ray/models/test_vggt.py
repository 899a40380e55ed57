"""With grid-index RoPE and its weights, trunk and DPT head compute what VGGT computes."""

import numpy as np
import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.encodings import encoding
from g_ray.models.aggregator import Aggregator
from g_ray.models.dinov2 import PatchEmbed
from g_ray.models.dpt import DPTHead
from g_ray.rays.views import Views

TAPS = (0, 1, 2, 2)


@pytest.fixture(scope="module")
def vectors(shared_vectors):
    with np.load(shared_vectors / "vggt_small.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def part(vectors, prefix: str) -> dict[str, torch.Tensor]:
    named = {name: value for name, value in vectors.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix).replace("attn.proj", "attn.out"): v for name, v in named.items()}


@pytest.fixture(scope="module")
def trunk(vectors):
    rope = encoding("rope", 32, coordinate="grid_from_one", rotate_values=False, y_first=True)
    trunk = Aggregator(64, 3, rope, rope)
    names = {name: value for name, value in part(vectors, "aggregator.").items() if "patch_embed" not in name}
    trunk.load_state_dict(names)
    return trunk


@pytest.fixture(scope="module")
def patches(vectors):
    embed = PatchEmbed(64, 14)
    embed.load_state_dict(part(vectors, "aggregator.patch_embed."))
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    with torch.no_grad():
        return [embed((image - mean) / deviation) for image in vectors["images"].unbind(1)]


def tokens(count=3):
    return Views([Pinhole.from_fov(60.0, 56, 42)] * count).tokens(14, special=5)


def relative(found, wanted) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("query_chunk", [None, 7])
def test_tokens_after_every_pair(vectors, trunk, patches, query_chunk):
    taps = trunk(patches, tokens(), TAPS, query_chunk=query_chunk)
    assert sorted(taps) == [0, 1, 2]
    for pair in range(3):
        wanted = vectors[f"tokens_{pair}"]
        assert relative(taps[pair].reshape(wanted.shape), wanted) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("frames_chunk", [8, 2])
def test_points_of_the_dpt_head(vectors, trunk, patches, frames_chunk):
    head = DPTHead(128, 14, features=32, channels=(16, 32, 64, 64), frames_chunk=frames_chunk)
    head.load_state_dict(part(vectors, "point_head."))
    taps = trunk(patches, tokens(), TAPS)
    found = head([taps[tap].unflatten(1, (3, -1))[0, :, 5:] for tap in TAPS], rows=3, columns=4)
    assert relative(found.points, vectors["points"][0]) < 1e-5
    assert relative(found.confidence, vectors["confidence"][0]) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize(
    "change", [{"coordinate": "grid"}, {"y_first": False}, {"rotate_values": True}, {"base": 90.0}]
)
def test_any_other_position_is_not_vggts(vectors, trunk, patches, change):
    options = {"coordinate": "grid_from_one", "rotate_values": False, "y_first": True, **change}
    other = encoding("rope", 32, **options)
    strange = Aggregator(64, 3, other, other)
    strange.load_state_dict(trunk.state_dict())
    assert relative(strange(patches, tokens(), TAPS)[2].reshape(1, 3, 17, 128), vectors["tokens_2"]) > 1e-4
