"""`g-ray data prepare`: bring a download in, extract what readers need, verify it, and freeze the view indices.

FOLDER/…                              the dataset in its own layout, unpacked or linked
FOLDER/iphone_frames/SCENE/…          ScanNet++: the registered frames of each video
FOLDER/indices/PROTOCOL.json          which frames are scored
FOLDER/.prepared/…                    what is done: the same command resumes
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from g_ray.runtime.files import write_json
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.scannetpp import extract_iphone_frames, list_scannetpp
from g_ray_lab.preparation.downloads import DOWNLOADS, Download
from g_ray_lab.preparation.unpack import NOTES, bring_in
from g_ray_lab.preparation.verify import SceneCheck, verify_dataset
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.view_index import COVISIBILITY, INDICES, ViewIndex, freeze_views, write_view_index

Report = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """What a prepared folder holds."""

    checks: tuple[SceneCheck, ...]
    indices: dict[str, ViewIndex]

    @property
    def broken(self) -> tuple[SceneCheck, ...]:
        return tuple(check for check in self.checks if check.wrong)


def get_download(name: str) -> Download:
    """Return a line of the table; ValueError for an unknown name."""
    if name not in DOWNLOADS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(DOWNLOADS)}")
    return DOWNLOADS[name]


def prepare_dataset(
    name: str, source: Path, out: Path, report: Report, *, freeze: bool = True, probes: int = 3
) -> Prepared:
    """Prepare a download; scenes that cannot be read are reported and left out. ValueError if there are none."""
    download = get_download(name)
    bring_in(download, source, out, report)
    if name == "scannetpp":
        for scene in list_scannetpp(out):
            extract_iphone_frames(out, scene, report)
    checks = _verify(name, download, out, probes, report)
    indices = _freeze(name, checks, out, report) if freeze else {}
    write_json(out / NOTES / "summary.json", _summarize(name, checks, indices))
    return Prepared(tuple(checks), indices)


def _verify(name: str, download: Download, out: Path, probes: int, report: Report) -> list[SceneCheck]:
    checks: list[SceneCheck] = []
    for key, dataset in DATASETS.items():
        if dataset.download == name:
            root = dataset.find_root(out)
            scenes = verify_dataset(key, dataset, root, out / NOTES, probes, report) if root.is_dir() else []
            report(f"{key}: {sum(not check.wrong for check in scenes)} of {len(scenes)} scenes are sound")
            checks += scenes
    if not checks:
        raise ValueError(
            f"{out}: no scene of {download.title}; expected paths like {', '.join(download.layout[:2])}"
        )
    return checks


def _freeze(name: str, checks: list[SceneCheck], out: Path, report: Report) -> dict[str, ViewIndex]:
    """Freeze all protocols of which some scene is sound."""
    indices = {}
    for key, protocol in PROTOCOLS.items():
        sound = [check.scene for check in checks if check.dataset == protocol.dataset and not check.wrong]
        wanted = [scene for scene in sound if not protocol.scenes or scene in protocol.scenes]
        if DATASETS[protocol.dataset].download != name or not wanted:
            continue
        try:
            index = freeze_views(key, protocol, out, out / NOTES / COVISIBILITY, wanted, report)
        except ValueError as error:
            report(f"{key}: no views: {error}")
            continue
        write_view_index(out / INDICES / f"{key}.json", index)
        repeated = f", {index.repeated} sets with repeated frames" if index.repeated else ""
        report(
            f"{key}: {len(index.scenes)} of {len(protocol.scenes) or len(wanted)} scenes{repeated}; "
            f"index {index.digest[:16]}"
        )
        indices[key] = index
    return indices


def _summarize(name: str, checks: list[SceneCheck], indices: dict[str, ViewIndex]) -> dict[str, object]:
    scenes = [
        {"dataset": check.dataset, "scene": check.scene, "frames": check.frames, "wrong": list(check.wrong)}
        for check in checks
    ]
    return {
        "dataset": name,
        "scenes": scenes,
        "indices": {key: index.digest for key, index in indices.items()},
    }
