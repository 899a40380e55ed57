"""Meshes of a room with exact depth through pinholes and fisheyes: surface, trimming, texture, files."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.export.export_options import ExportOptions
from g_ray.export.mesh_export import estimate_mesh
from g_ray.geometry.pose import Pose
from g_ray.media.scene_files import read_mesh_ply, write_mesh_glb, write_mesh_ply
from g_ray.media.view import View
from g_ray.mesh.coloring import PhotoSight, _average_surface, _find_steps, find_sights, level_exposures
from g_ray.mesh.depth_fusion import DepthView
from g_ray.mesh.mesh_building import (
    MeshSettings,
    OrientedPoints,
    build_mesh,
    build_surface,
    measure_change,
    render_picture,
)
from g_ray.mesh.poisson import decimate, reconstruct_poisson
from g_ray.mesh.rasterizer import rasterize, render_depth
from g_ray.mesh.surface_mesh import SurfaceMesh, drop_small_parts, find_components, split_large_faces
from g_ray.mesh.texture import encode_jpeg
from g_ray.mesh.trimming import trim_unsupported
from g_ray.mesh.unwrapping import unwrap

LENSES = {
    "pinhole": Pinhole.make(160, 120, fx=90.0, fy=90.0, cx=80.0, cy=60.0),
    "fisheye": OpenCVFisheye.make(
        160, 120, fx=62.0, fy=62.0, cx=80.0, cy=60.0, k1=0.01, k2=0.0, k3=0.0, k4=0.0
    ),
}
TURNS = (-0.5, -0.25, 0.0, 0.25, 0.5)


def look(turn: float) -> Pose:
    eye = torch.tensor([1.2 * np.sin(turn), -0.1, -1.6 * np.cos(turn)], dtype=torch.float32)
    return Pose.look_at(eye, torch.tensor([0.0, 0.3, 1.0]))


def take(room, camera, turn: float) -> tuple[DepthView, View]:
    """Exact depth and the photograph of one view."""
    seen = room.render(camera, look(turn))
    valid = seen.valid & (seen.ray_depth < 6)
    depth = DepthView(camera, look(turn), seen.ray_depth * valid, valid)
    return depth, View(f"{turn}.png", camera, look(turn), image=seen.rgb.movedim(-1, 0))


@pytest.fixture(scope="module")
def room():
    return make_random_room(0, solids=5, dtype=torch.float32, coarse=True)


@pytest.fixture(scope="module", params=LENSES)
def taken(request, room):
    """Lens, depths, photographs and points of five views."""
    camera = LENSES[request.param]
    depths, photos = zip(*(take(room, camera, turn) for turn in TURNS), strict=True)
    points, normals = zip(*(depth.list_oriented_points() for depth in depths), strict=True)
    cloud = OrientedPoints(torch.cat(points).numpy(), torch.cat(normals).numpy())
    return camera, list(depths), list(photos), cloud


@pytest.fixture(scope="module")
def built(taken):
    _, depths, photos, cloud = taken
    return build_mesh(depths, photos, cloud, MeshSettings(faces=20_000, texture_size=1024))


def compare_depth(mesh: SurfaceMesh, room, camera, turn: float) -> tuple[float, float]:
    """Median relative error of the mesh's distances in a view, and the share of pixels that see the mesh."""
    seen = room.render(camera, look(turn))
    distance = render_depth(split_large_faces(mesh, 0.1), camera, look(turn)).distance
    shown = distance.isfinite() & seen.valid
    error = ((distance - seen.ray_depth).abs() / seen.ray_depth)[shown].median()
    return float(error), float(shown.float().mean())


def test_surface_is_the_rooms_at_a_held_out_view(built, taken, room):
    error, share = compare_depth(built.mesh, room, taken[0], 0.12)
    assert error < 0.006 and share > 0.85
    assert len(built.mesh.faces) <= 20_000 < built.fine_faces and 0 < built.error < 0.05


def test_fused_surface_is_the_rooms(taken, room):
    camera, depths, _, cloud = taken
    mesh = build_surface(depths, cloud, MeshSettings("tsdf"))
    error, share = compare_depth(mesh, room, camera, 0.12)
    assert error < 0.006 and share > 0.8


def test_faces_look_towards_the_views(built, taken):
    mesh, eye = built.mesh, look(0.0).translation.numpy()
    normals = mesh.compute_normals()
    toward = eye - mesh.vertices
    assert (np.einsum("vc,vc->v", normals, toward) > 0).mean() > 0.9


def test_texture_shows_a_held_out_photograph(built, taken, room):
    camera = taken[0]
    _, photo = take(room, camera, 0.12)
    fine = built.mesh
    picture = render_picture(fine, photo, 160, background=0).astype(float) / 255
    truth = photo.load_image().movedim(0, -1).numpy()
    shown = render_depth(fine, camera, look(0.12)).distance.isfinite().numpy()
    error = np.square(picture - truth)[shown].mean()
    assert -10 * np.log10(error) > 27 and error < truth[shown].var(0).mean() / 8


