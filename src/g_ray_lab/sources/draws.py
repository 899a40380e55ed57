"""Random draws that any process repeats: streams of numbered scenes, and new draws for unreadable files."""

import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

SPLITS = ("train", "test")
"""Splits of an endless stream of scenes."""

HELD_OUT = 2**31
"""A rank that no run has: its scenes are never trained on, and are not in the test split either."""

BROKEN_SAMPLE = (OSError, EOFError, ValueError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile)
"""What reading a damaged file raises; anything else is a bug and stops the run."""

MAX_DRAWS = 16
"""Draws of one set until its folder counts as unreadable."""

REDRAW_STREAM = 0x2ED2
"""Keeps further draws independent of the first ones."""

Drawn = TypeVar("Drawn")


def make_object_random(name: str, seed: int, purpose: str) -> np.random.Generator:
    """Make the generator of an object for a purpose, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def check_draws(seed: int, **counts: int) -> None:
    """Raise ValueError unless all counts are positive and the seed is not negative."""
    if min(counts.values()) < 1 or seed < 0:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"{listed}, seed {seed}: give positive numbers, and a seed of 0 or more")


def check_split(split: str, splits: Iterable[str] = SPLITS) -> None:
    if split not in splits:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(splits)}")


def draw_weighted(random: np.random.Generator, weights: Sequence[float | int]) -> int:
    """Draw an index with a probability proportional to its weight."""
    ends = np.cumsum(weights) / sum(weights)
    return min(int(np.searchsorted(ends, random.random(), side="right")), len(ends) - 1)


class UnreadableFolder(ValueError):
    """MAX_DRAWS draws failed one after the other: a folder is damaged as a whole, or no longer there."""


def draw_all_readable(
    draw: Callable[[int, int], Drawn], numbers: Iterable[int], folder: object
) -> tuple[list[Drawn], tuple[str, ...]]:
    """Return `draw(number, attempt)` of every number at the first attempt 0, 1, … that can be read.

    The second value is why earlier attempts could not be, one line each.
    """
    drawn: list[Drawn] = []
    reasons: list[str] = []
    for number in numbers:
        for attempt in range(MAX_DRAWS):
            try:
                drawn.append(draw(number, attempt))
                break
            except BROKEN_SAMPLE as error:
                reasons.append(describe_error(error))
        else:
            raise UnreadableFolder(
                f"{folder}: {MAX_DRAWS} sets in a row cannot be read; the last one: {reasons[-1]}"
            )
    return drawn, tuple(reasons)


def make_generator(attempt: int, *seeds: int) -> np.random.Generator:
    """Make the generator of an attempt; that of the first is the plain one of its seeds."""
    return np.random.default_rng(seeds if attempt == 0 else (*seeds, REDRAW_STREAM, attempt))


def describe_error(error: BaseException) -> str:
    """Return kind and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
