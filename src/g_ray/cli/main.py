"""Entry point of `g-ray`: parse the command line, run one command, and print user errors as one line.

Modules that are slow to import (torch, matplotlib) are imported when a command runs, so that `g-ray --help` prints
immediately.
"""

import contextlib
import errno
import io
import os
import shutil
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from g_ray import __version__
from g_ray.cli.commands import LAB, TOOL, list_commands, load_command

DESCRIPTION = (
    "Ray-angle position encoding for multi-view transformers, and reconstruction from any mix of cameras."
)
MAX_MESSAGE = 700
"""Characters of an error that are printed: names in it come from outside, and may be of any length."""
TRACEBACK = "G_RAY_TRACEBACK"
"""Environment variable: let unexpected exceptions through."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 (or the command's own code), 2 for a user error, 1 for a defect, 130 and 143 after
    Ctrl-C and SIGTERM."""
    for stream in (sys.stdout, sys.stderr):
        # File names and foreign labels may hold characters that a terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # OpenMP's threads spin while they wait for one another; next to other programs that took 30 times as long as one
    # thread (docs: benchmarks). Read when torch is imported, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = _format_warning
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments == ["--version"]:
            print(f"g-ray {__version__}", flush=True)
            return 0
        with interrupt_on_terminate():
            code = parse_command(arguments).run()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has had enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Terminated:
        return _end_at_once(_print_error("terminated; repeat the command to continue what it had begun", 143))
    except KeyboardInterrupt:
        return _end_at_once(_print_error("stopped", 130))
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("g_ray"):
            raise
        if error.name == "tyro":
            return _print_error("the command line needs more packages: pip install 'g-ray[tool]'", 2)
        return _print_error(
            f"this command needs {error.name}; install it with: {_suggest_install(arguments)}", 2
        )
    except (ValueError, OSError) as error:
        return _print_error(_format_error(error), 2)
    except Exception as error:
        # A defect of ours, or a library's exception that nobody foresaw: still one line, and how to learn more.
        if os.environ.get(TRACEBACK):
            raise
        return _print_error(
            f"unexpected {type(error).__name__}: {_format_error(error)[:200]} "
            f"(set {TRACEBACK}=1 to see where, and please report it)",
            1,
        )
    return code or 0


def _end_at_once(code: int) -> int:
    """End the process if threads still compute, for which Python would wait; otherwise return the code."""
    from g_ray.runtime.interruptible import is_computing

    if is_computing():
        sys.stdout.flush()
        os._exit(code)
    return code


class Terminated(KeyboardInterrupt):
    """SIGTERM, as Slurm and docker stop send it: treated as Ctrl-C, so that finished parts are kept."""


@contextlib.contextmanager
def interrupt_on_terminate() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM while a command runs; commands that handle the signal themselves still do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parse_command(arguments: Sequence[str]) -> Any:
    """Return the command of a command line; SystemExit after help, or after the parser has printed what is wrong."""
    check_no_empty_argument(arguments)
    name, words = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    if name in ("-h", "--help"):
        print(format_overview(), flush=True)
        raise SystemExit(0)
    if name not in (*TOOL, *LAB, *list_commands()):
        print(format_overview(), file=sys.stderr)
        _print_error(f"no command {name[:80]!r}" if name else "give a command", 2)
        raise SystemExit(2)
    return parse_words(name, load_command(name), words)


def parse_words(name: str, command: Any, words: Sequence[str]) -> Any:
    """Parse the words after the name of a command.

    A command whose options depend on the words themselves, as those of `train` do on the recipe, has a function
    `prepare(words)` that returns the type to parse, the words, and how values of its own types are written.
    """
    import tyro

    from g_ray.cli.option_help import group_options, make_registry

    kind, words, registry = command.prepare(words) if hasattr(command, "prepare") else (command, words, None)
    printed, complaint = io.StringIO(), io.StringIO()
    try:
        with make_registry(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=f"g-ray {name}",
                args=list(words),
                config=(
                    tyro.conf.OmitSubcommandPrefixes,
                    *getattr(command, "CONFIG", (tyro.conf.OmitArgPrefixes,)),
                ),
                registry=registry,
            )
    except SystemExit as stop:
        error = _find_own_error(stop)
        if error is not None:
            raise error from None
        sys.stderr.write(complaint.getvalue())
        lines = group_options(printed.getvalue(), getattr(command, "GROUPS", {})).splitlines()
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in lines)
        sys.stdout.flush()
        raise


def format_overview() -> str:
    """Return the help of `g-ray` itself: all commands that are installed, with the first sentence about each."""
    commands = list_commands()
    width = max(map(len, commands)) + 4
    columns = min(shutil.get_terminal_size().columns, 100)
    lines = ["usage: g-ray COMMAND …", "", *textwrap.wrap(DESCRIPTION, columns), "", "commands:"]
    for name in commands:
        summary = " ".join((load_command(name).__doc__ or "").split("\n\n")[0].split())
        first, *rest = textwrap.wrap(summary, max(columns - width, 20)) or [""]
        lines += [f"  {name}".ljust(width) + first, *(" " * width + line for line in rest)]
    missing = [name for name in LAB if name not in commands]
    if missing:
        lines += ["", f"pip install 'g-ray[lab]' adds: {', '.join(missing)}"]
    lines += ["", "g-ray COMMAND --help lists the options of a command; g-ray --version prints the version."]
    return "\n".join(lines)


def _find_own_error(stop: SystemExit) -> ValueError | None:
    """Return the error of our own that made the parser stop: it would print the error under names of its own."""
    error = stop.__context__
    while error is not None:
        frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
        if isinstance(error, ValueError) and frames and frames[-1].startswith("g_ray"):
            return error
        error = error.__context__
    return None


def check_no_empty_argument(arguments: Sequence[str]) -> None:
    """Refuse empty words, e.g. of an unset shell variable: as a path they would mean the current folder."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            name = word or before
            where = f"after {name.removesuffix('=')}" if name.startswith("--") else "on the command line"
            raise ValueError(f"an empty word {where}: give a value, or leave the option out")


def _suggest_install(arguments: Sequence[str]) -> str:
    return f"pip install 'g-ray[{'lab' if arguments and arguments[0] in LAB else 'tool,view'}]'"


def _format_warning(message: Warning | str, *place: object, **more: object) -> str:
    """Format a warning as one line; users have no use for the line of our source."""
    return f"g-ray: warning: {' '.join(str(message).split())}\n"


def _format_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.filename or 'a disk'}: {error.strerror}; make room and repeat the command"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _print_error(message: str, code: int) -> int:
    shown = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
    print(f"g-ray: {shown}", file=sys.stderr)
    return code
