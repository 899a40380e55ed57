"""Meshes from files: what is in them, what they are called, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from g_ray_lab.meshes.mesh_files import (
    DEFAULT_COLOR,
    LINEAR_OF_BYTE,
    Mesh,
    UnreadableMesh,
    find_meshes,
    make_safe_name,
    read_meshes,
    scale_to_unit_size,
)

RED = (200, 30, 60, 255)


def wedge() -> trimesh.Trimesh:
    """Three different extents, so that swapped axes show."""
    return trimesh.creation.box(extents=(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("suffix", "up", "extents"),
    [
        ("glb", None, (1, 3, 2)),
        ("gltf", None, (1, 3, 2)),
        ("obj", None, (1, 3, 2)),
        ("ply", None, (1, 2, 3)),
        ("PLY", "y", (1, 3, 2)),
        ("glb", "z", (1, 2, 3)),
    ],
)
def test_up_becomes_z(tmp_path, suffix, up, extents):
    wedge().export(tmp_path / f"wedge.{suffix.lower()}")
    path = next(tmp_path.glob("wedge.*")) if suffix != "gltf" else tmp_path / "wedge.gltf"
    if suffix == "gltf":
        trimesh.Scene(wedge()).export(path)
    if suffix == "PLY":
        path = path.rename(tmp_path / "wedge.PLY")
    (mesh,) = read_meshes(path, up)
    assert np.allclose(np.ptp(mesh.vertices, axis=0), extents)
    assert len(mesh.faces) == 12


def test_y_up_turns_and_does_not_mirror(tmp_path):
    triangle = trimesh.Trimesh([[0, 0, 0], [1, 2, 3], [4, 5, 7]], [[0, 1, 2]], process=False)
    triangle.export(tmp_path / "a.glb")
    (mesh,) = read_meshes(tmp_path / "a.glb")
    assert np.allclose(mesh.vertices[1:], [[1, -3, 2], [4, -7, 5]])


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("ply", LINEAR_OF_BYTE[list(RED[:3])]),
        ("obj", LINEAR_OF_BYTE[list(RED[:3])]),
        ("glb", np.array(RED[:3]) / 255),
    ],
)
def test_vertex_colours_are_light_in_gltf_and_stored_values_elsewhere(tmp_path, suffix, expected):
    box = wedge()
    box.visual.vertex_colors = np.tile(np.array(RED, np.uint8), (8, 1))
    box.export(tmp_path / f"box.{suffix}")
    (mesh,) = read_meshes(tmp_path / f"box.{suffix}")
    assert mesh.texture is None and np.allclose(mesh.tint, expected, atol=4e-3)


def test_faces_keep_their_own_colours(tmp_path):
    box = wedge()
    colours = np.random.default_rng(0).integers(0, 256, (12, 4), dtype=np.uint8)
    box.visual.face_colors = colours
    box.export(tmp_path / "box.ply")
    (mesh,) = read_meshes(tmp_path / "box.ply")
    assert np.allclose(mesh.tint[mesh.faces], LINEAR_OF_BYTE[colours[:, None, :3]])
    assert np.allclose(mesh.vertices[mesh.faces], box.vertices[box.faces])


def test_what_has_no_colour_is_grey(tmp_path):
    wedge().export(tmp_path / "box.ply")
    (mesh,) = read_meshes(tmp_path / "box.ply")
    assert (mesh.tint == DEFAULT_COLOR).all()


def textured(factor=None) -> trimesh.Trimesh:
    box = wedge()
    image = Image.fromarray(np.full((2, 2, 4), 128, np.uint8))
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=image, baseColorFactor=factor)
    box.visual = trimesh.visual.TextureVisuals(uv=np.random.default_rng(0).random((8, 2)), material=material)
    return box


def test_parts_keep_their_places_factors_and_textures(tmp_path):
    scene = trimesh.Scene()
    scene.add_geometry(textured([51, 102, 255, 255]))
    lifted = trimesh.transformations.translation_matrix([0, 5, 0])
    scene.add_geometry(textured(), transform=lifted)
    scene.export(tmp_path / "two.glb")
    below, above = sorted(read_meshes(tmp_path / "two.glb"), key=lambda mesh: mesh.vertices[:, 2].mean())
    assert np.allclose([below.vertices[:, 2].mean(), above.vertices[:, 2].mean()], [0, 5])
    assert np.allclose(below.tint, [0.2, 0.4, 1.0], atol=1e-3) and np.allclose(above.tint, 1)
    assert below.texture is not None and below.texture.shape == (2, 2, 3) and below.repeat


def test_an_obj_texture_stands_alone_whatever_kd_says(tmp_path):
    Image.fromarray(np.full((2, 2, 3), 77, np.uint8)).save(tmp_path / "t.png")
    (tmp_path / "m.mtl").write_text("newmtl a\nKd 0 0 0\nmap_Kd t.png\nnewmtl b\nKd 0.25 0.5 1\n")
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\n"
    (tmp_path / "o.obj").write_text(
        f"mtllib m.mtl\n{corners}usemtl a\nf 1/1 2/2 3/3\nusemtl b\nf 1/1 3/3 2/2\n"
    )
    parts = read_meshes(tmp_path / "o.obj")
    (paper,) = [part for part in parts if part.texture is not None]
    (plain,) = [part for part in parts if part.texture is None]
    assert (paper.tint == 1).all() and (paper.texture == 77).all()
    assert np.allclose(plain.tint, [0.25, 0.5, 1.0], atol=4e-3)


def test_a_scanned_object(shared_data):
    folder = shared_data / "gso_mini" / "objects"
    found = find_meshes(folder)
    name = "2_of_Jenga_Classic_Game"
    (mesh,) = scale_to_unit_size(read_meshes(found[name]))
    stored = np.load(folder / f"{name}.npz")
    size = np.ptp(stored["v"].astype(float), axis=0)
    assert np.allclose(np.ptp(mesh.vertices, axis=0), size / size.max(), atol=1e-6)
    assert np.allclose(mesh.vertices.min(0), -mesh.vertices.max(0))
    assert mesh.texture is not None and mesh.texture.shape == (512, 512, 3)
    assert len(found) == len(list(folder.glob("*.npz")))


# Refusals


def write_npz(path: Path, **changes) -> None:
    arrays = {
        "v": np.zeros((3, 3), np.uint16),
        "uv": np.zeros((3, 2), np.uint16),
        "f": np.array([[0, 1, 2]], np.uint16),
        "lo": np.zeros(3, np.float32),
        "scale": np.float32(1),
        "tex": np.frombuffer(b"no picture", np.uint8),
        "wrap": np.bool_(False),
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


BROKEN = {
    "empty.glb": lambda path: path.write_bytes(b""),
    "text.glb": lambda path: path.write_bytes(b"glTF, not really"),
    "truncated.glb": lambda path: path.write_bytes(wedge().export(file_type="glb")[:200]),
    "empty.obj": lambda path: path.write_text(""),
    "points.ply": lambda path: trimesh.PointCloud(np.random.rand(5, 3)).export(path),
    "cut.ply": lambda path: path.write_bytes(wedge().export(file_type="ply")[:300]),
    "nan.obj": lambda path: path.write_text("v 0 0 0\nv 1 0 nan\nv 0 1 0\nf 1 2 3\n"),
    "noise.npz": lambda path: path.write_bytes(b"PK no archive"),
    "arrays.npz": lambda path: write_npz(path, f=None),
    "picture.npz": write_npz,
    "pickle.npz": lambda path: write_npz(path, v=np.array([{}], dtype=object)),
    "part.stl": lambda path: wedge().export(path),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_by_name(tmp_path, name):
    BROKEN[name](tmp_path / name)
    with pytest.raises(UnreadableMesh, match=name) as refusal:
        read_meshes(tmp_path / name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"faces": np.zeros((0, 3), int)}, "no triangles"),
        ({"faces": np.array([[0, 1, 3]])}, "vertex 3 of 3"),
        ({"faces": np.array([[0, 1, -1]])}, "of 3"),
        ({"vertices": np.full((3, 3), np.inf)}, "finite"),
        ({"uv": np.zeros((3, 2))}, "need each other"),
        ({"uv": np.full((3, 2), np.nan), "texture": np.zeros((1, 1, 3), np.uint8)}, "uv"),
    ],
)
def test_a_mesh_that_makes_no_sense_is_refused(changes, reason):
    sound = {"vertices": np.eye(3), "faces": np.array([[0, 1, 2]]), "tint": np.ones((3, 3))}
    with pytest.raises(ValueError, match=reason):
        Mesh(**(sound | changes))


def test_a_point_has_no_size():
    point = Mesh(np.ones((3, 3)), np.array([[0, 1, 2]]), np.ones((3, 3)))
    with pytest.raises(ValueError, match="one point"):
        scale_to_unit_size([point])


def test_unused_vertices_do_not_count():
    stray = np.concatenate([np.eye(3), [[99.0, 99.0, 99.0]]])
    (mesh,) = scale_to_unit_size([Mesh(stray, np.array([[0, 1, 2]]), np.ones((4, 3)))])
    assert np.allclose(np.ptp(mesh.vertices[:3], axis=0), 1)


# Names


@given(st.text())
def test_a_safe_name_stays_in_its_folder(text):
    name = make_safe_name(text)
    assert Path(name).name == name and not name.startswith(".") and 0 < len(name) <= 100
    assert make_safe_name(name) == name


def test_names_are_stems_unless_they_clash_or_are_unsafe(tmp_path):
    files = [
        "a/cup.glb",
        "b/cup.obj",
        "B/Plate.ply",
        "c/plate.ply",
        "spoon.npz",
        "a b.ply",
        "...ply",
        "x.txt",
        "x.mtl",
    ]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    found = find_meshes(tmp_path)
    assert len(found) == 7 and found["spoon"] == tmp_path / "spoon.npz"
    assert len({name.casefold() for name in found}) == 7
    assert {name.partition("-")[0] for name in found} == {"cup", "Plate", "plate", "spoon", "a_b", "_"}
    assert found == find_meshes(tmp_path)


def test_a_folder_without_meshes_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no \.glb"):
        find_meshes(tmp_path)
    with pytest.raises(ValueError, match="not a folder"):
        find_meshes(tmp_path / "missing")
