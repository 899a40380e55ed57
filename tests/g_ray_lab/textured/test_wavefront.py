"""OBJ models: forms of faces and indices, materials, and agreement with trimesh."""

import io

import numpy as np
import pytest
from furniture_files import MATERIALS, encode_png, make_box_model

from g_ray_lab.textured.sweethome3d import INSTALLED, find_libraries, open_library
from g_ray_lab.textured.wavefront import ObjMaterial, parse_obj

FILES = {"box.mtl": MATERIALS.encode(), "front.png": encode_png(np.full((4, 4, 3), 60, np.uint8))}


def read(name: str) -> bytes:
    if name not in FILES:
        raise ValueError(f"no file {name}")
    return FILES[name]


def collect_triangles(parts):
    return np.concatenate([part.mesh.vertices[part.mesh.faces] for part in parts])


def measure_area(triangles):
    a, b, c = triangles.swapaxes(0, 1)
    return np.linalg.norm(np.cross(b - a, c - a), axis=-1).sum() / 2


@pytest.mark.parametrize("corner", ["{}", "{}/1", "{}//1", "{}/1/1"])
def test_all_forms_of_corners(corner):
    model = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvn 0 0 1\nf " + " ".join(
        corner.format(i) for i in (1, 2, 3, 4)
    )
    (part,) = parse_obj(model.encode(), read)
    expected = [[(0, 0, 0), (1, 0, 0), (1, 1, 0)], [(0, 0, 0), (1, 1, 0), (0, 1, 0)]]  # a fan
    np.testing.assert_array_equal(part.mesh.vertices[part.mesh.faces], expected)
    assert part.material == ObjMaterial() and part.mesh.texture is None


def test_negative_indices_count_from_the_end():
    (part,) = parse_obj(b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\n", read)
    np.testing.assert_array_equal(part.mesh.vertices[part.mesh.faces[0]], [(0, 0, 0), (1, 0, 0), (0, 1, 0)])


def test_polygons_of_different_sizes_and_continued_lines():
    model = b"v 0 0 0 1.0\nv 2 0 0\nv 2 2 0\nv 1 3 0\nv 0 2 0\n# f 1 2 3\nf 1 2 3 \\\n 4 5\nf 1 2 3\nl 1 2\nf 1 2\n"
    (part,) = parse_obj(model, read)
    assert len(part.mesh.faces) == 4 and measure_area(part.mesh.vertices[part.mesh.faces]) == pytest.approx(
        5 + 2
    )


def test_materials():
    parts = parse_obj(make_box_model("box.mtl", glass=True).encode(), read)
    body, front, glass = parts
    assert body.material.color == (0.8, 0.4, 0.2) and body.mesh.texture is None
    np.testing.assert_allclose(body.mesh.tint[0], (0.8, 0.4, 0.2), rtol=1e-6)
    assert front.mesh.texture is not None and front.mesh.texture.shape == (4, 4, 3)
    np.testing.assert_array_equal(front.mesh.tint, 1)
    assert sorted(map(tuple, front.mesh.uv)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert glass.material.opacity == 0.2


def test_names_of_images_may_have_options_and_spaces():
    files = {"m.mtl": b"newmtl a\nmap_Kd -s 1 1 1 -o 0 0 my wood.png\n", "my wood.png": FILES["front.png"]}
    model = b"mtllib m.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nusemtl a\nf 1/1 2/1 3/1\n"
    (part,) = parse_obj(model, files.__getitem__)
    assert part.mesh.texture is not None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"v 0 0 0\nf 1 2 3\n", "uses vertex"),
        (b"v 0 0\nv 1 0\nf 1 2 1\n", "fewer than 3 coordinates"),
        (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n", "uses vertex"),
    ],
)
def test_broken_models_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        parse_obj(model, read)


def test_missing_materials_leave_a_gray_model():
    (body, _) = parse_obj(make_box_model("absent.mtl").encode(), read)
    assert body.material == ObjMaterial()


def test_installed_models_agree_with_trimesh():
    """The same triangles: their number, area and the sum of their corners."""
    trimesh = pytest.importorskip("trimesh")
    libraries = find_libraries()
    if not libraries:
        pytest.skip(f"no furniture libraries in {INSTALLED}: install Debian's sweethome3d-furniture")
    with open_library(libraries[0]) as archive:
        names = [name for name in archive.namelist() if name.endswith(".obj")]
        for name in names[::40]:
            model = archive.read(name)
            ours = collect_triangles(parse_obj(model, read))
            scene = trimesh.load_scene(io.BytesIO(model), file_type="obj", process=False)
            theirs = np.concatenate([part.vertices[part.faces] for part in scene.dump()])
            assert len(ours) == len(theirs)
            np.testing.assert_allclose(measure_area(ours), measure_area(theirs), rtol=1e-6)
            np.testing.assert_allclose(ours.sum((0, 1)), theirs.sum((0, 1)), rtol=1e-5, atol=1e-3)
