"""Furniture libraries: sizes, axes, glass and textures of models, and files that are broken or hostile."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from furniture_files import CATALOG, encode_png, make_box_model, write_library

from g_ray_lab.meshes.mesh_files import UnreadableMesh
from g_ray_lab.textured import sweethome3d
from g_ray_lab.textured.sweethome3d import (
    INSTALLED,
    find_libraries,
    parse_properties,
    read_catalog,
    read_furniture,
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_library(tmp_path / "mini.sh3f")


def bound(parts):
    points = np.concatenate([part.vertices[np.unique(part.faces)] for part in parts])
    return points.min(0), points.max(0)


def test_catalog_gives_sizes_in_meters(library):
    table, cupboard, window = read_catalog(library)
    assert (table.key, table.name, table.category) == ("Mini#table", "Café table", "Living room")
    assert table.size == pytest.approx((1.205, 0.6, 0.75))
    assert (table.elevation, table.top) == (0, pytest.approx(0.75))  # things stand on top by default
    assert (cupboard.name, cupboard.elevation, cupboard.top) == ("Upper cupboard", 1.4, None)
    assert (window.door_or_window, window.top) == (True, 0.5)


def test_properties_have_comments_escapes_and_continued_lines():
    text = "# a=b\n! c=d\n e#1 = x\\u00e9 \\\n  y\nnothing\nf=g=h\n"
    assert list(parse_properties(text)) == [("e#1", "xé y"), ("f", "g=h")]


def test_models_have_their_real_size_and_face_minus_y(library):
    table = read_catalog(library)[0]
    parts = read_furniture(table)
    low, high = bound(parts)
    np.testing.assert_allclose(low, (-0.6025, -0.3, 0), atol=1e-9)
    np.testing.assert_allclose(high, (0.6025, 0.3, 0.75), atol=1e-9)
    (front,) = (part for part in parts if part.texture is not None)
    (body,) = (part for part in parts if part.texture is None)
    np.testing.assert_allclose(front.vertices[:, 1], -0.3, atol=1e-9)
    assert tuple(front.texture[0, 0]) == (200, 30, 30)
    np.testing.assert_allclose(body.tint[0], (0.8, 0.4, 0.2), atol=2e-3)


def test_model_rotation_comes_before_the_size(library):
    """The matrix takes the model's z to −x: the front, at z = 5, is then at the left, at the real width."""
    cupboard = read_catalog(library)[1]
    parts = read_furniture(cupboard)
    low, high = bound(parts)
    np.testing.assert_allclose(high - low, (0.8, 0.35, 0.7), atol=1e-9)
    (front,) = (part for part in parts if part.texture is not None)
    np.testing.assert_allclose(front.vertices[:, 0], -0.4, atol=1e-9)


def test_glass_is_left_out(library):
    parts = read_furniture(read_catalog(library)[2])
    assert len(parts) == 2
    np.testing.assert_allclose(bound(parts)[1], (0.5, 0.05, 1.2), atol=1e-9)


def test_cut_out_images_are_refused(tmp_path):
    leaf = np.zeros((8, 8, 4), np.uint8)
    leaf[:4] = 255
    library = write_library(tmp_path / "leaf.sh3f", extra={"mini/table/front.png": encode_png(leaf)})
    with pytest.raises(UnreadableMesh, match=r"mini/table/table\.obj: its images have transparent parts"):
        read_furniture(read_catalog(library)[0])


def test_paths_do_not_leave_the_archive(tmp_path):
    """A material file outside is not read, by a relative or an absolute name: the model has no color from it."""
    (tmp_path / "secret.mtl").write_text("newmtl body\nKd 0 1 0\nnewmtl front\nKd 0 1 0\n")
    for name in ("../../secret.mtl", str(tmp_path / "secret.mtl")):
        model = make_box_model(name).encode()
        library = write_library(tmp_path / "escape.sh3f", extra={"mini/table/table.obj": model})
        for part in read_furniture(read_catalog(library)[0]):
            assert not np.allclose(part.tint[0], (0, 1, 0), atol=0.1)


def test_large_members_are_not_unpacked(library, monkeypatch):
    monkeypatch.setattr(sweethome3d, "MAX_MODEL_BYTES", 100)
    with pytest.raises(UnreadableMesh, match=r"table\.obj has \d+ bytes, more than the 100"):
        read_furniture(read_catalog(library)[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("width#1=120.5", "width#1=wide", r"entry 1, width: 'wide' is not a number"),
        ("width#1=120.5", "", r"entry 1: it has no width"),
        ("width#1=120.5", "width#1=-3", r"entry 1: a size of"),
        ("depth#1=60", "depth#1=nan", r"entry 1, depth: 'nan' is not a finite number"),
        ("0 0 -1 0 1 0 1 0 0", "1 2 3", r"entry 2: modelRotation has 3 numbers"),
    ],
)
def test_broken_entries_are_named(tmp_path, old, new, message):
    library = write_library(tmp_path / "broken.sh3f", CATALOG.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_catalog(library)


def test_other_files_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.sh3f").write_text("no archive")
    with pytest.raises(ValueError, match="not a zip archive"):
        read_catalog(tmp_path / "text.sh3f")
    with pytest.raises(ValueError, match="has no entries"):
        read_catalog(write_library(tmp_path / "empty.sh3f", "id=Mini\n"))
    library = write_library(tmp_path / "kind.sh3f", CATALOG.replace("table.obj", "table.dae"))
    with pytest.raises(UnreadableMesh, match="only OBJ models are read"):
        read_furniture(read_catalog(library)[0])
    assert find_libraries(tmp_path / "absent") == []


def test_installed_models_have_the_sizes_of_their_catalog():
    libraries = find_libraries()
    if not libraries:
        pytest.skip(f"no furniture libraries in {INSTALLED}: install Debian's sweethome3d-furniture")
    entries = [entry for library in libraries for entry in read_catalog(library)]
    assert len(entries) > 500 and len({entry.key for entry in entries}) == len(entries)
    for entry in entries[10::160]:
        low, high = bound(read_furniture(entry))
        np.testing.assert_allclose(high - low, entry.size, rtol=1e-6)


def test_a_damaged_catalog_is_named(tmp_path):
    library = write_library(tmp_path / "damaged.sh3f")
    content = bytearray(library.read_bytes())
    with zipfile.ZipFile(library) as archive:
        info = archive.getinfo(sweethome3d.CATALOG)
    start = info.header_offset + 30 + len(info.filename)
    content[start : start + 16] = b"\xff" * 16
    library.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.sh3f: .* is damaged"):
        read_catalog(library)
