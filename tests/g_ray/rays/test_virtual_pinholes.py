"""Virtual pinholes: every ray is covered, keypoints come back, and true depths of crops merge to the true depth."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from g_ray.cameras import CAMERAS, Equirectangular, OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.crop_layout import look_along
from g_ray.rays.pinhole_merge import merge_depths, solve_log_scales
from g_ray.rays.virtual_pinholes import VirtualPinholes, cover_with_pinholes, is_closed, project_crop


def make_circular_fisheye(fov_deg, size=180):
    """An equidistant lens with an image circle inside the frame."""
    f = 0.48 * size / math.radians(fov_deg / 2)
    lens = OpenCVFisheye.make(size, size, fx=f, fy=f, cx=size / 2, cy=size / 2, dtype=torch.float64)
    rays, valid = lens.unproject_grid()
    return RayMapCamera.from_rays(rays, valid & (rays[..., 2] >= math.cos(math.radians(fov_deg / 2))))


LENSES = {
    **{name: lambda model=model: model.example(0, 240, 180) for name, model in CAMERAS.items()},
    "panorama": lambda: Equirectangular.panorama(320, 160, dtype=torch.float64),
    "circle of 200°": lambda: make_circular_fisheye(200),
}
each_lens = pytest.mark.parametrize("name", LENSES)


@cache
def cover(name):
    """Crops of one of the lenses, which `photo` of the result is."""
    return cover_with_pinholes(LENSES[name]())


def distance_in_ball(rays, center=(0.4, -0.3, 0.5), radius=3.0):
    """Distance along unit rays from the origin to a sphere around it: smooth everywhere, and in closed form."""
    center = rays.new_tensor(center)
    along = rays @ center
    return along + (along**2 + radius**2 - center @ center).sqrt()


def cast_all(pinholes):
    return torch.stack([pinholes.cast_rays(index) for index in range(len(pinholes))])


def paint(rays):
    """Smooth colors of directions in [0, 1]: [*n 3] to [3 *n]."""
    return (0.5 + 0.4 * torch.sin(3 * rays + rays.new_tensor([0.0, 1.0, 2.0]))).movedim(-1, 0)


@each_lens
def test_interpolated_crops_are_those_of_the_lens(name):
    """Rims and seams included: pixels within 0.03 px, and the same pixels are seen."""
    pinholes = cover(name)
    camera = pinholes.photo
    for index, rotation in enumerate(pinholes.photo_from_crop):
        pixels, seen = project_crop(camera, pinholes.crop, rotation)
        exact, valid = camera.project(pinholes.cast_rays(index))
        assert torch.equal(seen, valid & camera.contains(exact))
        # A place on the seam of a panorama is at its left and at its right end.
        off = torch.remainder(pixels - exact + 1, camera.width) - 1 if is_closed(camera) else pixels - exact
        assert bool((off[seen].abs() < 0.03).all())


@each_lens
def test_crops_cover_every_valid_ray(name):
    pinholes = cover(name)
    camera = pinholes.photo
    fov = pinholes.crop.fov()
    assert float(fov.horizontal_deg) <= 90 + 1e-6
    assert float(fov.vertical_deg) <= 90 + 1e-6
    rotations = pinholes.photo_from_crop
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3).to(rotations).expand_as(rotations))
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(len(pinholes)).to(rotations))
    rays, valid = camera.unproject_grid()
    places, ahead = pinholes.crop.project((rays @ rotations[:, None]).contiguous())
    seen = ahead & pinholes.crop.contains(places)
    assert seen.any(0)[valid].all()
    assert (seen & valid).flatten(1).any(1).all(), "a crop sees no valid pixel"


def test_layouts_have_few_crops():
    """A narrow lens fits into one crop; a sphere takes no more than the twelve of an icosahedron."""
    counts = {
        "narrow": len(cover_with_pinholes(Pinhole.from_fov(70.0, 64, 48))),
        "fisheye": len(cover_with_pinholes(make_circular_fisheye(180))),
        "panorama": len(cover_with_pinholes(LENSES["panorama"]())),
    }
    assert counts["narrow"] == 1
    assert 5 <= counts["fisheye"] <= 7
    assert 6 <= counts["panorama"] <= 12


def test_a_lens_that_looks_aside_takes_one_turned_crop():
    wide = OpenCVFisheye.make(400, 400, fx=120.0, fy=120.0, cx=200.0, cy=200.0, dtype=torch.float64)
    aside = wide.crop(280, 150, 100, 100)
    pinholes = cover_with_pinholes(aside)
    assert len(pinholes) == 1
    assert float(pinholes.photo_from_crop[0, 2, 2]) < 0.9


def test_resolution_follows_the_photograph():
    """An equidistant lens has f pixels per radian everywhere; sizes are multiples of what the tool needs."""
    f = 200.0
    lens = OpenCVFisheye.make(600, 600, fx=f, fy=f, cx=300.0, cy=300.0, dtype=torch.float64)
    crop = cover_with_pinholes(lens, multiple=14).crop
    # Off the axis the solid angle of a pixel shrinks by sin ψ / ψ, so the median is a little above f.
    assert f <= float(crop.params[0]) <= 1.2 * f
    assert crop.width == crop.height
    assert crop.width % 14 == 0
    assert cover_with_pinholes(lens, size=100).crop.width == 100


@pytest.mark.parametrize("fov_deg", [60.0, 90.0])
@pytest.mark.parametrize("overlap_deg", [10.0, 25.0])
def test_overlap_is_as_asked(fov_deg, overlap_deg):
    """Every ray lies at least half the overlap inside some crop."""
    camera = LENSES["panorama"]()
    pinholes = cover_with_pinholes(camera, fov_deg=fov_deg, overlap_deg=overlap_deg)
    rays, _ = camera.unproject_grid()
    x, y, z = (rays.flatten(0, 1) @ pinholes.photo_from_crop).unbind(-1)
    angle = torch.rad2deg(torch.maximum(torch.atan2(x.abs(), z), torch.atan2(y.abs(), z))).amin(0)
    assert (
        float(angle.max()) <= (fov_deg - overlap_deg) / 2 + 2.0
    )  # the layout is planned on every fourth pixel


@given(st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: sum(x * x for x in v) > 1e-3))
def test_crops_are_upright(direction):
    rotation = look_along(torch.tensor(direction, dtype=torch.float64))
    torch.testing.assert_close(rotation.mT @ rotation, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(
        rotation[:, 2],
        torch.nn.functional.normalize(torch.tensor(direction, dtype=torch.float64), dim=0),
        atol=2e-6,
        rtol=0,
    )
    assert abs(float(rotation[1, 0])) < 1e-12, "the crop's x axis is level"
    assert float(rotation[1, 1]) >= 0, "the crop's y axis points down"


@each_lens
def test_keypoints_go_to_the_photograph_and_back(name):
    pinholes = cover(name)
    generator = torch.Generator().manual_seed(1)
    size = torch.tensor([pinholes.crop.width, pinholes.crop.height])
    pixels = torch.rand(300, 2, generator=generator, dtype=torch.float64) * size
    for index in range(len(pinholes)):
        photo, usable = pinholes.map_to_photo(pixels, index)
        again, seen = pinholes.map_to_crop(photo[usable], index)
        assert seen.all()
        torch.testing.assert_close(again, pixels[usable], atol=1e-5, rtol=0)


@each_lens
def test_true_depths_merge_to_the_truth(name):
    """Exact ray distances of crops, and exact z-depths, come back within 1e-4 at every valid pixel of every lens."""
    pinholes = cover(name)
    camera = pinholes.photo
    distances = distance_in_ball(cast_all(pinholes))
    rays, valid = camera.unproject_grid()
    truth = distance_in_ball(rays)
    along_axis = distances * pinholes.crop.unproject_grid()[0][..., 2]
    for kind, depths in (("ray", distances), ("z", along_axis)):
        merged = merge_depths(pinholes, depths, kind=kind)
        assert (merged.valid == valid).all()
        assert float((merged.ray_depth / truth - 1)[valid].abs().max()) < 1e-4
        assert float((merged.scales - 1).abs().max()) < 1e-5
        assert (merged.groups == 0).all()


@each_lens
@hypothesis_settings(max_examples=1)
@given(seed=st.integers(0, 1000))
def test_unknown_scales_of_crops_are_found(name, seed):
    """Depths true up to one factor per crop give the truth up to one factor for the photograph: no seams."""
    pinholes, camera = replace(cover(name), crop=cover(name).crop.resize(160, 160)), cover(name).photo
    factors = torch.exp(
        0.4 * torch.randn(len(pinholes), generator=torch.Generator().manual_seed(seed)).double()
    )
    merged = merge_depths(pinholes, distance_in_ball(cast_all(pinholes)) * factors[:, None, None], kind="ray")
    rays, valid = camera.unproject_grid()
    ratio = (merged.ray_depth / distance_in_ball(rays))[valid]
    assert float((ratio / ratio.median() - 1).abs().max()) < 3e-4
    torch.testing.assert_close(
        merged.scales * factors, (merged.scales * factors)[:1].expand(len(pinholes)), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("name", ["panorama", "circle of 200°", "fisheye624"])
def test_a_furnished_room_comes_back(name):
    """Edges and creases cannot be told finer than a pixel; everything else can."""
    camera = LENSES[name]()
    room = make_random_room(3, dtype=torch.float64)
    pose = Pose.look_at([0.1, -0.1, -0.4], [0.3, 0.2, 1.0]).to(torch.float64)
    pinholes = cover_with_pinholes(camera)
    poses = [pose @ pinholes.poses[index] for index in range(len(pinholes))]
    depths = torch.stack([room.render(pinholes.crop, p).z_depth for p in poses])
    truth = room.render(camera, pose)
    merged = merge_depths(pinholes, depths, kind="z")
    error = (merged.ray_depth / truth.ray_depth - 1).abs()[truth.valid]
    assert (merged.valid == truth.valid).all()
    assert float(error.median()) < 1e-4
    assert float((error < 1e-3).double().mean()) > 0.9
    assert float((error < 1e-2).double().mean()) > 0.97


@pytest.mark.parametrize("name", ["opencv_fisheye", "panorama", "circle of 200°", "pinhole"])
def test_crops_show_what_their_rays_see(name):
    """Colors that are a function of the direction are the same function in every crop."""
    camera = LENSES[name]()
    image = paint(camera.unproject_grid()[0])
    pinholes = cover_with_pinholes(camera)
    crops, valid = pinholes.render(image)
    assert crops.shape == (len(pinholes), 3, pinholes.crop.height, pinholes.crop.width)
    for index in range(len(pinholes)):
        expected = paint(pinholes.cast_rays(index))
        inside = valid[index]
        # Half a pixel inside: at the border of the photograph nothing is left to interpolate with.
        inside = ~torch.nn.functional.max_pool2d((~inside)[None].double(), 5, 1, 2)[0].bool()
        assert inside.any()
        assert float((crops[index] - expected)[:, inside].abs().max()) < 6e-3
    assert (crops.abs().sum(1)[~valid] == 0).all()


def test_panoramas_have_no_seam_behind():
    camera = LENSES["panorama"]()
    assert is_closed(camera)
    assert not is_closed(Equirectangular.panorama(64, 32).crop(0, 0, 63, 32))
    backwards = look_along(torch.tensor([[0.0, 0.0, -1.0]], dtype=torch.float64))
    crop = Pinhole.from_fov(80.0, 100, 100, dtype=torch.float64)
    pinholes = VirtualPinholes(camera, crop, backwards)
    crops, valid = pinholes.render(paint(camera.unproject_grid()[0]))
    assert valid.all()
    assert float((crops[0] - paint(pinholes.cast_rays(0))).abs().max()) < 5e-3


def test_fine_texture_is_averaged_not_aliased():
    """A crop with a quarter of the photograph's resolution shows the mean of a checkerboard."""
    camera = Pinhole.from_fov(60.0, 256, 256, dtype=torch.float64)
    board = (torch.arange(256)[:, None] + torch.arange(256)).remainder(2).double()[None]
    crops, valid = cover_with_pinholes(camera, size=64).render(board)
    assert float((crops[0, 0][valid[0]] - 0.5).abs().max()) < 0.1


