"""LVSM: the paper's size, the invariances that each row claims, any lens on both sides, and it learns."""

import math
from dataclasses import replace

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.encodings import ENCODINGS
from g_ray.geometry.pose import Pose
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import METHODS, SIZES, LVSMConfig
from g_ray.rays.views import Views

every_method = pytest.mark.parametrize("method", METHODS)
PATCH = 6


def config(method: str, **changes) -> LVSMConfig:
    conditioning, encoding = METHODS[method]
    small = LVSMConfig(48, 2, 2, 64, PATCH, conditioning, encoding)
    return replace(small, **changes)


def model(method: str, dtype=torch.float64, **changes) -> LVSM:
    torch.manual_seed(0)
    net = LVSM(config(method, **changes)).to(dtype)
    with torch.no_grad():  # away from its start, where depths are the same for all tokens
        for name, parameter in net.named_parameters():
            if "depth" in name:
                parameter.add_(0.05 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                parameter.mul_(3.0)
    return net


def cameras(kind: str, batch: int, width: int, height: int, dtype=torch.float64):
    focal = torch.linspace(0.8, 1.4, batch, dtype=dtype) * width
    middle = {"cx": width / 2 + 0.3, "cy": height / 2}
    if kind == "fisheye":
        return OpenCVFisheye.make(width, height, fx=0.6 * focal, fy=0.6 * focal, **middle, k1=0.02)
    return Pinhole.make(width, height, fx=focal, fy=focal, **middle)


def scene(contexts=2, targets=2, batch=2, size=(18, 12), target="pinhole", dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    count = contexts + targets
    eyes = 0.4 * torch.randn(batch, count, 3, generator=generator, dtype=dtype)
    aims = torch.tensor([0.0, 0.0, 4.0], dtype=dtype) + 0.3 * torch.randn(
        batch, count, 3, generator=generator, dtype=dtype
    )
    poses = Pose.look_at(eyes, aims)
    images = torch.rand(batch, contexts, 3, 12, 18, generator=generator, dtype=dtype)
    seen = Views([cameras("pinhole", batch, 18, 12, dtype)] * contexts, poses[:, :contexts])
    wanted = Views([cameras(target, batch, *size, dtype)] * targets, poses[:, contexts:])
    return images, seen, wanted


@every_method
def test_the_papers_size_has_47_million_parameters(method):
    conditioning, encoding = METHODS[method]
    with torch.device("meta"):
        net = LVSM(SIZES["paper"](encoding, conditioning))
    count = sum(parameter.numel() for parameter in net.parameters())
    layer = 4 * 1152**2 + 2 * 1152 * 1024 + 2 * 1152 + 2 * 144
    depth = 2 * 1152 + 2 if "rayrope" in method else 0
    assert count == 6 * (layer + depth) + (9 + 6 + 3) * 64 * 1152 + 2 * 1152
    assert round(count / 1e6) == 47


def test_nothing_but_the_depth_predictor_has_a_bias():
    names = [name for name, _ in model("rayrope").named_parameters() if "bias" in name]
    assert names == [f"blocks.{layer}.attention.depth.linear.bias" for layer in range(2)]


def test_the_start_is_the_released_one():
    torch.manual_seed(0)
    net = LVSM(LVSMConfig(240, 3, 2, 200, 6, "camray", "gta")).requires_grad_(False)
    for index, block in enumerate(net.blocks):
        for linear in (block.attention.out, block.widen, block.narrow):
            assert math.isclose(linear.weight.std(), 0.02 / math.sqrt(2 * (index + 1)), rel_tol=0.02)
        assert math.isclose(block.attention.qkv.weight.abs().max(), math.sqrt(6 / (4 * 240)), rel_tol=0.01)
    assert net.pixels.weight.abs().max() <= 1 / math.sqrt(240)


@every_method
@pytest.mark.parametrize(("contexts", "targets", "size"), [(1, 1, (18, 12)), (3, 2, (12, 24))])
def test_any_number_of_views_and_any_size(method, contexts, targets, size):
    images, seen, wanted = scene(contexts, targets, size=size)
    out = model(method)(images, seen, wanted)
    assert out.shape == (2, targets, 3, size[1], size[0])
    assert out.min() > 0 and out.max() < 1 and out.std() > 1e-3


@every_method
def test_a_target_does_not_know_of_the_others(method):
    images, seen, wanted = scene(targets=2)
    net = model(method)
    both = net(images, seen, wanted)
    assert torch.allclose(both[:, 1:], net(images, seen, wanted[1:]), atol=1e-12)


@every_method
def test_the_order_of_contexts_does_not_matter(method):
    images, seen, wanted = scene(contexts=3, targets=1)
    turned = Views([seen.cameras[i] for i in (2, 0, 1)], seen.poses[:, [2, 0, 1]])
    net = model(method)
    assert torch.allclose(net(images, seen, wanted), net(images[:, [2, 0, 1]], turned, wanted), atol=1e-12)


@every_method
def test_where_the_world_begins_matters_to_plucker_only(method):
    images, seen, wanted = scene(targets=1)
    eye = torch.tensor([0.5, -1.0, 0.3], dtype=torch.float64)
    motion = Pose.look_at(eye, (2.0, 1.0, 1.0))
    moved = [Views(views.cameras, motion @ views.poses) for views in (seen, wanted)]
    net = model(method)
    change = (net(images, seen, wanted) - net(images, *moved)).abs().max()
    assert change > 1e-3 if method == "plucker" else change < 1e-9


@every_method
def test_the_last_layer_for_targets_alone_equals_the_whole(method):
    _, seen, wanted = scene(targets=1)
    net = model(method)
    tokens = (seen + wanted).tokens(PATCH)
    x = torch.randn(2, len(tokens), 48, dtype=torch.float64)
    last, known = net.blocks[-1], len(seen.tokens(PATCH))
    whole = last(x, net.encoding.prepare(tokens))[:, known:]
    alone = last(x, net.encoding.prepare(tokens.select([2]), tokens), None, slice(known, None))
    assert torch.allclose(whole, alone, atol=1e-12)


@every_method
def test_a_fisheye_target_is_a_target(method):
    images, seen, wanted = scene(targets=1, size=(18, 18), target="fisheye")
    net = model(method)
    out = net(images, seen, wanted)
    pinhole = Views([cameras("pinhole", 2, 18, 18)], wanted.poses)
    assert out.isfinite().all()
    assert (out - net(images, seen, pinhole)).abs().max() > 1e-3


@every_method
def test_fisheye_contexts_with_black_corners(method):
    """What the corners show cannot reach the target: their patches are keys for nobody."""
    options = {"along": "ray"} if "rayrope" in method else {}
    focal = torch.tensor([5.0, 5.5], dtype=torch.float64)
    circle = OpenCVFisheye.make(48, 48, fx=focal, fy=focal, cx=24.0, cy=24.0, k1=-0.01)
    images, _, wanted = scene(targets=1)
    seen = Views([circle] * 2, scene()[1].poses)
    images = torch.nn.functional.interpolate(images.flatten(0, 1), (48, 48)).unflatten(0, (2, 2))
    net = model(method, encoding_options=options)
    before = net(images, seen, wanted)
    assert not seen.tokens(PATCH).valid()[0, 0]
    images[..., :PATCH, :PATCH] = 1 - images[..., :PATCH, :PATCH]
    assert before.isfinite().all() and torch.equal(before, net(images, seen, wanted))


def test_lenses_may_mix_in_contexts_and_targets():
    images, seen, wanted = scene(targets=2)
    mixed = Views([seen.cameras[0], cameras("fisheye", 2, 18, 12)], seen.poses)
    targets = Views([wanted.cameras[0], cameras("fisheye", 2, 18, 12)], wanted.poses)
    out = model("gta_gray")(images, mixed, targets)
    assert out.shape == (2, 2, 3, 12, 18) and out.isfinite().all()


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("conditioning", ["plucker", "camray", "raymap", "none"])
def test_every_encoding_with_every_conditioning(name, conditioning):
    images, seen, wanted = scene(targets=1, batch=1, dtype=torch.float32)
    net = LVSM(LVSMConfig(48, 1, 2, 48, PATCH, conditioning, name))
    net(images, seen, wanted).sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters()
    )


def test_views_shared_by_a_whole_batch():
    images, seen, wanted = scene(targets=1, batch=1)
    net = model("rayrope_gray")
    pair = torch.cat([images, images.flip(-1)])
    assert torch.allclose(net(pair, seen, wanted)[1:], net(pair[1:], seen, wanted), atol=1e-12)
    alone = Views([camera[0] for camera in seen.cameras], Pose(seen.poses.world_from_cam[0]))
    target = Views([camera[0] for camera in wanted.cameras], Pose(wanted.poses.world_from_cam[0]))
    assert torch.allclose(net(pair, seen, wanted), net(pair, alone, target), atol=1e-12)


@every_method
def test_it_learns_one_batch(method):
    images, seen, wanted = scene(targets=1, batch=1, dtype=torch.float32)
    truth = torch.rand(1, 1, 3, 12, 18, generator=torch.Generator().manual_seed(5))
    torch.manual_seed(1)
    net = LVSM(config(method))
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for _ in range(25):
        loss = (net(images, seen, wanted) - truth).square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[1] < losses[0] and losses[-1] < 0.5 * losses[0]


@every_method
def test_half_precision_under_autocast(method):
    images, seen, wanted = scene(targets=1, dtype=torch.float32)
    net = model(method, dtype=torch.float32)
    exact = net(images, seen, wanted)
    with torch.autocast("cpu", torch.bfloat16):
        rough = net(images, seen, wanted)
    assert (rough.float() - exact).abs().max() < 0.05


def test_wrong_calls_are_refused_in_one_line():
    images, seen, wanted = scene()
    net = model("gta")
    with pytest.raises(
        ValueError, match="2 context images of 18×12 px, but the context cameras are of 18×12:"
    ):
        net(images, seen[:1], wanted)
    with pytest.raises(ValueError, match="targets of different sizes 18×12, 12×12"):
        net(images, seen, Views([wanted.cameras[0], cameras("pinhole", 2, 12, 12)], wanted.poses))
    with pytest.raises(ValueError, match="target views of batch 2: make them equal or 1"):
        net(images[:1], Views([c[:1] for c in seen.cameras], seen.poses[:1]), wanted)
    with pytest.raises(ValueError, match="not a multiple of the 6×6 patch"):
        net(images, seen, Views([cameras("pinhole", 2, 20, 12)] * 2, wanted.poses))
    with pytest.raises(ValueError, match="give poses to all of them or to none"):
        net(images, seen, Views(wanted.cameras))
    with pytest.raises((ValueError, TypeError), match="'plucker2'"):  # TypeError where types are checked
        LVSM(config("gta", conditioning="plucker2"))
    with pytest.raises(ValueError, match="a width that the heads divide"):
        config("gta", heads=5)


def test_methods_are_the_papers_rows():
    assert list(METHODS) == ["plucker", "prope", "gta", "gta_gray", "rayrope", "rayrope_gray"]
    assert all(method.encoding in ENCODINGS for method in METHODS.values())
    assert {method.conditioning for name, method in METHODS.items() if name != "plucker"} == {"camray"}


@every_method
@pytest.mark.parametrize("size", SIZES)
def test_every_size_can_hold_every_method(method, size):
    conditioning, encoding = METHODS[method]
    with torch.device("meta"):
        LVSM(SIZES[size](encoding, conditioning))
