"""A room seen through mixed lenses, as photographs with a cameras.json, and a small network that is not trained."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from g_ray.formats.cameras_json import write_cameras
from g_ray.media.view import View
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import save_reconstruction
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

VIEWS = 8


@pytest.fixture(scope="session")
def room() -> ReconstructionBatch:
    settings = RoomsViews(64, 48, views=(VIEWS, VIEWS), step_m=0.5)
    rooms = RoomsReconstruction(settings, patch=8, lens="mixed", split="test")
    return rooms.make_sets(range(1))


@pytest.fixture(scope="session")
def capture(room, tmp_path_factory) -> Path:
    """photos/, cameras.json with poses, lenses.json without, weights.safetensors."""
    folder = tmp_path_factory.mktemp("capture")
    (folder / "photos").mkdir()
    cameras = []
    for view, camera in enumerate(room.views.cameras):
        pixels = (255 * room.images[0, view]).round().byte().movedim(0, -1)
        Image.fromarray(pixels.numpy()).save(folder / "photos" / f"v{view}.png")
        cameras.append(View(f"v{view}.png", camera[0], room.poses[0, view].to(torch.float64)))
    write_cameras(folder / "cameras.json", cameras)
    write_cameras(folder / "lenses.json", [View(one.name, one.camera) for one in cameras])
    torch.manual_seed(0)
    network = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray"))
    save_reconstruction(network, folder / "weights.safetensors")
    return folder
