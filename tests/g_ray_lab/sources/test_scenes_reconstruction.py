"""Sets from scene folders: pure, exact, overlapping, disjoint by scene; walks and mixtures."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from room_scenes import compute_covisibility, shots, write_nerfstudio_depth

from g_ray.cameras import Pinhole, RayMapCamera
from g_ray.geometry.pointmap import transform_points
from g_ray_lab.sources.covisibility import compute_overlap, draw_covisible_views
from g_ray_lab.sources.draws import HELD_OUT, UnreadableFolder
from g_ray_lab.sources.reconstruction_settings import FolderSettings, RoomsViews, ScenesViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.sources.scene_store import DepthReading
from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction
from g_ray_lab.sources.shaped_sets import MixtureReconstruction

TENSORS = ("images", "world_points", "camera_points", "ray_depth", "z_depth", "valid")
SMALL = ScenesViews(28, 28, 2, (2, 3), (0.5, 1.0), zoom_max=1.4, color=False)


def make_source(folder, **settings):
    return ScenesReconstruction(replace(SMALL, folders=(folder,), **settings))


def change(source, **settings):
    """The same source with other settings."""
    return replace(source, settings=replace(source.settings, **settings))


@pytest.fixture(scope="module")
def root(tmp_path_factory, room_scenes):
    """Three scenes in three formats."""
    folder = tmp_path_factory.mktemp("scenes")
    room_scenes.write_wai(folder / "one", room_scenes.shots(6))
    room_scenes.write_nerfstudio_depth(folder / "two", room_scenes.shots(6, seed=5))
    room_scenes.write_colmap_dense(folder / "three", room_scenes.shots(6, seed=7))
    return folder


@pytest.fixture(scope="module")
def data(root):
    return make_source(root)


def same(first, second):
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in TENSORS)


def test_a_batch_is_a_function_of_seed_step_and_rank(data):
    first = data.make_batch(5, 1)
    assert same(first, data.make_batch(5, 1))
    fresh = pickle.loads(pickle.dumps(data))
    assert not fresh.store.recent.values and same(first, fresh.make_batch(5, 1))
    others = [data.make_batch(5, 0), replace(data, seed=1).make_batch(5, 1), data.make_held_out()]
    assert not any(first.names == other.names for other in others)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    change(data, color=True).make_batch(0)
    assert torch.equal(state, torch.get_rng_state())


def test_all_ranks_of_a_step_have_one_shape_and_steps_differ(data):
    shapes = [[data.make_batch(step, rank).images.shape for rank in (0, 1)] for step in range(6)]
    assert all(first == second for first, second in shapes)
    assert len({tuple(first) for first, _ in shapes}) > 2
    assert all(shape[-1] == 28 and shape[-2] in (14, 28) and 2 <= shape[1] <= 3 for shape, _ in shapes)


def test_masked_pixels_are_black_and_have_no_depth(tmp_path, room_scenes):
    """By name, and as nerfstudio's mask_path; crops move the border, so that it is looked for by its rays."""
    shots = room_scenes.shots(6)
    document = room_scenes.write_nerfstudio_depth(tmp_path / "room", shots)
    (tmp_path / "room" / "masks").mkdir()
    mask = np.full((36, 48), 255, np.uint8)
    mask[:, :24] = 0
    for frame, shot in zip(document["frames"], shots, strict=True):
        Image.fromarray(mask).save(tmp_path / "room" / "masks" / shot.name)
        frame["mask_path"] = f"masks/{shot.name}"
    by_name = make_source(tmp_path / "room", masks=Path("masks")).make_batch(0)
    assert by_name.valid.any()
    border = shots[0].camera.unproject(torch.tensor([[24.0, 18.0]], dtype=torch.float64))[0][0]
    rays = by_name.views.cameras[0].unproject_grid()[0]
    left = rays[..., 0] / rays[..., 2] < float(border[0] / border[2])
    assert not by_name.valid[:, 0][left].any() and float(by_name.images[:, 0].movedim(1, -1)[left].max()) == 0
    assert (by_name.ray_depth[~by_name.valid] == 0).all()
    (tmp_path / "room" / "transforms.json").write_text(json.dumps(document))
    assert same(by_name, make_source(tmp_path / "room").make_batch(0))


