"""Rooms: sizes, nothing outside or inside something else, free space that is free, and splits that share nothing."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from furniture_files import encode_png, write_library
from PIL import Image

from g_ray_lab.meshes.mesh_files import find_meshes
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.textured.assets import AssetFolders, open_assets
from g_ray_lab.textured.furniture import THEMES
from g_ray_lab.textured.light import MAX_LIGHT
from g_ray_lab.textured.plan import draw_openings, draw_plan, list_walls
from g_ray_lab.textured.scene_sources import RoomSource, draw_places
from g_ray_lab.textured.sweethome3d import INSTALLED
from g_ray_lab.textured.textured_room import make_textured_room

NOTHING = AssetFolders(None, None, None)
SEEDS = (1, 9)


@pytest.fixture(scope="module")
def rooms():
    assets = open_assets(NOTHING)
    return [make_textured_room(seed, assets) for seed in SEEDS]


# Without assets


def test_missing_assets_are_named(tmp_path):
    assets = open_assets(AssetFolders(tmp_path, tmp_path / "absent", tmp_path))
    assert len(assets.missing) == 3
    assert "furniture is made of boxes" in assets.missing[0] and str(tmp_path) in assets.missing[0]
    with pytest.raises(ValueError, match="unknown split 'val'"):
        open_assets(NOTHING, "val")


def test_the_same_seed_makes_the_same_room(rooms):
    again = make_textured_room(SEEDS[0], open_assets(NOTHING))
    assert len(again.meshes) == len(rooms[0].meshes)
    for mesh, other in zip(again.meshes, rooms[0].meshes, strict=True):
        np.testing.assert_array_equal(mesh.vertices, other.vertices)
        np.testing.assert_array_equal(mesh.tint, other.tint)
    assert len({len(room.meshes) for room in rooms}) > 1


def test_rooms_are_furnished_and_textured(rooms):
    assert all(room.theme in THEMES for room in rooms)
    assert max(len(room.pieces) for room in rooms) > 10
    for room in rooms:
        plain = [mesh for mesh in room.meshes if mesh.texture is None]
        assert not plain


@pytest.mark.parametrize("seed", range(20))
def test_plans_and_openings(seed):
    """Rooms are 2.5 to 10 m wide; walls go once around; doors and windows lie in their walls, apart from each other."""
    random = np.random.default_rng(seed)
    plan = draw_plan(random)
    corners = np.array(plan.rectangles)
    extent = corners[:, 2:].max(0) - corners[:, :2].min(0)
    assert (extent >= 2.5).all() and (extent <= 10).all() and 2.3 <= plan.height <= 3.2
    walls = list_walls(plan)
    ends = [wall.locate(wall.length, 0.0) for wall in walls]
    for end, following in zip(ends, [*walls[1:], walls[0]], strict=True):
        np.testing.assert_allclose(end, following.start, atol=1e-9)
    # The shoelace formula: counterclockwise, and the area of the plan.
    x, y = np.array([wall.start for wall in walls]).T
    assert (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2 == pytest.approx(plan.area)
    inward = np.array([wall.locate(wall.length / 2, 0.01) for wall in walls])
    assert (plan.measure_distance(inward) > 0).all()
    openings = draw_openings(plan, walls, random)
    for one in openings:
        assert 0 < one.left < one.right < one.wall.length and 0 <= one.low < one.high < plan.height
        for other in openings:
            if other is not one and other.wall == one.wall:
                assert one.right < other.left or other.right < one.left


def test_nothing_sticks_out_of_the_walls(rooms):
    for room in rooms:
        for piece in room.pieces:
            points = np.concatenate([part.vertices for part in piece.parts])
            assert room.space.plan.measure_distance(points[:, :2]).min() > -0.005
            assert points[:, 2].min() > -0.005 and points[:, 2].max() < room.space.plan.height + 0.005


def test_meshes_are_inside_their_boxes(rooms):
    for room in rooms:
        for piece in room.pieces:
            points = np.concatenate([part.vertices for part in piece.parts])
            assert piece.box.measure_distance(points).max() < 0.005


def test_pieces_do_not_overlap(rooms):
    """Things on a table touch its box, things in a shelf are inside it: all others keep to themselves."""
    for room in rooms:
        large = [piece.box for piece in room.pieces if piece.name.startswith(("box", "picture"))]
        small = [piece.box for piece in room.pieces if not piece.name.startswith(("box", "picture"))]
        for group in (large, small):
            for i, box in enumerate(group):
                assert not any(box.overlaps(other, 0.021) for other in group[:i])


def test_free_places_are_free(rooms):
    """Rays in all directions from free places meet nothing close by, except what hangs on walls and ceiling."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(300, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    for room in rooms:
        places = draw_places(room, random)
        assert len(places) > 0
        scene = MeshScene(room.meshes, light=False)
        for place in places[:20]:
            hits = scene.cast(place, directions.astype(np.float32))
            assert len(hits.ray) == len(directions)  # rooms are closed
            assert hits.distance.min() > 0.25
            assert scene.measure_back_share(hits, directions.astype(np.float32)) < 0.1


