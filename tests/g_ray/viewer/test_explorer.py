"""The attention explorer: its maps against the library's own operators, and its panel on a real viser server."""

import numpy as np
import pytest
import torch
import viser
from PIL import Image

from g_ray.export.result import read_reconstruction
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.viewer.explorer import MARK, Explorer, ExplorerPanel, blend_map, compute_range
from g_ray.viewer.priors import G_RAY, GRID_ROPE, compute_prior_maps

PRIOR, GRID = "G-ray prior", "Grid RoPE prior"


@pytest.fixture(scope="module")
def result(room_folder):
    return read_reconstruction(room_folder(1))


@pytest.fixture(scope="module")
def explorer(result):
    return Explorer(result, size=8 * 14)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")).eval()


def test_priors_are_those_of_the_paper(explorer):
    answer = explorer.probe(0, 30.0, 20.0)
    assert (answer.row, answer.column) == (int(20 / 48 * 6), int(30 / 64 * 8))
    assert np.isfinite(answer.ray_deg).all()
    for kind, bank in ((PRIOR, G_RAY), (GRID, GRID_ROPE)):
        expected = compute_prior_maps(explorer.cameras, 14, (0, answer.row, answer.column), bank)
        for found, wanted in zip(answer.maps[kind], expected, strict=True):
            known = ~found.isnan()
            assert torch.equal(found[known], wanted[known])
    assert float(answer.maps[PRIOR][0][answer.row, answer.column]) == pytest.approx(1.0)


def test_the_chosen_point_lands_where_other_cameras_see_it(explorer, result):
    answer = explorer.probe(0, 32.5, 24.5)
    assert answer.landing_px[0] == pytest.approx((32.5, 24.5), abs=1e-6)
    u, v = answer.landing_px[1]
    other = result.views[1]
    seen = other.points()[int(v), int(u)]
    depth = float(other.ray_depth[int(v), int(u)])
    assert (seen - answer.point).norm() < 0.1 * depth  # the same surface, a pixel apart at most


def test_where_no_depth_is_known_there_is_no_point(explorer, result, monkeypatch):
    view = result.views[0]
    blind = type(view)(**{**vars(view), "valid": torch.zeros_like(view.valid)})
    monkeypatch.setattr(explorer, "reconstruction", type(result)((blind,), result.folder))
    answer = explorer.probe(0, 10.0, 10.0)
    assert answer.point is None
    assert answer.landing_px == [None, None, None]


def test_patches_without_a_ray_have_no_score(explorer):
    fisheye = explorer.probe(0, 5.0, 5.0).maps[PRIOR][2]
    assert fisheye[0, 0].isnan()  # a corner outside of the image circle
    assert not fisheye[3, 4].isnan()


def test_a_network_adds_its_attention(result, model):
    assert max(camera.width for camera in Explorer(result, model).cameras) == 24  # as in its training
    explorer = Explorer(result, model, size=56)
    assert explorer.layers == 3
    first, last = (explorer.probe(1, 9.0, 9.0, layer).maps["Attention"] for layer in (0, 2))
    for maps in (first, last):
        assert (
            0.3 < sum(float(one.nansum()) for one in maps) < 1
        )  # the rest goes to camera and register tokens
    assert not torch.equal(first[0], last[0])
    assert last[2][0, 0].isnan()
    default = explorer.probe(1, 9.0, 9.0).maps["Attention"]
    assert torch.equal(default[0], last[0])


@pytest.mark.parametrize(
    ("click", "message"), [((7, 1.0, 1.0), "view 7"), ((0, 65.0, 1.0), "outside of view 0")]
)
def test_pixels_outside_are_refused(explorer, click, message):
    with pytest.raises(ValueError, match=message):
        explorer.probe(*click)


def test_colors_cover_the_values_and_leave_holes_gray():
    values = np.array([[0.0, 1.0], [np.nan, 0.5]])
    assert compute_range([values, 2 * values], PRIOR) == (0.0, 2.0)
    assert compute_range([np.full((2, 2), np.nan)], PRIOR) == (0.0, 1.0)
    photo = np.full((30, 40, 3), (200, 100, 50), np.uint8)
    picture = blend_map(photo, values, 0.0, 1.0)
    assert picture.shape == (300, 400, 3)
    spread = np.ptp(picture.astype(int), axis=-1)
    assert spread[200:, :190].max() == 0 and spread[:140].min() > 20
    assert picture[10, 300].sum() > picture[10, 10].sum()  # bright for much


@pytest.fixture(scope="module")
def photos(result):
    images = []
    for view in result.cameras():
        with Image.open(result.get_image_path(view.name)) as image:
            images.append(np.asarray(image.convert("RGB")))
    return images


@pytest.fixture
def server():
    server = viser.ViserServer("127.0.0.1", 0, verbose=False)
    yield server
    server.stop()


def test_the_panel_shows_the_maps_of_the_chosen_pixel(server, explorer, photos):
    answers = []
    panel = ExplorerPanel(server, explorer, photos, answers.append)
    assert panel.kind.options == (PRIOR, GRID) and not panel.layer.visible
    panel.select(1, 10.0, 40.0)
    assert (panel.view.value, panel.x.value, panel.y.value) == (explorer.views[1].name, 10.0, 40.0)
    assert (panel.x.max, panel.y.max) == (48, 48)
    answer = answers[-1]
    assert answer.view == 1 and len(answers) == 2  # the first at the start
    pink = [(np.abs(one.image.astype(int) - MARK).max(-1) < 20).sum() for one in panel.images]
    assert all((count > 20) == (answer.landing_px[number] is not None) for number, count in enumerate(pink))
    assert panel.images[1].label.endswith("the chosen pixel")
    assert "pixel 10, 40; ray " in panel.text.content
    before = panel.images[2].image
    panel.kind.value = GRID
    panel.update()
    assert np.abs(before.astype(int) - panel.images[2].image).max() > 40
    assert len(answers) == 3
    panel.update()
    assert len(answers) == 3, "nothing has changed"
    panel.stretch.value = True
    panel.update()
    assert panel.text.content.endswith("dark to bright")


def test_the_panel_of_a_network_starts_with_its_last_layer(server, result, model, photos):
    panel = ExplorerPanel(server, Explorer(result, model, size=56), photos, lambda answer: None)
    assert panel.kind.value == "Attention"
    assert panel.layer.visible and (panel.layer.value, panel.layer.max) == (3, 3)
    assert "% of all attention" in panel.images[0].label
    before = panel.images[0].image
    panel.layer.value = 1
    panel.update()
    assert not np.array_equal(before, panel.images[0].image)
