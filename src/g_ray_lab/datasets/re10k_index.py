"""pixelSplat's evaluation index: which frames of which test clips are given and which are targets."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class IndexedClip:
    """Numbers of the frames of one clip."""

    key: str
    context: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True)
class EvaluationIndex:
    """Scenes in the order of their keys. Clips without a suitable pair of frames are null in the file."""

    scenes: tuple[IndexedClip, ...]
    without: int = 0
    """Entries that are null."""
    missing: int = 0
    """Scenes left out because their clip is not on disk."""

    def select_available(self, keys: Iterable[str]) -> "EvaluationIndex":
        """Keep the scenes whose clips exist, and count the others."""
        there = set(keys)
        scenes = tuple(scene for scene in self.scenes if scene.key in there)
        return EvaluationIndex(scenes, self.without, self.missing + len(self.scenes) - len(scenes))

    @property
    def coverage(self) -> str:
        """Format what is available in one line."""
        return (
            f"{len(self.scenes)} of {len(self.scenes) + self.missing} indexed scenes are on disk, "
            f"{self.missing} are missing; {self.without} further entries have no frames"
        )

    @property
    def digest(self) -> str:
        """Return a digest of the scenes and their frames."""
        lines = [f"{scene.key} {scene.context} {scene.target}" for scene in self.scenes]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def read_clip_index(path: Path) -> EvaluationIndex:
    """Read an index file {key: null or {"context": […], "target": […]}}."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(entries, dict):
        raise ValueError(
            f'{path} is not an evaluation index: expected {{key: {{"context", "target"}} or null}}'
        )
    scenes = tuple(
        _parse_scene(path, key, entry) for key, entry in sorted(entries.items()) if entry is not None
    )
    return EvaluationIndex(scenes, without=len(entries) - len(scenes))


def _parse_scene(path: Path, key: str, entry: Any) -> IndexedClip:
    try:
        context, target = (tuple(entry[name]) for name in ("context", "target"))
    except (TypeError, KeyError):
        context, target = (), ()
    if not context or not target or not all(isinstance(n, int) and n >= 0 for n in (*context, *target)):
        raise ValueError(f"{path}, clip {key}: expected numbers of frames under context and target")
    return IndexedClip(key, context, target)
