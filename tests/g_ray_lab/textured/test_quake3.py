"""Levels of games against a miniature whose bytes and geometry are known by hand."""

import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from level_files import (
    ARCH_CONTROL,
    FIN_COLOR,
    FIN_CORNERS,
    LIGHT,
    SIZE,
    LevelFile,
    encode_image,
    make_level,
    make_noise,
    write_package,
)

from g_ray.cameras import Pinhole
from g_ray.geometry.pose import Pose
from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.textured import OPENARENA, quake3
from g_ray_lab.textured.quake3 import LevelPackage, Shader, ShaderStage, parse_shaders

UNIT_M = 1 / 39.37


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return LevelPackage(write_package(tmp_path_factory.mktemp("game")))


@pytest.fixture(scope="module")
def level(package):
    return package.read_level("mini")


def find_part(level, texture: np.ndarray | None):
    if texture is None:
        return next(part for part in level.parts if part.sky)
    return next(p for p in level.parts if p.texture is not None and np.array_equal(p.texture, texture))


# Geometry


def test_a_room_is_as_large_as_its_file_says_in_meters(level):
    points = np.concatenate([part.vertices for part in level.parts])
    assert np.allclose(points.min(0), 0) and np.allclose(points.max(0), np.array(SIZE) * UNIT_M)
    assert np.allclose(level.places, np.array([[200, 120, 40]]) * UNIT_M)


def test_what_is_not_drawn_or_blended_or_a_billboard_is_left_out(level):
    faces = sum(len(part.faces) for part in level.parts)
    walls, floor, sky, arch, fin = 8, 2, 2, 2 * quake3.PATCH_STEPS**2, 1
    assert faces == walls + floor + sky + arch + fin
    assert sum(part.sky for part in level.parts) == 1


def test_fronts_look_into_the_room(level):
    scene = MeshScene(level.parts, light=False)
    rays = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    hits = scene.cast(np.array([300, 40, 90]) * UNIT_M, rays)
    assert len(hits.ray) == 500  # nothing leaves a closed room
    seen = ((scene.normals[hits.face] * rays[hits.ray]).sum(-1) < 0) | (
        scene.paint.part[hits.face] == fin_part(level)
    )
    assert seen.mean() > 0.97  # all but the lower side of the arch


def fin_part(level) -> int:
    return next(i for i, part in enumerate(level.parts) if len(part.faces) == 1)


def test_a_patch_is_the_surface_of_its_control_points(level):
    arch = find_part(level, make_noise(2)).vertices / UNIT_M
    # Along x the control points are 40, 80, 120: x is linear in t, and the height is 10 + 160 t (1 − t).
    t = (arch[:, 0] - 40) / 80
    assert np.allclose(arch[:, 2], 10 + 160 * t * (1 - t), atol=1e-3)
    assert t.min() == 0 and t.max() == 1 and len(arch) == (quake3.PATCH_STEPS + 1) ** 2
    assert {200.0, 240.0} <= set(arch[:, 1].round(3)) and len(ARCH_CONTROL) == 9


def test_movable_parts_stand_where_their_entity_says():
    level = make_level()
    content = level.to_bytes()
    lumps = [list(struct.unpack_from("<2i", content, 8 + 8 * i)) for i in range(17)]
    faces = lumps[13][1] // 104
    models = struct.pack("<6f4i", *[0.0] * 6, 0, faces - 2, 0, 0) + struct.pack(
        "<6f4i", *[0.0] * 6, faces - 2, 1, 0, 0
    )
    entities = b'{ "classname" "func_static" "model" "*1" "origin" "1 2 3" }\0'
    lumps[7], lumps[0] = [len(content), len(models)], [len(content) + len(models), len(entities)]
    table = b"".join(struct.pack("<2i", *lump) for lump in lumps)
    moved = content[:8] + table + content[8 + 8 * 17 :] + models + entities
    parsed = list(quake3._iterate_faces(quake3._split_lumps(moved), [{"model": "*1", "origin": "1 2 3"}]))
    assert np.allclose(parsed[-1][1]["position"], np.array(FIN_CORNERS) + np.array([1, 2, 3]))


# Color


