"""The attention explorer: answers to clicks, against the library's own operators."""

import json
import socket
import urllib.error
import urllib.request
from threading import Thread

import numpy as np
import pytest
import torch

from g_ray.export.result import read_reconstruction
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.viewer.explorer import Explorer
from g_ray.viewer.explorer_server import ExplorerServer
from g_ray.viewer.priors import G_RAY, GRID_ROPE, compute_prior_maps


@pytest.fixture(scope="module")
def result(room_folder):
    return read_reconstruction(room_folder(1))


@pytest.fixture(scope="module")
def explorer(result):
    return Explorer(result, size=8 * 14)


def test_priors_are_those_of_the_paper(explorer):
    answer = explorer.probe(0, 30.0, 20.0)
    assert (answer.row, answer.column) == (int(20 / 48 * 6), int(30 / 64 * 8))
    for name, bank in (("gray", G_RAY), ("rope", GRID_ROPE)):
        wanted = compute_prior_maps(explorer.cameras, 14, (0, answer.row, answer.column), bank)
        for probed, expected in zip(answer.views, wanted, strict=True):
            assert torch.allclose(probed.scores[name], expected.to(probed.scores[name].dtype))
    assert float(answer.views[0].scores["gray"][answer.row, answer.column]) == pytest.approx(1.0)


def test_the_clicked_point_lands_where_other_cameras_see_it(explorer, result):
    answer = explorer.probe(0, 32.5, 24.5)
    assert answer.views[0].landing_px == pytest.approx((32.5, 24.5), abs=1e-6)
    u, v = answer.views[1].landing_px
    other = result.views[1]
    seen = other.points()[int(v), int(u)]
    depth = float(other.ray_depth[int(v), int(u)])
    assert (seen - torch.tensor(answer.point)).norm() < 0.1 * depth  # the same surface, a pixel apart at most


def test_where_no_depth_is_known_there_is_no_point(explorer, result, monkeypatch):
    view = result.views[0]
    blind = type(view)(**{**vars(view), "valid": torch.zeros_like(view.valid)})
    monkeypatch.setattr(explorer, "reconstruction", type(result)((blind,), result.folder))
    answer = explorer.probe(0, 10.0, 10.0)
    assert answer.point is None
    assert all(probed.landing_px is None for probed in answer.views)


def test_patches_without_a_ray_have_no_score(explorer):
    probed = explorer.probe(0, 5.0, 5.0).views[2].to_document()
    scores = probed["maps"]["gray"]
    assert len(scores) == probed["rows"] * probed["columns"]
    assert scores[0] is None  # a corner of the circle
    assert scores[len(scores) // 2] is not None


def test_a_network_adds_its_attention(result):
    torch.manual_seed(0)
    model = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")).eval()
    assert Explorer(result, model).framing.size == 24  # what it was trained with
    explorer = Explorer(result, model, size=56)
    assert explorer.pairs == 3
    first, last = (explorer.probe(1, 9.0, 9.0, pair) for pair in (0, 2))
    for answer in (first, last):
        total = sum(float(probed.scores["attention"].sum()) for probed in answer.views)
        assert 0.3 < total < 1  # the rest goes to camera and register tokens
    assert not torch.equal(first.views[0].scores["attention"], last.views[0].scores["attention"])
    assert float(last.views[2].scores["attention"][0, 0]) == 0.0  # no ray, nobody's key


@pytest.mark.parametrize(
    ("click", "message"), [((7, 1.0, 1.0), "view 7"), ((0, 65.0, 1.0), "outside of view 0")]
)
def test_clicks_beside_are_refused(explorer, click, message):
    with pytest.raises(ValueError, match=message):
        explorer.probe(*click)


@pytest.fixture(scope="module")
def server(explorer):
    with ExplorerServer(explorer, "127.0.0.1", 0) as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def get(server: ExplorerServer, path: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(server.address + path, headers=headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_page_asks_no_other_site(server):
    status, page = get(server, "/")
    assert status == 200
    assert b"http://" not in page.replace(b"http://www.w3.org", b"")
    assert b"https://" not in page


def test_answers_are_json(server):
    about = json.loads(get(server, "/views")[1])
    assert [view["model"] for view in about["views"]] == ["pinhole", "pinhole", "opencv_fisheye"]
    assert about["pairs"] == 0
    answer = json.loads(get(server, "/maps?view=0&u=12&v=20")[1])
    assert set(answer["views"][0]["maps"]) == {"gray", "rope"}
    assert np.isfinite(answer["ray_deg"]).all()
    assert get(server, "/image/1")[1][:2] == b"\xff\xd8"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/image/9", 400),
        ("/image/-1", 400),
        ("/image/x", 400),
        ("/image/../cameras.json", 404),
        ("/maps", 400),
        ("/maps?view=0&u=nan&v=1", 400),
        ("/maps?view=0&u=900&v=1", 400),
        ("/maps?view=0&u=1&v=1&pair=x", 400),
    ],
)
def test_bad_requests_are_one_line(server, path, status):
    found, said = get(server, path)
    assert found == status
    assert said.strip()
    assert b"\n" not in said


def test_other_names_for_this_machine_are_not_answered(server):
    """A site that lets its name point to 127.0.0.1 must not read photographs through a visitor's browser."""
    assert get(server, "/views", Host="evil.example:80")[0] == 403
    assert get(server, "/views", Host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_to_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_one_line(explorer):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"port {port} on 127.0.0.1 is taken: choose another with --port"
        ):
            ExplorerServer(explorer, "127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", 70000)]
)
def test_an_impossible_address_is_one_line(explorer, host, port):
    with pytest.raises(ValueError, match=r"cannot listen on|port 70000") as caught:
        ExplorerServer(explorer, host, port)
    assert "\n" not in str(caught.value)
