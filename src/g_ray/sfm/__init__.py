"""Structure from motion with the lens as it is, for any mix of calibrated cameras.

    views = [View(name, camera, image=image), …]            # any mix of calibrated lenses
    scene = reconstruct_cameras(views)                      # poses and points from nothing but calibrated photographs
    scene = triangulate(views)                              # points with the poses of the views, and how well they fit
    scene = refine(scene).scene                             # bundle adjustment, kept only if held-out tracks improve
    scene = refine_poses(views).scene                       # the same for poses from elsewhere, even if they are off
    scene = localize(scene, more_views)                     # further photographs in a finished scene

Features and matching are COLMAP's SIFT (pycolmap, `pip install 'g-ray[tool]'`); lenses are held fixed at the given
calibration. COLMAP computes with its own model of a lens where it has one, and on the sphere of viewing directions
where it has none or where the lens sees more than half of all directions. Errors are those of the true lens.
"""

from g_ray.formats.colmap.colmap_cameras import CannotMatch
from g_ray.sfm.localization import localize
from g_ray.sfm.refinement import Refinement, refine
from g_ray.sfm.rig import Rig, read_aria_rig, read_kalibr_rig, read_rig_cameras, read_rig_config
from g_ray.sfm.sfm_options import SfMOptions
from g_ray.sfm.sparse_scene import PoseAgreement, SparseScene, Tracks, load_scene, save_scene
from g_ray.sfm.structure_from_motion import reconstruct_cameras, refine_poses, triangulate
from g_ray.sfm.workspace import Report

__all__ = [
    "CannotMatch",
    "PoseAgreement",
    "Refinement",
    "Report",
    "Rig",
    "SfMOptions",
    "SparseScene",
    "Tracks",
    "load_scene",
    "localize",
    "read_aria_rig",
    "read_kalibr_rig",
    "read_rig_cameras",
    "read_rig_config",
    "reconstruct_cameras",
    "refine",
    "refine_poses",
    "save_scene",
    "triangulate",
]
