"""What `g-ray reproduce nvs-objects` needs before it trains: rendered objects, and a frozen index of them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from g_ray.evaluation.objects_protocol import ObjectsProtocol

MADE = 600  # procedural objects, where no scanned ones are found
RENDER = "g-ray data objects --meshes MESHES --out FOLDER"


def render_small_objects(root: Path, size: int) -> Path:
    """All scanned objects where they are found, else objects made from seeds; what is there is not rendered again."""
    from g_ray.cli.data_objects import Objects
    from g_ray.data.shared import find_shared_data

    scanned = find_shared_data() / "gso_mini"
    if scanned.is_dir():
        Objects(root, meshes=str(scanned), size=size).run()
    else:
        Objects(root, count=MADE, size=size).run()
    return root


def freeze_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Written at the first call, and checked against the objects at every call, before anything is trained."""
    from g_ray.data.objects.index import SUMS, write_indices
    from g_ray.evaluation.objects_protocol import ObjectsProtocol

    if not (index / SUMS).is_file():
        write_indices(root, index)
    protocol = ObjectsProtocol(root, index, size, size)
    protocol.check()
    return protocol
