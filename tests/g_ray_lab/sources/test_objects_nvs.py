"""Rendered objects as a stream: a pure function of (seed, step, rank); images and cameras that belong together."""

import pickle
from dataclasses import replace

import pytest
import torch

from g_ray_lab.datasets.objaverse import NAMES, read_cameras
from g_ray_lab.sources.batches import RecentCache
from g_ray_lab.sources.nvs_settings import ObjectsData
from g_ray_lab.sources.object_index import EVERY_VIEW, PROTOCOLS, assign_split
from g_ray_lab.sources.objects_nvs import ObjectsNVS, RenderedObjects, ViewRequest

TESTED = [f"object{i}" for i in range(200) if assign_split(f"object{i}") == "test"][:2]
TRAINED = [f"object{i}" for i in range(200) if assign_split(f"object{i}") == "train"][:5]


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_objects):
    return write_objects(tmp_path_factory.mktemp("objects"), [*TRAINED, *TESTED], 24)


@pytest.fixture
def source(root):
    return ObjectsNVS(ObjectsData(24, 24, 3, root))


def change(source, **settings):
    """The same source with other settings."""
    return replace(source, settings=replace(source.settings, **settings))


def same(one, other):
    return all(
        torch.equal(a, b)
        for a, b in (
            (one.context_images, other.context_images),
            (one.target_images, other.target_images),
            (one.contexts.poses.world_from_cam, other.contexts.poses.world_from_cam),
            (one.targets.cameras[0].params, other.targets.cameras[0].params),
        )
    )


def test_a_batch_is_a_function_of_seed_step_and_rank(source, root):
    first = source.make_batch(5, 1)
    assert first.context_images.shape == (3, 2, 3, 24, 24) and first.target_images.shape == (3, 1, 3, 24, 24)
    assert same(first, source.make_batch(5, 1)) and same(
        first, ObjectsNVS(ObjectsData(24, 24, 3, root), 0).make_batch(5, 1)
    )
    others = [source.make_batch(6, 1), source.make_batch(5, 0), replace(source, seed=1).make_batch(5, 1)]
    assert not any(same(first, other) for other in others)
    assert set(first.names) <= {str(root / uid) for uid in TRAINED}


def test_a_cache_changes_nothing(source):
    tight = change(source, cache_mb=0)
    assert all(same(source.make_batch(step), tight.make_batch(step)) for step in range(4))
    assert len(tight.objects._images.values) == 0
    assert same(pickle.loads(pickle.dumps(source)).make_batch(2), source.make_batch(2))


def test_draws_do_not_depend_on_the_batch_size(source):
    whole, parts = source.make_batch(0), [change(source, batch=1).make_batch(step) for step in range(3)]
    assert torch.equal(whole.target_images, torch.cat([part.target_images for part in parts]))


def test_test_objects_and_held_out_objects_are_never_trained_on(source, root):
    seen = {name for step in range(12) for rank in (0, 1) for name in source.make_batch(step, rank).names}
    aside = set(source.make_held_out().names)
    assert aside and not aside & seen
    assert seen | aside == {str(root / uid) for uid in TRAINED}
    assert same(source.make_held_out(), source.make_held_out())


@pytest.mark.parametrize("targets", ["all", *PROTOCOLS])
def test_contexts_are_native_and_targets_are_what_was_chosen(source, targets):
    source = change(source, targets=targets)
    kinds = EVERY_VIEW if targets == "all" else PROTOCOLS[targets]
    drawn = [source._draw(source.training_names, 0, number) for number in range(250)]
    asked = set()
    for _, (first, second), (target,) in drawn:
        assert first != second and first.endswith("_0.jpg") and second.endswith("_0.jpg")
        assert target in kinds.list_names((int(first[:3]), int(second[:3])))
        asked.add(target)
    if targets == "all":
        assert asked == set(NAMES)


def test_the_farthest_camera_is_at_one_half_and_the_world_is_kept(source, root):
    _, cameras, poses = source.objects.get_cameras(TRAINED[0])
    raw = read_cameras(root / TRAINED[0]).poses
    assert poses.translation.norm(dim=-1).max() == pytest.approx(0.5)
    assert torch.allclose(poses.rotation, raw.rotation.float())
    ratio = raw.translation.norm(dim=-1) / poses.translation.norm(dim=-1)
    assert torch.allclose(ratio, ratio[:1].expand(24))
    assert (cameras.width, cameras.height) == (24, 24)


@pytest.mark.parametrize("size", [24, 12])
def test_views_agree_on_the_ball(root, size):
    """A point of the ball has its own colour in every view, at its native size and resampled with its camera."""
    objects = RenderedObjects(root, size, size)
    batch = objects.make_batch([ViewRequest(TRAINED[0], NAMES[0:1], NAMES[1:24])])
    raw = read_cameras(root / TRAINED[0]).poses.translation.norm(dim=-1).max()
    radius = 0.4 * 0.5 / float(raw)
    errors = []
    for view in range(23):
        camera = batch.targets.cameras[view][0]
        world = batch.targets.poses.world_from_cam[0, view]
        centre, axes = world[:3, 3], world[:3, :3]
        directions, _ = camera.unproject_grid()
        rays = directions @ axes.T
        along = rays @ centre
        inside = along**2 - (centre @ centre - radius**2)
        points = centre - (along + inside.clamp(min=0).sqrt())[..., None] * rays
        expected = points / radius * 0.5 + 0.5
        image = batch.target_images[0, view].movedim(0, -1)
        sure = inside > 0.6 * radius**2  # away from the outline, where neighbours mix
        errors.append((image - expected)[sure].abs().flatten())
    found = torch.cat(errors)
    assert len(found) > 23 * 30 * (size / 24) ** 2
    assert found.mean() < 0.008, "half a pixel would be 0.016 and more"


def test_broken_files_are_named(tmp_path, write_objects):
    root = write_objects(tmp_path, [TRAINED[0]], 8)
    objects = RenderedObjects(root, 8, 8)
    path = root / TRAINED[0] / "views" / NAMES[4]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(OSError, match=r"001_1\.jpg"):
        objects.get_image(TRAINED[0], NAMES[4])
    path.write_bytes((write_objects(tmp_path / "big", ["a"], 16) / "a" / "views" / NAMES[4]).read_bytes())
    with pytest.raises(ValueError, match=r"001_1\.jpg: 16×16 px, but its camera takes 8×8"):
        objects.get_image(TRAINED[0], NAMES[4])


def test_nonsense_is_refused(root, tmp_path):
    with pytest.raises(ValueError, match="give positive numbers"):
        ObjectsNVS(ObjectsData(48, 48, 0, root))
    with pytest.raises(ValueError, match="render at least 2"):
        ObjectsNVS(ObjectsData(48, 48, root=tmp_path))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ObjectsNVS(ObjectsData(48, 48, root=tmp_path / "nowhere"))


def test_recent_things_stay():
    recent, made = RecentCache(2), []

    def make(key):
        return recent(key, lambda: made.append(key) or key)

    assert [make(key) for key in "abaca"] == list("abaca")
    assert made == ["a", "b", "c"]
    make("b")
    assert made == ["a", "b", "c", "b"] and len(recent.values) == 2
