"""Properties that every encoding of the registry must have, whatever it is called."""

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.encoding_base import DirectSum
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.nn.conditioning import plucker, raymap
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Tokens, Views

HEADS, DIM, PATCH = 2, 48, 16
EXACT = 1e-10
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


def features(tokens: Tokens, seed: int = 1) -> list[torch.Tensor]:
    """q, k, v and raw depths."""
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens.views.batch, HEADS, len(tokens), DIM)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    raw = torch.randn(shape[0], shape[2], 2, generator=generator, dtype=torch.float64) * 0.5
    return [q, k, v, raw]


def attend(name: str, tokens: Tokens, q, k, v, raw, **options) -> torch.Tensor:
    position = encoding(name, DIM, **options).prepare(tokens)
    if isinstance(position, PerCamera):
        position = position.with_depth(raw)
    return attention(q, k, v, position)


def moved(views: Views, seed: int = 5) -> Views:
    """The same cameras in another world frame."""
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    rotation = rotation * torch.linalg.det(rotation)
    motion = Pose.from_parts(rotation, torch.randn(3, generator=generator, dtype=torch.float64) * 3)
    assert views.poses is not None
    return Views(views.cameras, motion @ views.poses)


@every_encoding
@pytest.mark.parametrize("special", [0, 2])
def test_global_rigid_motion_changes_nothing(name, special, mixed_views):
    views = mixed_views()
    tokens = views.tokens(PATCH, special=special)
    inputs = features(tokens)
    before = attend(name, tokens, *inputs)
    after = attend(name, moved(views).tokens(PATCH, special=special), *inputs)
    assert (before - after).abs().max() < EXACT


def test_absolute_conditioning_sees_the_world_frame_except_camray(mixed_views):
    views = mixed_views(batch=1)
    camera, pose, other = views.cameras[0], views.poses[0, 0], moved(views).poses[0, 0]
    rays = RayMap.from_camera(camera)
    assert (plucker(rays, pose) - plucker(rays, other)).abs().max() > 0.1
    assert (raymap(rays, pose) - raymap(rays, other)).abs().max() > 0.1


@every_encoding
def test_scale_of_the_world_matters_to_pose_based_encodings_only(name, mixed_views):
    views = mixed_views()
    larger = Views(views.cameras, views.poses.scale_translation(2.0))
    inputs = features(views.tokens(PATCH))
    change = attend(name, views.tokens(PATCH), *inputs) - attend(name, larger.tokens(PATCH), *inputs)
    assert (change.abs().max() > 1e-3) == encoding(name, DIM).compares_poses


@every_encoding
def test_permuting_views_permutes_outputs(name, mixed_views):
    views = mixed_views()
    order = [2, 0, 3, 1]
    permuted = Views([views.cameras[i] for i in order], views.poses[:, order])
    tokens, permuted_tokens = views.tokens(PATCH, special=1), permuted.tokens(PATCH, special=1)
    index = torch.cat([(tokens.layout.get_view_of_token() == view).nonzero()[:, 0] for view in order])
    q, k, v, raw = features(tokens)
    expected = attend(name, tokens, q, k, v, raw)[:, :, index]
    got = attend(name, permuted_tokens, q[:, :, index], k[:, :, index], v[:, :, index], raw[:, index])
    assert (got - expected).abs().max() < EXACT


@every_encoding
def test_resizing_image_and_patch_together_changes_nothing(name, mixed_views):
    views = mixed_views()
    finer = Views(
        [camera.resize(3 * camera.width, 2 * camera.height) for camera in views.cameras], views.poses
    )
    inputs = features(views.tokens(PATCH))
    coarse = attend(name, views.tokens(PATCH), *inputs)
    fine = attend(name, finer.tokens((2 * PATCH, 3 * PATCH)), *inputs)
    assert (coarse - fine).abs().max() < EXACT


