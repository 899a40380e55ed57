"""Context and target views of test objects: the paper's six protocols as frozen files.

Appendix "Objaverse Target-View Definitions". Two native views are given, the same two in all six protocols. One file
per protocol, `{uid: {"context_view_files": [2], "target_view_files": […], "partition": "test", "cameras": digest}}`,
and `SHA256SUMS` next to them, as `sha256sum -c` reads it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.runtime.files import write_atomically
from g_ray_lab.datasets.objaverse import (
    DIRECTIONS,
    DOLLY,
    FOCAL,
    KINDS,
    NAMES,
    NATIVE,
    ObjectCameras,
    find_objects,
    format_image_name,
    read_cameras,
)
from g_ray_lab.sources.draws import hash_to_unit, make_object_random

TEST_SHARE = 0.1
"""Share of test objects, as in the paper: 8,000 of 80,000."""

SUMS = "SHA256SUMS"

ContextPairs = Mapping[str, tuple[int, int]]
"""Directions of the two given views, by object."""


@dataclass(frozen=True)
class TargetKinds:
    """Kinds of target views at the two given directions, and at the six others."""

    given: tuple[int, ...]
    other: tuple[int, ...]

    def list_names(self, contexts: tuple[int, int]) -> tuple[str, ...]:
        """Image names of the targets when these two directions are given."""
        others = [direction for direction in range(DIRECTIONS) if direction not in contexts]
        views = [(direction, kind) for direction in contexts for kind in self.given]
        views += [(direction, kind) for direction in others for kind in self.other]
        return tuple(format_image_name(*view) for view in views)


PROTOCOLS: dict[str, TargetKinds] = {
    "fov": TargetKinds(given=(FOCAL,), other=()),
    "novel": TargetKinds(given=(), other=(NATIVE,)),
    "novel_fov": TargetKinds(given=(), other=(FOCAL,)),
    "fov_dolly": TargetKinds(given=(FOCAL, DOLLY), other=()),
    "novel_fov_dolly": TargetKinds(given=(), other=(FOCAL, DOLLY)),
    "mixed": TargetKinds(given=(FOCAL, DOLLY), other=(NATIVE,)),
}
"""FoV change, Novel viewpoint, Novel viewpoint + FoV change (the main table); FoV / dolly change, Novel viewpoint +
FoV / dolly change, Original mixed protocol (the appendix)."""

EVERY_VIEW = TargetKinds(given=(FOCAL, DOLLY), other=KINDS)
"""All but the two given images themselves."""


@dataclass(frozen=True)
class Entry:
    """One object: context images, target images, and a digest of their cameras."""

    contexts: tuple[str, str]
    targets: tuple[str, ...]
    cameras: str

    def to_document(self) -> dict[str, Any]:
        return {
            "context_view_files": list(self.contexts),
            "target_view_files": list(self.targets),
            "partition": "test",
            "cameras": self.cameras,
        }


@dataclass(frozen=True)
class ObjectIndex:
    """A protocol: its objects in the order of the file, and the digest of that file."""

    entries: Mapping[str, Entry]
    digest: str


def assign_split(uid: str) -> str:
    """Return "train" or "test", by the product alone: an object stays where it is when others come."""
    return "test" if hash_to_unit(get_product(uid)) < TEST_SHARE else "train"


def hash_cameras(cameras: ObjectCameras) -> str:
    """Names the cameras of an object; the last digits of another machine's cosine do not change it."""
    size = np.array([[cameras.cameras.width, cameras.cameras.height]] * len(NAMES))
    numbers = [size, cameras.cameras.params.numpy(), cameras.poses.world_from_cam.flatten(1).numpy()]
    rounded = np.concatenate(numbers, 1).round(5) + 0.0  # no negative zeros
    return hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()[:16]


# Writing


def draw_contexts(root: Path, seed: int) -> ContextPairs:
    """Draw the given views of a folder's test objects; they depend on `seed` and an object's name alone."""
    names = find_objects(root)
    tested = [uid for uid in names if assign_split(uid) == "test"]
    if not tested:
        raise ValueError(
            f"{root} has {len(names)} objects, and by their names none is for testing (one in ten is): render more"
        )
    return {uid: draw_context_pair(uid, seed) for uid in tested}


def write_indices(root: Path, out: Path, pairs: ContextPairs) -> dict[str, str]:
    """Write all six protocols for objects of a folder with these given views; return their digests by protocol.

    An index that is there and differs is kept, and is an error: what networks have been scored on does not change.
    """
    texts = {f"{name}.json": text for name, text in _format_indices(root, pairs).items()}
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    for name, text in texts.items():
        if (out / name).exists() and (out / name).read_text() != text:
            raise ValueError(
                f"{out / name} is there for other objects or another seed: choose another folder for the index"
            )
    for name, text in texts.items():
        write_atomically(out / name, text)
    return {Path(name).stem: digest for name, digest in sums.items()}


def _format_indices(root: Path, pairs: ContextPairs) -> dict[str, str]:
    lines: dict[str, list[str]] = {name: [] for name in PROTOCOLS}
    for uid, pair in pairs.items():
        _check_images(root / uid, NAMES)
        digest = hash_cameras(read_cameras(root / uid))
        contexts = (format_image_name(pair[0], NATIVE), format_image_name(pair[1], NATIVE))
        for name, kinds in PROTOCOLS.items():
            entry = Entry(contexts, kinds.list_names(pair), digest)
            lines[name].append(f"{json.dumps(uid)}: {json.dumps(entry.to_document())}")
    return {name: "{\n" + ",\n".join(entries) + "\n}\n" for name, entries in lines.items()}