def test_points_depths_rays_and_poses_are_of_one_world(data):
    for step in range(3):
        batch = data.make_batch(step)
        rays, seen = batch.rays(), batch.valid
        assert seen.float().mean() > 0.95
        along = batch.ray_depth[..., None] * rays.directions
        assert (along - batch.camera_points)[seen].abs().max() < 1e-5
        assert (batch.camera_points[..., 2] - batch.z_depth)[seen].abs().max() < 1e-5
        assert (transform_points(batch.camera_points, batch.poses) - batch.world_points)[
            seen
        ].abs().max() < 1e-5
        assert torch.allclose(batch.poses.world_from_cam[:, 0], torch.eye(4), atol=1e-6)
        assert batch.views.poses is None


def test_depth_is_what_the_room_has_on_those_rays(room_scenes, tmp_path):
    """Crops, zooms and resizing move nothing: every pixel's ray, cast again, meets the surface that it is given."""
    from g_ray.demo.room import make_random_room

    shots = room_scenes.shots(4, ("pinhole", "fisheye"), width=160, height=120)
    room_scenes.write_nerfstudio_depth(tmp_path, shots)
    data = make_source(tmp_path, batch=1, views=(2, 2), zoom_max=2.0, overlap=0.1)
    room = make_random_room(3, coarse=True)
    for step in range(3):
        batch = data.make_batch(step)
        names = [name.split("/")[-1] for name in batch.names[0].split()[1:]]
        for view, name in enumerate(names):
            shot = next(shot for shot in shots if shot.name == name)
            again = room.render(batch.views.cameras[view][0], shot.pose.to(torch.float32))
            off = (again.ray_depth / batch.ray_depth[0, view] - 1)[batch.valid[0, view]]
            assert (
                off.abs().median() < 0.01 and off.median().abs() < 0.003
            )  # half a pixel of the photograph, any way
            color = (again.rgb.movedim(-1, 0) - batch.images[0, view]).abs().mean(0)
            assert color.median() < 0.05


def test_crops_leave_the_middle_and_zooms_differ(data):
    camera = change(data, views=(3, 3), off_center=1.0).make_batch(1).views.cameras[1]
    still = change(data, views=(3, 3), off_center=0.0, zoom_max=1.0).make_batch(1).views.cameras[1]
    assert isinstance(camera, Pinhole)
    assert (camera.parameter("cx") - 14).abs().max() > 1 > (still.parameter("cx") - 14).abs().max()
    assert camera.parameter("fx").std() > 0.1 > still.parameter("fx").std()


def test_views_of_a_set_overlap(data):
    for step in range(4):
        batch = change(data, views=(3, 3), zoom_max=1.0, aspect=(1.0, 1.0)).make_batch(step)
        shares = compute_covisibility(batch.views.cameras, batch.poses, batch.camera_points, batch.valid)
        both = (shares + shares.mT) / 2 - torch.eye(3)
        assert (both.amax(-1) > 0.15).all()


def test_lenses_of_any_kind_share_a_batch(tmp_path, room_scenes):
    shots = room_scenes.shots(6, ("pinhole", "fisheye", "opencv"))
    room_scenes.write_wai(tmp_path / "a", shots)
    room_scenes.write_wai(tmp_path / "b", shots)
    data = make_source(tmp_path, batch=4, overlap=0.05)
    batch = data.make_batch(0)
    assert any(isinstance(camera, RayMapCamera) for camera in batch.views.cameras)
    along = batch.ray_depth[..., None] * batch.rays().directions
    assert (along - batch.camera_points)[batch.valid].abs().max() < 1e-5


def test_held_out_scenes_are_never_trained_on(data):
    held = {name.split(":")[0] for name in data.make_held_out().names}
    seen = {name.split(":")[0] for step in range(12) for name in data.make_batch(step).names}
    assert held and len(seen) == 2 and not held & seen
    split = {rank: data.store.held_out if rank == HELD_OUT else data.store.training for rank in (0, HELD_OUT)}
    assert len(split[0]) == 2 and len(split[HELD_OUT]) == 1


