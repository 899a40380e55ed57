"""g-ray view in a real browser: opened, clicked, photographed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pytest
import torch
import viser
import viser.transforms as tf
from websockets.exceptions import InvalidStatus
from websockets.sync import client as websocket

from g_ray.cli.main import main
from g_ray.export.result import read_reconstruction
from g_ray.viewer import scene_objects
from g_ray.viewer.reconstruction_view import ReconstructionView, check_address, open_view
from g_ray.viewer.scene_objects import (
    build_photo_surface,
    find_surface_share,
    round_length,
    undo_tone_mapping,
)

PATIENCE_S = 120
"""What a busy machine may take."""


@pytest.fixture(scope="module")
def folder(room_folder):
    return room_folder(3)


@pytest.fixture(scope="module")
def view(folder):
    with open_view(folder, port=0) as found:
        yield found


def test_the_scene_follows_its_controls(view):
    scene = view.scene
    shown = [len(one.points.points) for one in scene.views]
    total = sum(len(one.cloud) for one in scene.views)
    assert sum(shown) == pytest.approx(0.8 * total, rel=0.01)
    scene.hidden.value = 90
    scene.update()
    assert sum(len(one.points.points) for one in scene.views) == pytest.approx(0.1 * total, rel=0.05)
    kept = np.concatenate([one.cloud.confidence[: len(one.points.points)] for one in scene.views])
    assert kept.min() >= np.quantile(np.concatenate([one.cloud.confidence for one in scene.views]), 0.89)
    scene.hidden.value = 0
    scene.update()
    scene.toggle_view(scene.views[1].view.name, False)
    assert [one.points.visible for one in scene.views] == [True, False, True]
    assert [one.frustum.visible for one in scene.views] == [True, False, True]
    assert sum(len(one.points.points) for one in scene.views) == total
    scene.frusta.value = False
    scene.update()
    assert not any(one.frustum.visible for one in scene.views)
    scene.frusta.value = True
    scene.show_views(2, 3)
    assert [one.photo.visible for one in scene.views] == [False, True, True]
    scene.show_views(1, 3)
    scene.photos.value = False
    scene.update_visibility()
    assert not any(one.photo.visible for one in scene.views)
    scene.photos.value = True
    scene.update_visibility()
    assert all(one.points.visible and one.frustum.visible for one in scene.views)


def test_the_frustum_of_a_fisheye_is_curved(view):
    """Its outline has more lines than the eight of a pyramid, on a sphere around the camera."""
    pinhole, _, fisheye = (one.frustum.points for one in view.scene.views)
    center = read_reconstruction(view.explorer.reconstruction.folder).views[2].pose.translation.numpy()
    distance = np.linalg.norm(fisheye[4:40] - center, axis=-1)
    assert np.allclose(distance, view.scene.size, rtol=1e-4)
    assert len(fisheye) > len(pinhole)


def test_the_photograph_lies_on_the_rays_of_its_lens(view):
    """Every vertex of its mesh projects to the pixel whose color it shows."""
    for one in view.scene.views:
        camera = one.view.camera.to(torch.float64)
        mesh = build_photo_surface(camera, np.zeros((6, 8, 3), np.uint8), 0.5)
        used = np.unique(mesh.faces)
        pixels, valid = camera.project(torch.from_numpy(np.array(mesh.vertices[used])))
        shown = (mesh.visual.uv[used] * [1, -1] + [0, 1]) * [camera.width, camera.height]
        assert valid.all() and np.abs(pixels.numpy() - shown).max() < 1e-3
    flat, curved = (
        build_photo_surface(view.scene.views[i].view.camera, np.zeros((6, 8, 3), np.uint8), 0.5)
        for i in (0, 2)
    )
    assert np.allclose(flat.vertices[:, 2], 0.5)
    assert np.allclose(np.linalg.norm(curved.vertices[np.unique(curved.faces)], axis=1), 0.5)


def test_photographs_survive_tone_mapping():
    """three.js's mapping of the texture, as its shader computes it, gives the photograph's colors back."""
    photo = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    gray = np.linspace(0, 255, 64).round().astype(np.uint8).reshape(8, 8, 1).repeat(3, -1)
    for given, tolerance in ((gray, 0.01), (photo // 2 + 64, 0.02)):
        v = _to_linear(undo_tone_mapping(given)) / 0.6 @ scene_objects.A.T
        fit = (v * (v + 0.0245786) - 0.000090537) / (v * (0.983729 * v + 0.4329510) + 0.238081)
        shown = (fit @ scene_objects.B.T).clip(0, 1)
        assert np.abs(shown - scene_objects.WHITE * _to_linear(given)).max() < tolerance


def _to_linear(values):
    encoded = values / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def test_a_browser_looks_from_a_camera_and_leaves(view, browser_page):
    """Its eye goes to the camera, only this photograph is shown; moved away, all come back."""
    scene = view.scene
    browser_page.go(f"{view.address}/?darkMode", 1000, 500)
    client = _wait_for(lambda: next(iter(view.viser.get_clients().values()), None))
    _wait_for(lambda: client.camera.update_timestamp)
    _wait_for(lambda: np.allclose(client.camera.position, scene.start.position, atol=1e-3))
    assert _wait_for(lambda: _colors(browser_page.picture()) > 200)
    colors, counts = np.unique(browser_page.picture().reshape(-1, 3), axis=0, return_counts=True)
    assert colors[counts.argmax()].max() < 60, "the background is not dark"
    scene.look_from(client, 1)
    assert scene.choice.value == scene.views[1].view.name
    pose = scene.views[1].view.pose
    assert np.allclose(client.camera.position, pose.translation.numpy(), atol=1e-4)
    rotation = tf.SO3(client.camera.wxyz).as_matrix()
    assert np.allclose(rotation, pose.rotation.numpy(), atol=1e-3)
    _wait_for(lambda: scene.looking.arrived)
    assert scene.looking.photo.visible and not any(one.photo.visible for one in scene.views)
    browser_page.drag("canvas", 200, 40)
    _wait_for(lambda: scene.looking is None)
    assert all(one.photo.visible for one in scene.views)
    scene.look_from(client, 0)
    scene.show_overview(client)
    assert scene.looking is None
    assert np.allclose(client.camera.position, scene.start.position, atol=1e-3)


def _wait_for(condition):
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found


def test_the_scale_bar_is_in_meters_only_where_they_are_known(view, stereo_folder):
    assert [round_length(length) for length in (0.99, 1.0, 4.9, 70.0)] == [0.5, 1.0, 2.0, 50.0]
    bar = view.scene.guides.bar.points
    assert np.linalg.norm(bar[0, 1] - bar[0, 0]) == pytest.approx(view.scene.guides.length, rel=1e-4)
    assert view.scene.guides.label.text == f"{view.scene.guides.length:g} m"
    with open_view(stereo_folder, port=0) as relative:
        assert relative.scene.guides.label.text.split()[1] in ("unit", "units")


def test_it_listens_to_this_machine_alone(view):
    with socket.socket() as elsewhere, pytest.raises(OSError):
        elsewhere.settimeout(2)
        elsewhere.connect((_own_address(), view.viser.get_port()))


def _own_address() -> str:
    """An address of this machine that is not the loopback; 192.0.2.1 leads nowhere where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "192.0.2.1"


