"""Entry point of `g-ray`: parse, run, and turn a user's mistake into one line.

Commands are dataclasses with `run()`; whatever is slow to import (torch, matplotlib) is imported inside it, so
that `g-ray --help` answers at once.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from g_ray import __version__
from g_ray.cli.bench import Bench
from g_ray.cli.data import Data
from g_ray.cli.demo import Demo
from g_ray.cli.rays import Rays
from g_ray.cli.reconstruct import Reconstruct
from g_ray.cli.reproduce import Reproduce
from g_ray.cli.synthesize import Synthesize
from g_ray.cli.train import Train
from g_ray.cli.view import View
from g_ray.cli.weights import Weights

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Rays, tyro.conf.subcommand("rays")]
    | Annotated[Bench, tyro.conf.subcommand("bench"), tyro.conf.OmitArgPrefixes]
    | Annotated[Reconstruct, tyro.conf.subcommand("reconstruct")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce"), tyro.conf.OmitArgPrefixes]
    | Annotated[Data, tyro.conf.subcommand("data"), tyro.conf.OmitArgPrefixes]
    | Annotated[Synthesize, tyro.conf.subcommand("synthesize")]
    | Annotated[View, tyro.conf.subcommand("view")]
    | Annotated[Weights, tyro.conf.subcommand("weights"), tyro.conf.OmitArgPrefixes]
    | Annotated[Train, tyro.conf.subcommand("train")]  # keeps its prefixes: --schedule.steps
)

DESCRIPTION = "Ray-angle position encoding for multi-view transformers. --version prints the version."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 (or what it returns) if it worked, 2 if the user can mend it, 130 if they stopped it."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"g-ray {__version__}")
        return 0
    try:
        command = tyro.cli(
            Command,  # type: ignore[arg-type]
            prog="g-ray",
            description=DESCRIPTION,
            args=arguments,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagConversionOff),
        )
        code = command.run()
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
    return code or 0


def _format_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _print_error(message: str, code: int) -> int:
    print(f"g-ray: {message}", file=sys.stderr)
    return code
