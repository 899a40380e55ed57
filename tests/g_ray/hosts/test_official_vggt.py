"""Where VGGT's package is installed: the adapted trunk is the untouched one, and with ray angles our own network."""

import pytest
import torch
from small_hosts import HEIGHT, WIDTH, make_cameras

from g_ray.encodings import encoding
from g_ray.hosts import adapt
from g_ray.models.aggregator import Aggregator
from g_ray.models.foreign_weights import rename_from_hub
from g_ray.rays.views import Views

official = pytest.importorskip("vggt.models.aggregator")

DIM, PAIRS, HEADS = 32, 2, 4


@pytest.fixture
def trunk():
    sizes = {"img_size": WIDTH, "patch_size": 14, "embed_dim": DIM, "depth": PAIRS, "num_heads": HEADS}
    model = official.Aggregator(**sizes, patch_embed="conv", init_values=1.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def test_own_coordinates_give_the_trunk_itself(trunk):
    images = torch.rand(2, 3, 3, HEIGHT, WIDTH)
    for training in (False, True):  # with checkpointing
        trunk.train(training)
        wanted = trunk(images)[0][-1]
        found = adapt(trunk, "rope")(images, cameras=make_cameras(3))[0][-1]
        assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()


@torch.no_grad()
def test_ray_angles_give_our_own_network(trunk):
    images, cameras = torch.rand(2, 3, 3, HEIGHT, WIDTH), make_cameras(3)
    found = adapt(trunk, "gray")(images, cameras=cameras)[0][-1]
    gray = encoding("gray", DIM // HEADS, y_first=True)
    ours = Aggregator(DIM, PAIRS, gray, gray)
    state = {f"aggregator.{name}": value for name, value in trunk.state_dict().items()}
    renamed = {name.removeprefix("aggregator."): value for name, value in rename_from_hub(state).items()}
    ours.load_state_dict({name: value for name, value in renamed.items() if "patch_embed" not in name})
    features = trunk.patch_embed(((images - trunk._resnet_mean) / trunk._resnet_std).flatten(0, 1))
    tokens = Views(cameras).tokens(14, special=ours.special)
    wanted = ours(list(features.unflatten(0, (2, 3)).unbind(1)), tokens, [PAIRS - 1])[PAIRS - 1]
    assert (found.flatten(1, 2) - wanted).abs().max() < 1e-6 * wanted.abs().max()