def test_a_click_on_a_photograph_chooses_its_pixel(view, browser_page):
    """A browser looks from a camera and clicks: the panel shows this pixel, the scene its point. Then it measures."""
    page, scene, panel = browser_page, view.scene, view.panel
    before = set(view.viser.get_clients())
    page.go(view.address, 1300, 900)
    number = min(_wait_for(lambda: set(view.viser.get_clients()) - before))
    client = view.viser.get_clients()[number]
    _wait_for(lambda: client.camera.update_timestamp)
    scene.look_from(client, 1)
    _wait_for(lambda: scene.looking is not None and scene.looking.arrived)
    before = panel.images[2].image
    _wait_for(lambda: _colors(page.picture()) > 500)

    def click():
        page.click("canvas", 0.55, 0.4)
        time.sleep(0.5)
        return panel.view.value == scene.views[1].view.name

    _wait_for(click)
    camera = scene.views[1].view.camera
    u, v = float(panel.x.value), float(panel.y.value)
    # The canvas shows the photograph in its middle, as wide as the window allows.
    assert camera.width * 0.5 < u < camera.width * 0.7 and camera.height * 0.3 < v < camera.height * 0.5
    point = view.explorer.probe(1, u, v).point
    _wait_for(lambda: scene.marker.visible and np.allclose(scene.marker.position, point, atol=1e-5))
    assert np.abs(panel.images[2].image.astype(int) - before).max() > 40
    _wait_for(lambda: page.run("document.body.innerText").count(": the chosen pixel") == 1)
    scene.show_overview(client)
    _measure_in(page, view)
    assert page.console == []


