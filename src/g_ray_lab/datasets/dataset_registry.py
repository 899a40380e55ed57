"""All evaluation datasets by name, and the downloads that they read."""

from pathlib import Path

from g_ray_lab.datasets import (
    da3_bench,
    dtu,
    eth3d,
    kitti,
    nrgbd,
    pandaset,
    real_small,
    scannetpp,
    seven_scenes_sequences,
    sintel,
    tum,
    wai_scenes,
)
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationScene

DATASETS: dict[str, Dataset] = {
    **pandaset.DATASETS,
    **eth3d.DATASETS,
    **scannetpp.DATASETS,
    **tum.DATASETS,
    **sintel.DATASETS,
    **kitti.DATASETS,
    **seven_scenes_sequences.DATASETS,
    **nrgbd.DATASETS,
    **dtu.DATASETS,
    **da3_bench.DATASETS,
    **real_small.DATASETS,
    **wai_scenes.DATASETS,
}
DOWNLOADS: dict[str, Download] = {dataset.download: dataset.source for dataset in DATASETS.values()}


def open_scene(dataset: str, root: Path, scene: str) -> EvaluationScene:
    """Read a scene of a dataset; ValueError names a dataset, a folder or a scene that is not there."""
    if dataset not in DATASETS:
        raise ValueError(f"unknown dataset {dataset!r}; known are {', '.join(DATASETS)}")
    one = DATASETS[dataset]
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder; g-ray data prepare {one.download} makes it")
    root = one.find_root(root)
    known = one.list_scenes(root)
    if scene not in known:
        some = ", ".join(known[:4]) + (", …" if len(known) > 4 else "") if known else "none"
        raise ValueError(f"{root}: no scene {scene!r} of {one.title}; scenes there: {some}")
    return one.read(root, scene)
