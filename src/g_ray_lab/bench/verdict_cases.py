"""Cases of `bench_verdicts`: photographs with true cameras, poses and depth, and what a user gives with them.

Rendered rooms have exact truth. Of the real sets, a kitchen has the depth of a Kinect and a castle has points of
structure from motion. Limits and constants were chosen on the cases with `chosen_on`; the others report.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.datasets.real_small import KITCHEN, SCEAUX, list_real_small, read_real_small

WIDTH, HEIGHT = 320, 240
CENTER = {"cx": WIDTH / 2, "cy": HEIGHT / 2, "dtype": torch.float64}
LENSES: dict[str, Camera] = {
    "pinhole": Pinhole.make(WIDTH, HEIGHT, fx=192.0, fy=192.0, **CENTER),
    "distorted": OpenCV.make(WIDTH, HEIGHT, fx=200.0, fy=200.0, k1=-0.15, k2=0.02, **CENTER),
    "fisheye": OpenCVFisheye.make(WIDTH, HEIGHT, fx=132.0, fy=132.0, k1=0.02, k2=-0.003, **CENTER),
}
REAL_SIDE = 480
"""Long side of real photographs, in pixels."""
Photographs = Callable[[], tuple[View, ...]]
"""Makes views with true camera, pose and depth along the rays, 0 where it is unknown."""


@dataclass(frozen=True)
class Case:
    """Photographs, and what is given with them instead of the truth."""

    name: str
    kind: str
    photographs: Photographs
    chosen_on: bool
    """Whether limits and constants may have been chosen on it."""
    change_lens: Callable[[Camera], Camera] | None = None
    """Gives another lens than the true one."""
    pose_noise: float | None = None
    """Poses are given, turned by this many degrees and moved by two centimeters per degree; None: not given."""
    mirrored: bool = False
    strangers: Photographs | None = None
    """Photographs of another place among them."""

    @property
    def is_flawed(self) -> bool:
        """Whether something that is given is wrong."""
        return self.change_lens is not None or bool(self.pose_noise) or self.strangers is not None

    def load(self) -> list[View]:
        """Load the photographs with the truth; those of another place have no depth."""
        views = list(self.photographs())
        if self.mirrored:
            views = [_mirror(view) for view in views]
        strange = [] if self.strangers is None else self.strangers()
        views += [replace(view, depth=torch.zeros_like(view.load_ray_depth())) for view in strange]
        return [replace(view, name=f"v{number:02d}.png") for number, view in enumerate(views)]

    def give_lens(self, camera: Camera) -> Camera:
        return camera if self.change_lens is None else self.change_lens(camera)

    def give_poses(self, poses: Sequence[Pose]) -> list[Pose] | None:
        return None if self.pose_noise is None else disturb_poses(poses, self.pose_noise)


def list_cases(data: Path | None) -> Iterator[Case]:
    """Yield the cases; those with real photographs only if there is a folder of them."""
    # Cases of a room follow each other: it is rendered once.
    for seed in (1, 3, 0):
        yield from _list_room_cases(seed)
    for seed in (2, 5, 7, 9):
        yield _make_room_case(f"pinhole, room {seed}", "right", seed)
    for seed in (1, 3):
        for lens in ("distorted", "fisheye"):
            yield _make_room_case(f"{lens}, room {seed}", "right", seed, lens)
    for seed in (3, 0):
        for step in (0.05, 0.014, 0.002):
            yield _make_room_case(f"steps of {1000 * step:.0f} mm, room {seed}", "parallax", seed, step=step)
        for baseline in (0.014, 0.002):
            for noise in (None, 0.0):
                given = "" if noise is None else ", poses given"
                yield Case(
                    f"device, {1000 * baseline:.0f} mm, room {seed}{given}",
                    "parallax",
                    partial(photograph_by_device, seed, baseline),
                    is_chosen(seed),
                    pose_noise=noise,
                )
    if data is not None:
        yield from _list_real_cases(data)


def _list_room_cases(seed: int) -> Iterator[Case]:
    yield _make_room_case(f"pinhole, room {seed}", "right", seed)
    for name, change in WRONG_LENSES.items():
        yield _make_room_case(f"{name}, room {seed}", "wrong lens", seed, change_lens=change)
    yield _make_room_case(f"mirrored, room {seed}", "mirrored", seed, mirrored=True)
    for noise in (0.0, 0.3, 1.0, 4.0):
        yield _make_room_case(f"poses off by {noise}°, room {seed}", "given poses", seed, pose_noise=noise)
    count = 1 + seed
    strangers = partial(photograph_room, seed + 100, "pinhole", 0.35, count)
    yield _make_room_case(f"{count} of another room, room {seed}", "mixture", seed, strangers=strangers)


def _list_real_cases(data: Path) -> Iterator[Case]:
    found = list_real_small(data)
    if KITCHEN in found:
        for first in (0, 40, 60):
            load = partial(read_photographs, data, KITCHEN, tuple(range(first, first + 20, 4)))
            name, chosen = f"kitchen, frames {first} to {first + 16}", first < 40
            yield Case(name, "right", load, chosen)
            close = partial(read_photographs, data, KITCHEN, tuple(range(first, first + 4)))
            yield Case(f"kitchen, neighbors from {first}", "parallax", close, chosen)
            if first == 60:
                for lens in ("focal length × 0.7", "focal length × 1.3", "k1 = 0.25"):
                    yield Case(f"{name}, {lens}", "wrong lens", load, chosen, change_lens=WRONG_LENSES[lens])
                for noise in (0.0, 2.0):
                    case = Case(f"{name}, poses off by {noise}°", "given poses", load, chosen)
                    yield replace(case, pose_noise=noise)
                strangers = partial(photograph_room, first, "pinhole", 0.35, 3)
                yield Case(f"{name}, 3 of a room", "mixture", load, chosen, strangers=strangers)
    if SCEAUX in found:
        for frames, chosen in (((0, 1, 2, 3, 4), True), ((6, 7, 8, 9, 10), False)):
            load = partial(read_photographs, data, SCEAUX, frames)
            name = f"Sceaux, photographs {frames[0]} to {frames[-1]}"
            yield Case(name, "right", load, chosen)
            for lens in ("focal length × 0.7", "focal length × 1.3"):
                yield Case(f"{name}, {lens}", "wrong lens", load, chosen, change_lens=WRONG_LENSES[lens])


def is_chosen(seed: int) -> bool:
    """Whether limits may be chosen on a room."""
    return seed % 2 == 0


def _make_room_case(
    name: str,
    kind: str,
    seed: int,
    lens: str = "pinhole",
    step: float = 0.35,
    views: int = 5,
    *,
    change_lens: Callable[[Camera], Camera] | None = None,
    pose_noise: float | None = None,
    mirrored: bool = False,
    strangers: Photographs | None = None,
) -> Case:
    load = partial(photograph_room, seed, lens, step, views)
    return Case(name, kind, load, is_chosen(seed), change_lens, pose_noise, mirrored, strangers)


# Wrong lenses and poses


def _scale_focal(camera: Camera, factor: float) -> Camera:
    params = camera.params.clone()
    params[:2] *= factor
    return replace(camera, params=params)


def _shift_center(camera: Camera, share: float) -> Camera:
    params = camera.params.clone()
    params[2] += share * camera.width
    return replace(camera, params=params)


def _bend(camera: Camera, k1: float) -> Camera:
    fx, fy, cx, cy = camera.params[:4].tolist()
    return OpenCV.make(
        camera.width, camera.height, fx=fx, fy=fy, cx=cx, cy=cy, k1=k1, dtype=camera.params.dtype
    )


WRONG_LENSES: dict[str, Callable[[Camera], Camera]] = {
    "focal length × 0.7": partial(_scale_focal, factor=0.7),
    "focal length × 0.85": partial(_scale_focal, factor=0.85),
    "focal length × 1.15": partial(_scale_focal, factor=1.15),
    "focal length × 1.3": partial(_scale_focal, factor=1.3),
    "k1 = -0.25": partial(_bend, k1=-0.25),
    "k1 = 0.25": partial(_bend, k1=0.25),
    "center off by a tenth": partial(_shift_center, share=0.1),
}


def disturb_poses(poses: Sequence[Pose], degrees: float) -> list[Pose]:
    """Turn and move each pose at random."""
    generator = torch.Generator().manual_seed(1)
    disturbed = []
    for pose in poses:
        turn, shift = torch.randn(2, 3, generator=generator, dtype=torch.float64)
        axis = math.radians(degrees) / math.sqrt(3) * turn
        skew = torch.zeros(3, 3, dtype=torch.float64)
        skew[0, 1], skew[0, 2], skew[1, 2] = -axis[2], axis[1], -axis[0]
        rotation = pose.rotation.double() @ torch.linalg.matrix_exp(skew - skew.mT)
        place = pose.translation.double() + 0.02 * degrees / math.sqrt(3) * shift
        disturbed.append(Pose.from_parts(rotation, place))
    return disturbed


def _mirror(view: View) -> View:
    return replace(view, image=view.load_image().flip(-1), depth=view.load_ray_depth().flip(-1))


# Photographs


@lru_cache(maxsize=4)
def photograph_room(seed: int, lens: str, step: float, count: int) -> tuple[View, ...]:
    """Render a room from places about `step` meters apart; surfaces are 2 to 4 m away."""
    views = []
    for number in range(count):
        # Not on a line: the places of a hand-held camera.
        wobble = 0.3 * math.sin(2.3 * number + seed)
        offset = torch.tensor([0.75 * number, wobble, -0.6 * number + wobble], dtype=torch.float64)
        views.append(_render(seed, LENSES[lens], step * offset))
    return tuple(views)


@lru_cache(maxsize=2)
def photograph_by_device(seed: int, baseline: float) -> tuple[View, ...]:
    """Render a room by a pinhole between two fisheyes on one device, at two instants as far apart as the cameras."""
    views = []
    for instant in range(2):
        for place, lens in ((-1.0, "fisheye"), (0.0, "pinhole"), (1.0, "fisheye")):
            offset = torch.tensor([place, 0.4 * instant, 0.9 * instant], dtype=torch.float64)
            views.append(_render(seed, LENSES[lens], baseline * offset))
    return tuple(views)


def _render(seed: int, camera: Camera, offset: torch.Tensor) -> View:
    eye = torch.tensor([1.0, -0.2, 1.5], dtype=torch.float64) + offset
    pose = Pose.look_at(eye, torch.tensor([-0.6, 0.4, -0.6], dtype=torch.float64))
    seen = make_random_room(seed).render(camera.to(torch.float32), pose.to(torch.float32))
    image = (255 * seen.rgb.permute(2, 0, 1)).round() / 255
    return View("", camera, pose, "rendered", image.float(), depth=seen.ray_depth.float())


@lru_cache(maxsize=2)
def read_photographs(data: Path, name: str, frames: tuple[int, ...]) -> tuple[View, ...]:
    """Read photographs of a real set, at most REAL_SIDE pixels long."""
    scene, views = read_real_small(data, name), []
    for number in frames:
        frame = scene.frames[number]
        scale = min(1.0, REAL_SIDE / max(frame.camera.width, frame.camera.height))
        size = round(frame.camera.width * scale), round(frame.camera.height * scale)
        view = frame.load_view(Framing.whole(frame.camera, *size))
        depth = torch.where(view.valid, view.ray_depth, 0.0)
        camera = view.camera.to(torch.float64)
        views.append(View("", camera, frame.get_pose(), "real", view.image, depth=depth))
    # One lens, one object: these were taken by one camera.
    return tuple(replace(view, camera=views[0].camera) for view in views)
