"""Pose is a group: closure, identity, inverse, associativity."""

import pytest
import torch

from g_ray.geometry.pose import Pose


def random_pose(seed: int, batch: tuple[int, ...], dtype: torch.dtype) -> Pose:
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(*batch, 3, 3, generator=generator, dtype=dtype))
    rotation = rotation * torch.linalg.det(rotation)[..., None, None]
    return Pose.from_parts(rotation, torch.randn(*batch, 3, generator=generator, dtype=dtype))


def close(a: Pose, b: Pose) -> bool:
    tolerance = 1e-12 if a.dtype == torch.float64 else 1e-5
    return torch.allclose(a.world_from_cam, b.world_from_cam, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_group_axioms(batch, dtype):
    a, b, c = (random_pose(seed, batch, dtype) for seed in range(3))
    identity = Pose.identity(*batch, dtype=dtype)
    assert close(a @ identity, a) and close(identity @ a, a)
    assert close(a @ a.inverse(), identity) and close(a.inverse() @ a, identity)
    assert close((a @ b) @ c, a @ (b @ c))
    assert close((a @ b).inverse(), b.inverse() @ a.inverse())
    assert close(Pose(torch.linalg.inv(a.world_from_cam)), Pose(a.cam_from_world))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_apply_is_the_matrix_product(batch):
    a, b = random_pose(0, batch, torch.float64), random_pose(1, batch, torch.float64)
    points = torch.randn(*batch, 5, 4, 3, dtype=torch.float64)
    homogeneous = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    expected = torch.einsum("...ij,...nmj->...nmi", a.world_from_cam, homogeneous)[..., :3]
    torch.testing.assert_close(a.apply(points), expected)
    torch.testing.assert_close((a @ b).apply(points), a.apply(b.apply(points)))
    torch.testing.assert_close(a.rotate(points), a.apply(points) - a.translation[..., None, None, :])


def test_look_at():
    eye, target = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([4.0, 0.0, -1.0])
    pose = Pose.look_at(eye, target)
    seen = pose.inverse().apply(target)
    torch.testing.assert_close(seen[:2], torch.zeros(2), atol=1e-5, rtol=0)
    assert seen[2] > 0 and pose.rotation[1, 1] > 0
    torch.testing.assert_close(torch.linalg.det(pose.rotation), torch.tensor(1.0))
    torch.testing.assert_close(Pose.look_at((0, 0, 0), (0, 0, 1)).world_from_cam, torch.eye(4))


def test_relative_to_first_and_scaled():
    poses = random_pose(0, (2, 4), torch.float64)
    relative = poses.relative_to_first()
    assert close(relative[:, 0], Pose.identity(2, dtype=torch.float64))
    assert close(poses[:, :1] @ relative, poses)
    torch.testing.assert_close(poses.scale_translation(2.0).translation, 2 * poses.translation)
    torch.testing.assert_close(poses.scale_translation(torch.ones(2, 4)).world_from_cam, poses.world_from_cam)


def test_index_and_to():
    poses = random_pose(0, (2, 4), torch.float64)
    assert poses[1].batch_shape == (4,) and poses[..., 2].batch_shape == (2,)
    assert poses.to(torch.float32).dtype == torch.float32


def test_refusals():
    with pytest.raises(ValueError, match="parallel"):
        Pose.look_at((0, 0, 0), (0, 1, 0))
    with pytest.raises(ValueError, match="batch"):
        Pose.identity(3).apply(torch.zeros(3))
    with pytest.raises(ValueError, match="no batch axis"):
        Pose.identity().relative_to_first()
