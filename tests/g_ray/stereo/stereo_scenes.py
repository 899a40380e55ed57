"""Views of textured scenes with exact depth, for tests of the stereo."""

import math

import torch

from g_ray.cameras import Camera, Equirectangular, OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.view import View


def make_view(image, camera, pose, mask=None) -> View:
    return View("view.png", camera, pose, image=image, mask=mask)


def make_lens(kind: str, size: int = 160) -> Camera:
    """A 75° pinhole, a 200° fisheye or a full panorama, in float32."""
    if kind == "pinhole":
        return Pinhole.from_fov(75, size, size * 3 // 4, dtype=torch.float32)
    if kind == "fisheye":
        focal = size / 2 / math.radians(100)
        middle = {"cx": size / 2, "cy": size / 2, "dtype": torch.float32}
        return OpenCVFisheye.make(size, size, fx=focal, fy=focal, **middle)
    return Equirectangular.panorama(size * 3 // 2, size * 3 // 4, dtype=torch.float32)


def paint(points: torch.Tensor, wavelength: float = 0.5, seed: int = 0) -> torch.Tensor:
    """Gray values of a solid texture, a sum of waves of many directions, as an image [3, h, w]."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.nn.functional.normalize(torch.randn(32, 3, generator=generator), dim=-1)
    waves *= 2 * math.pi / wavelength * (0.6 + torch.rand(32, 1, generator=generator))
    phases = torch.rand(32, generator=generator) * 2 * math.pi
    value = torch.cos(points.float() @ waves.mT + phases).mean(-1) * 1.6 + 0.5
    return value.clamp(0, 1).expand(3, -1, -1).contiguous()


def place_on_arc(number: int, step: float) -> Pose:
    angle = step * number
    eye = (1.5 * math.sin(angle), -0.2 + 0.1 * (number % 2), 1.5 * math.cos(angle))
    return Pose.look_at(eye, (0.1, 0.2, -0.3))


def make_scene(
    cameras: list[Camera], seed: int = 5, step: float = 0.2
) -> tuple[list[View], list[torch.Tensor]]:
    """Views on an arc through a furnished room with texture everywhere, and their true ray depth."""
    room, views, depths = make_random_room(seed, coarse=True), [], []
    for number, camera in enumerate(cameras):
        pose = place_on_arc(number - len(cameras) // 2, step)
        seen = room.render(camera, pose)
        views.append(make_view(paint(seen.points), camera, pose))
        depths.append(seen.ray_depth)
    return views, depths


def make_plane(
    camera: Camera, poses: list[Pose], distance: float = 4.0
) -> tuple[list[View], list[torch.Tensor]]:
    """A textured plane z = distance in the world, seen by one camera from several poses, with exact ray depth."""
    rays = camera.to(torch.float64).unproject_grid()[0]
    views, depths = [], []
    for pose in poses:
        directions = rays @ pose.rotation.double().mT
        depth = (distance - pose.translation[2].double()) / directions[..., 2]
        points = pose.translation.double() + depth[..., None] * directions
        views.append(make_view(paint(points), camera, pose))
        depths.append(depth.float())
    return views, depths
