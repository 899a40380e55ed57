"""Scene folders of formats that are read elsewhere, as evaluation scenes."""

from pathlib import Path

from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.wai import SCENE_META, read_wai
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.true_depth import StoredDepth

ANY_DEPTH = (0.0, float("inf"))


def convert_scene(
    scene: PosedScene,
    name: str,
    dataset: str,
    limits: tuple[float, float] = ANY_DEPTH,
    surface: Path | None = None,
) -> EvaluationScene:
    """Convert a scene folder; depths outside the limits are none."""
    depth = scene.depth or (None,) * len(scene)
    frames = tuple(
        EvaluationFrame(
            view_name,
            StoredImage(scene.images[i]),
            scene.cameras[i],
            scene.poses[i],
            None if file is None else StoredDepth(file, limits=limits),
        )
        for i, (view_name, file) in enumerate(zip(scene.names, depth, strict=True))
    )
    return EvaluationScene(name, dataset, frames, surface=surface, notes=scene.notes)


def list_wai(root: Path) -> list[str]:
    """List the scenes of a folder in MapAnything's layout."""
    return sorted(path.name for path in root.iterdir() if (path / SCENE_META).is_file())


def read_wai_scene(root: Path, name: str) -> EvaluationScene:
    """Read a scene in MapAnything's layout, with its true depth."""
    return convert_scene(read_wai(root / name, check=False), name, "wai")
