"""Read datasets that MapAnything distributes in its own layout (WAI): ROOT/SCENE/scene_meta.json."""

from pathlib import Path

from g_ray.formats.wai import SCENE_META, read_wai
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationScene
from g_ray_lab.datasets.stored_frames import convert_scene

DOWNLOAD = Download(
    "wai",
    "Datasets in MapAnything's layout (WAI)",
    "https://huggingface.co/datasets/facebook/map-anything-benchmarking",
    "those of the datasets in it",
    ("one archive per scene",),
    ("SCENE/scene_meta.json", "SCENE/images", "SCENE/depth or SCENE/rendered_depth"),
    archives=("*.zip",),
)


def list_wai(root: Path) -> list[str]:
    """List the scenes that are there."""
    return sorted(path.name for path in root.iterdir() if (path / SCENE_META).is_file())


def read_wai_scene(root: Path, name: str) -> EvaluationScene:
    """Read a scene with its true depth."""
    return convert_scene(read_wai(root / name, check=False), name, "wai")


DATASETS = {"wai": Dataset("MapAnything's layout (WAI)", DOWNLOAD, list_wai, read_wai_scene)}
