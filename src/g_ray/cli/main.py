"""Entry point of `g-ray`: parse the command line, run one command, and print user errors as one line.

A command is a dataclass with `run()`. Modules that are slow to import (torch, matplotlib) are imported inside of it, so
that `g-ray --help` prints immediately.
"""

import contextlib
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from g_ray import __version__
from g_ray.cli.bench import Bench
from g_ray.cli.data import Data
from g_ray.cli.demo import Demo
from g_ray.cli.evaluate import Evaluate
from g_ray.cli.rays import Rays
from g_ray.cli.reconstruct import Reconstruct
from g_ray.cli.reproduce import Reproduce
from g_ray.cli.synthesize import Synthesize
from g_ray.cli.train import expand_recipe_name, make_train
from g_ray.cli.view import View
from g_ray.cli.weights import Weights
from g_ray.data.reconstruction_settings import FolderSettings

DESCRIPTION = "Ray-angle position encoding for multi-view transformers. --version prints the version."
MAX_MESSAGE = 700
"""Characters of an error that are printed: names in it come from outside, and may be of any length."""
TRACEBACK = "G_RAY_TRACEBACK"
"""Environment variable: let unexpected exceptions through."""


def make_command(arguments: Sequence[str] = ()) -> Any:
    """Return the union of all commands; that of `train` depends on the method that `arguments` choose."""
    commands = (
        Annotated[Demo, tyro.conf.subcommand("demo")],
        Annotated[Rays, tyro.conf.subcommand("rays")],
        Annotated[Bench, tyro.conf.subcommand("bench"), tyro.conf.OmitArgPrefixes],
        Annotated[Reconstruct, tyro.conf.subcommand("reconstruct")],
        Annotated[Evaluate, tyro.conf.subcommand("evaluate"), tyro.conf.OmitArgPrefixes],
        Annotated[Reproduce, tyro.conf.subcommand("reproduce"), tyro.conf.OmitArgPrefixes],
        Annotated[Data, tyro.conf.subcommand("data"), tyro.conf.OmitArgPrefixes],
        Annotated[Synthesize, tyro.conf.subcommand("synthesize")],
        Annotated[View, tyro.conf.subcommand("view")],
        Annotated[Weights, tyro.conf.subcommand("weights"), tyro.conf.OmitArgPrefixes],
        # train keeps its prefixes: --schedule.steps
        Annotated[make_train(arguments), tyro.conf.subcommand("train")],
    )
    return Union[commands]  # noqa: UP007 (of a tuple)


def make_registry() -> tyro.constructors.ConstructorRegistry:
    """Return how values of our own types are written on the command line."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def parse_folder_settings(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        if info.type is not FolderSettings:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="SETTING=VALUE,…",
            instance_from_str=lambda words: FolderSettings.parse(words[0]),
            is_instance=lambda value: isinstance(value, FolderSettings),
            str_from_instance=lambda value: [value.format()],
        )

    return registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 (or the command's own code), 2 for a user error, 130 after Ctrl-C, 1 for a defect."""
    for stream in (sys.stdout, sys.stderr):
        # File names and foreign labels may hold characters that a terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # OpenMP's threads spin while they wait for one another; beside other programs that took 30 times as long as one
    # thread (docs: benchmarks). Read when torch is imported, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = _format_warning
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"g-ray {__version__}")
        return 0
    try:
        code = parse_command(arguments).run()
    except KeyboardInterrupt:
        return _print_error("stopped", 130)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "g_ray":
            raise
        return _print_error(
            f"this command needs {error.name}; install it with: pip install 'g-ray[view,calib,train,render,hub]'",
            2,
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


def parse_command(arguments: Sequence[str]) -> Any:
    """Return the command of a command line; SystemExit after help, or after the parser has printed what is wrong."""
    check_no_empty_argument(arguments)
    arguments = expand_recipe_name(arguments)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                make_command(arguments),
                prog="g-ray",
                description=DESCRIPTION,
                args=arguments,
                config=(tyro.conf.OmitSubcommandPrefixes,),
                registry=make_registry(),
            )
    except SystemExit as stop:
        error = _find_own_error(stop)
        if error is not None:
            raise error from None
        sys.stderr.write(said.getvalue())
        raise


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
