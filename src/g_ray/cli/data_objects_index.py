"""`g-ray data objects-index`: freeze what test objects are scored on."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class ObjectsIndex:
    """Write the paper's six target protocols for the test objects of a folder, one JSON file each.

    One object in ten is for testing, by its name. The same folder and seed always give the same files; files that are
    there for other objects are not replaced.
    """

    root: tyro.conf.Positional[Path]
    """Folder of rendered objects."""
    out: Path
    """Folder for the index files."""
    seed: int = 0
    """Of the two views that are given."""

    def run(self) -> None:
        from g_ray.data.objects.index import PROTOCOLS, write_indices

        for name, digest in write_indices(self.root, self.out, self.seed).items():
            targets = len(PROTOCOLS[name].list_names((0, 1)))
            print(f"{digest[:16]}  {self.out / name}.json  {targets} targets per object")
