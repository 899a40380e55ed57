"""The README tells the truth: its example runs, its commands run, its file tree is the repository."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from g_ray import CAMERAS, COORDINATES, ENCODINGS
from g_ray.encodings import CONDITIONINGS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(text: str = README) -> list[str]:
    return [line for block in blocks("bash", text) for line in block.splitlines() if line.strip()]


def test_the_example_runs():
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    exec(compile(example, "README.md", "exec"), {})


def run_command(command: str, out: Path) -> subprocess.CompletedProcess[str]:
    """A g-ray command of the docs, from the repository's root, with its output somewhere else."""
    words = [word.replace("out/", f"{out}/") for word in shlex.split(command)]
    assert words[0] == "g-ray"
    return subprocess.run(
        [sys.executable, "-m", "g_ray", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


CLI_PAGE = commands((ROOT / "docs" / "cli.md").read_text())


@pytest.mark.parametrize(
    "command", [c for c in dict.fromkeys(commands() + CLI_PAGE) if c.startswith("g-ray")]
)
def test_the_commands_run(command, tmp_path):
    done = run_command(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make")])
def test_the_make_targets_exist(command):
    """By their recipes: running them here would run the tests inside the tests."""
    done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = {"make demo": "g-ray demo", "make test": "pytest"}[command]
    assert expected in done.stdout


def test_the_two_main_commands_come_first():
    assert commands()[:2] == ["make demo", "make test"]


def test_the_install_line_names_what_exists():
    (line,) = [c for c in commands() if c.startswith("pip")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\w+", re.search(r"\[(.*?)\]", line)[1])) <= set(extras)
    assert "-c constraints.txt" in line


def test_no_command_is_left_untested():
    assert all(command.split()[0] in ("make", "pip", "g-ray") for command in commands())


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("cameras", CAMERAS),
        ("coordinates", COORDINATES),
        ("encodings", ENCODINGS),
        ("conditioning", CONDITIONINGS),
    ],
)
def test_the_overview_lists_the_registries(kind, registry):
    (row,) = re.findall(rf"^\| {kind} \| .*? \| (.*) \|$", README, re.MULTILINE)
    assert re.findall(r"\b[a-z_\d]+\b", re.sub(r"\(.*?\)", "", row)) == list(registry)


# The file tree


def tree() -> dict[str, str]:
    """Path → role, from the indented block under "Files"."""
    block = README.split("## Files", 1)[1].split("```")[1].strip("\n")
    parents: list[tuple[int, str]] = []
    roles = {}
    for line in block.splitlines():
        indent = len(line) - len(line.lstrip())
        name, _, role = line.strip().partition("  ")
        while parents and parents[-1][0] >= indent:
            parents.pop()
        path = "".join(parent for _, parent in parents) + name
        if name.endswith("/"):
            parents.append((indent, name))
        roles[path] = role.strip()
    return roles


def tracked() -> list[str]:
    """What git knows or would add; build products and caches are ignored by it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [line for line in done.stdout.splitlines() if (ROOT / line).exists()]


def test_every_file_has_its_line_and_every_line_its_file():
    roles = tree()
    folders = [path for path in roles if path.endswith("/")]
    # A folder with a role and no lines below it stands for all that it holds.
    whole = tuple(f for f in folders if not any(p != f and p.startswith(f) for p in roles))
    files = {path for path in tracked() if not path.startswith(whole)}
    lines = {path for path in roles if not path.endswith("/")}
    assert sorted(files - lines) == [], "files without a line in the README"
    assert sorted(lines - files) == [], "lines in the README without a file"
    assert all((ROOT / folder).is_dir() for folder in whole)


def test_every_line_of_the_tree_says_what_the_file_is_for():
    roles = tree()
    parents = {path for path in roles if any(other != path and other.startswith(path) for other in roles)}
    assert [path for path, role in roles.items() if not role and path not in parents] == []
