"""How the host encodings relate to each other, and to what their authors released."""

import numpy as np
import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.encodings import encoding
from g_ray.encodings.camera_transform import compute_local_intrinsics
from g_ray.encodings.encoding_base import DirectSum
from g_ray.encodings.expected_rotation import PerCamera, compute_depth_interval
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.nn.per_camera_attention import DepthPredictor
from g_ray.nn.transformer import MultiHeadAttention
from g_ray.rays.views import Views

DIM, PATCH = 48, 16


@pytest.fixture(scope="module")
def released(shared_vectors):
    with np.load(shared_vectors / "encodings.npz") as file:
        vectors = {name: torch.from_numpy(file[name]) for name in file.files}
    intrinsics, (width, height) = vectors["intrinsics"], vectors["image_size"].tolist()
    cameras = [
        Pinhole.make(width, height, fx=k[:, 0, 0], fy=k[:, 1, 1], cx=k[:, 0, 2], cy=k[:, 1, 2])
        for k in intrinsics.unbind(1)
    ]
    columns, rows = vectors["grid"].tolist()
    views = Views(cameras, Pose(vectors["cam_from_world"]).inverse())
    return vectors, views.tokens((height // rows, width // columns))


@pytest.mark.parametrize(
    ("name", "answer", "options"),
    [
        ("rope", "out_rope", {}),
        ("gta", "out_gta", {}),
        ("prope", "out_prope", {}),
        ("prope_token", "out_prope", {}),
        ("rayrope", "out_rayrope", {"expectation": "threshold"}),
        ("rayrope", "out_rayrope_qk_only", {"expectation": "threshold", "rotate_values": False}),
        ("rayrope", "out_rayrope_inv_d", {"expectation": "threshold", "depth": "inverse"}),
        ("rayrope", "out_rayrope_asinh_d", {"expectation": "threshold", "depth": "asinh"}),
    ],
)
def test_released_operators_answer_the_same(released, name, answer, options):
    vectors, tokens = released
    out = attend_released(vectors, encoding(name, DIM, sign=-1, **options).prepare(tokens))
    expected = vectors[answer]
    assert (out - expected).abs().max() / expected.abs().max() < 1e-9


def test_smooth_expectation_is_close_to_the_released_threshold(released):
    """The threshold of the released code costs about 2.5e-4 of the output (root mean square)."""
    vectors, tokens = released
    out = attend_released(vectors, encoding("rayrope", DIM, sign=-1).prepare(tokens))
    expected = vectors["out_rayrope"]
    relative = (out - expected).norm() / expected.norm()
    assert 1e-5 < relative < 1e-3


def attend_released(vectors, position):
    if isinstance(position, PerCamera):
        position = position.with_depth(vectors["raw_depth"])
    return attention(vectors["q"], vectors["k"], vectors["v"], position)


def random_features(tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens.views.batch, 2, len(tokens), DIM)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]


def pinhole_views(count, seed=0, **parameters):
    generator = torch.Generator().manual_seed(seed)
    cameras = [Pinhole.make(32, 32, dtype=torch.float64, **parameters) for _ in range(count)]
    eyes, targets = (torch.randn(count, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return Views(cameras, Pose.look_at(eyes, targets + torch.tensor([0.0, 0.0, 5.0], dtype=torch.float64)))


def test_prope_with_the_identity_pinhole_is_gta():
    """fx/W = fy/H = 1 and cx/W = cy/H = ½ make K' the identity."""
    tokens = pinhole_views(3, fx=32.0, fy=32.0, cx=16.0, cy=16.0).tokens(8)
    q, k, v = random_features(tokens)
    outputs = [
        attention(q, k, v, encoding(name, DIM).prepare(tokens)) for name in ("gta", "prope", "prope_token")
    ]
    assert (outputs[0] - outputs[1]).abs().max() < 1e-10
    assert (outputs[0] - outputs[2]).abs().max() < 1e-10


def test_prope_per_token_is_prope_for_pinholes(mixed_views):
    tokens = mixed_views(lenses=("wide", "tele", "tele")).tokens(PATCH, special=1, leading=1)
    q, k, v = random_features(tokens)
    per_view, per_token = (encoding(name, DIM).prepare(tokens) for name in ("prope", "prope_token"))
    assert (attention(q, k, v, per_view) - attention(q, k, v, per_token)).abs().max() < 1e-10


def test_local_pinholes_of_a_fisheye_differ_from_its_centre(mixed_views):
    tokens = mixed_views(lenses=("fisheye",)).tokens(8)
    local = compute_local_intrinsics(tokens)[0, :, 0, 0]
    central = tokens.views.intrinsics()[0, 0, 0, 0]
    assert (local / central).min() < 0.7  # a fisheye compresses its edge


def test_identical_cameras_have_an_identity_camera_block():
    views = pinhole_views(1, fx=30.0, fy=30.0, cx=16.0, cy=15.0)
    twice = Views([views.cameras[0]] * 2, views.poses[[0, 0]])
    tokens = twice.tokens(8)
    for name in ("gta", "prope"):
        position = encoding(name, DIM).prepare(tokens)
        q, k, _ = random_features(tokens)
        assert isinstance(position.query, DirectSum)
        scores = position.query.apply(q)[..., : DIM // 2] @ position.key.apply(k)[..., : DIM // 2].mT
        assert (scores - q[..., : DIM // 2] @ k[..., : DIM // 2].mT).abs().max() < 1e-10


def test_gta_at_the_origin_is_half_rope():
    tokens = Views(pinhole_views(2, fx=30.0, fy=30.0, cx=16.0, cy=16.0).cameras, Pose.identity(2)).tokens(8)
    k = random_features(tokens)[1]
    gta = encoding("gta", DIM).prepare(tokens)
    rope = encoding("rope", DIM // 2).prepare(tokens)
    plain, turned = slice(0, DIM // 2), slice(DIM // 2, DIM)
    assert torch.equal(gta.key.apply(k)[..., plain], k[..., plain])
    assert (gta.key.apply(k)[..., turned] - rope.key.apply(k[..., turned])).abs().max() < 1e-12


def test_no_uncertainty_is_the_rotation_itself(mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(PATCH)
    raw = torch.randn(2, len(tokens), 2, dtype=torch.float64)
    raw[..., 1] = 0.0
    for name in ("rayrope", "rayrope_gray"):
        position = encoding(name, DIM).prepare(tokens).with_depth(raw)
        for rotation in (
            position.compute_query_rotation(position.get_depth_ends()[0]),
            position.compute_key_rotation(1, position.get_depth_ends()[1]),
        ):
            assert (rotation.cos.square() + rotation.sin.square() - 1).abs().max() < 1e-10


@pytest.mark.parametrize("name", ["rayrope", "rayrope_gray"])
def test_negative_uncertainty_swaps_the_ends(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(PATCH)
    raw = torch.randn(2, len(tokens), 2, dtype=torch.float64)
    q, k, v = random_features(tokens)
    outputs = [
        attention(q, k, v, encoding(name, DIM).prepare(tokens).with_depth(raw * raw.new_tensor([1.0, sign])))
        for sign in (1.0, -1.0)
    ]
    assert (outputs[0] - outputs[1]).abs().max() < 1e-10


def test_angular_interval_across_the_branch_cut_is_short():
    """A point behind the query camera that passes from θx = −π + ε to π − ε moved by 2ε, not by nearly 2π."""
    cameras = [Pinhole.from_fov(60.0, 16, 16).to(dtype=torch.float64) for _ in range(2)]
    eyes = torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0]], dtype=torch.float64)
    facing_away = Pose.look_at(eyes, eyes + torch.tensor([[0.0, 0.0, 1.0], [-0.05, 0.0, -1.0]]).double())
    tokens = Views(cameras, facing_away).tokens(16)
    raw = torch.tensor([0.0, 2.0], dtype=torch.float64).expand(1, len(tokens), 2)
    position = encoding("rayrope_gray", DIM).prepare(tokens).with_depth(raw)
    rotation = position.compute_key_rotation(0, position.get_depth_ends()[1])
    # Lowest angular frequency 0.5: an interval of nearly 2π would shrink E to sinc(π/2) = 0.64.
    size = (rotation.cos.square() + rotation.sin.square()).sqrt()[0, 0, 1, 0]
    theta_x = [3, 5, 7]  # of the three samples, lowest frequency
    assert size[theta_x].min() > 0.9


@pytest.mark.parametrize("ahead", [True, False])
def test_clamped_angles_end_where_points_are_behind(ahead):
    """In front nothing changes; behind, θ is ±π/2 and the lowest frequency ½ turns by π/4."""
    cameras = [Pinhole.from_fov(60.0, 16, 16).to(dtype=torch.float64) for _ in range(2)]
    eyes = torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.2, 0.0]], dtype=torch.float64)
    forward = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0 if ahead else -1.0]]).double()
    tokens = Views(cameras, Pose.look_at(eyes, eyes + forward)).tokens(16)
    raw = torch.zeros(1, len(tokens), 2, dtype=torch.float64)  # depth 1, without an interval
    full, clamped = (
        encoding("rayrope_gray", DIM, clamp_angles=clamp).prepare(tokens).with_depth(raw)
        for clamp in (False, True)
    )
    ends = full.get_depth_ends()[1]
    before, after = (position.compute_key_rotation(0, ends) for position in (full, clamped))
    if ahead:
        assert torch.equal(before.cos, after.cos) and torch.equal(before.sin, after.sin)
    else:
        angles = slice(3, 9)  # of three samples, lowest frequency
        half = torch.full((6,), 0.5, dtype=torch.float64)
        assert torch.allclose(after.cos[0, 0, 1, 0, angles].square(), half)
        assert torch.allclose(after.sin[0, 0, 1, 0, angles].square(), half)
        assert not torch.allclose(before.cos[0, 0, 1, 0, angles].square(), half, atol=1e-2)


def test_clamped_angles_need_angles():
    with pytest.raises(ValueError, match="limits ray angles"):
        encoding("rayrope", DIM, clamp_angles=True)


def test_depth_predictor_starts_undecided_and_learns_at_once():
    predictor = DepthPredictor(32)
    raw = predictor(torch.randn(2, 5, 32))
    ends = compute_depth_interval(raw)
    assert torch.allclose(ends[..., 0], torch.tensor(-3.0).exp())
    assert torch.allclose(ends[..., 1], torch.tensor(3.0).exp())


@pytest.mark.parametrize("name", ["rayrope", "rayrope_gray"])
def test_first_gradient_of_the_depth_predictor_is_not_zero(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele"), dtype=torch.float32).tokens(PATCH)
    torch.manual_seed(0)
    kind = encoding(name, 24)
    block = MultiHeadAttention(48, kind, qk_norm=True)
    block(torch.randn(2, len(tokens), 48), kind.prepare(tokens)).square().mean().backward()
    assert block.depth is not None
    assert block.depth.linear.weight.grad.abs().max() > 0
    assert block.depth.linear.weight.grad.isfinite().all()


def test_known_depths_replace_predicted_ones(mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(PATCH)
    raw = torch.randn(2, len(tokens), 2, dtype=torch.float64)
    known = torch.full((2, len(tokens)), float("nan"), dtype=torch.float64)
    known[:, :3] = 2.5
    ends, _ = encoding("rayrope", DIM).prepare(tokens).with_depth(raw, known=known).get_depth_ends()
    assert (ends[:, :3] == 2.5).all()
    assert torch.equal(ends[:, 3:], compute_depth_interval(raw)[:, 3:])


def test_rayrope_along_the_ray_takes_any_lens(mixed_views):
    tokens = mixed_views().tokens(PATCH)
    q, k, v = random_features(tokens)
    raw = torch.randn(2, len(tokens), 2, dtype=torch.float64)
    for name in ("rayrope", "rayrope_gray"):
        out = attention(q, k, v, encoding(name, DIM, along="ray").prepare(tokens).with_depth(raw))
        assert out.isfinite().all()
