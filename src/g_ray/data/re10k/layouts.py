"""Which of the layouts a folder has."""

from pathlib import Path

from g_ray.data.re10k.chunks import ChunkClips
from g_ray.data.re10k.clips import Axes, Clips
from g_ray.data.re10k.folder import FolderClips

EXPECTED = (
    "expected {split}/index.json with {split}/*.torch (pixelSplat's chunks, see its README for the download) or "
    "{split}/metadata/*.json with {split}/images/ (LVSM's conversion of them)"
)


def open_clips(root: Path, split: str, axes: Axes = "opencv") -> Clips:
    """The clips of a split, in whichever layout they are."""
    folder = root / split
    if (folder / "index.json").is_file():
        clips: Clips = ChunkClips(folder, axes)
    elif (folder / "metadata").is_dir():
        clips = FolderClips(folder, axes)
    else:
        raise ValueError(f"no RealEstate10K at {root}: {EXPECTED.replace('{split}', split)}")
    if not clips.keys:
        raise ValueError(f"{folder} has no clips: {EXPECTED.replace('{split}', split)}")
    return clips