@every_encoding
def test_a_single_token_attends_to_itself(name):
    camera = Pinhole.make(16, 16, fx=20.0, fy=21.0, cx=7.0, cy=9.0, dtype=torch.float64)
    pose = Pose.look_at(torch.tensor([1.0, 2.0, 3.0]).double(), torch.zeros(3).double())
    tokens = Views([camera], Pose(pose.world_from_cam[None])).tokens(16)
    q, k, v, raw = features(tokens)
    raw[..., 1] = 0.0
    assert (attend(name, tokens, q, k, v, raw) - v).abs().max() < EXACT
    raw[..., 1] = 1.0
    contracted = attend(name, tokens, q, k, v, raw)
    if name.startswith("rayrope"):
        assert (contracted - v).abs().max() > 1e-3
        assert (contracted.norm(dim=-1) <= v.norm(dim=-1)).all()
    else:
        assert (contracted - v).abs().max() < EXACT


@every_encoding
def test_values_can_stay_unrotated(name, mixed_views):
    if name == "none":
        return
    tokens = mixed_views().tokens(PATCH)
    inputs = features(tokens)
    both, keys_only = attend(name, tokens, *inputs), attend(name, tokens, *inputs, rotate_values=False)
    assert (both - keys_only).abs().max() > 1e-3


@every_encoding
def test_tokens_outside_all_views_are_left_alone(name, mixed_views):
    tokens = mixed_views().tokens(PATCH, leading=2, trailing=1)
    q, k, v, raw = features(tokens)
    position = encoding(name, DIM).prepare(tokens)
    outside = [0, 1, len(tokens) - 1]
    if isinstance(position, PerCamera):
        ends = position.with_depth(raw).get_depth_ends()
        rotations = [position.compute_query_rotation(ends[0]), position.compute_key_rotation(1, ends[1])]
        mapped = [rotation.apply(q) for rotation in rotations]
    else:
        mapped = [m.apply(q) for m in (position.query, position.key, position.value, position.output)]
    for x in mapped:
        assert torch.equal(x[:, :, outside], q[:, :, outside])
    # …and special tokens are no patches: their features reach the output of the others.
    k2 = k.clone()
    k2[:, :, 0] += 1.0
    assert not torch.equal(attend(name, tokens, q, k, v, raw), attend(name, tokens, q, k2, v, raw))


@every_encoding
def test_special_tokens_of_a_view_are_not_rotated(name, mixed_views):
    """Only GTA and PRoPE touch them, with their view's camera matrix; no rotary phase does."""
    tokens = mixed_views().tokens(PATCH, special=2)
    q, *_, raw = features(tokens)
    position = encoding(name, DIM).prepare(tokens)
    special = ~tokens.layout.get_patch_mask()
    if isinstance(position, PerCamera):
        ends = position.with_depth(raw).get_depth_ends()
        mapped = [
            position.compute_query_rotation(ends[0]).apply(q),
            position.compute_key_rotation(2, ends[1]).apply(q),
        ]
        start = 0
    else:
        mapped = [position.query.apply(q), position.key.apply(q)]
        start = position.query.widths[0] if isinstance(position.query, DirectSum) else 0
    for x in mapped:
        assert torch.equal(x[:, :, special, start:], q[:, :, special, start:])


@every_encoding
def test_selected_queries_equal_the_same_rows_of_the_whole(name, mixed_views):
    """The last layer of a synthesis model needs outputs of its target views only."""
    tokens = mixed_views().tokens(PATCH, special=1)
    q, k, v, raw = features(tokens)
    whole = attend(name, tokens, q, k, v, raw)
    wanted = torch.isin(tokens.layout.get_view_of_token(), torch.tensor([1, 3])).nonzero()[:, 0]
    position = encoding(name, DIM).prepare(tokens.select([1, 3]), tokens)
    if isinstance(position, PerCamera):
        position = position.with_depth(raw[:, wanted], raw)
    assert (attention(q[:, :, wanted], k, v, position) - whole[:, :, wanted]).abs().max() < EXACT


@every_encoding
def test_preparing_leaves_no_trace(name, mixed_views):
    """No camera state on the encoding: preparing for other views in between changes nothing."""
    kind = encoding(name, DIM)
    tokens = mixed_views().tokens(PATCH)
    inputs = features(tokens)
    first = kind.prepare(tokens)
    kind.prepare(mixed_views(seed=9).tokens(PATCH))
    again = kind.prepare(tokens)
    outputs = [
        attention(*inputs[:3], p.with_depth(inputs[3]) if isinstance(p, PerCamera) else p)
        for p in (first, again)
    ]
    assert torch.equal(*outputs)
