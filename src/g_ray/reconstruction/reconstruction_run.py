"""Reconstruct photographs into a folder: resumable, and every group that is not connected to the others by itself.

OUT/…             the files of the reconstruction (`g_ray.export.result`)
OUT/group-N/…     the same for each group, the largest first, if photographs form several that nothing connects
OUT/result.json   in that case the list of groups
OUT/report.html   in that case links to the reports of the groups
OUT/unfinished/   settings and finished parts, until all is written
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from g_ray.export.export_options import ExportOptions
from g_ray.export.mesh_export import estimate_mesh
from g_ray.export.result import GROUPS_FORMAT, Reconstruction, write_views
from g_ray.export.result_paths import check_view_names
from g_ray.export.write_files import write_masks
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.network_cost import format_estimate
from g_ray.predictors.predictor import Predictor, Progress, SceneInput, ScenePrediction
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import assemble, attach_poses
from g_ray.runtime.files import remove_scratch_files, write_atomically, write_json
from g_ray.runtime.out_folder import RESULT, UNFINISHED, check_out, lock_folder, read_mark, remove_lock
from g_ray.viewer.embed import read_asset
from g_ray.viewer.view_pictures import SIDE

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
) -> list[Reconstruction]:
    """Reconstruct views into the folder `out`, or resume there; `report` is called with sentences for users.

    Groups of photographs that nothing connects with the others are reconstructed each by itself; the largest is first
    in the list. On Ctrl-C finished parts stay in `out`, and the same command resumes the run.
    """
    check_result_folder(out)
    check_view_names(out, [view.name for view in scene.views])
    cost = predictor.estimate_cost(scene)
    mesh_seconds, mesh_bytes = estimate_mesh(scene.views, cost.fused, options)
    report(
        f"{cost.text}: about {format_estimate(cost.seconds + mesh_seconds)}, "
        f"{max(cost.memory, cost.held + mesh_bytes) / GIB:.1f} GiB of memory (estimates for the whole run)"
    )
    for view in scene.views[:PICTURES_KEPT]:
        view.expect_copy(SIDE)
    with lock_folder(out):
        check_result_folder(out)  # another run may have finished it meanwhile
        work = open_work_folder(out, make_resume_key(scene, known, predictor))
        results = _run_in_folder(scene, known, predictor, out, work, options, report, progress)
        shutil.rmtree(work, ignore_errors=True)
        remove_scratch_files(out)
        remove_lock(out)
    return results


def _run_in_folder(
    scene: SceneInput,
    known: KnownGeometry,
    predictor: Predictor,
    out: Path,
    work: Path,
    options: ExportOptions,
    report: Callable[[str], None],
    progress: Progress,
) -> list[Reconstruction]:
    """Reconstruct and write everything; if it is interrupted, what is finished."""
    try:
        groups = reconstruct_groups(scene, predictor, known=known, work=work, progress=progress)
    except KeyboardInterrupt:
        _write_finished(scene, known, predictor, out, work, report)
        raise
    report("\nwriting files")
    settings = {"model": predictor.NAME, **predictor.describe_settings(), "export": asdict(options)}
    folders = [out] if len(groups) == 1 else [out / f"group-{number}" for number in range(1, len(groups) + 1)]
    photos = {view.name: view for view in scene.views}
    results = []
    for folder, group in zip(folders, groups, strict=True):
        views = [photos[view.name] for view in group.views]
        write_masks(folder, views)
        results.append(group.save(folder, [_get_photo(view) for view in views], options, settings))
    if len(results) > 1:
        write_groups(out, results)
    return results


def reconstruct_groups(
    scene: SceneInput,
    predictor: Predictor,
    *,
    known: KnownGeometry | None = None,
    work: Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> list[Reconstruction]:
    """Reconstruct a scene and, each as a scene of its own, groups of photographs that nothing connects with the rest.

    The largest is first. Photographs that no group places are left out of the one that was tried first.
    """
    known = known or KnownGeometry()
    scene = attach_poses(scene, known, predictor)
    everything = list(range(len(scene.views)))
    parts = [(everything, predictor.predict(scene, work, progress))]
    waiting, notes = _list_groups(*parts[0]), []
    while waiting:
        members, number = waiting.pop(0), len(parts) + 1
        try:
            prediction = predictor.predict(
                scene.select(members),
                work,
                lambda stage, share, number=number: progress(f"group {number}, {stage}", share),
            )
        except ValueError as error:
            notes.append(f"the group of {scene.views[members[0]].name} has no result: {error}")
            continue
        waiting += _list_groups(members, prediction)
        parts.append((members, prediction))
    placed = {members[row] for members, prediction in parts[1:] for row in _list_placed(prediction)}
    results = []
    for members, prediction in parts:
        rows = _list_placed(prediction)
        if members is everything:
            rows = [row for row in everything if row not in placed]
        results.append(_assemble_part(scene, known, predictor, members, prediction, rows))
    results[0] = replace(results[0], notes=(*results[0].notes, *notes))
    return sorted(results, key=lambda result: -len(result.views))


def _list_groups(members: Sequence[int], prediction: ScenePrediction) -> list[list[int]]:
    """List groups of views that a prediction could not place, by their numbers in the whole scene."""
    groups = () if prediction.sparse is None else prediction.sparse.groups
    return [[members[row] for row in group] for group in groups]


def _list_placed(prediction: ScenePrediction) -> list[int]:
    return [row for row, view in enumerate(prediction.views) if view is not None]


def _assemble_part(
    scene: SceneInput,
    known: KnownGeometry,
    predictor: Predictor,
    members: Sequence[int],
    prediction: ScenePrediction,
    rows: Sequence[int],
) -> Reconstruction:
    """Assemble some rows of the prediction of some members of a scene."""
    if len(rows) == len(scene.views):
        return assemble(scene, prediction, known, predictor)
    chosen = [members[row] for row in rows]
    return assemble(scene.select(chosen), prediction.select(rows), known.select(chosen), predictor)


GROUPS_PAGE = Template(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title><style>$css</style></head>
<body><main><h1>$title</h1>
<p class="text">Nothing in the photographs connects these groups, so each is a result of its own, with a world and a
scale of its own.</p><ul>$items</ul></main></body></html>
"""
)


