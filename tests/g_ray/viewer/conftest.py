"""What tests of pages share."""

from dataclasses import replace

import pytest
import torch


@pytest.fixture(scope="session")
def room_folder(tmp_path_factory, room_results):
    """Writes the finished result of a room through two pinholes and a fisheye with dark corners; of a scale."""
    from g_ray.cameras import OpenCVFisheye, Pinhole
    from g_ray.export.result import finish_reconstruction, write_views

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


@pytest.fixture(scope="session")
def stereo_folder(tmp_path_factory, room_results):
    """The finished result of a room as stereo leaves it: depth at half of the photographs' size, holes, filled pixels
    in the first view, no "size" among the settings."""
    from g_ray.cameras import OpenCVFisheye, Pinhole
    from g_ray.export.export_options import ExportOptions
    from g_ray.export.write_files import write_reconstruction
    from g_ray.viewer.reconstruction_report import write_report

    whole = [
        Pinhole.from_fov(70.0, 192, 144),
        Pinhole.from_fov(70.0, 192, 144),
        OpenCVFisheye.make(192, 144, fx=33.0, fy=33.0, cx=96.0, cy=72.0, k1=-0.01),
    ]
    _, photos = room_results.seen_through(whole)
    views, _ = room_results.seen_through([camera.resize(96, 72) for camera in whole])
    views = [replace(view, photo_camera=camera) for view, camera in zip(views, whole, strict=True)]
    hole = torch.zeros(72, 96, dtype=torch.bool)
    hole[:36, :24] = True
    views = [replace(view, valid=view.valid & ~hole, ray_depth=view.ray_depth * ~hole) for view in views]
    right = torch.zeros(72, 96, dtype=torch.bool)
    right[:, 64:] = True
    views[0] = replace(views[0], filled=right & views[0].valid)
    folder = tmp_path_factory.mktemp("stereo")
    made = replace(
        room_results.result(folder, tuple(views)),
        unit="unknown",
        settings={"model": "stereo", "stereo": {"long_side": 96}, "refine": False},
        quality={
            "grade": "partial",
            "verdict": [
                "3 of 4 photographs are placed; left out: <b>.jpg.",
                "Scale unknown: distances are relative.",
            ],
            "placed": 3,
        },
    )
    write_reconstruction(made, photos, ExportOptions(), page=write_report)
    return folder
