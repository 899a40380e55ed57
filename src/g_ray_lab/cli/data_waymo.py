"""`g-ray data waymo`: unpack recordings of the Waymo Open Dataset to scene folders."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from g_ray.cli.text import CountBar


@dataclass(frozen=True)
class Waymo:
    """Unpack recordings of the Waymo Open Dataset (version 1, TFRecord) to scene folders with depth of its LiDARs.

    Recordings that are unpacked already are kept: after Ctrl-C the same command continues.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files segment-….tfrecord, or folders of them."""
    out: Path
    """Folder for a scene folder per recording."""
    every: int = 1
    """Take every n-th frame; there are ten per second."""

    def run(self) -> int:
        from g_ray.formats.nerfstudio import TRANSFORMS
        from g_ray.runtime.out_folder import claim_out
        from g_ray_lab.datasets.waymo import unpack_waymo

        if self.every < 1:
            raise ValueError(f"--every {self.every}: give 1 or more")
        paths = [path for file in self.files for path in _list_recordings(file)]
        claim_out(self.out, "data waymo")
        bar, broken = CountBar(len(paths), 0, "recordings"), 0
        for number, path in enumerate(paths, 1):
            folder = self.out / path.stem
            try:
                if not (folder / TRANSFORMS).is_file():
                    unpack_waymo(path, folder, self.every)
            except (ValueError, OSError) as error:
                broken += 1
                bar.print_line(f"skipped: {error}")
            bar.advance(number)
        bar.close()
        print(f"{len(paths)} recordings: {len(paths) - broken} unpacked in {self.out}, {broken} skipped")
        return 1 if broken else 0


def _list_recordings(file: Path) -> list[Path]:
    """Return the recordings that a path stands for; ValueError if there are none."""
    files = sorted(file.glob("*.tfrecord")) if file.is_dir() else [file]
    if not files or not all(path.is_file() for path in files):
        raise ValueError(f"{file}: no recording; give segment-….tfrecord files, or a folder of them")
    return files
