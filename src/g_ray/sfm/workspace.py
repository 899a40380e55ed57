"""Features and verified matches on disk, so that an interrupted run continues where it stopped.

FOLDER/features/<hash>.npz   one file a photograph, named after its pixels, mask, lens and settings
FOLDER/matches.db            COLMAP's database: features, matches and two-view geometries of pairs
FOLDER/matches.json          what the database was made from; a database of other inputs is deleted
FOLDER/scene-<hash>/         a mapped scene, named after these inputs
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.formats.colmap.colmap_cameras import ColmapLens, count_threads
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo
from g_ray.media.view import Image, Mask, View
from g_ray.runtime.files import atomic_path, write_json
from g_ray.runtime.interruptible import open_thread_pool, run_interruptibly
from g_ray.sfm.features import Features, extract_features
from g_ray.sfm.pairs import Pair
from g_ray.sfm.rig import Rig
from g_ray.sfm.sfm_options import MAX_ERROR_PX, MIN_INLIERS, WORKING_SIZE, SfMOptions
from g_ray.sfm.sparse_scene import SparseScene, load_scene, save_scene

Report = Callable[[str, float], None]
"""Called with the name of the stage and the share of it that is done."""

BLOCKS = 20
"""Matching is reported, and can be interrupted, this many times."""
MIN_BLOCK = 40


@contextmanager
def choose_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the given folder, or a temporary one that is removed at the end of the block."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="g-ray-sfm-") as name:
        yield Path(name)


def ignore_progress(stage: str, share: float) -> None:
    """Report nothing."""


def prepare_views(views: Sequence[View]) -> list[View]:
    """Check that every view has one camera and a name of its own, and return them with cameras in float64.

    Views that share a camera object share a lens, before and after.
    """
    names = [view.name for view in views]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is the name of two photographs; rename one of them")
    for view in views:
        if view.camera.batch_shape:
            raise ValueError(
                f"{view.name}: a batch of cameras of shape {view.camera.batch_shape}; give one camera for each view"
            )
    exact = {id(view.camera): view.camera.to("cpu").to(dtype=torch.float64) for view in views}
    return [replace(view, camera=exact[id(view.camera)]) for view in views]


def hash_view(view: View) -> str:
    """Identify the pixels, the mask and the lens, whatever the file is called."""
    digest = hashlib.sha1()
    for part in (view.image, view.mask):
        digest.update(_collect_bytes(part))
    digest.update(view.camera.compute_digest().encode())
    return digest.hexdigest()


def _collect_bytes(part: Image | Mask | Tensor | None) -> bytes:
    if part is None:
        return b"-"
    if isinstance(part, Tensor):
        return np.ascontiguousarray(part.detach().cpu().numpy()).tobytes()
    if isinstance(part, Photo):
        return f"{part.orientation} {part.upright} {part.time}".encode() + part.path.read_bytes()
    if not isinstance(part, Path):
        return _collect_bytes(part.load())
    try:
        return part.read_bytes()
    except OSError as error:
        raise ValueError(f"{part}: cannot be read ({error.strerror}); check its name and folder") from None


@dataclass(frozen=True, eq=False)
class Workspace:
    """What COLMAP reads: views, their lenses and features, and the database with their matches."""

    pycolmap: Any
    folder: Path
    views: Sequence[View]
    lenses: Sequence[ColmapLens]
    features: Sequence[Features]
    rig: Rig | None
    options: SfMOptions

    @property
    def database(self) -> Path:
        return self.folder / "matches.db"


def load_features(
    pycolmap: Any, views: Sequence[View], options: SfMOptions, folder: Path, report: Report
) -> list[Features]:
    """Read the features of every view, or extract and store them."""
    done = 0

    def load(view: View) -> Features:
        nonlocal done
        features = _load_or_extract(pycolmap, view, options, folder / "features")
        done += 1
        report("features", done / len(views))
        return features

    with open_thread_pool(count_threads(options.threads)) as pool:
        return list(pool.map(load, views))


def _load_or_extract(pycolmap: Any, view: View, options: SfMOptions, folder: Path) -> Features:
    settings = f"{hash_view(view)} {WORKING_SIZE} {options.max_features}"
    path = folder / f"{hashlib.sha1(settings.encode()).hexdigest()}.npz"
    if path.is_file():
        with np.load(path) as file:
            return Features(file["pixels"], file["descriptors"], file["colors"])
    features = extract_features(pycolmap, view, options)
    with atomic_path(path) as scratch, scratch.open("wb") as file:
        np.savez(file, pixels=features.pixels, descriptors=features.descriptors, colors=features.colors)
    return features


def build_database(space: Workspace) -> None:
    """Write cameras, rigs, frames and features, unless the database already has exactly these."""
    key = {"inputs": _compute_key(space)}
    note = space.folder / "matches.json"
    if space.database.is_file() and note.is_file() and json.loads(note.read_text()) == key:
        return
    for path in space.folder.glob("matches.*"):
        path.unlink()
    database = space.pycolmap.Database.open(str(space.database))
    try:
        _write_views(space, database)
    finally:
        database.close()
    write_json(note, key)


def match_pairs(space: Workspace, pairs: Sequence[Pair], report: Report, guided: bool = False) -> None:
    """Match features of pairs and verify them with the calibrated lenses; pairs that are done are skipped.

    With `guided`, features of verified pairs are matched again along their epipolar curves.
    """
    pycolmap, options = space.pycolmap, space.options
    matching = pycolmap.FeatureMatchingOptions()
    matching.num_threads = count_threads(options.threads)
    matching.guided_matching = guided
    matched, _ = read_matched_pairs(space.pycolmap, space.database)
    remaining = [pair for pair in pairs if pair not in matched]
    size = max(MIN_BLOCK, -(-len(remaining) // BLOCKS))
    for start in range(0, len(remaining), size):
        report("matches", start / len(remaining))
        lines = [f"{format_name(i)} {format_name(j)}\n" for i, j in remaining[start : start + size]]
        with atomic_path(space.folder / "pairs.txt") as scratch:
            scratch.write_text("".join(lines))
            pairing = pycolmap.ImportedPairingOptions()
            pairing.match_list_path = str(scratch)
            verification = make_verification_options(space)
            run_interruptibly(
                partial(
                    pycolmap.match_image_pairs,
                    *(str(space.database), matching, pairing, verification, pycolmap.Device.auto),
                )
            )
    report("matches", 1.0)


def load_or_compute(space: Workspace, kind: str, compute: Callable[[], SparseScene]) -> SparseScene:
    """Return the scene that an earlier run computed from the same features, lenses and rig, or compute and store it."""
    names = [view.name for view in space.views]
    inputs = f"{kind} {names} {_compute_key(space)} {sorted(read_matched_pairs(space.pycolmap, space.database)[0])}"
    digest = hashlib.sha1(inputs.encode()).hexdigest()
    folder = space.folder / f"scene-{digest[:16]}"
    try:
        # Views that share a camera object share a lens: the views' own cameras replace those on disk.
        return replace(load_scene(folder), cameras=tuple(view.camera for view in space.views))
    except ValueError:
        scene = compute()
        save_scene(scene, folder)
        return scene


def make_verification_options(space: Workspace) -> Any:
    verification = space.pycolmap.TwoViewGeometryOptions()
    verification.min_num_inliers = MIN_INLIERS
    verification.ransac.max_error = MAX_ERROR_PX
    verification.ransac.random_seed = space.options.seed
    verification.compute_relative_pose = True
    # Masks exclude what does not move with the world; a guess from the picture's border would be wrong for fisheyes.
    verification.detect_watermark = False
    return verification


def read_two_view_geometries(space: Workspace) -> dict[Pair, Any]:
    """Verified pairs (i, j), i < j, with their inlier matches."""
    database = space.pycolmap.Database.open(str(space.database))
    try:
        numbers, geometries = database.read_two_view_geometries()
    finally:
        database.close()
    found = {}
    for number, geometry in zip(numbers, geometries, strict=True):
        first, second = space.pycolmap.pair_id_to_image_pair(number)
        if len(geometry.inlier_matches):
            found[first - 1, second - 1] = geometry
    return found


def format_name(index: int) -> str:
    """Name of a view in the database; users' names may contain spaces."""
    return f"{index:06d}"


