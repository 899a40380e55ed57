"""Who may import whom, read off the source with ast: the design's order as data, a checker, and its tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each package may import only packages in later rows; neighbours in a row may not import each other.
ORDER = [
    {"cli"},
    {"synthesis", "reconstruction"},
    {"viewer", "evaluation", "recipes"},
    {"training", "metrics", "losses"},
    {"models"},
    {"nn"},
    {"encodings"},
    {"coordinates"},
    {"rays"},
    {"cameras"},
    {"geometry"},
]
ROW = {package: row for row, packages in enumerate(ORDER) for package in packages}
ABOVE_DATA = {
    "cli",
    "synthesis",
    "reconstruction",
    "viewer",
    "evaluation",
    "recipes",
    "training",
    "capture",
    "export",
}
BELOW_DATA = {"rays", "cameras", "geometry"}
BESIDE_DATA = {"capture", "export"}
KNOWN = {*ROW, "data", *BESIDE_DATA}


def allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if imported in BESIDE_DATA:
        return importer in ABOVE_DATA - BESIDE_DATA - {"training"}
    if imported == "data":
        return importer in ABOVE_DATA
    if importer == "data" or importer in BESIDE_DATA:
        return imported in BELOW_DATA
    return ROW[importer] < ROW[imported]


def imported_modules(source: str) -> Iterator[str]:
    """Dotted names of g_ray modules that a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "g_ray")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "relative import"
            elif node.module == "g_ray":
                yield from (f"g_ray.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("g_ray."):
                yield node.module


def violations(package_root: Path) -> list[str]:
    """One line for each import that breaks the order; the package's own __init__ may import anything."""
    found = []
    for path in sorted(package_root.rglob("*.py")):
        parts = path.relative_to(package_root).parts
        if len(parts) == 1:
            continue
        for module in imported_modules(path.read_text()):
            names = module.split(".")
            where = f"{'/'.join(parts)} imports {module}"
            if names[0] != "g_ray" or len(names) < 2:
                found.append(f"{where}: name the module in full, g_ray.package.module")
            elif names[1] == "files" or (names[1] == "__version__" and parts[0] == "cli"):
                continue  # files.py knows nothing of the rest
            elif names[1] not in KNOWN:
                found.append(f"{where}: import it from the package that holds it")
            elif parts[0] not in KNOWN or not allowed(parts[0], names[1]):
                found.append(f"{where}: {parts[0]} may not import {names[1]}")
    return found


def test_the_package_keeps_the_order(repo_root):
    assert violations(repo_root / "src" / "g_ray") == []


def test_every_package_has_a_place_in_the_order(repo_root):
    packages = {path.parent.name for path in (repo_root / "src" / "g_ray").glob("*/__init__.py")}
    assert packages <= KNOWN


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("geometry/bad.py", "from g_ray.cameras.base import Camera"),
        ("cameras/bad.py", "import g_ray.nn.attention"),
        ("models/bad.py", "from g_ray.data import rooms"),
        ("encodings/bad.py", "def late():\n    from g_ray.viewer.page import write"),
        ("viewer/bad.py", "from g_ray.evaluation import ray_benchmark"),
        ("data/bad.py", "from g_ray.coordinates import tangent"),
        ("data/bad.py", "from g_ray.export import result"),
        ("capture/bad.py", "from g_ray.export import result"),
        ("export/bad.py", "from g_ray.models import prediction"),
        ("capture/bad.py", "from g_ray.models import reconstruct"),
        ("models/bad.py", "from g_ray.capture import photos"),
        ("rays/bad.py", "from g_ray import Views"),
        ("nn/bad.py", "from . import attention"),
        ("nn/bad.py", "from g_ray import encodings, models"),
        ("surprise/bad.py", "from g_ray.geometry import pose"),
    ],
)
def test_a_violation_is_found(tmp_path, place, line):
    path = tmp_path / place
    path.parent.mkdir()
    path.write_text(line + "\n")
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("cli/good.py", "from g_ray import __version__\nfrom g_ray.viewer import page"),
        ("data/good.py", "from g_ray.rays.ray_map import RayMap\nfrom g_ray.data import rooms"),
        ("export/good.py", "from g_ray.data.photos import read_photo\nfrom g_ray.cameras import CAMERAS"),
        ("viewer/good.py", "from g_ray import data, encodings\nimport torch"),
    ],
)
def test_an_allowed_import_passes(tmp_path, place, line):
    path = tmp_path / place
    path.parent.mkdir()
    path.write_text(line + "\n")
    assert violations(tmp_path) == []
