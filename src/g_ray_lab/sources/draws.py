"""Another draw in the place of one whose files cannot be read."""

import pickle
import zipfile
from collections.abc import Callable
from typing import TypeVar

import numpy as np

BROKEN_SAMPLE = (OSError, EOFError, ValueError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile)
"""What reading a damaged file raises; anything else is a bug and stops the run."""

MAX_DRAWS = 16
"""Draws of one set until its folder counts as unreadable."""

REDRAW_STREAM = 0x2ED2
"""Keeps further draws independent of the first ones."""

Drawn = TypeVar("Drawn")


class UnreadableFolder(ValueError):
    """So many draws failed one after the other that a folder is damaged as a whole, or no longer there."""


def draw_readable(draw: Callable[[int], Drawn], folder: object) -> tuple[Drawn, list[str]]:
    """Return `draw(attempt)` of the first attempt 0, 1, … that can be read, and why those before could not."""
    reasons: list[str] = []
    for attempt in range(MAX_DRAWS):
        try:
            return draw(attempt), reasons
        except BROKEN_SAMPLE as error:
            reasons.append(describe_error(error))
    raise UnreadableFolder(f"{folder}: {MAX_DRAWS} sets in a row cannot be read; the last one: {reasons[-1]}")


def make_generator(attempt: int, *seeds: int) -> np.random.Generator:
    """Make the generator of an attempt; that of the first is the plain one of its seeds."""
    return np.random.default_rng(seeds if attempt == 0 else (*seeds, REDRAW_STREAM, attempt))


def describe_error(error: BaseException) -> str:
    """Return kind and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