def read_matched_pairs(pycolmap: Any, database: Path) -> tuple[set[Pair], list[Pair]]:
    """Return the pairs that were matched, and those of them that were verified."""
    with pycolmap.Database.open(str(database)) as opened:
        numbers, inliers = opened.read_two_view_geometry_num_inliers()
    raw = [pycolmap.pair_id_to_image_pair(number) for number in numbers]
    pairs = [(first - 1, second - 1) for first, second in raw]
    return set(pairs), [pair for pair, count in zip(pairs, inliers, strict=True) if count]


def _compute_key(space: Workspace) -> str:
    digest = hashlib.sha1()
    for lens, features in zip(space.lenses, space.features, strict=True):
        digest.update(f"{lens.model} {lens.parameters} {lens.width} {lens.height}".encode())
        digest.update(features.pixels.tobytes() + features.descriptors.tobytes())
    if space.rig is not None:
        digest.update(space.rig.compute_digest().encode())
    options = space.options
    digest.update(f"{MIN_INLIERS} {MAX_ERROR_PX} {options.seed}".encode())
    return digest.hexdigest()


def _write_views(space: Workspace, database: Any) -> None:
    """Images are numbered from 1 in the order of the views; a camera of a rig is a sensor of its own."""
    pycolmap = space.pycolmap
    numbers: dict[tuple[int, str], int] = {}
    camera_of_view = []
    for index, (view, lens) in enumerate(zip(space.views, space.lenses, strict=True)):
        place = space.rig.places[index] if space.rig is not None else None
        key = (id(view.camera), place[0] if place else "")
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            database.write_camera(lens.make_camera(pycolmap, numbers[key]), use_camera_id=True)
        camera_of_view.append(numbers[key])
        image = pycolmap.Image(name=format_name(index), camera_id=numbers[key], image_id=index + 1)
        database.write_image(image, use_image_id=True)
        features = space.features[index]
        write_features(pycolmap, database, index + 1, lens.convert_pixels(features.pixels)[0], features)
    for rig in make_rigs(space, camera_of_view):
        database.write_rig(rig, use_rig_id=True)
    for frame in make_frames(space, camera_of_view):
        database.write_frame(frame, use_frame_id=True)


