"""Reconstruct into a folder: estimate the cost, resume an interrupted run, write files."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.export.export_options import ExportOptions
from g_ray.export.result import (
    Reconstruction,
    check_view_names,
    write_views,
)
from g_ray.export.write_masks import write_masks
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.network_cost import format_estimate
from g_ray.predictors.predictor import Predictor, Progress, SceneInput
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import assemble, reconstruct_views
from g_ray.runtime.files import write_json
from g_ray.runtime.out_folder import RESULT, UNFINISHED, check_out, read_mark
from g_ray.viewer.report_pictures import SIDE

GIB = 2**30
PICTURES_KEPT = 100
"""Photographs whose picture for the report is kept since they were decoded; further ones are decoded again."""
KEY_FORMAT = "g-ray-run"


def check_result_folder(out: Path) -> None:
    """Raise ValueError if a folder cannot take a result; call it before anything is computed."""
    if read_mark(out / RESULT) is not None:
        raise ValueError(f"{out} holds a finished result: choose another --out, or delete it")
    check_out(out, UNFINISHED)


def run_reconstruction(
    scene: SceneInput,
    known: KnownGeometry,
    predictor: Predictor,
    out: Path,
    options: ExportOptions,
    *,
    report: Callable[[str], None],
    progress: Progress,
) -> Reconstruction:
    """Reconstruct views into the folder `out`, or resume there; `report` is called with sentences for users.

    On Ctrl-C finished parts stay in `out`, and the same command resumes the run.
    """
    check_result_folder(out)
    check_view_names(out, [view.name for view in scene.views])
    cost = predictor.estimate_cost(scene)
    report(
        f"{cost.text}: about {format_estimate(cost.seconds)}, "
        f"{cost.memory / GIB:.1f} GiB of memory (estimates for the whole run)"
    )
    for view in scene.views[:PICTURES_KEPT]:
        view.expect_copy(SIDE)
    work = open_work_folder(out, make_resume_key(scene, known, predictor))
    try:
        result = reconstruct_views(scene, predictor, known=known, work=work, progress=progress)
    except KeyboardInterrupt:
        _write_finished(scene, known, predictor, out, work, report)
        raise
    report("\nwriting files")
    photos = {view.name: view for view in scene.views}
    write_masks(out, [photos[view.name] for view in result.views])
    stored = result.save(
        out,
        [_get_photo(photos[view.name]) for view in result.views],
        options,
        {"model": predictor.NAME, **predictor.describe_settings(), "export": asdict(options)},
    )
    shutil.rmtree(work, ignore_errors=True)
    return stored


def _write_finished(
    scene: SceneInput,
    known: KnownGeometry,
    predictor: Predictor,
    out: Path,
    work: Path,
    report: Callable[[str], None],
) -> None:
    """Write what an interrupted run has finished, so that it can be looked at, and say how to resume."""
    prediction = predictor.load_finished(scene, work)
    if prediction is None:
        report(f"\nfinished parts are in {work}; the same command resumes the run")
        return
    views = assemble(scene, prediction, known, predictor).views
    photos = {view.name: view for view in scene.views}
    write_views(out, views, [_get_photo(photos[view.name]) for view in views])
    report(f"\n{len(views)} of {len(scene.views)} views are in {out}; the same command resumes the run")


def open_work_folder(out: Path, key: dict[str, Any]) -> Path:
    """Open or create OUT/unfinished; ValueError if an unfinished run with other inputs or settings is there."""
    stored_key = json.loads(json.dumps({"format": KEY_FORMAT, **key}))
    path = out / UNFINISHED
    folder = path.parent
    before = read_mark(path)
    if before is not None:
        changed = [name for name in {**before, **stored_key} if before.get(name) != stored_key.get(name)]
        if changed:
            raise ValueError(
                f"{out} holds an unfinished run with other {', '.join(changed)}: "
                "repeat its command, choose another --out, or delete the folder"
            )
    else:
        # Deleted as a whole when the run is finished, so it must not hold anything else.
        check_out(folder)
        write_json(path, stored_key)
    return folder


def make_resume_key(scene: SceneInput, known: KnownGeometry, predictor: Predictor) -> dict[str, Any]:
    """Collect everything that changes a finished part; a run with another key cannot resume."""
    files = {str(path): path.stat() for path in (_get_photo(view).path for view in scene.views)}
    poses = known.poses if known.keep_poses and "poses" in predictor.USES else ()
    return {
        "photographs": [view.name for view in scene.views],
        "files": {path: [stat.st_size, stat.st_mtime_ns] for path, stat in files.items()},
        "calibration": [[view.source, hash_camera(view.camera)] for view in scene.views],
        "poses": [None if pose is None else _hash(pose.world_from_cam) for pose in poses],
        "masks": [
            None if mask is None else _hash(mask) for mask in (view.load_mask() for view in scene.views)
        ],
        "rig": scene.rig is not None,
        "model": predictor.NAME,
        "settings": predictor.describe_settings(),
    }


def hash_camera(camera: Camera) -> str:
    """Return a digest that changes with any number of a calibration, whatever its model: of rays over the image."""
    return _hash(camera.resize(8, 8).unproject_grid()[0].to(torch.float64))


def _hash(values: torch.Tensor) -> str:
    return hashlib.sha256(values.numpy(force=True).tobytes()).hexdigest()[:16]


def _get_photo(view: View) -> Photo:
    if not isinstance(view.image, Photo):
        raise ValueError(f"view {view.name!r} has no photograph on disk")
    return view.image
