"""The models we share with COLMAP and OpenCV give the same numbers, on random parameters, to 1e-6 px and 1e-6."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from g_ray.cameras import CAMERAS, Equirectangular, OpenCV, OpenCVFisheye, Pinhole

COLMAP = {
    "pinhole": ("PINHOLE", 4),
    "opencv": ("FULL_OPENCV", 12),
    "opencv_fisheye": ("OPENCV_FISHEYE", 8),
    "thin_prism_fisheye": ("THIN_PRISM_FISHEYE", 12),
    "fisheye624": ("RAD_TAN_THIN_PRISM_FISHEYE", 16),
    "eucm": ("EUCM", 6),
    "fov": ("FOV", 5),
    "division": ("DIVISION", 5),
}
seeds = given(seed=st.integers(0, 10_000))
few = settings(max_examples=10)


def shared_example(name: str, seed: int):
    """A camera without the parameters that COLMAP does not have, and its parameters in COLMAP's order."""
    camera = CAMERAS[name].example(seed, 640, 480)
    params = camera.params.clone()
    params[COLMAP[name][1] :] = 0
    return CAMERAS[name](params, 640, 480), params[: COLMAP[name][1]].numpy()


def front_rays(camera, seed: int, n: int = 200):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(n, 2, generator=generator, dtype=torch.float64) * torch.tensor([640.0, 480.0])
    rays, valid = camera.unproject(pixels)
    front = valid & (rays[:, 2] > 0.1)
    return pixels[front], rays[front]


@pytest.mark.parametrize("name", COLMAP)
@seeds
@few
def test_colmap(name, seed):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap is not installed")
    camera, params = shared_example(name, seed)
    other = pycolmap.Camera(model=COLMAP[name][0], width=640, height=480, params=params)
    pixels, rays = front_rays(camera, seed)
    expected = np.asarray(other.img_from_cam(2.5 * rays.numpy()))
    np.testing.assert_allclose(camera.project(rays)[0].numpy(), expected, atol=1e-6)
    plane = np.asarray(other.cam_from_img(pixels.numpy()))
    np.testing.assert_allclose((rays[:, :2] / rays[:, 2:]).numpy(), plane, atol=1e-6, rtol=1e-6)


def test_colmap_panorama():
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap is not installed")
    other = pycolmap.Camera(model="EQUIRECTANGULAR", width=640, height=320, params=[640.0, 320.0])
    points = torch.randn(500, 3, dtype=torch.float64)
    ours = Equirectangular.panorama(640, 320, dtype=torch.float64).project(points)[0]
    np.testing.assert_allclose(ours.numpy(), np.asarray(other.img_from_cam(points.numpy())), atol=1e-6)


@seeds
@few
def test_opencv(seed):
    """OpenCV counts pixels from the centre of the first one: half a pixel less than we do."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    camera = OpenCV.example(seed, 640, 480)
    pixels, rays = front_rays(camera, seed)
    k, d = (
        camera.central_intrinsics().numpy() - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]],
        camera.params[4:].numpy(),
    )
    projected, _ = cv2.projectPoints(rays.numpy(), np.zeros(3), np.zeros(3), k, d)
    np.testing.assert_allclose(camera.project(rays)[0].numpy(), projected[:, 0] + 0.5, atol=1e-6)
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-12)
    plane = cv2.undistortPoints(pixels.numpy()[:, None] - 0.5, k, d, criteria=criteria)
    np.testing.assert_allclose((rays[:, :2] / rays[:, 2:]).numpy(), plane[:, 0], atol=1e-6)


@seeds
@few
def test_opencv_fisheye(seed):
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    camera = OpenCVFisheye.example(seed, 640, 480)
    pixels, rays = front_rays(camera, seed)
    k, d = (
        camera.central_intrinsics().numpy() - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]],
        camera.params[4:].numpy(),
    )
    projected, _ = cv2.fisheye.projectPoints(rays.numpy()[:, None], np.zeros(3), np.zeros(3), k, d)
    np.testing.assert_allclose(camera.project(rays)[0].numpy(), projected[:, 0] + 0.5, atol=1e-6)
    near = rays[:, 2] > 0.5
    plane = cv2.fisheye.undistortPoints(pixels[near].numpy()[:, None] - 0.5, k, d)
    np.testing.assert_allclose((rays[:, :2] / rays[:, 2:])[near].numpy(), plane[:, 0], atol=1e-6)


def test_pinhole_with_skew_is_the_matrix():
    """eq:intrinsics: U(p) = K⁻¹ p."""
    camera = Pinhole.example(0)
    k = camera.central_intrinsics()
    assert k[0, 1] == camera.parameter("skew") != 0
    pixels = torch.rand(50, 2, dtype=torch.float64) * 40
    rays = torch.linalg.solve(k, torch.cat([pixels, torch.ones(50, 1)], -1).mT.double()).mT
    torch.testing.assert_close(camera.unproject(pixels)[0], torch.nn.functional.normalize(rays, dim=-1))