def test_light_is_texture_times_light_map(level):
    scene = MeshScene(level.parts, light=False)
    # A wall from 0.5 m: one texel covers many pixels, so the middle of a texel has its color.
    eye = np.array([200.0, 20.0, 60.0]) * UNIT_M
    pose = Pose.look_at(eye.tolist(), (eye - [0, 1, 0]).tolist(), down=(0.0, 0.0, -1.0))
    camera = Pinhole.from_fov(60.0, 64, 64)
    seen = scene.view(camera, pose)
    points = pose.apply(camera.unproject_grid()[0] * seen.ray_depth[..., None]).numpy() / UNIT_M
    u, v = (points[..., 0] + points[..., 1]) / 100 % 1 * 32, points[..., 2] / 100 % 1 * 32
    central = (np.abs(u % 1 - 0.5) < 0.05) & (np.abs(v % 1 - 0.5) < 0.05) & (np.abs(points[..., 1]) < 0.01)
    expected = (
        LINEAR_OF_BYTE[make_noise(0)[v[central].astype(int), u[central].astype(int)]] * LINEAR_OF_BYTE[LIGHT]
    )
    assert central.sum() > 5
    assert np.allclose(seen.light.numpy()[central], expected, atol=0.15 * LINEAR_OF_BYTE[LIGHT])


def test_a_script_leads_to_the_image_and_scales_it(level):
    floor = find_part(level, make_noise(1))
    assert np.allclose(floor.vertices[:, 2], 0) and floor.light_map is not None
    x, y = floor.vertices[:, 0] / UNIT_M, floor.vertices[:, 1] / UNIT_M
    assert floor.uv is not None and np.allclose(floor.uv[:, 0], 2 * (x + y) / 100, atol=1e-4)


def test_without_a_light_map_vertices_carry_the_light(level):
    fin = level.parts[fin_part(level)]
    assert fin.light_map is None and np.allclose(fin.tint, LINEAR_OF_BYTE[list(FIN_COLOR)])
    assert fin.texture is quake3.NEUTRAL  # its image is missing


def test_shader_scripts():
    shaders = parse_shaders(
        """
        textures/A/Door { cull disable
          { map textures/a/door.tga alphaFunc GE128 }
        }
        textures/a/beam { { clampmap b.tga
          blendFunc GL_ONE GL_ONE } }
        textures/a/fire { { animMap 10 f1.tga f2.tga } }
        textures/a/metal { { map env.tga
            tcGen environment }
          { map metal.tga
            blendfunc gl_one gl_one_minus_src_alpha } { map $lightmap
            blendfunc filter } }
        textures/a/flare { deformVertexes autosprite2
          { map f.tga } }
        textures/a/empty { qer_editorimage x.tga }
        unfinished { { map x.tga
        """
    )
    assert set(shaders) == {
        f"textures/a/{name}" for name in ("door", "beam", "fire", "metal", "flare", "empty")
    }
    drawn = {name.split("/")[-1]: shader.is_surface for name, shader in shaders.items()}
    assert drawn == {"door": True, "beam": False, "fire": True, "metal": True, "flare": False, "empty": False}
    assert shaders["textures/a/fire"].base.image == "f1.tga"
    assert shaders["textures/a/metal"].base.image == "metal.tga" and shaders["textures/a/metal"].is_lit
    assert not Shader((ShaderStage("a"),)).is_lit


def test_later_archives_replace_files_of_earlier_ones(tmp_path):
    write_package(tmp_path)
    with zipfile.ZipFile(tmp_path / "Z.pk3", "w") as archive:
        archive.writestr("TEXTURES/T/WALL.TGA", encode_image(make_noise(7), "TGA"))
    level = LevelPackage(tmp_path).read_level("mini")
    assert find_part(level, make_noise(7)).light_map is not None


# What cannot be read


