"""SCENE_FORMATS: datasets that are read as scene folders, as further formats beside those of `g_ray.formats.SCENES`."""

from g_ray.formats.posed_scene import SceneFormat
from g_ray_lab.datasets.arkitscenes import is_arkitscenes, read_arkitscenes
from g_ray_lab.datasets.hypersim import is_hypersim, read_hypersim
from g_ray_lab.datasets.matterport import is_matterport, read_matterport
from g_ray_lab.datasets.midair import is_midair, read_midair
from g_ray_lab.datasets.omnidata import is_omnidata, read_omnidata
from g_ray_lab.datasets.omniworld import is_omniworld, read_omniworld
from g_ray_lab.datasets.tartanair import is_tartanair, read_tartanair
from g_ray_lab.datasets.taskonomy import is_taskonomy, read_taskonomy
from g_ray_lab.datasets.virtual_kitti import is_virtual_kitti, read_virtual_kitti
from g_ray_lab.datasets.wildrgbd import is_wildrgbd, read_wildrgbd

SCENE_FORMATS: dict[str, SceneFormat] = {
    "arkitscenes": SceneFormat("ARKitScenes", "lowres_wide.traj", is_arkitscenes, read_arkitscenes),
    "hypersim": SceneFormat("Hypersim", "_detail/metadata_scene.csv", is_hypersim, read_hypersim),
    "matterport": SceneFormat(
        "Matterport3D", "undistorted_camera_parameters", is_matterport, read_matterport
    ),
    "midair": SceneFormat("Mid-Air", "color_left beside sensor_records.hdf5", is_midair, read_midair),
    "omnidata": SceneFormat("Omnidata", "rgb/hm3d/BUILDING of Omnidata", is_omnidata, read_omnidata),
    "omniworld": SceneFormat("OmniWorld-Game", "split_info.json", is_omniworld, read_omniworld),
    "tartanair": SceneFormat("TartanAir", "pose_left.txt", is_tartanair, read_tartanair),
    "taskonomy": SceneFormat("Taskonomy", "point_info", is_taskonomy, read_taskonomy),
    "virtual_kitti": SceneFormat(
        "Virtual KITTI 2", "extrinsic.txt and intrinsic.txt", is_virtual_kitti, read_virtual_kitti
    ),
    "wildrgbd": SceneFormat("WildRGB-D", "cam_poses.txt and metadata", is_wildrgbd, read_wildrgbd),
}
