"""Views of textured scenes with exact depth, for tests of the stereo."""

import math

import torch

from g_ray.cameras import Camera, Equirectangular, OpenCVFisheye, Pinhole
from g_ray.data.rooms import make_random_room
from g_ray.data.rooms.room import Room
from g_ray.geometry.pose import Pose
from g_ray.stereo import StereoView


def make_lens(kind: str, size: int = 160) -> Camera:
    """A 75° pinhole, a 200° fisheye or a full panorama, in float32."""
    if kind == "pinhole":
        return Pinhole.from_fov(75, size, size * 3 // 4, dtype=torch.float32)
    if kind == "fisheye":
        focal = size / 2 / math.radians(100)
        middle = {"cx": size / 2, "cy": size / 2, "dtype": torch.float32}
        return OpenCVFisheye.make(size, size, fx=focal, fy=focal, **middle)
    return Equirectangular.panorama(size * 3 // 2, size * 3 // 4, dtype=torch.float32)


def render_view(room: Room, camera: Camera, pose: Pose) -> tuple[StereoView, torch.Tensor]:
    """A view and its true ray depth."""
    seen = room.render(camera, pose, antialias=2)
    return StereoView(seen.rgb.permute(2, 0, 1).contiguous(), camera, pose), seen.ray_depth


def place_on_arc(number: int, step: float = 0.2) -> Pose:
    angle = step * number
    eye = (1.5 * math.sin(angle), -0.2 + 0.1 * (number % 2), 1.5 * math.cos(angle))
    return Pose.look_at(eye, (0.1, 0.2, -0.3))


def make_scene(
    cameras: list[Camera], seed: int = 5, step: float = 0.2
) -> tuple[list[StereoView], list[torch.Tensor]]:
    """Views on an arc through a furnished room; smooth waves of color cover everything."""
    room = make_random_room(seed, coarse=True)
    pairs = [
        render_view(room, camera, place_on_arc(number - len(cameras) // 2, step))
        for number, camera in enumerate(cameras)
    ]
    return [view for view, _ in pairs], [depth for _, depth in pairs]


def make_plane(
    camera: Camera, poses: list[Pose], distance: float = 4.0, seed: int = 0
) -> tuple[list[StereoView], list[torch.Tensor]]:
    """A textured plane z = distance in the world, seen by one camera from several poses, with exact ray depth."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.randn(24, 2, generator=generator) * 6
    phases = torch.rand(24, generator=generator) * 2 * math.pi
    rays = camera.to(torch.float64).unproject_grid()[0]
    views, depths = [], []
    for pose in poses:
        directions = rays @ pose.rotation.double().mT
        depth = (distance - pose.translation[2].double()) / directions[..., 2]
        points = pose.translation.double() + depth[..., None] * directions
        value = torch.cos(points[..., :2].float() @ waves.mT + phases).mean(-1) * 1.5 + 0.5
        views.append(StereoView(value.clamp(0, 1).expand(3, -1, -1).contiguous(), camera, pose))
        depths.append(depth.float())
    return views, depths
