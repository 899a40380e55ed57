"""Miniatures of RealEstate10K in both layouts: rooms filmed along paths, written as the real files are."""

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose

WIDTH, HEIGHT, FRAMES = 160, 90, 32


@dataclass(frozen=True)
class Film:
    """A clip as it was filmed: what every reader must give back."""

    key: str
    images: np.ndarray  # [frame h w 3], bytes
    normalised: torch.Tensor  # [4]
    poses: Pose  # [frame]

    @property
    def cam_from_world(self) -> torch.Tensor:
        return self.poses.cam_from_world


def filmed(key: str, seed: int, frames: int) -> Film:
    """Forwards and sideways through a room, turning."""
    room = replace(make_random_room(seed, solids=6), shadows=False)
    along = torch.linspace(0, 1, frames, dtype=torch.float64) * min(1, (frames - 1) / (FRAMES - 1))
    eyes = torch.stack([-0.9 + 0.9 * along, -0.5 + 0.2 * along, -1.8 + 0.8 * along], -1)
    aims = torch.stack([0.2 + 0.5 * along, 0.3 + 0 * along, 1.0 + 0 * along], -1)
    poses = Pose.look_at(eyes, aims)
    normalised = torch.tensor([0.62, 0.62 * WIDTH / HEIGHT, 0.5, 0.5], dtype=torch.float64)
    size = torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
    fx, fy, cx, cy = (normalised * size).float().tolist()
    camera = Pinhole.make(WIDTH, HEIGHT, fx=torch.full((frames,), fx), fy=fy, cx=cx, cy=cy)
    rgb = room.render(camera, poses.to(torch.float32)).rgb
    return Film(key, (rgb * 255).round().byte().numpy(), normalised, poses)


def encoded(image: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, quality=95)
    return buffer.getvalue()


def write_chunks(films: list[Film], folder: Path, per_chunk: int = 2) -> None:
    """As pixelSplat's converter writes them."""
    folder.mkdir(parents=True)
    index = {}
    for start in range(0, len(films), per_chunk):
        name = f"{start // per_chunk:06d}.torch"
        entries = []
        for film in films[start : start + per_chunk]:
            rows = film.cam_from_world[:, :3].flatten(1)
            lens = torch.cat([film.normalised, torch.zeros(2, dtype=torch.float64)]).expand(len(rows), 6)
            jpegs = [np.frombuffer(encoded(image, "JPEG"), np.uint8).copy() for image in film.images]
            entries.append(
                {
                    "url": "https://example.org/video",
                    "timestamps": torch.arange(len(rows)) * 33366,
                    "cameras": torch.cat([lens, rows], 1).float(),
                    "key": film.key,
                    "images": [torch.from_numpy(jpeg) for jpeg in jpegs],
                }
            )
            index[film.key] = name
        torch.save(entries, folder / name)
    (folder / "index.json").write_text(json.dumps(index))


def write_folder(films: list[Film], folder: Path) -> None:
    """As LVSM's converter writes them: absolute paths of the machine that it ran on."""
    elsewhere = f"/mnt/elsewhere/re10k/{folder.name}"
    (folder / "metadata").mkdir(parents=True)
    for film in films:
        (folder / "images" / film.key).mkdir(parents=True)
        frames = []
        for number, image in enumerate(film.images):
            name = f"images/{film.key}/{number:05d}.png"
            (folder / name).write_bytes(encoded(image, "PNG"))
            pixels = film.normalised * torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
            frames.append(
                {
                    "image_path": f"{elsewhere}/{name}",
                    "fxfycxcy": pixels.tolist(),
                    "w2c": film.cam_from_world[number].tolist(),
                }
            )
        document = {"scene_name": film.key, "frames": frames}
        (folder / "metadata" / f"{film.key}.json").write_text(json.dumps(document))
    lines = [f"{elsewhere}/metadata/{film.key}.json" for film in films]
    (folder / "full_list.txt").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Miniature:
    """Both layouts of the same films, and their evaluation index."""

    films: dict[str, Film]
    chunks: Path
    folders: Path
    index: Path

    def root(self, layout: str) -> Path:
        return {"chunks": self.chunks, "folders": self.folders}[layout]


@pytest.fixture(scope="session")
def miniature(tmp_path_factory) -> Miniature:
    """Three clips to train on, one of them too short, and two to test on."""
    root = tmp_path_factory.mktemp("re10k")
    train = [filmed("a1b2c3", 3, FRAMES), filmed("0f0f0f", 4, FRAMES), filmed("5hort0", 5, 8)]
    test = [filmed("7e57aa", 6, FRAMES), filmed("7e57bb", 7, FRAMES)]
    for split, films in (("train", train), ("test", test)):
        write_chunks(films, root / "chunks" / split)
        write_folder(films, root / "folders" / split)
    entries = {
        "7e57aa": {"context": [0, 31], "target": [8, 15, 22]},
        "7e57bb": {"context": [2, 30], "target": [9, 16, 25]},
        "abcdef": {"context": [0, 60], "target": [1, 2, 3]},
        "ffffff": None,
    }
    (root / "index.json").write_text(json.dumps(entries))
    films = {film.key: film for film in train + test}
    return Miniature(films, root / "chunks", root / "folders", root / "index.json")
