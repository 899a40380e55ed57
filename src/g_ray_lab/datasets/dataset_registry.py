"""All evaluation datasets by name: how their scenes are listed and read, and how a miniature of them is written."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from g_ray_lab.datasets import (
    da3_bench,
    dtu,
    eth3d,
    kitti,
    nrgbd,
    pandaset,
    real_small,
    scannetpp,
    sintel,
    tum,
)
from g_ray_lab.datasets import posed_folders as posed
from g_ray_lab.datasets import seven_scenes_sequences as seven_scenes
from g_ray_lab.datasets.evaluation_scene import EvaluationScene
from g_ray_lab.miniatures import recording_miniatures as recordings
from g_ray_lab.miniatures.eth3d_miniature import write_eth3d
from g_ray_lab.miniatures.miniature_room import MiniatureSize
from g_ray_lab.miniatures.pandaset_miniature import write_pandaset
from g_ray_lab.miniatures.scannetpp_miniature import write_scannetpp, write_scannetpp_joint
from g_ray_lab.miniatures.wai_miniature import write_wai


@dataclass(frozen=True)
class Dataset:
    """One way to read a dataset; several ways may share a download."""

    title: str
    download: str
    """Key of `DOWNLOADS`: what `g-ray data prepare` takes."""
    list_scenes: Callable[[Path], list[str]]
    read: Callable[[Path, str], EvaluationScene]
    """`read(root, scene)`; ValueError or OSError in one line if anything is wrong."""
    write_miniature: Callable[[Path, MiniatureSize], None]
    depth: Literal["dense", "sparse", "none"] = "dense"
    folder: str = ""
    """Where its scenes are in the download; they may also lie in the root itself."""

    def find_root(self, root: Path) -> Path:
        """Return the folder that `list_scenes` and `read` take, of a prepared download or of itself."""
        return root / self.folder if (root / self.folder).is_dir() else root


def _make_scannetpp(key: str, title: str, streams: tuple[scannetpp.Stream, ...]) -> Dataset:
    return Dataset(
        f"ScanNet++, {title}",
        "scannetpp",
        partial(scannetpp.list_scannetpp, streams=streams),
        partial(scannetpp.read_scannetpp, dataset=key, streams=streams),
        write_scannetpp,
    )


DATASETS: dict[str, Dataset] = {
    "pandaset": Dataset(
        "PandaSet", "pandaset", pandaset.list_pandaset, pandaset.read_pandaset, write_pandaset, depth="sparse"
    ),
    "eth3d": Dataset(
        "ETH3D, undistorted", "eth3d", eth3d.list_eth3d_undistorted, eth3d.read_eth3d_undistorted, write_eth3d
    ),
    "eth3d-raw": Dataset(
        "ETH3D, with its lens", "eth3d", eth3d.list_eth3d, eth3d.read_eth3d_raw, write_eth3d
    ),
    "scannetpp-mixed": _make_scannetpp("scannetpp-mixed", "DSLR fisheye and iPhone", scannetpp.MIXED),
    "scannetpp-undistorted": _make_scannetpp(
        "scannetpp-undistorted", "both devices undistorted", scannetpp.UNDISTORTED
    ),
    "scannetpp-high-resolution": _make_scannetpp(
        "scannetpp-high-resolution", "full-size DSLR, undistorted", scannetpp.HIGH_RESOLUTION
    ),
    "scannetpp-fisheye": _make_scannetpp("scannetpp-fisheye", "DSLR fisheye", scannetpp.FISHEYE),
    "scannetpp-joint": Dataset(
        "ScanNet++, DSLR fisheye and iPhone calibrated together",
        "scannetpp-joint",
        scannetpp.list_scannetpp_joint,
        partial(scannetpp.read_scannetpp_joint, dataset="scannetpp-joint", streams=scannetpp.MIXED),
        write_scannetpp_joint,
    ),
    "tum": Dataset("TUM RGB-D, Freiburg 3", "tum", tum.list_tum, tum.read_tum, recordings.write_tum),
    "sintel": Dataset(
        "MPI Sintel", "sintel", sintel.list_sintel, sintel.read_sintel, recordings.write_sintel
    ),
    "kitti": Dataset(
        "KITTI depth", "kitti", kitti.list_kitti, kitti.read_kitti, recordings.write_kitti, depth="sparse"
    ),
    "7scenes": Dataset(
        "7-Scenes",
        "7scenes",
        seven_scenes.list_seven_scenes,
        seven_scenes.read_sequence,
        recordings.write_seven_scenes,
    ),
    "nrgbd": Dataset("Neural RGB-D", "nrgbd", nrgbd.list_nrgbd, nrgbd.read_nrgbd, recordings.write_nrgbd),
    "dtu": Dataset("DTU", "dtu", dtu.list_dtu, dtu.read_dtu, recordings.write_dtu),
    "da3-eth3d": Dataset(
        "DA3-BENCH, ETH3D",
        "da3-bench",
        eth3d.list_eth3d,
        da3_bench.read_da3_eth3d,
        write_eth3d,
        folder="eth3d",
    ),
    "da3-7scenes": Dataset(
        "DA3-BENCH, 7-Scenes",
        "da3-bench",
        seven_scenes.list_seven_scenes,
        da3_bench.read_da3_seven_scenes,
        recordings.write_da3_seven_scenes,
        folder="7scenes/7Scenes",
    ),
    "da3-scannetpp": Dataset(
        "DA3-BENCH, ScanNet++",
        "da3-bench",
        scannetpp.list_scannetpp_joint,
        da3_bench.read_da3_scannetpp,
        write_scannetpp_joint,
        folder="scannetpp",
    ),
    "da3-dtu": Dataset(
        "DA3-BENCH, DTU",
        "da3-bench",
        dtu.list_dtu_da3,
        dtu.read_dtu_da3,
        recordings.write_da3_dtu,
        depth="none",
        folder="dtu",
    ),
    "real-small": Dataset(
        "red kitchen, Sceaux castle, rectified pairs",
        "real-small",
        real_small.list_real_small,
        real_small.read_real_small,
        recordings.write_real_small,
    ),
    "wai": Dataset("MapAnything's layout (WAI)", "wai", posed.list_wai, posed.read_wai_scene, write_wai),
}


def open_scene(dataset: str, root: Path, scene: str) -> EvaluationScene:
    """Read a scene of a dataset; ValueError names a dataset, a folder or a scene that is not there."""
    if dataset not in DATASETS:
        raise ValueError(f"unknown dataset {dataset!r}; known are {', '.join(DATASETS)}")
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder; g-ray data prepare {DATASETS[dataset].download} makes it")
    root = DATASETS[dataset].find_root(root)
    known = DATASETS[dataset].list_scenes(root)
    if scene not in known:
        some = ", ".join(known[:4]) + (", …" if len(known) > 4 else "") if known else "none"
        raise ValueError(f"{root}: no scene {scene!r} of {DATASETS[dataset].title}; scenes there: {some}")
    return DATASETS[dataset].read(root, scene)
