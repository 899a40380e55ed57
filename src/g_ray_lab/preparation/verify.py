"""Check the scenes of a dataset on disk before anything is computed on them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from g_ray.media.images import read_photo_size
from g_ray.runtime.files import write_json
from g_ray_lab.datasets.dataset_registry import Dataset
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene, Framing
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.sources.scene_check import pick_evenly

NAMED = 3


@dataclass(frozen=True)
class SceneCheck:
    """What was found in a scene; it is sound if nothing is wrong."""

    dataset: str
    scene: str
    frames: int
    fingerprint: str
    wrong: tuple[str, ...] = ()


def verify_dataset(
    name: str, dataset: Dataset, root: Path, notes: Path, probes: int, report: Callable[[str], None]
) -> list[SceneCheck]:
    """Check all scenes that are there; those that were sound before and have not changed are not opened again.

    Image and depth are read of `probes` frames per scene, of all if it is 0; files and image sizes are checked of all.
    """
    checks = []
    for scene_name in dataset.list_scenes(root):
        try:
            scene = dataset.read(root, scene_name)
        except (ValueError, OSError) as error:
            checks.append(SceneCheck(name, scene_name, 0, "", (str(error),)))
        else:
            checks.append(_verify_once(scene, notes, probes))
        for text in checks[-1].wrong:
            report(f"{name}, {scene_name}: {text}")
    return checks


def _verify_once(scene: EvaluationScene, notes: Path, probes: int) -> SceneCheck:
    fingerprint = scene.fingerprint()
    check = SceneCheck(scene.dataset, scene.name, len(scene), fingerprint)
    note = notes / "verified" / f"{scene.dataset}--{scene.name.replace('/', '--')}--{fingerprint}.json"
    probed = probes or len(scene)
    if note.is_file() and json.loads(note.read_text())["probed"] >= probed:
        return check
    wrong = tuple(find_mistakes(scene, probes))
    if not wrong:
        write_json(note, {"frames": len(scene), "probed": probed})
    return SceneCheck(scene.dataset, scene.name, len(scene), fingerprint, wrong)


def find_mistakes(scene: EvaluationScene, probes: int) -> list[str]:
    """Look for missing files, images of another size, and frames that cannot be read; a sentence each."""
    missing = list(dict.fromkeys(scene.list_missing_files()))
    if missing:
        some = ", ".join(str(path) for path in missing[:NAMED]) + (", …" if len(missing) > NAMED else "")
        return [f"{len(missing)} files are missing: {some}"]
    wrong = [text for frame in scene.frames if (text := _check_size(frame))]
    if wrong:
        return wrong[:NAMED]
    for place in pick_evenly(range(len(scene)), probes):
        frame = scene.frames[place]
        try:
            view = frame.load_view(Framing.fit(frame.camera, 64, 48))
        except (ValueError, OSError) as error:
            return [str(error)]
        if frame.depth is not None and not bool(view.valid.any()):
            wrong.append(f"{frame.name}: no pixel with true depth")
    return wrong


def _check_size(frame: EvaluationFrame) -> str:
    """Compare the size in an image's header with its camera's, without decoding the image."""
    image, camera = frame.image, frame.camera
    if not isinstance(image, StoredImage):
        return ""
    try:
        size = read_photo_size(image.path)
    except OSError as error:
        return str(error)
    expected = (camera.height, camera.width) if image.turns % 2 else (camera.width, camera.height)
    if size == expected:
        return ""
    return f"{image.path} is {size[0]}×{size[1]} px, but its camera takes {expected[0]}×{expected[1]}"
