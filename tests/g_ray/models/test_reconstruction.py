"""The reconstruction network: shapes, sizes, what each row knows of cameras, masks, memory savers, and it learns."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2Config
from g_ray.models.reconstruction_config import (
    RECONSTRUCTION_METHODS,
    RECONSTRUCTION_SIZES,
    ReconstructionConfig,
    get_reconstruction_method,
)
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.views import Views

every_method = pytest.mark.parametrize("method", RECONSTRUCTION_METHODS)
PATCH = 7


def config(method: str, **changes) -> ReconstructionConfig:
    small = ReconstructionConfig(method, "patch", 48, 2, 2, PATCH, (0, 0, 1, 1), 16, (8, 8, 16, 16), 24)
    return replace(small, **{"layer_scale": 1.0, **changes})


def model(method: str, dtype=torch.float64, **changes) -> ReconstructionModel:
    torch.manual_seed(0)
    net = ReconstructionModel(config(method, **changes)).to(dtype)
    with torch.no_grad():  # special tokens start at almost nothing, and then all views look alike
        for token in (net.aggregator.camera_token, net.aggregator.register_token):
            token.copy_(torch.randn(token.shape))
    return net


def pinhole(width=28, height=21, focal=24.0, dtype=torch.float64):
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2 + 1, cy=height / 2, dtype=dtype)


def fisheye(width=28, height=21, focal=12.0, dtype=torch.float64):
    middle = {"cx": width / 2, "cy": height / 2}
    return OpenCVFisheye.make(width, height, fx=focal, fy=focal, **middle, k1=0.01, dtype=dtype)


def images_of(views: Views, batch=1, dtype=torch.float64, seed=0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch, 3, c.height, c.width, generator=generator, dtype=dtype) for c in views.cameras]


def difference(a, b) -> float:
    return max(
        float((x - y).detach().abs().max()) for x, y in zip(vars(a).values(), vars(b).values(), strict=True)
    )


@every_method
def test_shapes_and_ranges(method):
    views = Views([pinhole(), fisheye(), pinhole(focal=40.0)])
    out = model(method)(torch.stack(images_of(views, batch=2), 1), views)
    assert out.world_points.shape == out.camera_points.shape == (2, 3, 21, 28, 3)
    assert out.world_confidence.shape == out.ray_depth.shape == out.z_depth.shape == (2, 3, 21, 28)
    assert out.translation.shape == (2, 3, 3) and out.poses.batch_shape == (2, 3)
    assert min(out.world_confidence.min(), out.camera_confidence.min()) >= 1
    assert torch.allclose(out.rays.norm(dim=-1), torch.ones(2, 3, 21, 28, dtype=torch.float64))
    assert torch.allclose(out.rays * out.ray_depth[..., None], out.camera_points)
    assert torch.allclose(out.quaternion.norm(dim=-1), torch.ones(2, 3, dtype=torch.float64))


@every_method
def test_views_of_different_sizes_are_what_they_are_alone_in_size(method):
    """The ragged path gives what the stacked one gives, and each view keeps its own size."""
    net = model(method)
    views = Views([pinhole(), fisheye(35, 14), pinhole(14, 28)])
    sizes = [
        (view.world_points.shape[-2], view.world_points.shape[-3])
        for view in net.predict(images_of(views), views)
    ]
    assert sizes == [(28, 21), (35, 14), (14, 28)]
    equal = Views([pinhole(), fisheye(), pinhole(focal=40.0)])
    images = images_of(equal, batch=2)
    stacked, ragged = net(torch.stack(images, 1), equal), net.predict(images, equal)
    assert all(difference(stacked.select_view(i), ragged[i]) < 1e-12 for i in range(3))


@every_method
def test_all_but_the_first_view_are_interchangeable(method):
    net = model(method)
    views = Views([pinhole(), fisheye(35, 14), pinhole(14, 28)])
    images = images_of(views)
    out = net.predict(images, views)
    turned = [0, 2, 1]
    again = net.predict([images[i] for i in turned], Views([views.cameras[i] for i in turned]))
    assert all(difference(out[view], again[index]) < 1e-9 for index, view in enumerate(turned))
    first = [1, 0, 2]
    other = net.predict([images[i] for i in first], Views([views.cameras[i] for i in first]))
    assert difference(out[1], other[0]) > 1e-4


@every_method
def test_who_looks_at_calibration(method):
    net = model(method)
    views = Views([pinhole(), pinhole()])
    images = images_of(views)
    zoomed = Views([pinhole(), pinhole(focal=48.0)])
    change = difference(net.predict(images, views)[0], net.predict(images, zoomed)[0])
    blind = get_reconstruction_method(method).describe_ray_usage(24, {}) == "nothing"
    assert blind == (method in ("rope", "rope_vo", "none_global", "rope_normalized"))
    assert (change == 0) if blind else (change > 1e-5)


def test_the_rows_differ():
    """With the same weights, so by their positions alone."""
    views = Views([pinhole(), fisheye()])
    images, weights = images_of(views), model("gray").state_dict()
    outputs = []
    for name in RECONSTRUCTION_METHODS:
        net = model(name)
        net.load_state_dict(weights, strict=False)
        outputs.append(net.predict(images, views)[1])
    assert min(difference(a, b) for a, b in combinations(outputs, 2)) > 1e-6


def test_the_faint_branch_of_rays_begins_at_a_hundredth():
    """With one seed and otherwise equal weights."""
    usual, faint = model("camray").camray, model("camray_faint").camray
    assert torch.equal(usual.layers[0].weight, faint.layers[0].weight)
    assert torch.allclose(usual.layers[-1].weight / 100, faint.layers[-1].weight)


def test_padding_reaches_nobody():
    net = model("gray")
    views = Views([pinhole(), fisheye()])
    images = images_of(views)
    content = [torch.ones(21, 28, dtype=torch.bool) for _ in range(2)]
    content[1][:, 14:] = False
    out = net.predict(images, views, content=content)
    images[1] = torch.where(content[1], images[1], 1 - images[1])
    again = net.predict(images, views, content=content)
    assert difference(out[0], again[0]) == 0.0
    assert torch.equal(out[1].translation, again[1].translation)
    assert torch.equal(out[1].world_points[:, :, :14], again[1].world_points[:, :, :14])
    assert difference(out[0], net.predict(images, views)[0]) > 1e-6


def test_a_patch_with_any_content_counts():
    net = model("gray")
    views = Views([pinhole()])
    content = [torch.zeros(21, 28, dtype=torch.bool)]
    content[0][::PATCH, ::PATCH] = True
    images = images_of(views)
    assert difference(net.predict(images, views, content=content)[0], net.predict(images, views)[0]) == 0.0


def test_fisheye_corners_without_rays_reach_nobody():
    net = model("gray")
    circle = OpenCVFisheye.make(28, 28, fx=3.0, fy=3.0, cx=14.0, cy=14.0, k1=-0.01, dtype=torch.float64)
    views = Views([pinhole(28, 28), circle])
    assert not views.tokens(PATCH).valid()[0, 16]
    images = images_of(views)
    before = net.predict(images, views)[0]
    images[1][..., :PATCH, :PATCH] = 1 - images[1][..., :PATCH, :PATCH]
    assert difference(before, net.predict(images, views)[0]) == 0.0


@pytest.mark.parametrize("saver", [{"frames_chunk": 1}, {"recompute": True}, {}])
def test_memory_savers_are_exact(saver):
    views = Views([pinhole(), fisheye(), pinhole(focal=40.0)])
    images = torch.stack(images_of(views), 1)
    results = []
    for net, chunk in ((model("gray"), None), (model("gray", **saver), 5)):
        out = net(images, views, query_chunk=chunk)
        loss = out.world_points.square().sum() + out.camera_points.square().sum() + out.translation.sum()
        loss.backward()
        results.append((out, [parameter.grad for parameter in net.parameters()]))
    assert difference(results[0][0], results[1][0]) < 1e-10
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert a is b is None or (a - b).abs().max() < 1e-8 * max(1.0, a.abs().max().item())


def test_recomputation_of_a_pretrained_encoder_is_exact(monkeypatch):
    monkeypatch.setitem(DINOV2_SIZES, "vits14", DINOv2Config(48, 2, 2, grid=3))
    views = Views([pinhole(28, 14), pinhole(28, 14, focal=40.0)])
    images = torch.stack(images_of(views, dtype=torch.float32), 1)
    results = []
    for recompute in (False, True):
        torch.manual_seed(0)
        net = ReconstructionModel(config("gray", encoder="vits14", patch=14, recompute=recompute))
        out = net(images, Views([camera.to(torch.float32) for camera in views.cameras]))
        loss = out.world_points.square().sum() + out.camera_points.square().sum() + out.translation.sum()
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in net.parameters())])
    for kept, again in zip(*results, strict=True):
        torch.testing.assert_close(again, kept, rtol=0, atol=0)


@every_method
def test_every_parameter_learns(method):
    views = Views([pinhole(), fisheye()])
    net = model(method)
    out = net(torch.stack(images_of(views), 1), views)
    sum(tensor.square().sum() for tensor in (*vars(out).values(), out.quaternion[..., 0])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    # Residual branches of the dense head start empty: what comes before their end learns from the second step on.
    late = re.compile(r"k_norm\.bias|resConfUnit\d\.conv1")
    assert [n for n, p in net.named_parameters() if not p.grad.any() and not late.search(n)] == []
    torch.optim.SGD(net.parameters(), lr=1e-6).step()
    net.zero_grad()
    out = net(torch.stack(images_of(views), 1), views)
    sum(tensor.square().sum() for tensor in vars(out).values()).backward()
    assert all(p.grad.any() for n, p in net.named_parameters() if "resConfUnit" in n)


@pytest.mark.parametrize("method", ["gray", "camray"])
def test_it_learns_one_batch(method):
    views = Views([pinhole(dtype=torch.float32), fisheye(dtype=torch.float32)])
    images = torch.stack(images_of(views, dtype=torch.float32), 1)
    truth = torch.randn(1, 2, 21, 28, 3, generator=torch.Generator().manual_seed(3)).cumsum(2).cumsum(3) / 30
    poses = torch.tensor([[[0.0, 0, 0], [0.3, -0.2, 0.5]]])
    torch.manual_seed(1)
    net = ReconstructionModel(config(method, layer_scale=0.1))
    optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=0.0)
    losses = []
    for _ in range(20):
        out = net(images, views)
        errors = (out.world_points - truth, out.camera_points - truth, out.translation - poses)
        loss = sum(error.square().mean() for error in errors)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.4 * losses[0]


def test_half_precision_under_autocast():
    views = Views([pinhole(dtype=torch.float32), fisheye(dtype=torch.float32)])
    images = torch.stack(images_of(views, dtype=torch.float32), 1)
    net = model("gray", dtype=torch.float32)
    exact = net(images, views)
    with torch.autocast("cpu", torch.bfloat16):
        rough = net(images, views)
    assert rough.world_points.dtype == rough.quaternion.dtype == torch.float32
    assert (rough.world_points - exact.world_points).abs().max() < 0.1 * exact.world_points.abs().max()


@pytest.mark.parametrize(
    ("size", "millions"), [("tiny", 0.870), ("rooms", 4.404), ("small", 69.7), ("paper", 946.5)]
)
@every_method
def test_every_size_can_hold_every_method(size, millions, method):
    with torch.device("meta"):
        net = ReconstructionModel(RECONSTRUCTION_SIZES[size](method))
    count = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("camray"))
    assert count / 1e6 == pytest.approx(millions, rel=1e-3)


def test_dinov2_sits_below_the_trunk():
    """Through both ends of the small size's own code, at a size that runs in a moment."""
    with torch.device("meta"):
        net = ReconstructionModel(RECONSTRUCTION_SIZES["small"]("gray", pairs=1, taps=(0, 0, 0, 0)))
    views = Views([Pinhole.from_fov(60.0, 56, 42)] * 2)
    net = net.to_empty(device="cpu")
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    out = net(torch.rand(1, 2, 3, 42, 56), views, content=torch.arange(56).lt(28).expand(2, 42, 56))
    assert out.world_points.shape == (1, 2, 42, 56, 3) and out.world_points.isfinite().all()