def test_masked_pixels_are_neither_shown_nor_given_depth():
    camera = LENSES["circle of 200°"]()
    mask = torch.ones(camera.height, camera.width, dtype=torch.bool)
    mask[110:] = False
    pinholes = cover_with_pinholes(camera, mask=mask)
    assert len(pinholes) < len(cover_with_pinholes(camera))
    image = torch.where(mask, 0.5, 100.0).double()[None]
    crops, _ = pinholes.render(image)
    assert float(crops.max()) <= 0.5 + 1e-9, "a masked color leaked into a crop"
    merged = merge_depths(pinholes, distance_in_ball(cast_all(pinholes)), kind="ray")
    assert (merged.valid == (camera.unproject_grid()[1] & mask)).all()
    _, usable = pinholes.map_to_photo(torch.tensor([[1.0, 1.0]], dtype=torch.float64), 0)
    assert usable.shape == (1,)


def test_depths_at_another_resolution_and_for_another_size():
    pinholes = cover("opencv_fisheye")
    camera = pinholes.photo
    coarse = pinholes.crop.resize(200, 200)
    rays = coarse.unproject_grid()[0] @ pinholes.photo_from_crop[:, None].mT
    small = camera.resize(120, 90)
    merged = merge_depths(pinholes, distance_in_ball(rays), kind="ray", photo=small)
    truth = distance_in_ball(small.unproject_grid()[0])
    assert merged.ray_depth.shape == (90, 120)
    assert float((merged.ray_depth / truth - 1)[merged.valid].abs().max()) < 1e-4


