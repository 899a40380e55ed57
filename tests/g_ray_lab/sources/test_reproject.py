"""Re-projection: what another lens in the same place sees, compared with a direct rendering through that lens."""

from dataclasses import replace

import numpy as np
import torch

from g_ray_lab.sources.random_lenses import draw_contained_fisheyes, reproject_batch
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

ROOMS = RoomsReconstruction(
    RoomsViews(192, 192, fov_deg=(70.0, 90.0), off_center=0.0, step_m=0.5), patch=8, split="test"
)


def test_it_shows_what_the_lens_itself_would_see():
    wide = ROOMS.make_sets(range(2), views=2)
    lenses = draw_contained_fisheyes(wide, 32, 32, np.random.default_rng(0))
    found = reproject_batch(wide, lenses)
    small = replace(ROOMS.settings, width=32, height=32)
    direct = replace(ROOMS, settings=small, antialias=4).make_sets(range(2), views=2, cameras=lenses)
    both = found.valid & direct.valid
    assert float(both.float().mean()) > 0.9
    color = (found.images - direct.images).abs().mean(2)[both]
    assert float(color.mean()) < 0.01
    relative = ((found.ray_depth - direct.ray_depth).abs() / direct.ray_depth.clamp(min=0.1))[both]
    assert float(relative.median()) < 0.005
    far = (found.world_points - direct.world_points).norm(dim=-1)[both]
    assert float(far.median()) < 0.02


def test_rays_that_leave_the_photograph_are_not_valid():
    wide = ROOMS.make_sets(range(1), views=1)
    (lens,) = draw_contained_fisheyes(wide, 32, 32, np.random.default_rng(0))
    params = lens.params.clone()
    params[..., :2] *= 0.4  # a far wider lens than the photograph
    found = reproject_batch(wide, [type(lens)(params, 32, 32)])
    assert not bool(found.valid[0, 0, 0, 0]) and bool(found.valid[0, 0, 16, 16])
    assert float(found.images[0, 0, :, 0, 0].abs().max()) == 0.0
    assert torch.equal(found.ray_depth > 0, found.valid)
