"""The command line: quick help, one-line errors, exit codes."""

import os
import subprocess
import sys

import pytest

from g_ray import __version__
from g_ray.cli import main as entry
from g_ray.cli.main import main


def g_ray(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "g_ray", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["bench", "encodings", "--help"]])
def test_help_does_not_import_torch(arguments):
    code = (
        "import sys\nfrom g_ray.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as stop:\n    assert stop.code == 0, stop.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'PIL', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: g-ray" in done.stdout


def test_help_answers_in_about_a_second():
    """The best of three, in CPU seconds: the machine may be busy, the command may not be slow."""
    seconds = []
    for _ in range(3):
        before = os.times()
        assert g_ray("--help").returncode == 0
        after = os.times()
        seconds.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert min(seconds) < 1.5


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"g-ray {__version__}\n"


def test_a_mistake_is_one_line_without_a_traceback(tmp_path):
    done = g_ray("rays", str(tmp_path / "missing.json"))
    assert done.returncode == 2
    assert done.stderr.startswith("g-ray: ") and done.stderr.count("\n") == 1
    assert "missing.json" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("bad\n  focal"), 2, "g-ray: bad focal\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.json"),
            2,
            "g-ray: a.json: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), 2, "g-ray: a disk: No space left on device; make room"),
        (OSError(28, "No space left on device", "out"), 2, "g-ray: out: No space left on device; make room"),
        (KeyboardInterrupt(), 130, "g-ray: stopped\n"),
        (ModuleNotFoundError("No module named 'cv2'", name="cv2"), 2, "g-ray: this command needs cv2;"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_become_exit_codes(monkeypatch, capsys, error, code, line):
    def fail(self):
        raise error

    monkeypatch.setattr(entry.Demo, "run", fail)
    assert main(["demo"]) == code
    assert capsys.readouterr().err.startswith(line)


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(self):
        raise AssertionError("ours")

    monkeypatch.setattr(entry.Demo, "run", fail)
    with pytest.raises(AssertionError):
        main(["demo"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--nonsense", "1"]])
def test_unknown_words_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
