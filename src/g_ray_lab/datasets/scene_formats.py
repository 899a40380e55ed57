"""SCENE_FORMATS: datasets that are read as scene folders, in addition to `g_ray.formats.SCENES`."""

from g_ray.formats.posed_scene import SceneFormat
from g_ray_lab.datasets import scanned_scenes, synthetic_worlds

SCENE_FORMATS: dict[str, SceneFormat] = {
    **scanned_scenes.FORMATS,
    **synthetic_worlds.FORMATS,
}
