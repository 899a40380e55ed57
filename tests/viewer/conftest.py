"""What tests of pages share."""

import pytest
import torch


@pytest.fixture(scope="session")
def room_folder(tmp_path_factory, room_results):
    """Writes the finished result of a room through two pinholes and a fisheye with dark corners; of a scale."""
    from g_ray.cameras import OpenCVFisheye, Pinhole
    from g_ray.export.reconstruction import finish_reconstruction, write_views

    def written(scale: int):
        rim = torch.tensor([11.0, 11.0, 32.0, 24.0]) * scale
        fisheye = dict(zip(("fx", "fy", "cx", "cy"), rim.tolist(), strict=True))
        views, images = room_results.seen_through(
            [
                Pinhole.from_fov(70.0, 64 * scale, 48 * scale),
                Pinhole.from_fov(45.0, 48 * scale, 48 * scale),
                OpenCVFisheye.make(64 * scale, 48 * scale, **fisheye, k1=-0.01),
            ]
        )
        folder = tmp_path_factory.mktemp("room")
        write_views(folder, views, images)
        finish_reconstruction(room_results.result(folder, views))
        return folder

    return written
