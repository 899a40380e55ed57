"""Procedural rooms in the exact formats of evaluation datasets, with exact depth and poses: for tests and dry runs."""

from collections.abc import Callable
from pathlib import Path

from g_ray_lab.miniatures import recording_miniatures as recordings
from g_ray_lab.miniatures.colmap_miniatures import write_eth3d, write_scannetpp, write_scannetpp_joint
from g_ray_lab.miniatures.miniature_room import MiniatureSize
from g_ray_lab.miniatures.pandaset_miniature import write_pandaset

Writer = Callable[[Path, MiniatureSize], None]

MINIATURES: dict[str, Writer] = {
    "pandaset": write_pandaset,
    "eth3d": write_eth3d,
    "eth3d-raw": write_eth3d,
    "scannetpp-mixed": write_scannetpp,
    "scannetpp-undistorted": write_scannetpp,
    "scannetpp-high-resolution": write_scannetpp,
    "scannetpp-fisheye": write_scannetpp,
    "scannetpp-joint": write_scannetpp_joint,
    "tum": recordings.write_tum,
    "sintel": recordings.write_sintel,
    "kitti": recordings.write_kitti,
    "7scenes": recordings.write_seven_scenes,
    "7scenes-published": recordings.write_seven_scenes,
    "nrgbd": recordings.write_nrgbd,
    "dtu": recordings.write_dtu,
    "da3-eth3d": write_eth3d,
    "da3-7scenes": recordings.write_da3_seven_scenes,
    "da3-scannetpp": write_scannetpp_joint,
    "da3-dtu": recordings.write_da3_dtu,
    "real-small": recordings.write_real_small,
    "wai": recordings.write_wai,
}
"""Writers by the keys of `DATASETS`; datasets that share files share a writer."""
