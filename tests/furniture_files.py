"""Miniature furniture libraries in the format of Sweet Home 3D."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

CATALOG = """# PluginFurnitureCatalog.properties
! another comment

id=Mini#Models
name=Mini catalog

id#1=Mini#table
name#1=Caf\\u00e9 table
category#1=Living room
icon#1=/mini/table.png
model#1=/mini/table/table.obj
width#1=120.5
depth#1=60
height#1=75.0
movable#1=true
doorOrWindow#1=false
creator#1=Somebody

id#2=Mini#cupboard
name#2=Upper \\
  cupboard
category#2=Kitchen
model#2=/mini/cupboard/cupboard.obj
modelRotation#2=0 0 -1 0 1 0 1 0 0
width#2=80
depth#2=35
height#2=70
elevation#2=140
dropOnTopElevation#2=-1
doorOrWindow#2=false

id#3=Mini#window
name#3=Window
category#3=Doors and windows
model#3=/mini/window/window.obj
width#3=100
depth#3=10
height#3=120
dropOnTopElevation#3=50
doorOrWindow#3=true
"""

MATERIALS = """newmtl body
Kd 0.8 0.4 0.2
d 1.0
newmtl front
Kd 1.0 1.0 1.0
map_Kd front.png
newmtl glass
Kd 0.9 0.9 1.0
d 0.2
"""


def write_library(path: Path, catalog: str = CATALOG, extra: dict[str, bytes] | None = None) -> Path:
    """Write a library with a table, a cupboard and a window; `extra` files replace or join its own."""
    files = {"PluginFurnitureCatalog.properties": catalog.encode("latin-1")}
    for name in ("table", "cupboard", "window"):
        files[f"mini/{name}/{name}.obj"] = make_box_model(f"{name}.mtl", glass=name == "window").encode()
        files[f"mini/{name}/{name}.mtl"] = MATERIALS.encode()
        files[f"mini/{name}/front.png"] = encode_png(np.full((8, 8, 3), (200, 30, 30), np.uint8))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (files | (extra or {})).items():
            archive.writestr(name, data)
    return path


def make_box_model(materials: str, glass: bool = False) -> str:
    """Make a box from (0, 0, 0) to (2, 3, 5), y up; the side at z = 5 is its front, with a texture."""
    corners = [(x, y, z) for x in (0, 2) for y in (0, 3) for z in (0, 5)]
    lines = [f"mtllib {materials}", *(f"v {x} {y} {z}" for x, y, z in corners)]
    lines += ["vt 0 0", "vt 1 0", "vt 1 1", "vt 0 1", "usemtl body"]
    lines += ["f 1 2 4 3", "f 5 7 8 6", "f 1 5 6 2", "f 3 4 8 7", "f 1 3 7 5"]
    lines += ["usemtl front", "f 2/1 6/2 8/3 4/4"]
    if glass:  # a pane that sticks out of the box would change its size, had it been read
        lines += ["v 9 0 0", "v 9 9 0", "v 9 0 9", "usemtl glass", "f 9 10 11"]
    return "\n".join(lines) + "\n"


def encode_png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="png")
    return buffer.getvalue()
