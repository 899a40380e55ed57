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

from g_ray.cli.main import main
from g_ray.export.reconstruction import read_reconstruction
from g_ray.viewer.reconstruction_view import ReconstructionView, open_view

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
    scene.views[1].toggle.value = False
    scene.update()
    assert [one.points.visible for one in scene.views] == [True, False, True]
    assert [one.frustum.visible for one in scene.views] == [True, False, True]
    assert sum(len(one.points.points) for one in scene.views) == total
    scene.frusta.value = False
    scene.update()
    assert not any(one.frustum.visible for one in scene.views)
    scene._switch_all(True)
    scene.frusta.value = True
    scene.update()
    assert all(one.points.visible and one.frustum.visible for one in scene.views)


def test_the_frustum_of_a_fisheye_is_curved(view):
    """Its outline has more lines than the eight of a pyramid, on a sphere around the camera."""
    pinhole, _, fisheye = (one.frustum.points for one in view.scene.views)
    centre = read_reconstruction(view.explorer.reconstruction.folder).views[2].pose.translation.numpy()
    distance = np.linalg.norm(fisheye[4:40] - centre, axis=-1)
    assert np.allclose(distance, view.scene.size, rtol=1e-4)
    assert len(fisheye) > len(pinhole)


def test_both_servers_listen_to_this_machine_alone(view):
    assert view.page.socket.getsockname()[0] == "127.0.0.1"
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


def test_a_click_changes_the_other_views(view, browser_page):
    page = browser_page
    page.go(view.address, 1300, 900)
    page.wait("document.body.dataset.ready")
    scene = "document.querySelector('#scene')"
    left = page.run(f"{scene}.getBoundingClientRect().right")
    before = _settled(page, int(left))
    assert _colours(before) > 500, "the page is blank"
    assert _colours(before[:, : int(left)]) > 200, "the scene is blank"

    page.click("#photo-0", 0.4, 0.6)
    page.wait("document.body.dataset.answered")
    assert page.run("document.body.dataset.answered").startswith("0 ")
    after = page.picture()
    assert page.console == []
    changed = (np.abs(after.astype(int) - before.astype(int)).max(-1) > 40).mean(0)
    assert changed[int(left) :].mean() > 0.05, "the right panel did not change"
    for picture in ("gray-1", "rope-1", "gray-2", "rope-2"):
        assert _greyness(page, picture) > 5, f"{picture} shows no colours"
    assert _pink(page, "photo-1") > 20, "no cross where the clicked point is"
    marker = view.scene.marker
    assert marker.visible
    assert np.allclose(marker.position, view.explorer.probe(0, *_clicked(page)).point)

    first = _pixels(page, "gray-1")
    page.click("#gray-1", 0.9, 0.1)
    page.wait("document.body.dataset.answered.startsWith('1 ')")
    assert np.abs(_pixels(page, "gray-1") - first).max() > 40


def _settled(page, left: int) -> np.ndarray:
    """A screenshot after the scene has been drawn."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = page.picture()
        if _colours(found[:, :left]) > 200:
            return found
        time.sleep(0.5)
    return page.picture()


def _colours(image: np.ndarray) -> int:
    return len(np.unique(image.reshape(-1, 3), axis=0))


def _pixels(page, picture: str) -> np.ndarray:
    data = page.run(
        f"(() => {{ const c = document.getElementById('{picture}');"
        " return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data) })()"
    )
    return np.array(data).reshape(-1, 4)[:, :3]


def _greyness(page, picture: str) -> float:
    pixels = _pixels(page, picture)
    return float((pixels.max(-1) - pixels.min(-1)).mean())


def _pink(page, picture: str) -> int:
    return int((np.abs(_pixels(page, picture) - [255, 79, 154]).max(-1) < 30).sum())


def _clicked(page) -> tuple[float, float]:
    return page.run("asked.u"), page.run("asked.v")


def test_a_taken_port_leaves_nothing_open(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ValueError, match="is taken"):
            ReconstructionView(read_reconstruction(folder), port=other.getsockname()[1])


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
    """The result of a network that saw photographs of 48 px: no multiple of the explorer's own patches."""
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
        with urlopen(f"{address}/maps?view=0&u=100&v=100") as reply:
            assert len(json.load(reply)["views"]) == 3
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
