"""The command line: quick help, one-line errors, exit codes."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import pytest

from g_ray import __version__
from g_ray.cli import commands
from g_ray.cli.demo_command import Demo
from g_ray.cli.main import main
from g_ray.cli.reconstruct_command import GROUPS


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

    monkeypatch.setattr(Demo, "run", fail)
    assert main(["demo"]) == code
    assert capsys.readouterr().err.startswith(line)


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(self):
        raise AssertionError("ours")

    monkeypatch.setattr(Demo, "run", fail)
    with pytest.raises(AssertionError):
        main(["demo"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--nonsense", "1"]])
def test_unknown_words_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_commands_of_the_laboratory_name_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(commands, "find_added", dict)
    assert main(["train", "curve"]) == 2
    assert capsys.readouterr().err == (
        "g-ray: g-ray train belongs to the laboratory: install it with pip install 'g-ray[lab]'\n"
    )
    with pytest.raises(SystemExit):
        main(["--help"])
    overview = capsys.readouterr().out
    assert "  reconstruct  " in overview and "pip install 'g-ray[lab]' adds: train, evaluate" in overview


def test_only_the_chosen_command_is_imported():
    code = (
        "import sys\nfrom g_ray.cli.main import main\n"
        "try:\n    main(['rays', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not [name for name in sys.modules if name.startswith('g_ray_lab')]\n"
        "assert 'g_ray.cli.reconstruct_command' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def list_help_pages() -> list[list[str]]:
    """Every command, and the subcommands and recipes that their help lists."""
    pages = [[name] for name in commands.list_commands()]
    for page in pages:
        shown = show_help(page)
        pages += [[*page, name] for name in re.findall(r"^ {4}• ([\w-]+)", shown, re.MULTILINE)]
    return pages


def show_help(words: Sequence[str]) -> str:
    """Return what `g-ray WORDS --help` prints."""
    return _show_help(*words)


@cache
def _show_help(*words: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return output.getvalue()


def test_help_has_plain_placeholders_and_no_empty_defaults():
    pages = list_help_pages()
    assert len(pages) > 50
    for words in pages:
        shown = show_help(words)
        unwanted = re.search(r"\{None|\|None|\[\[|\(default: (None)?\)|\b(STR|INT|FLOAT)\b", shown)
        assert unwanted is None, (words, unwanted)


def test_options_of_reconstruct_are_in_groups():
    shown = show_help(["reconstruct"])
    titles = re.findall(r"^ (\w[\w ]*)\n -+$", shown, re.MULTILINE)
    assert titles == ["positional arguments", *GROUPS, "options"]
    assert re.findall(r"^  (-\S+)", shown.partition("\n options\n")[2], re.MULTILINE) == ["-h,"]
    assert all(f"\n  --{name}" in shown for names in GROUPS.values() for name in names)
    assert "  --size N " in shown and "  --masks PATH " in shown
    assert re.search(r"--confidence NUMBER[^-]+\(default:\s+0\.2\)", shown)


@pytest.mark.parametrize("words", ["--help", "reconstruct --help"])
def test_a_closed_pipe_ends_quietly(words):
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m g_ray {words} | true"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["rays", "a.json"]])
def test_without_the_packages_of_the_tool_it_names_what_to_install(words):
    code = f"import sys; sys.modules['tyro'] = None; from g_ray.cli.main import main; sys.exit(main({words}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "g-ray: the command line needs more packages: pip install 'g-ray[tool]'\n"
