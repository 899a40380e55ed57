"""Novel-view synthesis from rooms: batches are functions of (seed, step, rank)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8

from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.random_room import make_random_room
from g_ray.demo.room import Room
from g_ray.geometry.pose import Pose
from g_ray_lab.sources.arc_views import ArcDraws, ArcNVS
from g_ray_lab.sources.nvs_settings import RoomsData


@dataclass(frozen=True)
class RoomsNVS(ArcNVS):
    """Views around the furniture of procedural rooms."""

    NAME = "room"

    settings: RoomsData

    def draw_scene(self, number: int, rank: int) -> "SceneDraws":
        return SceneDraws(self, number, rank)

    def render(
        self, draws: Sequence[ArcDraws], camera: Pinhole, poses: Pose
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        rooms = Room.stack(
            [make_random_room(draw.content, self.settings.solids, coarse=True) for draw in draws]
        )
        rgb = rooms.render(camera, poses.to(torch.float32), self.settings.antialias).rgb.movedim(-1, -3)
        return (255 * rgb).round().to(torch.uint8).contiguous().numpy()


class SceneDraws(ArcDraws):
    """All random numbers of a room, whose seed is `content`, and its views.

    Cameras look at about their own height: a zoomed view shows what a wide one shows, and not the furniture on the
    floor alone.
    """

    LEVEL = -0.2

    def draw_aim(self) -> Float[np.ndarray, "3"]:
        return self.random.uniform(-1, 1, 3) * (1.0, 0.5, 1.0)
