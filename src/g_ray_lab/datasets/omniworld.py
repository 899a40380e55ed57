"""Read OmniWorld-Game: sequences from games.

SCENE/split_info.json          split: lists of frame numbers
SCENE/camera/split_0.json      focals, cx, cy, quats (w x y z) and trans of a split's frames: cam_from_world, OpenCV
SCENE/color/000000.png
SCENE/depth/000000.png         16 bits, u = number / 65535: z = u / (1000 − 999 u) / 0.004; below 0.0015 (too near) and
                               above 65500 (sky) is none

Splits have worlds of their own, so the longest one alone is read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import parse_number, parse_numbers, read_json_object
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_pose, make_recorded_view
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size

TITLE = "OmniWorld-Game"
SPLITS = "split_info.json"
WHITE, NEAREST, SKY = 65535, 0.0015, 65500
NEAR, FAR, SCALE = 1.0, 1000.0, 0.004


@dataclass(frozen=True)
class GameDepthFile(DepthFile):
    """A buffer of a game's renderer, between its near and its far plane."""

    def read(self) -> Float[Tensor, "h w"]:
        unit = super().read() / WHITE
        depth = unit / (FAR - unit * (FAR - NEAR)) / SCALE
        return torch.where((unit >= NEAREST) & (unit <= SKY / WHITE), depth, 0)


def is_omniworld(folder: Path) -> bool:
    return (folder / SPLITS).is_file() and (folder / "camera").is_dir()


def read_omniworld(folder: Path, check: bool = True) -> PosedScene:
    """Read the longest split; ValueError, in one line with the file, if anything is wrong."""
    splits = read_json_object(folder / SPLITS, "splits of OmniWorld-Game").get("split")
    if not isinstance(splits, list) or not splits or not all(isinstance(split, list) for split in splits):
        raise ValueError(f"{folder / SPLITS}: no lists of frames under split; unpack the scene again")
    longest = max(range(len(splits)), key=lambda index: len(splits[index]))
    frames = [int(parse_number(frame, "a frame")) for frame in splits[longest]]
    path = folder / "camera" / f"split_{longest}.json"
    document = read_json_object(path, "cameras of OmniWorld-Game")
    lists: dict[str, Any] = {name: document.get(name) for name in ("focals", "quats", "trans")}
    if any(not isinstance(values, list) or len(values) != len(frames) for values in lists.values()):
        raise ValueError(f"{path}: not {len(frames)} of each of {', '.join(lists)}; unpack the scene again")
    cx, cy = (parse_number(document.get(name), name) for name in ("cx", "cy"))
    size, views = None, []
    for number, frame in enumerate(frames):
        focal, quaternion, position = (values[number] for values in lists.values())
        what = f"{path}: frame {frame}"
        image = folder / "color" / f"{frame:06d}.png"
        size = size or read_photo_size(image)
        focal_px = parse_number(focal, f"{what}: its focal length")
        camera = Pinhole.make(*size, fx=focal_px, fy=focal_px, cx=cx, cy=cy, dtype=torch.float64)
        w, x, y, z = parse_numbers(quaternion, f"{what}: its rotation", (4,))
        pose = make_pose(what, (x, y, z, w), parse_numbers(position, f"{what}: its translation", (3,)))
        depth = GameDepthFile(folder / "depth" / image.name)
        views.append(make_recorded_view(image, camera, pose.inverse(), depth))
    notes = (f"split {longest} of {len(splits)}, the longest, is read",) if len(splits) > 1 else ()
    return build_recorded_scene(folder, TITLE, views, check, notes)
