"""The operator against its naive reference, for every encoding: forward, backward, masks, chunks, precisions."""

import pytest
import torch
import torch.nn.functional as F
from naive_attention import naive_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.geometry.pose import Pose
from g_ray.nn import sdpa
from g_ray.nn.attention import attention
from g_ray.nn.transformer import MultiHeadAttention
from g_ray.rays.layout import Layout, Segment
from g_ray.rays.views import Views

HEADS, DIM, PATCH = 2, 48, 16
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


def inputs(tokens, dtype=torch.float64, seed=0, keys=None):
    generator = torch.Generator().manual_seed(seed)
    lengths = (len(tokens), len(keys or tokens), len(keys or tokens))
    batch = tokens.views.batch
    q, k, v = (
        torch.randn(batch, HEADS, n, DIM, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for n in lengths
    )
    raw = [torch.randn(batch, n, 2, generator=generator, dtype=torch.float64) * 0.5 for n in lengths[:2]]
    return q, k, v, [part.to(dtype).requires_grad_() for part in raw]


def with_depth(position, raw, cross=False):
    if not isinstance(position, PerCamera):
        return position
    return position.with_depth(raw[0], raw[1] if cross else None)


def compare(name, operator, tokens, *, keys=None, tolerance=1e-10, **options):
    """Outputs and all gradients of `operator` and of the naive reference."""
    q, k, v, raw = inputs(tokens, keys=keys)
    position = encoding(name, DIM, **options).prepare(tokens, keys)
    mask = torch.rand(k.shape[0], k.shape[2], generator=torch.Generator().manual_seed(3)) > 0.2
    mask[:, 0] = True
    leaves = [q, k, v] + (raw[: 2 if keys else 1] if isinstance(position, PerCamera) else [])
    results = []
    for compute in (operator, naive_attention):
        out = compute(q, k, v, with_depth(position, raw, cross=keys is not None), key_mask=mask)
        results.append((out, *torch.autograd.grad(out, leaves, torch.ones_like(out).cumsum(2) / 10)))
    for fast, slow in zip(*results, strict=True):
        assert (fast - slow).abs().max() < tolerance * max(1.0, slow.abs().max().item())


@every_encoding
@pytest.mark.parametrize("rotate_values", [True, False])
def test_fast_equals_naive_with_masks_and_special_tokens(name, rotate_values, mixed_views):
    options = {} if name == "none" else {"rotate_values": rotate_values}
    compare(name, attention, mixed_views().tokens(PATCH, special=2, leading=1), **options)


@every_encoding
def test_query_chunks_are_exact(name, mixed_views):
    def chunked(*args, **kwargs):
        return attention(*args, **kwargs, query_chunk=5)

    compare(name, chunked, mixed_views().tokens(PATCH))


@every_encoding
def test_cross_attention_between_different_views(name, mixed_views):
    queries = mixed_views(lenses=("tele", "fisheye"), seed=4).tokens(PATCH, special=1)
    compare(name, attention, queries, keys=mixed_views().tokens(PATCH))


@pytest.mark.parametrize("name", ["rayrope", "rayrope_gray"])
def test_without_a_fused_kernel_backward_recomputes(name, mixed_views, monkeypatch):
    monkeypatch.setattr(sdpa, "has_kernel", lambda q: False)
    compare(name, attention, mixed_views().tokens(PATCH, special=1))


@every_encoding
def test_special_tokens_anywhere(name, mixed_views):
    """Views in reverse, specials in the middle and at the end of a view: outputs follow their tokens."""
    views = mixed_views(lenses=("wide", "tele"))
    layout = Layout(
        (
            Segment(1, 2, 2),
            Segment(None, special=1),
            Segment(0, special=1),
            Segment(0, 2, 3),
            Segment(1, special=2),
        )
    )
    usual = views.tokens(PATCH, layout=Layout(tuple(layout.segments[i] for i in (1, 2, 3, 0, 4))))
    strange = views.tokens(PATCH, layout=layout)
    order = torch.tensor([8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 12, 13])
    q, k, v, raw = inputs(usual)
    outputs = []
    for tokens, index in ((usual, torch.arange(14)), (strange, order)):
        position = with_depth(encoding(name, DIM).prepare(tokens), [raw[0][:, index]])
        outputs.append(
            attention(q[:, :, index], k[:, :, index], v[:, :, index], position)[:, :, index.argsort()]
        )
    assert (outputs[0] - outputs[1]).abs().max() < 1e-10


@every_encoding
def test_gradients_reach_the_cameras(name, mixed_views):
    """Poses can be optimised through attention; RayRoPE then takes its plain form."""
    host = encoding(name, DIM)
    views = mixed_views(lenses=("wide", "tele"), batch=1)
    matrices = views.poses.world_from_cam.clone().requires_grad_()
    q, k, v, raw = inputs(views.tokens(PATCH))
    tokens = Views(views.cameras, Pose(matrices)).tokens(PATCH)
    attention(q, k, v, with_depth(host.prepare(tokens), raw)).square().sum().backward()
    if not host.compares_poses:
        assert matrices.grad is None
        return
    assert matrices.grad is not None
    assert matrices.grad.isfinite().all()
    assert matrices.grad[..., :3, :].abs().max() > 1e-6


def test_gradients_reach_the_calibration(mixed_views):
    views = mixed_views(lenses=("fisheye",), poses=False)
    params = views.cameras[0].params.clone().requires_grad_()
    camera = type(views.cameras[0])(params, 48, 48)
    tokens = Views([camera]).tokens(PATCH)
    q, k, v, _ = inputs(tokens)

    def energy(values):
        turned = Views([type(camera)(values, 48, 48)]).tokens(PATCH)
        return (
            attention(q.detach(), k.detach(), v.detach(), encoding("gray", DIM, scale=5.0).prepare(turned))
            .square()
            .sum()
        )

    (gradient,) = torch.autograd.grad(energy(params), params)
    step = torch.zeros_like(params)
    step[4] = 1e-6
    numeric = (energy(params + step) - energy(params - step)) / 2e-6
    assert abs(gradient[4] - numeric) < 1e-4 * abs(numeric)


def test_without_position_it_is_plain_attention():
    q, k, v = torch.randn(3, 1, 2, 7, 8).unbind(0)
    assert torch.equal(attention(q, k, v), F.scaled_dot_product_attention(q, k, v))


@every_encoding
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(name, dtype, mixed_views):
    tokens = mixed_views(dtype=torch.float32).tokens(PATCH)
    q, k, v, raw = inputs(tokens, torch.float32)
    exact = attention(q, k, v, with_depth(encoding(name, DIM).prepare(tokens), raw))
    half = [part.detach().to(dtype).requires_grad_() for part in (q, k, v, raw[0])]
    with torch.autocast("cpu", dtype):
        position = encoding(name, DIM).prepare(tokens)
        out = attention(*half[:3], with_depth(position, [half[3]]))
        cast = attention(q, k, v, with_depth(position, raw))
    assert out.dtype == cast.dtype == dtype
    # PRoPE and GTA multiply features with matrices that are no rotations: half precision of theirs is coarser.
    scale = exact.abs().max()
    assert (out - exact).abs().max() < 0.1 * scale
    gradients = torch.autograd.grad(out.float().sum(), half[:3])
    assert all(g.dtype == dtype and g.isfinite().all() for g in gradients)


@every_encoding
def test_autocast_does_not_reach_phases(name, mixed_views):
    tokens = mixed_views(dtype=torch.float32).tokens(PATCH)
    raw = torch.randn(2, len(tokens), 2)
    tensors = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            position = encoding(name, DIM).prepare(tokens)
            if isinstance(position, PerCamera):
                ends = position.with_depth(raw).get_depth_ends()
                entries = (
                    position.compute_query_rotation(ends[0]).entries()
                    + position.compute_key_rotation(1, ends[1]).entries()
                )
            else:
                entries = position.query.entries() + position.key.entries()
        tensors.append(entries)
    for plain, half in zip(*tensors, strict=True):
        assert half.dtype == torch.float32
        assert torch.equal(plain, half)


@every_encoding
def test_float32_is_close_to_float64(name, mixed_views):
    outputs = []
    for dtype in (torch.float32, torch.float64):
        tokens = mixed_views(dtype=torch.float64).tokens(PATCH)
        cameras = [camera.to(dtype=dtype) for camera in tokens.views.cameras]
        tokens = Views(cameras, tokens.views.poses.to(dtype)).tokens(PATCH)
        q, k, v, raw = inputs(tokens, dtype)
        outputs.append(attention(q, k, v, with_depth(encoding(name, DIM).prepare(tokens), raw)))
    assert outputs[0].dtype == torch.float32
    assert (outputs[0] - outputs[1]).abs().max() < 2e-3 * outputs[1].abs().max()


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """The largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in torch.utils._pytree.tree_leaves(result):
            if isinstance(part, torch.Tensor):
                self.numel = max(self.numel, part.untyped_storage().nbytes() // part.element_size())
        return result


@pytest.mark.parametrize("name", ["gray", "gta"])
def test_chunks_bound_memory_where_the_backend_holds_all_scores(name, mixed_views):
    tokens = mixed_views(lenses=("wide",) * 8, dtype=torch.float32).tokens(4)  # 8 · 96 tokens
    q, k, v, _ = inputs(tokens, torch.float32)
    position = encoding(name, DIM).prepare(tokens)
    largest = {}
    for chunk in (None, 32):
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), LargestTensor() as mode:
            attention(q, k, v, position, query_chunk=chunk)
        largest[chunk] = mode.numel
    scores = q.shape[0] * HEADS * len(tokens) ** 2
    assert largest[None] >= scores
    assert largest[32] <= max(q.numel(), scores * 32 // len(tokens))


@every_encoding
def test_module(name, mixed_views):
    tokens = mixed_views(dtype=torch.float32).tokens(PATCH, special=1)
    torch.manual_seed(0)
    kind = encoding(name, 24)
    block = MultiHeadAttention(48, kind, qk_norm=True)
    x = torch.randn(2, len(tokens), 48, requires_grad=True)
    position = kind.prepare(tokens)
    out = block(x, position)
    out.square().mean().backward()
    assert out.shape == x.shape
    assert all(p.grad is not None and p.grad.isfinite().all() for p in block.parameters())
    assert not list(block.buffers())
    block.zero_grad()


@every_encoding
def test_views_of_batch_one_serve_any_batch(name, mixed_views):
    """A fixed rig: one calibration for all samples."""
    views = mixed_views(lenses=("wide", "tele"), batch=1)
    one = views.tokens(PATCH, special=1)
    many = Views(views.cameras, Pose(views.poses.world_from_cam.expand(3, 2, 4, 4))).tokens(PATCH, special=1)
    q, k, v, raw = inputs(many)
    outputs = [
        attention(q, k, v, with_depth(encoding(name, DIM).prepare(tokens), raw)) for tokens in (one, many)
    ]
    assert (outputs[0] - outputs[1]).abs().max() < 1e-12


@pytest.mark.parametrize("rotate_values", [True, False])
def test_gradients_of_many_cameras_add_up_in_float32(rotate_values, mixed_views):
    """Sixteen bf16 summands in bf16 would lose a digit."""
    tokens = mixed_views(lenses=("wide", "tele") * 8, batch=1, dtype=torch.float32).tokens(PATCH)
    q, k, v, raw = inputs(tokens, torch.float32)
    position = (
        encoding("rayrope_gray", DIM, rotate_values=rotate_values).prepare(tokens).with_depth(raw[0].detach())
    )
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [part.detach().bfloat16().to(dtype).requires_grad_() for part in (q, k, v)]
        gradients.append(
            torch.autograd.grad(attention(*leaves, position).float().sum(), leaves[2])[0].float()
        )
    assert (gradients[0] - gradients[1]).norm() < 6e-3 * gradients[0].norm()
