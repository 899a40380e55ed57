"""Scanned objects from where cameras stand in rooms: the same cameras, other scenes, and products kept apart."""

from dataclasses import replace

import pytest
import torch

from g_ray_lab.sources.arc_views import ArcDraws, RoomsNVS
from g_ray_lab.sources.nvs_settings import ObjectArcsData, RoomsData
from g_ray_lab.sources.objects_nvs import ObjectArcsNVS

pytest.importorskip("embreex")


@pytest.fixture
def objects(shared_data):
    return ObjectArcsNVS(ObjectArcsData(32, 32, batch=2))


def test_cameras_are_those_of_rooms_but_for_where_they_look(objects):
    ours, rooms = objects.make_batch(0), RoomsNVS(RoomsData(32, 32, batch=2)).make_batch(0)
    for one, other in zip(ours.contexts.cameras, rooms.contexts.cameras, strict=True):
        assert torch.equal(one.params, other.params)
    # Relative positions differ by the rotation of the first camera alone.
    lengths = [batch.targets.poses.translation.norm(dim=-1) for batch in (ours, rooms)]
    assert torch.allclose(*lengths, atol=1e-6)


def test_objects_are_before_white_and_in_view(objects):
    images = objects.make_batch(0).context_images
    border = torch.cat([images[..., 0, :], images[..., -1, :]], -1)
    assert images.shape == (2, 2, 3, 32, 32)
    assert (border == 1).float().mean() > 0.5, "objects fill the frame"
    seen = (images < 0.99).any(2).float()
    assert seen[..., 12:20, 12:20].mean() > 2 * seen.mean() > 0.1, "cameras do not look at the object"


def test_a_zoom_magnifies_the_middle(objects):
    native = replace(objects, settings=replace(objects.settings, width=64, height=64, antialias=4))
    zoomed = replace(objects, zooms=(2.0, 2.0, 2.0), settings=replace(objects.settings, antialias=4))
    wide, narrow = native.make_batch(0), zoomed.make_batch(0)
    difference = wide.target_images[..., 16:48, 16:48] - narrow.target_images
    assert difference.abs().mean() < 0.01


def test_up_is_up(objects):
    """The object's highest point, found in its mesh, is imaged where the picture has it."""
    from g_ray_lab.sources.objects_nvs import EXTENT_M
    from g_ray_lab.sources.render_objects import ObjectSettings, load_mesh

    source = replace(
        objects, settings=replace(objects.settings, pose_frame="room", width=64, height=64, batch=4)
    )
    batch = source.make_batch(0)
    for scene in range(4):
        job = source._get_object(ArcDraws(source, scene, 0))
        corners = torch.cat(
            [torch.as_tensor(part.vertices, dtype=torch.float64) for part in load_mesh(job, ObjectSettings())]
        )
        x, y, z = (EXTENT_M * corners).unbind(-1)
        points = torch.stack([x, -z, y], -1).float()  # z up to y down
        pose = batch.contexts.poses[scene, 0]
        pixels, _ = batch.contexts.cameras[0][scene].project(pose.inverse().apply(points))
        rows = (batch.context_images[scene, 0] < 0.98).any(0).any(1).nonzero()[:, 0]
        assert float(pixels[:, 1].min()) == pytest.approx(float(rows.min()), abs=1.5)
        assert float(pixels[:, 1].max()) == pytest.approx(float(rows.max()) + 1, abs=1.5)


def test_products_are_kept_apart(objects):
    from g_ray_lab.sources.object_index import get_product

    products = {split: {get_product(job.name) for job in jobs} for split, jobs in objects.jobs.items()}
    assert not products["train"] & products["test"] and not products["train"] & products["held_out"]
    assert 0.05 < len(products["test"]) / sum(map(len, products.values())) < 0.15
    held_out = objects._get_object(ArcDraws(objects, 0, 2**31))
    assert held_out in objects.jobs["held_out"]


def test_a_folder_without_enough_objects_is_refused(objects, tmp_path):
    (tmp_path / "one.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    source = replace(objects, settings=replace(objects.settings, meshes=tmp_path))
    with pytest.raises(ValueError, match="has 1 meshes, and by their names none is for"):
        source.make_batch(0)
    with pytest.raises(ValueError, match="no meshes at"):
        replace(objects.settings, meshes=tmp_path / "none").find_meshes()
