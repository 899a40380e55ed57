"""`g-ray data re10k-check`: is this copy of RealEstate10K complete, and do its poses fit its pictures?"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from g_ray_lab.datasets.re10k import Clips

SPLITS = ("train", "test")


@dataclass(frozen=True)
class RE10KCheck:
    """Count the clips of RealEstate10K, compare them with the evaluation index, and check the camera axes."""

    root: tyro.conf.Positional[Path]
    """Folder with train/ and test/, as pixelSplat's chunks or in LVSM's layout."""
    index: Path | None = None
    """pixelSplat's evaluation_index_re10k.json, to compare the test split with."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes that the poses are said to have."""
    clips: int = 8
    """Clips per split whose poses are checked against their pictures."""

    def run(self) -> None:
        splits = [split for split in SPLITS if (self.root / split).is_dir()]
        verdicts = [self._check_split(split) for split in splits or SPLITS[:1]]
        if not all(verdicts):
            raise ValueError(f"{self.root}: poses and pictures contradict each other, see above")

    def _check_split(self, split: str) -> bool:
        """Print clips and axes of a split; return whether the axes are consistent with the pictures."""
        from g_ray_lab.datasets.re10k import open_clips
        from g_ray_lab.sources.axes_check import check_axes
        from g_ray_lab.sources.re10k_nvs import match_clips

        if self.clips < 1:
            raise ValueError(f"--clips {self.clips} must be at least 1")
        clips = open_clips(self.root, split, self.axes)
        print(f"{split}: {count_clips(clips)}")
        if split == "test" and self.index is not None:
            from g_ray_lab.datasets.re10k_index import read_index

            print(f"{split}: {read_index(self.index).select_available(clips.keys).coverage}")
        report = check_axes(match_clips(clips, self.clips))
        verdict = "refused" if report.better else "confirmed" if report.certain else "undecided"
        print(f"{split}: axes {self.axes} {verdict}: {report.verdict}")
        return report.better is None


def count_clips(clips: "Clips") -> str:
    """Count clips and frames by reading the cameras of every clip, and no picture."""
    lengths, broken = [], []
    for key in clips.order_by_file():
        try:
            lengths.append(len(clips.get_clip(key)))
        except (ValueError, OSError) as error:
            broken.append(str(error))
    short = sum(length <= 25 for length in lengths)
    line = f"{len(lengths)} clips with {sum(lengths)} frames, {short} too short to train on"
    return line if not broken else f"{line}; {len(broken)} cannot be read, the first: {broken[0]}"