def test_poses_of_views_do_not_matter():
    bare = Views([pinhole(), fisheye()])
    eyes = torch.rand(2, 3, dtype=torch.float64)
    posed = Views(bare.cameras, Pose.look_at(eyes, eyes + torch.tensor([0.1, 0.2, 1.0])))
    net, images = model("gray"), images_of(bare)
    assert difference(net.predict(images, bare)[1], net.predict(images, posed)[1]) == 0.0


def test_wrong_calls_are_refused_in_one_line():
    net, views = model("gray"), Views([pinhole(), fisheye()])
    images = images_of(views)
    with pytest.raises(
        ValueError, match="images of 28×21 px, but cameras of 28×21, 28×21 px: one camera per"
    ):
        net.predict(images[:1], views)
    with pytest.raises(ValueError, match="not a multiple of the 7×7 patch"):
        net.predict([torch.rand(1, 3, 21, 30, dtype=torch.float64)], Views([pinhole(30)]))
    with pytest.raises(ValueError, match="unknown method 'grey': choose one of gray, gray_qk"):
        config("grey")
    with pytest.raises(ValueError, match="unknown encoder 'vitx': choose one of patch, vits14"):
        config("gray", encoder="vitx")
    with pytest.raises(ValueError, match="vits14 has width 384 and patches of 14 px, but the trunk 48 and 7"):
        config("gray", encoder="vits14")
    with pytest.raises(ValueError, match=r"taps \(0, 1, 2, 3\) must name pairs between 0 and 1"):
        config("gray", taps=(0, 1, 2, 3))
    with pytest.raises(ValueError, match=r"taps \(0, 0, 0, 0\) end before the last of 2 pairs"):
        config("gray", taps=(0, 0, 0, 0))
    with pytest.raises(ValueError, match="unknown activation 'log'"):
        model("gray", world_points="log")