def test_a_single_scene_is_split_by_its_frames(root):
    data = make_source(root / "one")
    loaded = data.store[0]
    assert data.find_allowed(loaded, 0) == [0, 1, 2, 3] and data.find_allowed(loaded, HELD_OUT) == [4, 5]
    part = change(data, frames=(0.0, 0.5), hold_out=0.4)
    with pytest.raises(ValueError, match="1 views with depth"):
        part.find_allowed(part.store[0], 0)


WRONG = [
    ({"overlap": 1.0}, "overlap"),
    ({"zoom_max": 0.5}, "zoom_max"),
    ({"hold_out": 0.0}, "hold_out"),
    ({"frames": (0.5, 0.5)}, "frames"),
    ({"depth_max": -1.0}, "depth_max"),
    ({"folders": ()}, "no scenes"),
    ({"width": 30}, "patches"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_wrong_settings_are_refused(data, wrong, said):
    with pytest.raises(ValueError, match=said):
        change(data, **wrong)


def test_broken_files_are_named(tmp_path, room_scenes):
    shots = room_scenes.shots(4)
    room_scenes.write_wai(tmp_path, shots)
    data = make_source(tmp_path)
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UnreadableFolder, match=r"16 sets in a row .*images/view_\d+.png"):
        data.make_batch(0)
    (tmp_path / "depth" / "view_00.exr").unlink()
    with pytest.raises(UnreadableFolder, match=r"depth/view_00.exr"):
        make_source(tmp_path).make_batch(0)


def test_a_set_with_a_broken_file_is_drawn_again(tmp_path, room_scenes):
    """Sets without it stay what they were; the same arguments give the same other set, of the same shape."""
    for number in range(3):
        room_scenes.write_wai(tmp_path / f"scene{number}", room_scenes.shots(4, seed=number))
    before = [make_source(tmp_path).make_batch(step) for step in range(6)]
    place, view = before[0].names[0].split()[:2]
    scene = place.strip(":").rpartition("/")[2]
    broken_photo = tmp_path / scene / view
    broken_photo.write_bytes(b"")
    source = make_source(tmp_path)
    after = [source.make_batch(step) for step in range(6)]
    concerned = [any(scene in name and view in name for name in batch.names) for batch in before]
    assert any(concerned) and not all(concerned)
    for old, new, broken in zip(before, after, concerned, strict=True):
        assert new.images.shape == old.images.shape and bool(new.redrawn) == broken
        assert broken or same(old, new)
        assert all(str(broken_photo) in reason for reason in new.redrawn)
    step = concerned.index(True)
    assert same(after[step], make_source(tmp_path).make_batch(step))


def test_far_is_not_valid_and_units_can_be_told(root):
    data = make_source(root / "one")
    near = change(data, depth_max=3.0).make_batch(0)
    assert 0 < near.valid.float().mean() < data.make_batch(0).valid.float().mean() and near.z_depth.max() <= 3
    with pytest.raises(ValueError, match="no two views overlap"):
        change(replace(data, reading=DepthReading(unit=0.001)), overlap=0.9).make_batch(0)


# Walks

CHAIN = np.eye(6) + 0.5 * (np.eye(6, k=1) + np.eye(6, k=-1))


def test_a_walk_is_connected_and_visits_nothing_twice():
    for seed in range(20):
        found = draw_covisible_views(np.random.default_rng(seed), CHAIN, 4, 0.25, range(6))
        assert len(set(found)) == 4
        for place, view in enumerate(found[1:], 1):
            assert max(compute_overlap(CHAIN, view)[found[:place]]) > 0.25


def test_a_walk_stays_where_it_is_allowed_and_repeats_views_only_if_it_must():
    islands = np.kron(np.eye(2), np.ones((3, 3)))
    for seed in range(20):
        found = draw_covisible_views(np.random.default_rng(seed), islands, 3, 0.25, range(6))
        assert len(set(found)) == 3 and len({view // 3 for view in found}) == 1
        alone = draw_covisible_views(np.random.default_rng(seed), islands, 4, 0.25, [0, 1, 5])
        assert set(alone) == {0, 1} and len(alone) == 4


# Mixtures


def test_a_mixture_draws_its_source_per_set(data):
    rooms = RoomsReconstruction(RoomsViews(28, 28, 2, (2, 3), (0.5, 1.0)))
    mixture = MixtureReconstruction((rooms, data), (3, 1))
    chosen = [mixture.choose_source(number) for number in range(2000)]
    assert 0.22 < np.mean(chosen) < 0.28
    assert [mixture.choose_source(number, 1) for number in range(100)] != chosen[:100]
    assert [replace(mixture, seed=1).choose_source(number) for number in range(100)] != chosen[:100]
    # Numbers 2n and 2n + 1 are the two sets of step n.
    step = next(n for n in range(100) if chosen[2 * n : 2 * n + 2] == [1, 0])
    batch, alone = mixture.make_batch(step), data.make_batch(step)
    assert batch.names == (rooms.make_batch(step).names[1], alone.names[0])
    assert torch.equal(batch.images[1], alone.images[0])
    assert torch.equal(batch.world_points[1], alone.world_points[0])
    assert batch.images.shape == mixture.make_batch(step, 1).images.shape == alone.images.shape
    rays, true = batch.rays(), alone.rays()
    torch.testing.assert_close(rays.directions[1], true.directions[0])
    assert same(mixture.make_held_out(), rooms.make_held_out())


def test_folders_of_a_mixture_have_settings_of_their_own(root):
    settings = replace(
        SMALL,
        folders=(root / "one", root / "two"),
        per_folder=(
            FolderSettings.parse("same"),
            FolderSettings.parse("overlap=0.4,depth-max=3,depth_unit=0.5"),
        ),
    )
    mixture = settings.build_source(0, 14)
    assert isinstance(mixture, MixtureReconstruction) and mixture.weights == (0.5, 0.5)
    plain, own = mixture.sources
    assert plain.settings.overlap == SMALL.overlap and plain.settings.depth_max is None
    assert own.settings.overlap == 0.4 and own.settings.depth_max == 3 and own.reading.unit == 0.5
    assert FolderSettings.parse(settings.per_folder[1].format()) == settings.per_folder[1]
    with pytest.raises(ValueError, match="2 folders but settings for 1"):
        replace(settings, per_folder=settings.per_folder[:1]).build_source(0, 14)
    with pytest.raises(ValueError, match="write SETTING=VALUE"):
        FolderSettings.parse("overlap=much")


def test_a_mixture_of_shapes_keeps_the_weights(tmp_path, room_scenes):
    """One folder has two shapes, the other one of them: over many steps both are drawn as often as asked for."""
    for number, (width, height) in enumerate([(56, 42), (42, 56)] * 2):
        shots = room_scenes.shots(4, width=width, height=height, seed=number)
        room_scenes.write_wai(tmp_path / f"a/{number}", shots)
    room_scenes.write_wai(tmp_path / "b/0", room_scenes.shots(4, width=56, height=42, seed=3))
    settings = replace(
        STORED, batch=1, folders=(tmp_path / "a", tmp_path / "b"), weights=(1.0, 1.0), hold_out=0.1
    )
    mixture = settings.build_source(0, 14)
    names, shapes = [], set()
    for step in range(40):
        batch = mixture.make_batch(step)
        names.append(batch.names[0][0])
        shapes.add(tuple(batch.images.shape[-2:]))
    assert 10 <= names.count("b") <= 30 and shapes == {(42, 56), (56, 42)}


@pytest.mark.parametrize(("weights", "said"), [((1,), "2 sources and 1 weights"), ((1, 0), "positive")])
def test_wrong_mixtures_are_refused(data, weights, said):
    with pytest.raises(ValueError, match=said):
        MixtureReconstruction((data, data), weights)


# Photographs in their own shape.


STORED = ScenesViews(
    56, 56, 2, (2, 3), zoom_max=1.0, off_center=0.0, color=False, stored_shape=True, hold_out=0.3
)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory, room_scenes):
    """Scenes of three shapes, and one of lying photographs that are stored at twice the size."""
    root = tmp_path_factory.mktemp("shapes")
    sizes = [(56, 56), (56, 42), (42, 56), (112, 84)]
    for number in range(8):
        width, height = sizes[number % 4]
        shots = room_scenes.shots(4, width=width, height=height, seed=number)
        room_scenes.write_nerfstudio_depth(root / f"scene{number}", shots)
    return root


def test_every_step_has_one_of_the_stored_shapes(shapes):
    source = ScenesReconstruction(replace(STORED, folders=(shapes,)), patch=14)
    found = {}
    for step in range(40):
        batch, other = source.make_batch(step), source.make_batch(step, rank=1)
        assert batch.images.shape[-2:] == other.images.shape[-2:]
        for name in batch.names:
            found.setdefault(tuple(batch.images.shape[-2:]), set()).add(name.split(":")[0])
    assert found.keys() == {(56, 56), (42, 56), (56, 42)}
    assert sum(map(len, found.values())) == len(set.union(*found.values()))  # a scene has one shape
    held_out = {name.split(":")[0] for name in source.make_held_out().names}
    assert not held_out & set.union(*found.values())


def test_photographs_of_the_size_of_the_batch_keep_their_pixels(shapes):
    source = ScenesReconstruction(replace(STORED, folders=(shapes / "scene1",)), patch=14)
    batch = source.make_batch(0)
    assert batch.images.shape[-2:] == (42, 56)
    scene = source.store[0].scene
    for index, names in enumerate(batch.names):
        for view, name in enumerate(names.split(": ")[1].split()):
            photo = scene.views[scene.find_index(name)].load_image()
            assert torch.equal(batch.images[index, view], photo)
            depth = scene.depth[scene.find_index(name)].read()
            assert torch.allclose(batch.z_depth[index, view], depth, rtol=1e-6)


def test_recent_views_are_bounded_and_not_sent_to_workers(shapes, monkeypatch):
    source = ScenesReconstruction(replace(STORED, folders=(shapes / "scene3",)), patch=14)
    first = source.make_batch(0)
    assert len(source.recent.values) > 1 and not pickle.loads(pickle.dumps(source)).recent.values
    assert same(first, source.make_batch(0))
    monkeypatch.setattr(source.recent, "limit", 56 * 42 + 1)
    for step in range(4):
        source.make_batch(step), source.make_held_out()
    assert len(source.recent.values) == 1


@pytest.mark.parametrize("changes", [{"zoom_max": 1.2}, {"off_center": 0.5}, {"aspect": (0.5, 1.0)}])
def test_crops_of_photographs_in_their_own_shape_are_refused(shapes, changes):
    with pytest.raises(ValueError, match="stored_shape needs 1, 0 and"):
        ScenesReconstruction(replace(STORED, folders=(shapes,), **changes), patch=14)


def test_scenes_that_must_not_be_trained_on(tmp_path):
    """ScanNet++'s validation scenes are never in training, nor what its official list does not name."""
    names = ("7b6477cb95", "aaaaaaaaaa", "bbbbbbbbbb")  # the first is of the validation split
    for name in names:
        write_nerfstudio_depth(tmp_path / name, shots(3, width=24, height=24))
    settings = replace(SMALL, folders=(tmp_path,))

    def list_scenes():
        with pytest.warns(UserWarning, match="not in ScanNet.*training split and are not trained on"):
            return [scene.name for scene in settings.build_source(0, 4).store.folders]

    assert list_scenes() == ["aaaaaaaaaa", "bbbbbbbbbb"]
    (tmp_path / "nvs_sem_train.txt").write_text("bbbbbbbbbb\ncccccccccc\n")
    assert list_scenes() == ["bbbbbbbbbb"]
    # Tests may use them.
    assert len(ScenesReconstruction(settings).store.folders) == 3
    (tmp_path / "nvs_sem_train.txt").write_text("cccccccccc\n")
    with pytest.raises(ValueError, match="3 of 3 scenes are not in ScanNet"):
        settings.build_source(0, 4)
