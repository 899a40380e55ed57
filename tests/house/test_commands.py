"""Every `g-ray` command and every option in the README and the docs is accepted by the real command line.

Commands are parsed, not run: `test_readme.py` runs those of the README and of the command-line page.
"""

import contextlib
import io
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import tyro

from g_ray.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def find_commands(text: str) -> list[str]:
    """Return the arguments of the `g-ray` commands in code blocks, also those started with `torchrun -m g_ray`."""
    lines = [line for block in CODE_BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    matches = (re.match(r"(?:\$ )?(?:g-ray|torchrun .*?-m g_ray) (.*)", line.strip()) for line in lines)
    return [match[1] for match in matches if match]


def find_inline_commands(text: str) -> list[str]:
    """Return the arguments of the `g-ray` commands in prose; they may be incomplete."""
    return re.findall(r"`g-ray ([^`]+)`", CODE_BLOCK.sub("", text).replace("\n", " "))


def find_inline_options(text: str) -> set[str]:
    prose = CODE_BLOCK.sub("", text)
    return {option for code in re.findall(r"`(--[^`]+)`", prose) for option in re.findall(r"--[\w.-]+", code)}


def split_words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


COMMANDS = dict.fromkeys(command for page in PAGES for command in find_commands(page.read_text()))
INLINE = dict.fromkeys(command for page in PAGES for command in find_inline_commands(page.read_text()))


class ParsedOnly:
    """Stands for a parsed command, and does nothing when it is run."""

    def run(self) -> int:
        return 0


@pytest.fixture
def parse(monkeypatch):
    """Return a function that gives the exit code of the command line for some words, without running the command."""
    parse_words = tyro.cli

    def parse_only(*arguments, **options):
        parse_words(*arguments, **options)
        return ParsedOnly()

    monkeypatch.setattr(tyro, "cli", parse_only)
    return main


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_code_blocks_parse(command, parse):
    try:
        code = parse(split_words(command))
    except SystemExit as stopped:  # --help, and arguments that are not accepted
        code = stopped.code
    assert code == 0


@cache
def read_help(*words: str) -> str:
    """Return what `g-ray WORDS --help` prints; fail if there is no such command."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert stopped.value.code == 0, words
    return output.getvalue()


def find_help(words: list[str]) -> str:
    """Return the help of the command that begins with these words, up to the first that is not a subcommand."""
    names = []
    for word in words:
        if not re.fullmatch(r"[a-z0-9_-]+", word) or word.startswith("-"):
            break
        names.append(word)
    return read_help(*names)


@pytest.mark.parametrize("command", INLINE)
def test_commands_in_prose_name_subcommands_and_options_that_exist(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    words = split_words(command)
    help_text = find_help(words)
    for word in words:
        if word.startswith("--"):
            assert re.search(rf"{re.escape(word)}(?![\w-])", help_text), word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_prose_belong_to_a_command_of_the_docs(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    help_texts = "".join(find_help(split_words(command)) for command in COMMANDS | INLINE)
    known = set(re.findall(r"--[\w.-]+", help_texts))
    prefixes = {option[: option.rindex(".") + 1] for option in known if "." in option}  # `--model.…`
    assert find_inline_options(page.read_text()) <= known | prefixes


def test_the_command_line_page_has_the_commands_in_the_order_of_the_help():
    listed = re.findall(r"^  ([a-z]+)  +[A-Z]", read_overview(), re.MULTILINE)
    page = (ROOT / "docs" / "cli.md").read_text()
    assert listed
    assert re.findall(r"^## `g-ray (\w+)`", page, re.MULTILINE) == listed


def read_overview() -> str:
    """Return what `g-ray --help` prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main(["--help"])
    return output.getvalue()
