"""Assign a camera to every photo, from one calibration or from several by pattern, and report what is not used."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from g_ray.calibration.estimators import KEYWORD, estimate_cameras
from g_ray.formats import CALIBRATIONS, open_calibration
from g_ray.formats.calibration_source import CalibrationSource
from g_ray.formats.documents import ParsedFile
from g_ray.formats.exif import ExifSource
from g_ray.formats.lens_words import LensWord
from g_ray.media.photos import Photo
from g_ray.media.view import View

CAMERAS_JSON = "cameras.json"
MAX_SHOWN = 3
"""Names listed in a message before "…"."""


@dataclass(frozen=True)
class Rule:
    """One argument: photos whose names match the pattern take their cameras from the source."""

    pattern: str | None
    """None: all photos that no pattern matches."""
    source: str
    text: str


def assign_cameras(
    photos: Sequence[Photo],
    sources: str | Sequence[str],
    *,
    resize: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[View]:
    """Assign cameras to photos; returns views in the order of the photos.

    `sources` are paths, "exif", "panorama", "fisheye:FOV", "estimate[:NAME]", or PATTERN=SOURCE for photos whose names
    match; SOURCE may end in :LABEL to name a camera of a rig. The first pattern that matches a photo counts. `resize`
    scales calibrations that were made at another size of the same photo. `report` is called with a sentence for
    everything that users should know and that is no mistake, such as photos that are left out because nothing ties
    them to the others, so that their lens cannot be estimated. `view.image` is the photo the way up that its camera was
    calibrated for. ValueError in one line names a photo without a camera and an argument without use.
    """
    rules = [parse_rule(text) for text in ([sources] if isinstance(sources, str) else sources)]
    report = report or _ignore
    calibrated: dict[str, View] = {}
    parts = _assign_photos(photos, rules)
    for rule, chosen in parts:
        for view in _read_cameras(rule, chosen, resize, report):
            # An estimate has a world of its own, in which only its photos have poses.
            calibrated[view.name] = replace(view, pose=None) if view.is_estimated and len(parts) > 1 else view
    missing = [photo.name for photo in photos if photo.name not in calibrated]
    estimated = {photo.name for rule, chosen in parts if _is_estimate(rule) for photo in chosen}
    if calibrated and missing and set(missing) <= estimated:
        report(
            f"left out: {_abbreviate(missing)}: no match ties in any photograph of this lens, and EXIF has no focal "
            "length; give its calibration to use it"
        )
        photos = [photo for photo in photos if photo.name in calibrated]
    elif missing:
        raise ValueError(f"no calibration for {_abbreviate(missing)}: {_format_searched(rules)}")
    views = [calibrated[photo.name] for photo in photos]
    _report_orientations(views, {photo.name for photo in photos if photo.is_turned}, report)
    return views


def find_calibration(photos: Sequence[Photo], report: Callable[[str], None]) -> str:
    """Return the calibration in the folder of the photos or the one above it; where there is none, "estimate", or
    "exif" for one photograph.

    Only calibrations that are recognized by their place are found: a scene folder (COLMAP's sparse/, transforms.json,
    …) or a cameras.json. Ray maps are not, since any array next to the photos may be something else.
    """
    folder = Path(os.path.commonpath([photo.place.absolute().parent for photo in photos]))
    sources = [source for name, source in CALIBRATIONS.items() if name != "ray_maps"]
    for place in (folder, folder / CAMERAS_JSON, folder.parent, folder.parent / CAMERAS_JSON):
        if place.exists() and any(source.recognizes(ParsedFile(place)) for source in sources):
            report(f"calibration: {place}, found next to the photographs (--calibration chooses another one)")
            return str(place)
    if len(photos) == 1:
        report("calibration: none is given or found next to the photograph, so it is taken from EXIF")
        return ExifSource.NAME
    report("calibration: none is given or found next to the photographs, so it is estimated from them")
    return KEYWORD


def parse_rule(text: str) -> Rule:
    """Parse PATTERN=SOURCE or SOURCE; a path that exists is a source, whatever its name."""
    pattern, mark, source = text.partition("=")
    if not mark or Path(text).exists():
        pattern, source = "", text
    if not source or (mark and not pattern and source != text):
        raise ValueError(f"calibration {text!r}: write SOURCE or PATTERN=SOURCE")
    return Rule(pattern or None, source, text)


def _assign_photos(photos: Sequence[Photo], rules: Sequence[Rule]) -> list[tuple[Rule, list[Photo]]]:
    if not rules:
        raise ValueError("no calibration: give a file, a folder, exif or estimate")
    plain = [rule for rule in rules if rule.pattern is None]
    if len(plain) > 1:
        raise ValueError(
            f"calibrations {plain[0].text} and {plain[1].text}: say which photos each is for, "
            f"as in 'folder/*={plain[1].text}'"
        )
    ordered = [rule for rule in rules if rule.pattern is not None] + plain
    left, result = list(photos), []
    for rule in ordered:
        pattern = rule.pattern
        chosen = left if pattern is None else [photo for photo in left if fnmatchcase(photo.name, pattern)]
        if not chosen:
            known = _abbreviate([photo.name for photo in photos])
            why = (
                "every photo has another one"
                if pattern is None
                else f"no photo left matches; there are {known}"
            )
            raise ValueError(f"calibration {rule.text}: {why}")
        taken = {photo.name for photo in chosen}
        left = [photo for photo in left if photo.name not in taken]
        result.append((rule, chosen))
    return result


def _read_cameras(rule: Rule, photos: list[Photo], resize: bool, report: Callable[[str], None]) -> list[View]:
    if _is_estimate(rule):
        return estimate_cameras(rule.source, photos, report)
    source, label = _open_calibration(rule.source)
    views = [source.find_camera(photo, resize, label) for photo in photos]
    for note in source.notes:
        report(note)
    others = source.find_unused(photos)
    if others:
        report(
            f"{source.path}: {len(others)} cameras belong to photos that are not given: {_abbreviate(others)}"
        )
    return [view for view in views if view is not None]


def _is_estimate(rule: Rule) -> bool:
    return rule.source.split(":")[0] == KEYWORD and not Path(rule.source).exists()


def _open_calibration(text: str) -> tuple[CalibrationSource | LensWord, str | None]:
    """Open the calibration at PATH or PATH:LABEL, or the lens that a word describes."""
    if LensWord.recognizes(text):
        return LensWord(text), None
    path, mark, label = text.rpartition(":")
    if mark and not Path(text).exists() and Path(path).exists():
        return open_calibration(path), label
    return open_calibration(text), None


def _report_orientations(views: Sequence[View], turned: set[str], report: Callable[[str], None]) -> None:
    """Report photos whose EXIF asks for another orientation, where their size does not show which one is right."""
    photos = [view.image for view in views if view.name in turned and isinstance(view.image, Photo)]
    stored = [photo.name for photo in photos if not photo.upright]
    if stored:
        report(
            f"{_abbreviate(stored)}: used as stored, not upright according to EXIF: "
            "their cameras are of the stored pixels"
        )
    ambiguous = [photo for photo in photos if photo.upright and _keeps_size(photo)]
    if ambiguous:
        names = _abbreviate([photo.name for photo in ambiguous])
        report(
            f"{names}: turned upright according to EXIF; calibrations are taken to be of the upright photos "
            "(--as-stored leaves the pixels as they are)"
        )


def _keeps_size(photo: Photo) -> bool:
    stored = photo.turn(upright=False)
    return (stored.width, stored.height) == (photo.width, photo.height)


def _format_searched(rules: Sequence[Rule]) -> str:
    looked = ", ".join(rule.text for rule in rules)
    return f"looked in {looked}; add a calibration for it, or leave it out ({', '.join([*CALIBRATIONS, KEYWORD])})"


def _abbreviate(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_SHOWN]) + (f", … ({len(names)})" if len(names) > MAX_SHOWN else "")


def _ignore(sentence: str) -> None:
    return None