def write_groups(out: Path, results: Sequence[Reconstruction]) -> None:
    """Write a page that links the results of all groups, and then result.json with their list."""
    groups = [
        {
            "folder": result.saved_folder.name,
            "grade": result.quality.get("grade", "unknown"),
            "views": [view.name for view in result.cameras()],
        }
        for result in results
    ]
    items = "".join(
        f'<li><a href="{group["folder"]}/report.html">{group["folder"]}</a>: {len(group["views"])} photographs '
        f"({escape(group['views'][0])}, …), {escape(group['grade'])}</li>"
        for group in groups
    )
    title = f"{len(groups)} groups of photographs"
    page = GROUPS_PAGE.substitute(title=title, css=read_asset("page.css"), items=items)
    write_atomically(out / "report.html", page)
    write_json(out / RESULT, {"format": GROUPS_FORMAT, "version": 1, "groups": groups})


def _write_finished(
    scene: SceneInput,
    known: KnownGeometry,
    predictor: Predictor,
    out: Path,
    work: Path,
    report: Callable[[str], None],
) -> None:
    """Write what an interrupted run has finished, so that it can be viewed, and report how to resume."""
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
        "calibration": [[view.source, view.camera.compute_digest()] for view in scene.views],
        "poses": [None if pose is None else _hash(pose.world_from_cam) for pose in poses],
        "masks": [
            None if mask is None else _hash(mask) for mask in (view.load_mask() for view in scene.views)
        ],
        "rig": None if scene.rig is None else scene.rig.compute_digest(),
        "model": predictor.NAME,
        "settings": predictor.describe_settings(),
    }


def _hash(values: torch.Tensor) -> str:
    return hashlib.sha256(values.numpy(force=True).tobytes()).hexdigest()[:16]


def _get_photo(view: View) -> Photo:
    if not isinstance(view.image, Photo):
        raise ValueError(f"view {view.name!r} has no photograph on disk")
    return view.image
