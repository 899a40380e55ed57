"""The README is correct: its example and its commands run, and its map lists every package."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from g_ray.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(text: str = README) -> list[str]:
    return [line for block in blocks("bash", text) for line in block.splitlines() if line.strip()]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 160


def test_the_example_runs():
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    exec(compile(example, "README.md", "exec"), {})


def test_a_colmap_model_becomes_tokens(tmp_path, monkeypatch):
    """The lines for a scene folder, on a COLMAP model."""
    (example,) = blocks("py")
    model, images = tmp_path / "my_scene" / "sparse" / "0", tmp_path / "my_scene" / "images"
    model.mkdir(parents=True)
    images.mkdir()
    (model / "cameras.txt").write_text("1 PINHOLE 64 48 50 50 32 24\n")
    (model / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n\n2 1 0 0 0 -1 0 0 1 b.png\n\n")
    (model / "points3D.txt").write_text("")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (64, 48)).save(images / name)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert len(scope["tokens"]) == 2 * 4 * 3


CLI_PAGE = commands((ROOT / "docs" / "cli.md").read_text())
TESTED_ELSEWHERE = {
    "g-ray demo --out out/demo"
}  # takes ten seconds, and tests/g_ray/demo/test_demo.py runs it


@pytest.mark.parametrize(
    "command",
    [c for c in dict.fromkeys(commands() + CLI_PAGE) if c.startswith("g-ray") and c not in TESTED_ELSEWHERE],
)
def test_the_commands_run(command, tmp_path, monkeypatch):
    """From the repository's root, in this process, with their output somewhere else."""
    monkeypatch.chdir(ROOT)
    words = [word.replace("out/", f"{tmp_path}/") for word in shlex.split(command)[1:]]
    assert main(words) == 0


MAKE_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
TARGETS = {
    target for page in MAKE_PAGES for target in re.findall(r"(?:^|`)(make [a-z-]+)", page.read_text(), re.M)
}


@pytest.mark.parametrize("command", sorted(TARGETS))
def test_the_make_targets_exist(command):
    """By their recipes: running them here would run the tests inside the tests."""
    done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"make demo": "g-ray demo", "make test": "pytest", "make quick": "ruff"}.get(
        command, ""
    ) in done.stdout


def test_commands_tested_elsewhere_are_those_of_the_pages():
    assert set(commands() + CLI_PAGE) >= TESTED_ELSEWHERE


def test_the_two_main_commands_come_first():
    assert commands()[:2] == ["make demo", "make test"]


def test_the_install_lines_name_what_exists():
    lines = [c for c in commands() if c.startswith("pip")]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert len(lines) == 3  # the library, the tool, the laboratory
    for line in lines:
        assert "-c constraints.txt" in line
        for folder, extras in re.findall(r"-e \"?([\w./]+)(?:\[(.*?)\])?", line):
            assert (ROOT / folder / "pyproject.toml").exists(), folder
            assert set(filter(None, extras.split(","))) <= set(known)


def test_no_command_is_left_untested():
    assert all(command.split()[0] in ("make", "pip", "g-ray") for command in commands())


@pytest.mark.parametrize("package", ["g_ray", "g_ray_lab"])
def test_the_map_lists_every_package_once(package):
    block = README.split("## Map of the packages", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    section = re.split(r"^src/", block.split(f"src/{package}/\n", 1)[1], flags=re.MULTILINE)[0]
    rows = re.findall(r"^  ((?:[a-z_]+(?:/|\.py) +)+)(.*)$", section, re.MULTILINE)
    assert len(rows) == len(section.splitlines())
    folder = ROOT / "src" / package
    packages = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert sorted(name for names, _ in rows for name in names.split()) == sorted(packages | modules)
    assert all(len(role.split()) > 1 for _, role in rows)
