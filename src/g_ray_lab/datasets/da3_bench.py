"""Read what DA3-BENCH packs: ETH3D, 7-Scenes and ScanNet++ with meshes, in slightly other layouts (DTU: see `dtu`).

ROOT/eth3d/courtyard/{images,dslr_calibration_jpg,combined_mesh.ply}
ROOT/7scenes/7Scenes/chess/seq-01/…, ROOT/7scenes/7Scenes/meshes/chess.ply
ROOT/scannetpp/09c1414f1b/{merge_dslr_iphone,scans}                        the iPhone's frames are used

Roots here are eth3d, 7scenes/7Scenes and scannetpp. DA3-BENCH ignores the distortion of ETH3D's photographs, and reads
7-Scenes' color images with the depth camera's focal length (585 px); here cameras are the true ones.
"""

from functools import partial
from pathlib import Path

from g_ray_lab.datasets import dtu, eth3d, scannetpp
from g_ray_lab.datasets import seven_scenes_sequences as seven_scenes
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationScene

DOWNLOAD = Download(
    "da3-bench",
    "DA3-BENCH",
    "https://huggingface.co/datasets/depth-anything/DA3-BENCH",
    "those of the datasets in it: ETH3D, 7-Scenes, ScanNet++ (apply there first), DTU",
    ("eth3d.zip, 7scenes.zip, scannetpp.zip, dtu.zip",),
    (
        "eth3d/courtyard/combined_mesh.ply",
        "7scenes/7Scenes/meshes/chess.ply",
        "scannetpp/09c1414f1b/merge_dslr_iphone",
        "dtu/Rectified/scan1",
        "dtu/SampleSet/mvs_data/ObsMask/ObsMask1_10.mat",
    ),
    archives=("eth3d.zip", "7scenes.zip", "scannetpp.zip", "dtu.zip"),
)

LEFT_OUT: dict[str, tuple[int, ...]] = {
    "delivery_area": tuple(range(711, 715)),
    "electro": (*range(9289, 9294), 9298),
    "playground": tuple(range(587, 593)),
    "relief": tuple(range(427, 439)),
    "relief_2": tuple(range(458, 469)),
}
"""Photographs of ETH3D that DA3-BENCH does not use."""
ETH3D_SCENES = tuple(scene for scene in eth3d.SCENES if scene not in ("meadow", "terrace"))
SEVEN_SCENES = tuple(
    f"{scene}/seq-{2 if scene == 'stairs' else 1:02d}" for scene in seven_scenes.TEST_SEQUENCES
)
_SCANNETPP = """
09c1414f1b 1ada7a0617 40aec5fffa 3e8bba0176 acd95847c5 578511c8a9 5f99900f09 c4c04e6d6c f3d64c30f8 7bc286c1b6
c5439f4607 286b55a2bf fb5a96b1a2 7831862f02 38d58a7a31 bde1e479ad 9071e139d9 21d970d8de bcd2436daf cc5237fd77
"""
SCANNETPP_SCENES = tuple(_SCANNETPP.split())
"""20 of ScanNet++'s validation scenes."""


def read_da3_eth3d(root: Path, name: str) -> EvaluationScene:
    """Read a scene of ETH3D without the photographs that the benchmark leaves out."""
    return eth3d.read_eth3d(root, name, "raw", "da3-eth3d", LEFT_OUT.get(name, ()))


DATASETS = {
    "da3-eth3d": Dataset("DA3-BENCH, ETH3D", DOWNLOAD, eth3d.list_eth3d, read_da3_eth3d, folder="eth3d"),
    "da3-7scenes": Dataset(
        "DA3-BENCH, 7-Scenes",
        DOWNLOAD,
        seven_scenes.list_seven_scenes,
        partial(seven_scenes.read_sequence, dataset="da3-7scenes"),
        folder="7scenes/7Scenes",
    ),
    "da3-scannetpp": Dataset(
        "DA3-BENCH, ScanNet++",
        DOWNLOAD,
        scannetpp.list_scannetpp_joint,
        partial(scannetpp.read_scannetpp_joint, dataset="da3-scannetpp", streams=scannetpp.IPHONE),
        folder="scannetpp",
    ),
    "da3-dtu": Dataset(
        "DA3-BENCH, DTU", DOWNLOAD, dtu.list_dtu_da3, dtu.read_dtu_da3, depth="none", folder="dtu"
    ),
}