def test_light_is_bounded(rooms):
    for room in rooms:
        tints = np.concatenate([mesh.tint for mesh in room.meshes])
        assert np.isfinite(tints).all() and tints.min() >= 0
        # Albedos are at most 1.6 before the texture, lamps and windows glow at most at 3.
        assert tints.max() <= max(1.6 * MAX_LIGHT * 1.3, 3.0)


# With assets


def write_object(path: Path) -> None:
    """A small box as the quantized meshes of scanned objects."""
    corners = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([[(a, b, c), (a, c, d)] for a, b, c, d in quads]).reshape(-1, 3)
    texture = np.frombuffer(encode_png(np.full((256, 256, 3), 90, np.uint8)), np.uint8)
    np.savez(
        path,
        v=(65535 * corners).astype(np.uint16),
        f=faces,
        lo=np.zeros(3),
        scale=np.array(0.15),
        uv=np.zeros((8, 2), np.uint16),
        tex=texture,
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("assets")
    for name in ("furniture", "objects", "images"):
        (root / name).mkdir()
    write_library(root / "furniture/mini.sh3f")
    for number in range(30):
        write_object(root / f"objects/thing_{number:02d}.npz")
    with zipfile.ZipFile(root / "images/pak0.pk3", "w") as archive:
        for number in range(30):
            image = Image.new("RGB", (128, 128), (60, 50, 40))
            with archive.open(f"textures/house/brick{number}.jpg", "w") as file:
                image.save(file, format="jpeg")
        archive.writestr("textures/house/brick_light.jpg", b"not listed: its name is that of a lamp")
    return AssetFolders(root / "furniture", root / "objects", root / "images")


def test_splits_share_no_piece(folders):
    train, test = open_assets(folders, "train"), open_assets(folders, "test")
    for kind in ("furniture", "objects", "images"):
        assert not set(getattr(train, kind)) & set(getattr(test, kind))
    assert len(train.furniture) + len(test.furniture) == 3
    assert len(train.objects) + len(test.objects) == len(find_meshes(folders.objects)) == 30
    assert len(train.images) + len(test.images) == 30
    assert 0 < len(test.objects) < 10 and 0 < len(test.images) < 10


def test_variants_of_a_product_are_in_one_split(tmp_path):
    families = [f"Maker_Model{n}" for n in range(30)]
    for family in families:
        for color in ("Red", "Blue_Size_70", "Linen_Oat_IbrSyJdpT3h"):
            (tmp_path / f"{family}_{color}.npz").touch()
    entries = [f"Mini_sofa{n}_{color}" for n in range(30) for color in ("oak", "pear_2seats")]
    lines = [
        f"id#{n}={key}\nname#{n}={key}\ncategory#{n}=Living room\nmodel#{n}=/mini/table/table.obj\n"
        f"width#{n}=100\ndepth#{n}=60\nheight#{n}=75"
        for n, key in enumerate(entries)
    ]
    write_library(tmp_path / "mini.sh3f", "\n".join(lines))
    train, test = (open_assets(AssetFolders(tmp_path, tmp_path, None), split) for split in ("train", "test"))
    assert len(train.objects) + len(test.objects) == 90 and len(train.furniture) + len(test.furniture) == 60
    assert test.objects and test.furniture
    objects = [{"_".join(path.stem.split("_")[:2]) for path in side.objects} for side in (train, test)]
    furniture = [{"_".join(entry.key.split("_")[:2]) for entry in side.furniture} for side in (train, test)]
    assert not objects[0] & objects[1] and not furniture[0] & furniture[1]


def test_splits_share_no_room():
    sources = [
        RoomSource(n, seed, split, NOTHING)
        for n in range(3)
        for seed in (0, 1)
        for split in ("train", "test")
    ]
    seeds = [source.compute_room_seed(attempt) for source in sources for attempt in range(2)]
    assert len(set(seeds)) == len(seeds)
    assert len({source.name for source in sources}) == len(sources)


def test_rooms_contain_scanned_objects(folders):
    assets = open_assets(folders)
    names = {path.stem for path in assets.objects}
    rooms = [make_textured_room(seed, assets) for seed in (3,)]
    found = [piece for room in rooms for piece in room.pieces if piece.name in names]
    assert found
    for piece in found:
        points = np.concatenate([part.vertices for part in piece.parts])
        assert np.ptp(points[:, 2]) == pytest.approx(0.15)  # real size


def test_broken_assets_are_left_out(folders, tmp_path):
    (tmp_path / "broken.npz").write_text("no mesh")
    assets = open_assets(AssetFolders(None, tmp_path, None), "train")
    everything = (*assets.objects, *open_assets(AssetFolders(None, tmp_path, None), "test").objects)
    assert [assets.load_object(path) for path in everything] == [None]


def test_installed_furniture_stands_inside():
    assets = open_assets(AssetFolders(images=None))
    if not assets.furniture:
        pytest.skip(f"no furniture libraries in {INSTALLED}: install Debian's sweethome3d-furniture")
    room = make_textured_room(11, assets)
    for piece in room.pieces:
        points = np.concatenate([part.vertices for part in piece.parts])
        assert room.space.plan.measure_distance(points[:, :2]).min() > -0.005
        assert piece.box.measure_distance(points).max() < 0.005
    assert any(not piece.name.startswith(("box", "picture", "books")) for piece in room.pieces)
