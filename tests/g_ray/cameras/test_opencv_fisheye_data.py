"""Real chessboard corners through a real fisheye: a calibration fitted through our `project` explains them."""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
import torch
from torch import Tensor

from g_ray.cameras import OpenCVFisheye
from g_ray.geometry.pose import Pose

WIDTH, HEIGHT = 1280, 800


@pytest.mark.parametrize("side", ["left", "right"])
def test_calibration(shared_data, side):
    folder = next(iter(sorted(shared_data.glob("opencv_fisheye/**/object.xml"))), None)
    if folder is None:
        pytest.skip(f"no opencv_fisheye corners in {shared_data}")
    board = _numbers(folder, 3)
    corners = _numbers(folder.with_name(f"{side}.xml"), 2) + 0.5  # OpenCV's pixel centres are integers
    camera, rms = calibrate(board, corners)
    print(f"{side}: {rms:.4f} px rms, {dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))}")
    assert corners.shape == (34, 48, 2)
    assert rms <= 0.30
    assert 120 < float(camera.fov().horizontal_deg) < 145


def calibrate(board: Tensor, corners: Tensor) -> tuple[OpenCVFisheye, float]:
    """Levenberg-Marquardt over one camera and a pose per board, with derivatives by forward-mode autograd."""
    start = OpenCVFisheye.make(
        WIDTH, HEIGHT, fx=520, fy=520, cx=WIDTH / 2, cy=HEIGHT / 2, dtype=torch.float64
    )
    params, boards = start.params, _poses(start, board, corners)
    damping, cost = 1e-3, float(_residuals(params, _still(boards), boards, board, corners).square().sum())
    for _ in range(40):
        hessian, gradient = _normal_equations(params, boards, board, corners)
        step = -torch.linalg.solve(hessian + damping * torch.diag(hessian.diagonal()), gradient)
        new_params, new_boards = params + step[:8], _moved(boards, step[8:].view(-1, 6))
        new_cost = float(_residuals(new_params, _still(boards), new_boards, board, corners).square().sum())
        if new_cost < cost:
            converged = cost - new_cost < 1e-9 * cost
            params, boards, cost, damping = new_params, new_boards, new_cost, damping / 10
            if converged:
                break
        else:
            damping *= 10
    return OpenCVFisheye(params, WIDTH, HEIGHT), (cost / corners[..., 0].numel()) ** 0.5


def _residuals(params: Tensor, motion: Tensor, boards: Pose, board: Tensor, corners: Tensor) -> Tensor:
    """Pixels [board corner 2]; `motion` [board 6] is a small rotation and translation after the poses."""
    camera = OpenCVFisheye(params.expand(len(corners), 8), WIDTH, HEIGHT, check=False)
    pixels, valid = camera.project(_moved(boards, motion).apply(board))
    assert valid.all()
    return pixels - corners


def _normal_equations(params: Tensor, boards: Pose, board: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    count, still = len(corners), _still(boards)
    jacobian = torch.zeros(count, corners[0].numel(), 8 + 6 * count, dtype=torch.float64)
    for i in range(14):
        tangents = torch.zeros_like(params), torch.zeros_like(still)
        (tangents[0] if i < 8 else tangents[1].T)[i if i < 8 else i - 8] = 1
        value, column = torch.func.jvp(
            lambda p, m: _residuals(p, m, boards, board, corners), (params, still), tangents
        )
        for b in range(count) if i >= 8 else [slice(None)]:
            jacobian[b, :, i if i < 8 else 8 + 6 * b + i - 8] = column[b].flatten(-2)
    flat = jacobian.flatten(0, 1)
    return flat.T @ flat, flat.T @ value.flatten()


def _moved(boards: Pose, motion: Tensor) -> Pose:
    x, y, z = motion[:, :3].unbind(-1)
    o = torch.zeros_like(x)
    skew = torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).view(-1, 3, 3)
    return Pose.from_parts(
        torch.linalg.matrix_exp(skew) @ boards.rotation, boards.translation + motion[:, 3:]
    )


def _still(boards: Pose) -> Tensor:
    return torch.zeros(len(boards.world_from_cam), 6, dtype=torch.float64)


def _poses(camera: OpenCVFisheye, board: Tensor, corners: Tensor) -> Pose:
    """Pose of each plane from its homography to the rays of a first guess of the camera: ray x (H X) = 0."""
    rays, _ = camera.unproject(corners)
    plane = torch.cat([board[..., :2], torch.ones_like(board[..., :1])], -1)
    x, y, z = rays.unbind(-1)
    o = torch.zeros_like(x)
    cross = torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))
    system = torch.einsum("bnij,bnk->bnijk", cross, plane).flatten(-2).flatten(1, 2)
    h = torch.linalg.svd(system).Vh[:, -1].view(-1, 3, 3)
    h = h / h[:, :, :2].norm(dim=1).mean(-1)[:, None, None]
    h = h * torch.sign(torch.einsum("bni,bij,bnj->b", rays, h, plane))[:, None, None]
    u, _, vh = torch.linalg.svd(
        torch.cat([h[:, :, :2], torch.linalg.cross(h[:, :, 0], h[:, :, 1])[..., None]], -1)
    )
    rotation = (
        u @ torch.diag_embed(torch.stack([o[:, 0] + 1, o[:, 0] + 1, torch.linalg.det(u @ vh)], -1)) @ vh
    )
    return Pose.from_parts(rotation, h[:, :, 2])


def _numbers(path: Path, size: int) -> Tensor:
    """The matrices image_0, image_1, … of an OpenCV storage file."""
    nodes = [[float(word) for word in (node.text or "").split()] for node in xml.parse(path).getroot()]
    return torch.tensor(nodes, dtype=torch.float64).unflatten(-1, (-1, size))
