"""`g-ray bench`: a table, a file with everything needed to compare it later, written whole or not at all."""

import json
import subprocess

import pytest

from g_ray.cli.main import main
from g_ray.cli.text import format_table
from g_ray.runtime.provenance import collect_provenance, read_commit
from g_ray_lab.cli.bench_command import report_result

NAMES = ["sdpa", "rope", "gray", "gta", "gta_gray", "prope", "rayrope", "rayrope_gray"]


def test_encodings_are_timed_and_recorded(tmp_path, capsys):
    path = tmp_path / "deep" / "small.json"
    options = ["--views", "2", "--grid", "2", "--batch", "1", "--repeats", "2", "--json", str(path)]
    assert main(["bench", "encodings", *options]) == 0
    said = capsys.readouterr().out
    recorded = json.loads(path.read_text())
    assert [row["name"] for row in recorded["rows"]] == NAMES
    assert all({"forward", "forward_backward", "saved"} < set(row) for row in recorded["rows"])
    assert all(name in said for name in NAMES)
    assert {"views", "grid", "batch", "heads", "head_dim"} <= set(recorded["settings"])
    assert set(collect_provenance()) <= set(recorded["settings"])


@pytest.mark.parametrize("option", ["views", "grid", "batch", "repeats"])
def test_nonsense_is_refused(option, capsys):
    assert main(["bench", "encodings", f"--{option}", "0"]) == 2
    assert capsys.readouterr().err == f"g-ray: --{option} must be at least 1, got 0\n"


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    report_result({"settings": {}, "rows": [{"name": "a", "forward": 1.0}]}, None)
    assert "1.000" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "blocked").write_text("a file, not a folder")
    options = ["--views", "1", "--grid", "1", "--batch", "1", "--repeats", "1"]
    assert main(["bench", "encodings", *options, "--json", str(tmp_path / "blocked" / "x.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_provenance_says_where_and_when():
    found = collect_provenance()
    assert {"hardware", "date", "commit", "python", "torch"} <= set(found)
    assert "core" in str(found["hardware"])


def test_the_commit_is_that_of_the_checkout_or_unknown(tmp_path):
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "__init__.py").write_text("")
    assert read_commit(tmp_path).startswith(
        "release "
    )  # a package that lies untracked in somebody else's repository
    git("add", "__init__.py")
    assert read_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
    git("commit", "-q", "-m", "second")
    assert read_commit(tmp_path) == git("rev-parse", "HEAD")
    alone = tmp_path.parent / f"{tmp_path.name}-alone"
    alone.mkdir()
    (alone / "__init__.py").write_text("a = 1\n")
    before = read_commit(alone)
    (alone / "__init__.py").write_text("a = 2\n")
    assert before.startswith("release ") and read_commit(alone) != before


def test_tables_are_aligned():
    lines = format_table(
        [{"name": "a", "x": 1.5}, {"name": "longer", "x": None}, {"name": "tiny", "x": 2e-9}]
    ).splitlines()
    assert lines == [
        "name          x",
        "──────  ───────",
        "a         1.500",
        "longer        –",
        "tiny    2.0e-09",
    ]


def test_a_reconstruction_is_timed_and_recorded(tmp_path, capsys, monkeypatch):
    """In this process; that each case has one of its own is tested beside the benchmark."""
    from g_ray_lab.bench import bench_reconstruction as reconstruction

    monkeypatch.setattr(reconstruction, "run_in_subprocess", lambda task, *arguments: task(*arguments))
    path = tmp_path / "reconstruction.json"
    options = ["--views", "1", "2", "--size", "16", "--model", "tiny", "--repeats", "1", "--json", str(path)]
    assert main(["bench", "reconstruction", *options]) == 0
    said = capsys.readouterr().out
    recorded = json.loads(path.read_text())
    assert {row["views"] for row in recorded["rows"]} == {1, 2}
    assert recorded["settings"]["views"] == [1, 2]
    assert "camera head" in said
    assert main(["bench", "reconstruction", "--size", "50"]) == 2
    assert "--size 50 is not a multiple of the patch of 14 px: choose 56" in capsys.readouterr().err
