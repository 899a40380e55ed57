"""The field-of-view protocol in rooms that are seen along real camera paths."""

from collections.abc import Iterator
from dataclasses import dataclass

from g_ray.data.nvs import NVSBatch
from g_ray.data.nvs_settings import PathsData
from g_ray.data.rooms.path_nvs import PathRoomsNVS
from g_ray.evaluation.nvs import ZoomsProtocol


@dataclass(frozen=True)
class PathsProtocol(ZoomsProtocol):
    """Clips and rooms of the test split; views except the first context are zoomed by z ~ U[1, z_max].

    Images that are wider than those of training show more to the sides, as in RealEstate10K: the lens of a clip is
    cropped to their shape, and a square crop keeps its full height.
    """

    width: int
    height: int
    scenes: int
    seed: int = 0
    at_once: int = 32

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        settings = PathsData(self.width, self.height, zoom_max=self.get_zoom(setting))
        rooms = PathRoomsNVS(settings, self.seed, split="test")
        yield from map(rooms.make_scenes, self.split_scenes(self.scenes, self.at_once))
