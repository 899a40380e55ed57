"""Masks of photographs: image files that are not zero where a pixel may be used.

Names are COLMAP's (dslr/a.jpg has dslr/a.jpg.png) or nerfstudio's (the same name with another ending, or `mask_path` in
a transforms.json). A mask belongs to the stored pixels of its photograph and is turned with them, unless it has an EXIF
orientation of its own or only its upright size fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from jaxtyping import Bool
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.frames import get_frames, read_document
from g_ray.formats.nerfstudio import TRANSFORMS
from g_ray.formats.posed_scene import PosedScene, resolve_inside
from g_ray.media.images import read_header
from g_ray.media.photos import Photo
from g_ray.media.view import MaskFile

SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".pgm")
"""Formats without loss: compression would leave zeros that are not zero."""
LOSSY = (".jpg", ".jpeg")
NAMED = 3
"""Photographs that a note names one by one."""


def find_masks(
    place: Path, photos: Sequence[Photo], note: Callable[[str], None] = lambda text: None
) -> list[MaskFile | None]:
    """Find a mask for each photograph in a folder or a transforms.json; None for those that have none.

    `note` is called with a line about photographs without a mask, masks without a photograph, and masks that are
    resized. ValueError if no photograph has a mask, if two share one, or if a mask has another shape than its
    photograph or hides all of it.
    """
    named = _read_mask_paths(place)
    files = sorted(path for path in place.rglob("*") if path.is_file()) if named is None else []
    finder = _MaskFinder(place, {path.relative_to(place).as_posix(): path for path in files})
    paths = [finder.find(photo) if named is None else _find_named(named, photo) for photo in photos]
    if not any(paths):
        example = PurePosixPath(photos[0].name)
        raise ValueError(
            f"{place}: no mask for any of the {len(photos)} photographs; the mask of {example} is "
            f"{example.name}.png or {example.stem}.png, in the same folder as the photograph or directly in this one"
        )
    _check_unique(photos, paths)
    masks = [
        None if path is None else MaskFile.fit(path, photo) for path, photo in zip(paths, photos, strict=True)
    ]
    for mask in masks:
        if mask is not None:
            mask.load()  # refuse a damaged or empty mask before anything is computed
    _describe(place, photos, masks, files, note)
    return masks


def add_masks(scene: PosedScene, folder: Path) -> PosedScene:
    """Return a scene with the masks of a folder, named after its photographs, instead of those that its file names.

    Where the photographs lie does not matter, only what the scene calls them. A folder name is taken inside the scene.
    """
    photos = [
        Photo.from_file(path, name, upright=False)
        for path, name in zip(scene.images, scene.names, strict=True)
    ]
    notes: list[str] = []
    masks = find_masks(scene.folder / folder, photos, notes.append)
    views = tuple(replace(view, mask=mask) for view, mask in zip(scene.views, masks, strict=True))
    return replace(scene, views=views, notes=(*scene.notes, *notes))


def valid_pixels(camera: Camera, mask: Bool[Tensor, "h w"] | None = None) -> Bool[Tensor, "h w"]:
    """Return pixels that have a ray, inside the lens's image circle if it is known, and that the mask leaves.

    ValueError if there are none.
    """
    valid = camera.unproject_grid()[1]
    valid = valid if mask is None else valid & mask.to(valid.device)
    if not bool(valid.any()):
        raise ValueError(
            "the mask leaves no pixel that the lens has a ray for; check the mask and the calibration"
        )
    return valid


# Names


@dataclass(frozen=True)
class _MaskFinder:
    """Files of a folder by their path in it."""

    folder: Path
    files: dict[str, Path]

    def find(self, photo: Photo) -> Path | None:
        """Look up the photograph's own relative path first, then with fewer and fewer of its folders."""
        parts = PurePosixPath(photo.name).parts
        for start in range(len(parts)):
            name = PurePosixPath(*parts[start:])
            stems = (name.as_posix(), name.with_suffix("").as_posix())
            found = [self.files[stem + end] for stem in stems for end in SUFFIXES if stem + end in self.files]
            # The folder may hold the photographs too: a PNG is not its own mask.
            found = [path for path in found if path.resolve() != photo.path.resolve()]
            if found:
                return found[0]
            lossy = [stem + end for stem in stems for end in LOSSY if stem + end in self.files]
            if any(self.files[one].resolve() != photo.path.resolve() for one in lossy):
                raise ValueError(
                    f"{self.folder / lossy[0]}: a mask as JPEG has zeros that are not zero; save it as PNG"
                )
        return None


def _read_mask_paths(place: Path) -> dict[str, Path] | None:
    """Read `mask_path` by `file_path` from a transforms.json, or from the one in a folder; None if there is none."""
    file = place / TRANSFORMS if place.is_dir() else place
    if not file.is_file():
        if place.is_dir():
            return None
        raise ValueError(f"{place}: no such folder of masks")
    if file.suffix != ".json":
        raise ValueError(f"{place} is a file: give a folder of masks, or a {TRANSFORMS} with mask_path")
    frames = get_frames(file, read_document(file))
    paths = {
        frame["file_path"]: resolve_inside(file.parent, str(frame["mask_path"]))
        for frame in frames
        if "mask_path" in frame
    }
    if not paths and place.is_dir():
        return None  # a scene's folder that holds masks by name
    return paths


def _find_named(named: dict[str, Path], photo: Photo) -> Path | None:
    """Find the frame whose path ends like the photograph's, with the photograph's whole name or all of the frame's."""
    own = PurePosixPath(photo.name).parts
    for name, path in named.items():
        parts = PurePosixPath(name).parts
        length = min(len(own), len(parts))
        if parts[-length:] == own[-length:]:
            if not path.is_file():
                raise ValueError(f"{path}: no such mask; {name} names it")
            return path
    return None


def _check_unique(photos: Sequence[Photo], paths: Sequence[Path | None]) -> None:
    owners: dict[Path, str] = {}
    for photo, path in zip(photos, paths, strict=True):
        if path is not None and owners.setdefault(path, photo.name) != photo.name:
            raise ValueError(
                f"{path} would be the mask of {owners[path]} and of {photo.name}; put masks in folders like the photos'"
            )


# Notes


def _describe(
    place: Path,
    photos: Sequence[Photo],
    masks: Sequence[MaskFile | None],
    files: Sequence[Path],
    note: Callable[[str], None],
) -> None:
    missing = [photo.name for photo, mask in zip(photos, masks, strict=True) if mask is None]
    if missing:
        note(f"{place}: no mask for {_join(missing)}: all pixels are used")
    used = {mask.path for mask in masks if mask is not None}
    photographs = {photo.path.resolve() for photo in photos}
    others = [path for path in files if path.suffix.lower() in SUFFIXES and path not in used]
    unused = [path.name for path in others if path.resolve() not in photographs]
    if unused:
        note(f"{place}: no photograph for {_join(unused)}")
    resized = [mask.path.name for mask in masks if mask is not None and _is_resized(mask)]
    if resized:
        note(f"{place}: resized to the photograph's size, without interpolation: {_join(resized)}")


def _is_resized(mask: MaskFile) -> bool:
    header = read_header(mask.path)
    return {header.width, header.height} != {mask.width, mask.height}


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