def draw_context_pair(uid: str, seed: int) -> tuple[int, int]:
    """Two directions of an object, in the order in which a network gets them."""
    first, second = make_object_random(uid, seed, "contexts").choice(DIRECTIONS, 2, replace=False)
    return int(first), int(second)


# Reading


def read_tested(folder: Path) -> frozenset[str]:
    """Read which objects an index tests."""
    path = folder / "mixed.json"
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not an index of objects ({error!r})") from None
    return frozenset(document)


def read_index(folder: Path, protocol: str, root: Path) -> ObjectIndex:
    """Read a protocol for the objects below `root`; raise ValueError if it was changed or is for other objects."""
    path = folder / f"{protocol}.json"
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    sums = dict(line.split()[::-1] for line in (folder / SUMS).read_text().splitlines())
    if sums.get(path.name) != digest:
        raise ValueError(f"{path} does not match {SUMS} next to it: it was changed; write the index again")
    try:
        document = json.loads(content)
        entries = {uid: _parse_entry(entry) for uid, entry in document.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not an index of objects ({error!r})") from None
    for uid, entry in entries.items():
        _check_object(path, root / uid, entry)
    return ObjectIndex(entries, digest)


def _parse_entry(document: dict[str, Any]) -> Entry:
    first, second = document["context_view_files"]
    return Entry((first, second), tuple(document["target_view_files"]), document["cameras"])


def _check_object(path: Path, folder: Path, entry: Entry) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(f"{path} names an object that is not there: {folder}")
    _check_images(folder, (*entry.contexts, *entry.targets))
    if hash_cameras(read_cameras(folder)) != entry.cameras:
        raise ValueError(
            f"{path} was made for other cameras than those of {folder}: write an index for these"
        )


def _check_images(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if not (folder / "views" / name).is_file():
            raise FileNotFoundError(f"{folder / 'views' / name}: no such image")


# Which objects are one product in several colors, prints or flavors: all of them train, or all of them test.
#
# Objects of Objaverse are named by 32 hexadecimal digits and are each a product of their own. Scanned household objects
# are named by words: maker and model first, then color, size and a code of the scan,
# `Womens_Bluefish_2Eye_Boat_Shoe_in_Linen_Oat_IbrSyJdpT3h`.


LINES = ("Ballet_Flats", "Bahama", "Girl_Scouts", "Ink_Cartridge", "Lunch_Bag", "Lunch_Box", "Pencil_Case")
"""Products whose color or print is named first: these words alone name them, wherever they stand."""

WORDS = 2
"""Leading words that name a product. Some different ones then count as one, which costs nothing but variety."""


def get_product(uid: str) -> str:
    """Return the name of the product that an object is; names of one or two words are their own."""
    for line in LINES:
        if line in uid:
            return line
    return "_".join(uid.split("_")[:WORDS])


# The evaluation index of Objaverse as released with RayRoPE.
#
# Files are `objaverse_index_test_context2_{all,radial,spherical}.json`. A file is `{uid: {"context_view_files": […],
# "target_view_files": […], "partition": "000-155", "num_angles": 8, "total_views": 24, "include_orig_target": …,
# "include_radial_target": …}}`. Ours has the same first three fields, six target sets instead of three, and a digest
# of the cameras; `partition` is a folder of Objaverse there.


PREFIX = "objaverse_index_test_context2_"

RELEASED = {"mixed": "all", "fov_dolly": "radial", "novel": "spherical"}
"""Our protocols and the ends of their file names."""

NATIVE_VIEWS = {format_image_name(direction, NATIVE): direction for direction in range(DIRECTIONS)}


def read_released_contexts(path: Path) -> ContextPairs:
    """Read which two directions a released index gives for each object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {uid: _parse_contexts(entry["context_view_files"]) for uid, entry in document.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: not an index of objects with two native context views each "
            f"({type(error).__name__}: {str(error)[:80]})"
        ) from None


def _parse_contexts(names: list[str]) -> tuple[int, int]:
    first, second = (NATIVE_VIEWS[name] for name in names)
    if first == second:
        raise ValueError(f"the same view twice: {names[0]}")
    return first, second


def write_released(indices: dict[str, ObjectIndex], out: Path) -> list[Path]:
    """Write the three released files of our protocols of the same objects."""
    paths = []
    for protocol, ending in RELEASED.items():
        document = {uid: _format_entry(entry, protocol) for uid, entry in indices[protocol].entries.items()}
        paths.append(out / f"{PREFIX}{ending}.json")
        write_atomically(paths[-1], json.dumps(document, indent=2) + "\n")
    return paths


def _format_entry(entry: Entry, protocol: str) -> dict[str, Any]:
    """Format an object as released: targets in the order of their names."""
    return {
        "context_view_files": list(entry.contexts),
        "target_view_files": sorted(entry.targets),
        "partition": "test",
        "num_angles": DIRECTIONS,
        "total_views": len(NAMES),
        "include_orig_target": protocol in ("mixed", "novel"),
        "include_radial_target": protocol in ("mixed", "fov_dolly"),
    }