def _measure_in(page, view):
    """Two clicks into the scene as it is seen from where the browser looks."""
    scene, tool = view.scene, view.scene.ruler
    scene.frusta.value, tool.switch.value = False, True
    scene.update_visibility()
    tool._switch()

    def click(across, count):
        page.click("canvas", across, 0.55)
        time.sleep(0.5)
        return len(tool.picked) == count

    _wait_for(lambda: click(0.45, 1))
    _wait_for(lambda: click(0.6, 2))
    one, other = tool.ruler.positions[tool.picked]
    said = tool.said.content
    assert said == tool.ruler.measure(*tool.picked).describe() and np.linalg.norm(one - other) > 0
    _wait_for(lambda: said in page.run("document.body.innerText"))
    scene.frusta.value, tool.switch.value = True, False
    scene.update_visibility()
    tool._switch()
    assert not tool.picked and not tool.handles


def test_clicks_find_their_pixel_on_any_lens(view):
    for one in view.scene.views:
        camera = one.view.camera.to(torch.float64)
        surface = build_photo_surface(camera, np.zeros((6, 8, 3), np.uint8), 0.5)
        pixel = torch.tensor([[0.6 * camera.width, 0.3 * camera.height]], dtype=torch.float64)
        ray = camera.unproject(pixel)[0][0].numpy()
        share = find_surface_share(surface, np.zeros(3), ray)
        assert np.allclose(share, [0.6, 0.3], atol=0.01)
        aside = np.array([0.02, -0.01, 0.03])  # a browser that has moved a little
        target = 0.5 / ray[2] * ray if camera.NAME == "pinhole" else 0.5 * ray
        assert np.allclose(find_surface_share(surface, aside, target - aside), [0.6, 0.3], atol=0.01)
        assert find_surface_share(surface, np.zeros(3), np.array([0.0, 0.0, -1.0])) is None


def _colors(image: np.ndarray) -> int:
    return len(np.unique(image.reshape(-1, 3), axis=0))


@pytest.mark.parametrize(
    ("origin", "accepted"), [("http://localhost:8080", True), ("http://evil.example", False)]
)
def test_other_sites_cannot_read_photographs(view, origin, accepted):
    """A browser lets every site open a WebSocket to this machine, also under a name of its own."""
    address = view.address.replace("http", "ws")
    options = {
        "origin": origin,
        "subprotocols": [f"viser-v{viser.__version__}"],
        "proxy": None,
        "max_size": None,
    }
    try:
        with websocket.connect(address, **options) as connection:
            assert accepted and connection.recv(timeout=PATIENCE_S)
    except InvalidStatus as refused:
        assert not accepted and refused.response.status_code == 403


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", 70000)]
)
def test_an_impossible_address_is_one_line(host, port):
    with pytest.raises(ValueError, match=r"cannot listen on|port 70000") as caught:
        check_address(host, port)
    assert "\n" not in str(caught.value)


def test_a_taken_port_leaves_nothing_open(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = f"port {port} on 127.0.0.1 is taken: choose another with --port"
        with pytest.raises(ValueError, match=message):
            ReconstructionView(read_reconstruction(folder), port=port)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["NOWHERE"], "no such folder"),
        (["EMPTY"], "is no reconstruction"),
        (["FOLDER", "--max-points", "0"], "--max-points must be at least 1, got 0"),
        (["FOLDER", "--size", "100"], "long side 100 px is not a multiple of the patch"),
        (["FOLDER", "--weights", "/no/such.safetensors"], "no weights at /no/such.safetensors"),
        (["FOLDER", "--port", "70000"], "port 70000"),
    ],
)
def test_mistakes_are_one_line(arguments, message, folder, tmp_path, capsys):
    names = {"NOWHERE": str(tmp_path / "nowhere"), "EMPTY": str(tmp_path), "FOLDER": str(folder)}
    assert main(["view", *(names.get(one, one) for one in arguments)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.fixture(scope="module")
def network_folder(tmp_path_factory, folder):
    """The result of a network that saw photographs of 48 px: no multiple of the default patches of the explorer."""
    made = tmp_path_factory.mktemp("network") / "result"
    shutil.copytree(folder, made)
    content = json.loads((made / "result.json").read_text())
    content["settings"] = {"weights": "g-ray-rooms", "size": 48}
    (made / "result.json").write_text(json.dumps(content))
    return made


@pytest.mark.parametrize("kind", ["folder", "network_folder", "stereo_folder"])
def test_the_command_serves_until_ctrl_c(kind, request):
    folder = request.getfixturevalue(kind)
    command = [sys.executable, "-m", "g_ray", "view", str(folder), "--port", "0", "--max-points", "500"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "open http://127.0.0.1:" in said
        address = said.split("open ")[1].split(" in ")[0]
        with urlopen(address) as reply:
            assert b"<html" in reply.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