def test_texture_of_vertices_alone(taken):
    _, depths, photos, cloud = taken
    mesh = build_mesh(depths[1:4], photos[1:4], cloud, MeshSettings(faces=3000, texture_size=0)).mesh
    assert mesh.texture is None and mesh.uv is None and mesh.colors is not None
    assert mesh.colors.std() > 20


def test_glb_opens_with_uv_and_image(built, tmp_path):
    mesh = built.mesh
    assert mesh.texture is not None
    write_mesh_glb(
        tmp_path / "m.glb", mesh.vertices, mesh.faces, mesh.colors, mesh.uv, encode_jpeg(mesh.texture)
    )
    (read,) = trimesh.load_scene(tmp_path / "m.glb", process=False).geometry.values()
    assert np.array_equal(read.faces, mesh.faces) and np.allclose(read.vertices, mesh.vertices, atol=1e-5)
    # trimesh counts v from the bottom.
    assert np.allclose(read.visual.uv * [1, -1] + [0, 1], mesh.uv, atol=1e-6)
    assert read.visual.material.baseColorTexture.size == mesh.texture.shape[1::-1]
    stored = np.asarray(Image.open(io.BytesIO(encode_jpeg(mesh.texture))), float)
    assert np.abs(stored - mesh.texture).mean() < 4


def test_glb_with_colors_of_vertices(built, tmp_path):
    mesh = built.mesh
    write_mesh_glb(tmp_path / "m.glb", mesh.vertices, mesh.faces, mesh.colors)
    (read,) = trimesh.load_scene(tmp_path / "m.glb", process=False).geometry.values()
    light = read.visual.vertex_attributes["color"][:, :3] / 255
    assert np.allclose(light ** (1 / 2.2), mesh.colors / 255, atol=0.1) and len(read.faces) == len(mesh.faces)


def test_ply_is_read_back_and_by_trimesh(built, tmp_path):
    mesh = built.mesh
    write_mesh_ply(tmp_path / "m.ply", mesh.vertices, mesh.faces, mesh.colors)
    vertices, faces = read_mesh_ply(tmp_path / "m.ply")
    assert np.array_equal(faces, mesh.faces) and np.allclose(vertices, mesh.vertices, atol=1e-5)
    read = trimesh.load(tmp_path / "m.ply", process=False)
    assert np.array_equal(read.visual.vertex_colors[:, :3], mesh.colors)


def test_every_face_has_its_own_texels(built):
    """Charts do not overlap: hardly a texel lies inside of two triangles."""
    mesh = built.mesh
    assert mesh.uv is not None and mesh.texture is not None
    height, width = mesh.texture.shape[:2]
    corners = torch.from_numpy(mesh.uv * [width, height])[torch.from_numpy(mesh.faces).long()]
    texels = torch.cat([part.pixel for part in rasterize(corners, width, height)])
    assert len(texels.unique()) > 0.97 * len(texels)
    assert mesh.uv.min() >= 0 and mesh.uv.max() <= 1


def test_exposures_are_leveled(built, taken):
    photos = [
        replace(photo, image=photo.load_image() * (0.7 if number == 2 else 1.0))
        for number, photo in enumerate(taken[2])
    ]
    sights = find_sights(built.mesh, photos)
    gains = level_exposures(built.mesh, built.mesh.compute_normals(), sights)
    ratio = gains[2] / gains[[0, 1, 3, 4]].mean(0)
    assert torch.allclose(ratio, torch.full((3,), 1 / 0.7), atol=0.1)


def test_a_slanted_plane_has_no_steps():
    """Seen nearly along it, distances of neighbors differ by more than a step's; beside a box there is one."""
    rays = LENSES["fisheye"].unproject_grid()[0]
    floor = torch.where(rays[..., 1] > 0.02, 1 / rays[..., 1].clamp_min(1e-6), torch.inf)
    steps = _find_steps(floor)
    inside = torch.isfinite(floor)[1:-2] & torch.isfinite(floor)[:-3]
    assert float((floor[1:] / floor[:-1])[70].mean()) < 0.95 and not steps[1:-2][inside].any()
    box = floor.clone()
    box[90:100, 60:80] = 0.8 * floor[90:100, 60:80]
    assert bool(_find_steps(box)[95, 59:61].all()) and bool(_find_steps(box)[89:91, 70].all())


def test_coarse_colors_leave_out_the_background():
    """A gray object before white: the means of 8×8 pixels at its border are gray."""
    camera, far = LENSES["pinhole"], torch.full((120, 160), torch.inf)
    far[20:100, 43:110] = 1.0
    image = torch.where(far.isfinite(), 0.4, 1.0).expand(3, -1, -1)
    sight = PhotoSight(
        View("a", camera), camera, look(0.0), far, far.isfinite().float(), (255 * image).byte()
    )
    coarse = _average_surface(image, sight)
    assert coarse.shape == (3, 15, 20) and float(coarse[:, 3:12, 5:13].max()) < 0.41
    assert float(coarse[:, 0, 0].min()) == pytest.approx(1)


