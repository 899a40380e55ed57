"""SCENE_FORMATS: datasets that are read as scene folders, in addition to `g_ray.formats.SCENES`."""

from g_ray.formats.posed_scene import SceneFormat
from g_ray_lab.datasets.building_scans import (
    is_matterport,
    is_omnidata,
    is_taskonomy,
    read_matterport,
    read_omnidata,
    read_taskonomy,
)
from g_ray_lab.datasets.phone_recordings import is_arkitscenes, is_wildrgbd, read_arkitscenes, read_wildrgbd
from g_ray_lab.datasets.synthetic_worlds import (
    is_hypersim,
    is_midair,
    is_omniworld,
    is_tartanair,
    is_virtual_kitti,
    read_hypersim,
    read_midair,
    read_omniworld,
    read_tartanair,
    read_virtual_kitti,
)

SCENE_FORMATS: dict[str, SceneFormat] = {
    "arkitscenes": SceneFormat("ARKitScenes", "lowres_wide.traj", is_arkitscenes, read_arkitscenes),
    "hypersim": SceneFormat("Hypersim", "_detail/metadata_scene.csv", is_hypersim, read_hypersim),
    "matterport": SceneFormat(
        "Matterport3D", "undistorted_camera_parameters", is_matterport, read_matterport
    ),
    "midair": SceneFormat("Mid-Air", "color_left next to sensor_records.hdf5", is_midair, read_midair),
    "omnidata": SceneFormat("Omnidata", "rgb/hm3d/BUILDING of Omnidata", is_omnidata, read_omnidata),
    "omniworld": SceneFormat("OmniWorld-Game", "split_info.json", is_omniworld, read_omniworld),
    "tartanair": SceneFormat("TartanAir", "pose_left.txt", is_tartanair, read_tartanair),
    "taskonomy": SceneFormat("Taskonomy", "point_info", is_taskonomy, read_taskonomy),
    "virtual_kitti": SceneFormat(
        "Virtual KITTI 2", "extrinsic.txt and intrinsic.txt", is_virtual_kitti, read_virtual_kitti
    ),
    "wildrgbd": SceneFormat("WildRGB-D", "cam_poses.txt and metadata", is_wildrgbd, read_wildrgbd),
}
