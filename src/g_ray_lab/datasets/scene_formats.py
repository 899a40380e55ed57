"""SCENE_FORMATS: datasets that are read as scene folders, in addition to `g_ray.formats.SCENES`."""

from g_ray.formats.posed_scene import SceneFormat
from g_ray_lab.datasets import building_scans, phone_recordings, synthetic_worlds

SCENE_FORMATS: dict[str, SceneFormat] = {
    **phone_recordings.FORMATS,
    **building_scans.FORMATS,
    **synthetic_worlds.FORMATS,
}