def write_features(
    pycolmap: Any, database: Any, image: int, pixels: Float[np.ndarray, "n 2"], features: Features
) -> None:
    """Write features at pixels of COLMAP's camera."""
    database.write_keypoints(image, pixels.astype(np.float32))
    kind = pycolmap.FeatureExtractorType.SIFT
    database.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=features.descriptors))


def make_rigs(space: Workspace, cameras: Sequence[int]) -> list[Any]:
    """COLMAP's rigs: number 1 is the user's, and every camera outside of it is a rig of its own."""
    pycolmap = space.pycolmap
    labels = _label_rig_cameras(space, cameras)
    rigs = []
    if labels:
        rig = pycolmap.Rig(rig_id=1)
        reference, *others = labels
        rig.add_ref_sensor(_make_sensor(pycolmap, reference))
        for camera in others:
            assert space.rig is not None
            poses = space.rig.rig_from_cam
            cam_from_rig = poses[labels[camera]].inverse() @ poses[labels[reference]]
            rig.add_sensor(_make_sensor(pycolmap, camera), convert_pose(pycolmap, cam_from_rig))
        rigs.append(rig)
    for camera in sorted(set(cameras) - set(labels)):
        rig = pycolmap.Rig(rig_id=camera + 1)
        rig.add_ref_sensor(_make_sensor(pycolmap, camera))
        rigs.append(rig)
    return rigs


def make_frames(space: Workspace, cameras: Sequence[int]) -> list[Any]:
    """Make one frame per instant of the rig, and one per view outside of it."""
    pycolmap = space.pycolmap
    groups: dict[tuple[int, str], list[int]] = {}
    for index, camera in enumerate(cameras):
        place = space.rig.places[index] if space.rig is not None else None
        key = (1, place[1]) if place else (camera + 1, format_name(index))
        groups.setdefault(key, []).append(index)
    frames = []
    for number, ((rig, _), members) in enumerate(groups.items(), 1):
        frame = pycolmap.Frame(frame_id=number, rig_id=rig)
        for index in members:
            frame.add_data_id(pycolmap.data_t(_make_sensor(pycolmap, cameras[index]), index + 1))
        frames.append(frame)
    return frames


def _label_rig_cameras(space: Workspace, cameras: Sequence[int]) -> dict[int, str]:
    """Numbers of the cameras on the user's rig, with their labels; the first is the reference."""
    if space.rig is None:
        return {}
    places = zip(cameras, space.rig.places, strict=True)
    return {camera: place[0] for camera, place in places if place is not None}


def _make_sensor(pycolmap: Any, camera: int) -> Any:
    return pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera)


def convert_pose(pycolmap: Any, cam_from_world: Pose) -> Any:
    return pycolmap.Rigid3d(np.ascontiguousarray(cam_from_world.world_from_cam[:3].numpy(), dtype=np.float64))