def test_confidence_decides_between_crops_and_holes_are_filled_by_the_other():
    pinholes = cover("opencv_fisheye")
    camera = pinholes.photo
    depths = distance_in_ball(cast_all(pinholes))
    wrong, trust = depths.clone(), torch.ones_like(depths)
    wrong[0] *= 1.05
    trust[0] = 1e-6
    depths[0, :, 100:110] = float("nan")
    truth = distance_in_ball(camera.unproject_grid()[0])
    trusted = merge_depths(pinholes, wrong, kind="ray", confidence=trust, align_scales=False)
    share = ((trusted.ray_depth / truth - 1).abs() < 1e-3).double().mean()
    plain = merge_depths(pinholes, wrong, kind="ray", align_scales=False)
    assert float(share) > float(((plain.ray_depth / truth - 1).abs() < 1e-3).double().mean())
    holes = merge_depths(pinholes, depths, kind="ray")
    assert float((holes.ray_depth / truth - 1)[holes.valid].abs().max()) < 1e-2
    assert not holes.valid.all()


def test_one_wrong_overlap_does_not_bend_the_others():
    """Four crops in a ring, all pairs but one consistent: the weighted L1 solution ignores the odd one."""
    truth = torch.tensor([0.0, 0.3, -0.2, 0.1], dtype=torch.float64)
    log_distance, known = torch.zeros(4, 600, dtype=torch.float64), torch.zeros(4, 600, dtype=torch.bool)
    for part, (i, j) in enumerate([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]):
        columns = slice(100 * part, 100 * part + 100)
        known[i, columns] = known[j, columns] = True
        log_distance[i, columns], log_distance[j, columns] = truth[i], truth[j]
    log_distance[3, 300:400] += 1.0
    scales, groups = solve_log_scales(log_distance, known)
    torch.testing.assert_close(scales + truth, (scales + truth)[:1].expand(4), atol=1e-3, rtol=0)
    assert groups.tolist() == [0, 0, 0, 0]


