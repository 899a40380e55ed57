"""Check the built distributions: `python packaging/check_dist.py dist`. Prints their sizes; fails if one is wrong."""

import sys
import tarfile
import zipfile
from pathlib import Path

MAX_MB = {"g_ray-*.whl": 1.5, "g_ray-*.tar.gz": 5.0, "g_ray_lab-*.whl": 1.5, "g_ray_weights-*.whl": 60.0}
"""Largest sizes, by pattern: whoever installs the library does not download a laboratory or its weights."""
PACKAGES = {"g_ray": "g_ray", "g_ray_lab": "g_ray_lab", "g_ray_weights": "g_ray_weights"}


def check(folder: Path) -> list[str]:
    """Return what is wrong, a line each."""
    problems = []
    for pattern, limit in MAX_MB.items():
        files = list(folder.glob(pattern))
        if len(files) != 1:
            problems.append(f"{len(files)} files {pattern} instead of one")
            continue
        size = files[0].stat().st_size / 1e6
        names = list_names(files[0])
        print(f"{files[0].name}: {size:.2f} MB, {len(names)} files")
        if size > limit:
            problems.append(f"{files[0].name} has {size:.2f} MB, more than {limit}")
        if files[0].suffix == ".whl":
            problems += check_wheel(files[0].name, names)
    return problems


def check_wheel(file: str, names: list[str]) -> list[str]:
    package = PACKAGES[file.split("-")[0]]
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    problems = [] if tops == {package} else [f"{file} has {', '.join(sorted(tops))} instead of {package}"]
    if package != "g_ray_weights":
        problems += [] if f"{package}/py.typed" in names else [f"{file} lacks py.typed"]
        problems += [f"{file} has {name}" for name in names if name.endswith((".safetensors", ".pyc"))]
    return problems


def list_names(file: Path) -> list[str]:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    with tarfile.open(file) as archive:
        return archive.getnames()


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
