"""Package data: dependencies declared and pinned, license and citation in place, no trace of a machine."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LAB = tomllib.loads((ROOT / "packaging" / "lab" / "pyproject.toml").read_text())["project"]
LIBRARY = ("geometry", "cameras", "rays", "coordinates.py", "encodings", "nn")
OWN = {"g_ray", "g_ray_lab", "g_ray_weights"}
IMPORT_NAMES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "pillow_heif": "pillow-heif",
    "yaml": "pyyaml",
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", requirement)[0].lower() for requirement in requirements}


def imported(*places: Path) -> set[str]:
    """Top-level packages that are neither ours nor Python's, in files and folders."""
    found = set()
    for path in (file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return {IMPORT_NAMES.get(n, n).lower() for n in found - OWN - set(sys.stdlib_module_names)}


def test_the_library_needs_its_dependencies_and_nothing_else():
    assert imported(*(ROOT / "src" / "g_ray" / name for name in LIBRARY)) == names(PROJECT["dependencies"])


def declared_by_the_tool() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    chosen = ("tool", "view", "depth", "heif", "hub")
    return names(PROJECT["dependencies"]).union(*(names(extras[name]) for name in chosen))


def declared_by_the_lab() -> set[str]:
    extras = LAB["optional-dependencies"].values()
    return declared_by_the_tool() | names(LAB["dependencies"]).union(*map(names, extras))


def test_the_packages_import_only_what_they_declare():
    assert imported(ROOT / "src" / "g_ray") <= declared_by_the_tool()
    assert imported(ROOT / "src" / "g_ray_lab") <= declared_by_the_lab()


def test_tests_import_only_what_dev_installs():
    extras = PROJECT["optional-dependencies"]
    declared = declared_by_the_lab() | names(extras["dev"])
    own = {path.stem for path in (ROOT / "tests").rglob("*.py")}  # modules that tests share
    assert imported(ROOT / "tests") - own | imported(ROOT / "examples") <= declared


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))


def test_everything_is_pinned_exactly():
    extras = PROJECT["optional-dependencies"]
    wanted = declared_by_the_lab().union(*(names(extra) for extra in extras.values()))
    wanted -= {"g-ray", "g-ray-lab", "g-ray-weights"}
    assert wanted <= set(pins())
    assert pins()["torch"] == "2.13.0"
    assert not any("+" in version or "@" in version for version in pins().values())


def test_license_and_citation(shared_paper):
    assert "Apache License" in (ROOT / "LICENSE").read_text() and PROJECT["license"] == "Apache-2.0"
    citation = (ROOT / "CITATION.cff").read_text()
    source = (shared_paper / "g-ray.tex").read_text()
    orcids = re.findall(r"\\authororcid\{([\d-]+X?)\}", source)
    assert re.findall(r"orcid.org/([\d-]+X?)", citation) == orcids


@pytest.mark.parametrize("words", [r"/(work|root|home)/\w", r"/tmp/\w", r"\bfile:///"])
def test_no_path_of_a_machine_is_committed(words):
    """git grep, so that only tracked files count; this file names the patterns itself."""
    command = ["git", "grep", "-nIP", words, "--", ".", ":!tests/house/test_metadata.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""
