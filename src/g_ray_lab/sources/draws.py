"""Draws that any process repeats: streams of numbered scenes, new draws for unreadable files, frames of a clip."""

import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from g_ray.geometry.pose import Pose
from g_ray.synthesis.synthesizer import compute_baseline_scale

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


# Frames of a clip that form a scene, and their normalized poses (as LVSM trains on RealEstate10K)

STANDING = 1e-2
"""A path shorter than this is not scaled: its direction is noise."""


def draw_frames(
    random: np.random.Generator, frames: int, gap: tuple[int, int], contexts: int, targets: int
) -> list[int]:
    """Draw contexts, then targets: contexts at both ends of a range of U{gap} frames, all others strictly between.

    The range is never longer than the clip.
    """
    length = int(random.integers(gap[0], min(gap[1], frames - 1) + 1))
    first = int(random.integers(frames - length))
    between = first + 1 + random.choice(length - 1, contexts - 2 + targets, replace=False)
    inner, wanted = between[: contexts - 2], between[contexts - 2 :]
    return [first, *(int(n) for n in inner), first + length, *(int(n) for n in wanted)]


def check_sampling(gap: tuple[int, int], contexts: int, targets: int) -> None:
    """Raise ValueError for settings with which `draw_frames` can fail."""
    if contexts < 2 or targets < 1:
        raise ValueError(f"{contexts} contexts and {targets} targets: a clip needs at least 2 and 1")
    if not contexts + targets - 1 <= gap[0] <= gap[1]:
        raise ValueError(
            f"frame gap {gap} must be a range, and leave room for the {contexts + targets - 2} frames between its ends"
        )


def normalize_poses(poses: Pose, contexts: int) -> Pose:
    """Make the first context the world, and scale the last one to distance 1 (unless the camera stood still)."""
    relative = poses.relative_to_first()
    baseline = relative.translation[..., contexts - 1, :].norm(dim=-1)
    scale = 1 / baseline.where(baseline > STANDING, 1.0)
    return relative.scale_translation(scale[..., None].expand(relative.batch_shape))


def hash_to_unit(key: str) -> float:
    """Hash a name to a number in [0, 1): splits made with it do not depend on the other names."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "big") / 2**56


# Poses of unknown scale, as structure from motion gives them.


def scale_to_baseline(poses: Pose, contexts: int, baseline: float | int) -> Pose:
    """Make the first context the world, and scale so that the farthest other context is `baseline` away from it.

    Poses are [*batch, view], contexts first. Where all contexts stand in one place the scale stays as it is.
    """
    relative = poses.relative_to_first()
    return relative.scale_translation(
        compute_baseline_scale(relative, contexts, baseline)[..., None].expand(relative.batch_shape)
    )
