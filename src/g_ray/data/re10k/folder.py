"""LVSM's layout: `{split}/images/<clip>/%05d.png`, `{split}/metadata/<clip>.json` and `{split}/full_list.txt`.

The metadata's frames have image_path, fxfycxcy in pixels and w2c 4×4. Paths in these files are often absolute and of
the machine that made them: what counts is the part below `images/` and `metadata/`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from g_ray.data.re10k.clips import Axes, Clip, Clips, Frame, convert_poses, decode_frame, resolve_inside


@dataclass(frozen=True)
class FolderClips(Clips):
    """Clips as folders of pictures."""

    folder: Path
    axes: Axes = "opencv"
    listed: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "listed", _list_clips(self.folder))

    @property
    def keys(self) -> tuple[str, ...]:
        return self.listed

    def get_clip(self, key: str) -> Clip:
        path = resolve_inside(self.folder, f"metadata/{key}.json", f"clip {key!r}")
        frames = _read_frames(path)
        matrices = torch.tensor([frame["w2c"] for frame in frames], dtype=torch.float64)
        intrinsics = torch.tensor([frame["fxfycxcy"] for frame in frames], dtype=torch.float64)

        def frame(number: int) -> Frame:
            where = f"{path}, frame {number}"
            picture = self._find_picture(frames[number]["image_path"], key, where)
            return decode_frame(picture.read_bytes(), intrinsics[number], False, f"{picture}, clip {key}")

        return Clip(key, convert_poses(matrices, self.axes, str(path)), frame)

    def _find_picture(self, image_path: str, key: str, where: str) -> Path:
        parts = PurePosixPath(image_path.replace("\\", "/")).parts
        below = len(parts) - parts[::-1].index("images") if "images" in parts else 0
        relative = "/".join(parts[below:]) if below else f"{key}/{image_path}"
        return resolve_inside(self.folder / "images", relative, where)


def _list_clips(folder: Path) -> tuple[str, ...]:
    """Clips of full_list.txt that are there; all that are there where it is missing."""
    there = {path.stem for path in (folder / "metadata").glob("*.json")}
    full_list = folder / "full_list.txt"
    if full_list.is_file():
        lines = full_list.read_text(encoding="utf-8").split()
        there &= {PurePosixPath(line.replace("\\", "/")).stem for line in lines}
    return tuple(sorted(there))


def _read_frames(path: Path) -> list[dict[str, Any]]:
    try:
        frames = json.loads(path.read_text(encoding="utf-8"))["frames"]
        for number, frame in enumerate(frames):
            rows = [len(row) for row in frame["w2c"]]
            if rows != [4] * 4 or len(frame["fxfycxcy"]) != 4 or not isinstance(frame["image_path"], str):
                raise ValueError(f"frame {number} needs image_path, fxfycxcy [4] and w2c [4, 4]")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not the metadata of a clip: {error}") from None
    except KeyError as error:
        raise ValueError(f"{path} is not the metadata of a clip: {error} is missing") from None
    if not frames:
        raise ValueError(f"{path} has no frames: remove the clip")
    return frames