def read_with(folder: Path, bsp: bytes) -> None:
    LevelPackage(write_package(folder, bsp)).read_level("mini")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda bsp: b"", "IBSP"),
        (lambda bsp: b"PACK" + bsp[4:], "IBSP"),
        (lambda bsp: make_level().to_bytes(version=47), "version 47"),
        (lambda bsp: bsp[:-200], "out of the file"),
    ],
)
def test_broken_levels_are_refused_in_one_line(tmp_path, change, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_with(tmp_path, change(make_level().to_bytes()))
    assert "mini" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("patch", "indices", "kind"),
    [((4, 3), (), 2), ((3, 5), (), 2), ((0, 0), (0, 1, 9), 3), ((0, 0), (-1, 0, 1), 1)],
)
def test_faces_with_wrong_numbers_are_refused(tmp_path, patch, indices, kind):
    level = LevelFile()
    level.add(0, kind, ARCH_CONTROL, indices, patch)
    with pytest.raises(ValueError, match=r"patch|does not have"):
        read_with(tmp_path, level.to_bytes())


@given(data=st.data())
def test_damaged_levels_never_fail_otherwise(package, data):
    content = bytearray(make_level().to_bytes())
    body = len(content) - 128 * 128 * 3  # the light map may hold any bytes
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, body - 1))] = data.draw(st.integers(0, 255))
    try:
        quake3.build_level("mini", bytes(content), package)
    except ValueError as error:
        assert "\n" not in str(error)


def test_sizes_are_bounded(tmp_path, monkeypatch):
    package = LevelPackage(write_package(tmp_path))
    monkeypatch.setitem(quake3.LARGEST, ".bsp", 1000)
    with pytest.raises(ValueError, match="more than 1000 are not read"):
        package.read_level("mini")


def test_names_that_lead_elsewhere_are_only_names(tmp_path):
    folder = write_package(tmp_path / "game", **{"maps/../../evil.bsp": b"x", "../evil.bsp": b"x"})
    assert LevelPackage(folder).names == ["mini"]
    assert [path.name for path in tmp_path.rglob("*")] == ["game", "mini.pk3"]


def test_folders_without_levels_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no \.pk3 archives"):
        LevelPackage(tmp_path)
    (tmp_path / "a.pk3").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"a\.pk3: not a zip"):
        LevelPackage(tmp_path)
    (tmp_path / "a.pk3").unlink()
    with zipfile.ZipFile(tmp_path / "a.pk3", "w") as archive:
        archive.writestr("readme.txt", "")
    with pytest.raises(ValueError, match="no levels"):
        LevelPackage(tmp_path)


# An installed game


@pytest.mark.skipif(not OPENARENA.is_dir(), reason="Debian's openarena packages are not installed")
def test_an_installed_level_is_textured():
    with LevelPackage(OPENARENA) as package:
        level = package.read_level("aggressor")
    area = {True: 0.0, False: 0.0}
    for part in level.parts:
        a, b, c = (part.vertices[part.faces[:, i]] for i in range(3))
        area[part.texture is not quake3.NEUTRAL] += float(
            np.linalg.norm(np.cross(b - a, c - a), axis=-1).sum()
        )
    assert area[True] / sum(area.values()) > 0.97
    assert sum(len(part.faces) for part in level.parts) > 3000 and len(level.places) > 10
    scene = MeshScene(level.parts, light=False, prefilter=True)
    seen = scene.view(
        Pinhole.from_fov(90.0, 32, 32),
        Pose.look_at(level.places[0].tolist(), (level.places[0] + [1, 0, 0]).tolist(), down=(0.0, 0.0, -1.0)),
    )
    assert torch.isfinite(seen.light).all() and seen.valid.float().mean() > 0.5


def test_damaged_archives_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "pak0.pk3", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("maps/a.bsp", make_level().to_bytes())
    content = bytearray((tmp_path / "pak0.pk3").read_bytes())
    content[60:76] = b"\xff" * 16
    (tmp_path / "pak0.pk3").write_bytes(content)
    with pytest.raises(ValueError, match=r"level a: pak0\.pk3: maps/a\.bsp is damaged"):
        LevelPackage(tmp_path).read_level("a")


def test_a_large_patch_takes_no_longer_than_its_points():
    """One sum over all control points for every point of the surface took 28 s."""
    count = 101
    control = np.zeros(count * count, quake3.VERTEX)
    control["position"] = np.stack([*np.divmod(np.arange(count * count), count), np.zeros(count * count)], -1)
    started = time.process_time()
    fine, _ = quake3._tessellate(control, count, count)
    assert time.process_time() - started < 3
    assert fine["position"].max() == count - 1