def test_bubbles_and_floaters_are_trimmed(taken):
    depths = taken[1]
    ball = trimesh.creation.icosphere(subdivisions=4, radius=0.15)
    floater = SurfaceMesh(ball.vertices + np.array([0.0, 0.1, 0.2]), ball.faces)
    bubble = SurfaceMesh(ball.vertices * 200, ball.faces)
    for mesh in (floater, bubble):
        assert not len(trim_unsupported(mesh, depths).faces)


# Parts


def test_rasterizer_covers_a_square_once():
    corners = torch.tensor([[[0.0, 0.0], [8, 0], [8, 6]], [[0, 0], [8, 6], [0, 6]]], dtype=torch.float64)
    pixels = torch.cat([part.pixel for part in rasterize(corners, 8, 6)])
    assert set(pixels.tolist()) == set(range(48)) and len(pixels) <= 48 + 8


def test_depth_of_a_ball_through_any_lens():
    ball = trimesh.creation.icosphere(subdivisions=5, radius=1.0)
    mesh = SurfaceMesh(np.array(ball.vertices), np.array(ball.faces))
    pose = Pose.look_at(torch.tensor([0.0, 0.0, -3.0]), torch.zeros(3))
    for camera in LENSES.values():
        found = render_depth(mesh, camera, pose).distance
        middle = found[60, 80]
        assert abs(float(middle) - 2) < 0.01 and found.isinf().any()


def test_components_and_small_parts():
    assert find_components(5, np.array([[3, 4], [0, 1], [1, 2]])).tolist() == [0, 0, 0, 3, 3]
    ball = trimesh.creation.icosphere(subdivisions=3)
    vertices = np.concatenate([ball.vertices, [[5.0, 0, 0], [6, 0, 0], [5, 1, 0]]])
    mesh = SurfaceMesh(vertices, np.concatenate([ball.faces, [[642, 643, 644]]]))
    assert len(drop_small_parts(mesh, 0.01).faces) == len(ball.faces)


def test_decimation_states_its_error():
    ball = trimesh.creation.icosphere(subdivisions=5)
    fine = SurfaceMesh(np.array(ball.vertices), np.array(ball.faces))
    coarse = decimate(fine, 500)
    assert 400 <= len(coarse.faces) <= 500
    camera = LENSES["pinhole"]
    pose = Pose.look_at(torch.tensor([0.0, 0.0, -3.0]), torch.zeros(3))
    exact = torch.full((120, 160), 2.5)
    view = DepthView(camera, pose, exact, torch.ones(120, 160, dtype=torch.bool))
    assert 0.0005 < measure_change(fine, coarse, [view]) < 0.05
    assert decimate(fine, 10**6) is fine


def test_a_mesh_is_part_of_the_estimate():
    """More triangles and texels cost more; no mesh costs nothing."""
    camera = LENSES["pinhole"].resize(4000, 3000)
    views = [View(f"{number}", camera, look(0.0), "given", torch.zeros(3, 1, 1)) for number in range(4)]

    def estimate(**options):
        return estimate_mesh(views, 700_000.0, ExportOptions(**options))

    assert estimate(mesh="none") == estimate_mesh(views, 0.0, ExportOptions()) == (0.0, 0)
    seconds, memory = estimate()
    assert 20 < seconds < 60 and 2**30 < memory < 2 * 2**30
    assert estimate(texture_size=0) < estimate(texture_size=1024) < (seconds, memory)
    assert estimate(faces=1000, texture_size=0) < estimate(texture_size=0)


def test_poisson_is_as_fine_as_the_triangles_asked_for():
    ball = trimesh.creation.icosphere(subdivisions=6)
    points, normals = np.array(ball.vertices), np.array(ball.vertex_normals)
    coarse, fine = (reconstruct_poisson(points, normals, 0.02, faces) for faces in (1000, 10**6))
    assert 1000 < len(coarse.faces) < len(fine.faces) / 3
    assert np.abs(np.linalg.norm(coarse.vertices, axis=1) - 1).max() < 0.01


def test_unwrapping_fits_the_largest_texture():
    ball = trimesh.creation.icosphere(subdivisions=3)
    mesh = SurfaceMesh(np.array(ball.vertices), np.array(ball.faces))
    small, large = unwrap(mesh, 1000.0, 256), unwrap(mesh, 40.0, 4096)
    assert max(small.width, small.height) <= 256 and large.density == 40.0
    assert np.allclose(small.mesh.vertices, mesh.vertices[small.source])


def test_refusals_are_one_line():
    with pytest.raises(ValueError, match="50 points are too few") as caught:
        reconstruct_poisson(np.random.rand(50, 3), np.random.rand(50, 3), 0.1, 1000)
    assert "\n" not in str(caught.value)
    camera = LENSES["pinhole"]
    empty = DepthView(camera, look(0.0), torch.zeros(120, 160), torch.zeros(120, 160, dtype=torch.bool))
    with pytest.raises(ValueError, match="no view has depth"):
        build_surface([empty], OrientedPoints(np.zeros((0, 3)), np.zeros((0, 3))), MeshSettings("tsdf"))
    with pytest.raises(ValueError, match="--faces 5"):
        ExportOptions(faces=5)
    with pytest.raises(ValueError, match="--texture-size 7"):
        ExportOptions(texture_size=7)