def test_crops_that_share_nothing_keep_their_scale():
    known = torch.zeros(3, 100, dtype=torch.bool)
    known[0, :50] = known[1, :50] = True
    known[2, 50:] = True
    log_distance = torch.tensor([0.0, 1.0, 5.0])[:, None].expand(3, 100)
    scales, groups = solve_log_scales(log_distance, known)
    assert groups.tolist() == [0, 0, 1]
    torch.testing.assert_close(scales, torch.tensor([0.5, -0.5, 0.0]), atol=1e-6, rtol=0)


def test_refusals():
    camera = Pinhole.from_fov(60.0, 64, 48)
    with pytest.raises(ValueError, match="between 20° and 90°"):
        cover_with_pinholes(camera, fov_deg=120.0)
    with pytest.raises(ValueError, match="overlap by 80°"):
        cover_with_pinholes(camera, overlap_deg=80.0)
    with pytest.raises(ValueError, match="mask of 48×64"):
        cover_with_pinholes(camera, mask=torch.ones(64, 48, dtype=torch.bool))
    with pytest.raises(ValueError, match="no pixel of the photograph is usable"):
        cover_with_pinholes(camera, mask=torch.zeros(48, 64, dtype=torch.bool))
    with pytest.raises(ValueError, match="one photograph at a time"):
        cover_with_pinholes(Pinhole.stack([camera, camera]))
    pinholes = cover_with_pinholes(camera)
    with pytest.raises(ValueError, match="resize them together"):
        pinholes.render(torch.zeros(3, 10, 10))
    with pytest.raises(ValueError, match="2 depth maps for 1 crops"):
        merge_depths(pinholes, torch.ones(2, 8, 8), kind="z")
