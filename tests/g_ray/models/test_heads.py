"""The heads: each token writes its own pixels, poses are poses, and raw numbers become points as they should."""

import math

import pytest
import torch

from g_ray.models.dpt import DPTHead, embed_position
from g_ray.models.heads import ACTIVATIONS, LinearPointHead, Pointmap, PoseHead, Prediction, get_activation


def test_activations_by_hand():
    raw = torch.tensor([[0.5, -2.0, 0.0], [0.1, 0.2, math.log(3.0)]])
    assert torch.equal(get_activation("linear")(raw), raw)
    expected = [math.exp(0.5) - 1, -(math.exp(2.0) - 1), 0.0]
    assert get_activation("inverse_log")(raw)[0].tolist() == pytest.approx(expected)
    assert get_activation("exponential")(raw)[1, 2].item() == pytest.approx(3.0)
    assert get_activation("depth_first")(raw)[1].tolist() == pytest.approx([0.3, 0.6, 3.0])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_gradients_at_zero(name):
    raw = torch.zeros(2, 3, requires_grad=True)
    get_activation(name)(raw).sum().backward()
    assert raw.grad is not None and raw.grad.isfinite().all()
    assert (raw.grad > 0).all()


def test_confidence_is_at_least_one():
    found = Pointmap.from_raw(
        torch.tensor([[[1.0, 2.0, 3.0, -50.0]], [[0.0, 0.0, 0.0, 0.0]]]), get_activation("linear")
    )
    assert found.points[0, 0].tolist() == [1, 2, 3]
    assert found.confidence.flatten().tolist() == [1.0, 2.0]


def test_a_token_writes_its_own_pixels_and_no_others():
    head = LinearPointHead(16, 4)
    x = torch.randn(2, 6, 16)
    before = head(x, rows=2, columns=3)
    assert before.points.shape == (2, 8, 12, 3) and before.confidence.shape == (2, 8, 12)
    x[1, 4] = -x[1, 4]  # row 1, column 1 of the second image
    changed = (head(x, 2, 3).points != before.points).any(-1)
    wanted = torch.zeros(2, 8, 12, dtype=torch.bool)
    wanted[1, 4:8, 4:8] = True
    assert torch.equal(changed, wanted)


def test_the_pixels_of_a_patch_are_in_order():
    """Channel c, then row, then column of the pixel in its patch."""
    head = LinearPointHead(4, 2, activate="linear")
    with torch.no_grad():
        head.pixels.weight.zero_()
        head.pixels.bias.copy_(torch.arange(16.0))
    found = head(torch.randn(1, 1, 4), 1, 1)
    assert found.points[0, :, :, 0].tolist() == [[0, 1], [2, 3]]
    assert found.points[0, :, :, 2].tolist() == [[8, 9], [10, 11]]


def test_poses_start_near_the_identity_and_are_poses():
    torch.manual_seed(0)
    translation, quaternion = PoseHead(32, 16)(torch.randn(5, 7, 32))
    maps = torch.zeros(5, 2, 2, 3), torch.ones(5, 2, 2)
    poses = Prediction(*maps, *maps, translation, quaternion).poses
    assert torch.allclose(poses.rotation @ poses.rotation.mT, torch.eye(3).expand(5, 3, 3), atol=1e-5)
    assert (quaternion[:, 3] > 0.8).all()


def test_the_pose_pools_what_the_mask_leaves():
    head = PoseHead(32, 16)
    x = torch.randn(2, 6, 32)
    mask = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    found = head(x, mask)
    assert torch.allclose(found[0][0], head(x[:1, :4])[0][0], atol=1e-6)
    assert torch.allclose(found[1][1], head(x[1:])[1][0], atol=1e-6)
    assert torch.allclose(found[0][1], head(x.flip(1))[0][1], atol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 5), (4, 3)])
@pytest.mark.parametrize(("outputs", "activate"), [(3, "inverse_log"), (1, "exponential")])
def test_dpt_for_any_grid_as_points_or_as_depth(rows, columns, outputs, activate):
    head = DPTHead(24, 14, features=8, channels=(4, 8, 8, 8), outputs=outputs, activate=activate)
    found = head([torch.randn(3, rows * columns, 24) for _ in range(4)], rows, columns)
    assert found.points.shape == (3, 14 * rows, 14 * columns, outputs)
    assert found.points.isfinite().all() and (found.confidence >= 1).all()


def test_the_place_embedding_is_antisymmetric_in_its_sines():
    found = embed_position(torch.zeros(1, 8, 3, 5), aspect=5 / 3)
    assert found.shape == (8, 3, 5)
    sines, cosines = found[[0, 1]], found[[2, 3]]
    assert torch.allclose(sines, -sines.flip(-1)) and torch.allclose(cosines, cosines.flip(-1))
    assert torch.allclose(found[4:6], -found[4:6].flip(-2))
    assert found[0, 0, -1].item() == pytest.approx(0.1 * math.sin(5 / math.hypot(5, 3) * 4 / 5), rel=1e-6)
