"""Wrong command lines: accepted, or refused with one line and exit code 2; never a traceback or a hang.

What takes long is replaced by `Accepted`: only the checks before it are tried.
"""

import os
import random
import time

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import save_reconstruction

COUNT = int(os.environ.get("G_RAY_FUZZ", "12"))
MAX_S = 20.0
WORDS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "3",
        "0.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-320",
        "None",
        "True",
        "False",
        "x",
        "é",
    ),
    *(
        "9" * 40,
        "9" * 5000,
        "-",
        "--",
        "--out",
        "a=b",
        "=",
        "*",
        "../..",
        "/",
        ".",
        "~",
        "/dev/null",
        "cuda:99",
    ),
    *(
        "mps",
        "meta",
        "cpu",
        "MISSING",
        "FOLDER",
        "TEXT",
        "PIPE",
        "DANGLING",
        "BINARY",
        "DEEP",
        "CAMERAS",
        "PHOTOS",
    ),
)
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "reconstruct": (
        ["reconstruct", "PHOTOS", "--calibration", "CAMERAS", "--model", "network", "--weights", "WEIGHTS"],
        [
            *(
                "--as-stored",
                "--at-once",
                "--calibration",
                "--confidence",
                "--depth-exr",
                "--depth-size",
                "--device",
            ),
            *(
                "--distance",
                "--edges",
                "--every",
                "--fill",
                "--frames",
                "--into",
                "--masks",
                "--max-memory",
                "--metric",
            ),
            *(
                "--max-points",
                "--max-tracks",
                "--model",
                "--poses",
                "--precision",
                "--resize-calibration",
                "--rig",
            ),
            *("--size", "--sky", "--truth", "--voxel", "--weights", "--out"),
        ],
    ),
    "synthesize": (
        ["synthesize", "--context", "PHOTO", "--cameras", "CAMERAS", "--target", "CAMERAS"],
        [
            *(
                "--as-stored",
                "--baseline",
                "--cameras",
                "--context",
                "--device",
                "--extent",
                "--fps",
                "--frames",
            ),
            *("--full-size", "--out", "--path", "--scene", "--target", "--weights"),
        ],
    ),
    "train": (
        ["train", "curve"],
        [
            *(
                "--batch",
                "--device",
                "--dropout",
                "--keep",
                "--layers",
                "--log-every",
                "--max-skipped",
                "--width",
            ),
            *(
                "--optimizer.betas",
                "--optimizer.clip",
                "--optimizer.eps",
                "--optimizer.weight-decay",
                "--parallel",
            ),
            *(
                "--precision",
                "--sample-every",
                "--save-every",
                "--schedule.final",
                "--schedule.lr",
                "--schedule.start",
            ),
            *("--schedule.steps", "--schedule.warmup", "--seed", "--workers", "--pause-s", "--init", "--out"),
        ],
    ),
    "data check": (
        ["data", "check", "SCENE"],
        ["--depth-convention", "--depth-unit", "--frames", "--json", "--scenes"],
    ),
    "data objects": (
        ["data", "objects", "--count", "1", "--size", "16"],
        [
            "--antialias",
            "--count",
            "--meshes",
            "--seed",
            "--size",
            "--up",
            "--workers",
            "--jobs",
            "--out",
            "--cluster",
        ],
    ),
    "rays": (["rays", "CAMERAS"], ["--name", "--out"]),
    "view": (["view"], ["--max-points", "--port", "--size", "--weights", "--host"]),
    "weights show": (["weights", "show"], []),
    "weights convert": (["weights", "convert"], ["--taps", "--method", "--dtype", "--out"]),
    "reproduce": (
        ["reproduce", "nvs-fov"],
        ["--data", "--index", "--jobs", "--lpips", "--methods", "--scale", "--seeds", "--steps", "--out"],
    ),
}


class Accepted(BaseException):
    """The command has passed its checks."""


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    """Files and folders that words in capitals stand for."""
    root = tmp_path_factory.mktemp("places")
    names = {
        name: root / name.lower()
        for name in ("MISSING", "FOLDER", "TEXT", "PIPE", "DANGLING", "BINARY", "DEEP")
    }
    names["FOLDER"].mkdir()
    names["TEXT"].write_text("neither this nor that")
    os.mkfifo(names["PIPE"])
    names["DANGLING"].symlink_to(root / "nothing")
    names["BINARY"].write_bytes(bytes(range(256)) * 8)
    names["DEEP"].write_text('{"a":' * 99999)
    photos = root / "photos"
    photos.mkdir()
    generator, cameras = np.random.default_rng(0), []
    for number in range(3):
        pixels = generator.integers(0, 255, (36, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.png")
        pose = Pose.from_parts(torch.eye(3).double(), torch.tensor([0.1 * number, 0.0, 0.0]).double())
        cameras.append(View(f"{number}.png", Pinhole.from_fov(60.0, 48, 36).to(torch.float64), pose))
    write_cameras(root / "cameras.json", cameras)
    torch.manual_seed(0)
    save_reconstruction(
        ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")), root / "weights.safetensors"
    )
    names |= {"PHOTOS": photos, "PHOTO": photos / "0.png", "SCENE": photos, "CAMERAS": root / "cameras.json"}
    return {name: str(path) for name, path in {**names, "WEIGHTS": root / "weights.safetensors"}.items()}


WORK = {
    "reconstruct": [
        "g_ray.predictors.network_predictor.NetworkPredictor.predict",
        "g_ray.calibration.assign.estimate_cameras",
    ],
    "synthesize": ["g_ray.synthesis.synthesizer.Synthesizer.render"],
    "train": ["g_ray_lab.training.engine.Session.run_loop"],
    "data check": [],
    "data objects": [
        "g_ray_lab.sources.render_objects.render_objects",
        "g_ray_lab.sources.render_objects.render_on_cluster",
    ],
    "rays": ["g_ray.viewer.angle_maps.write_picture"],
    "view": ["g_ray.viewer.reconstruction_view.open_view"],
    "weights show": ["huggingface_hub.hf_hub_download"],
    "weights convert": ["huggingface_hub.hf_hub_download"],
    "reproduce": ["g_ray_lab.scoring.study.run_study"],
}
"""What takes long, or reaches for the network, by command."""


def accept(*given, **named):
    raise Accepted


def draw_command(name: str, draw: random.Random) -> list[str]:
    base, options = COMMANDS[name]
    words = list(base)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if options and draw.random() < 0.85:
            words += [draw.choice(options), *draw.choices(WORDS, k=draw.choice((0, 1, 1, 1, 2, 3)))]
        elif draw.random() < 0.5 and len(words) > 1:
            words[draw.randrange(1, len(words))] = draw.choice(WORDS)
        else:
            words.append(draw.choice(WORDS))
    return words


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_command_lines(places, tmp_path, monkeypatch, capsys, name):
    for target in WORK[name]:
        monkeypatch.setattr(target, accept)
    monkeypatch.chdir(tmp_path)
    refused = 0
    for seed in range(COUNT):
        words = [places.get(word, word) for word in draw_command(name, random.Random(f"{name}{seed}"))]
        if "--out" not in words and name not in ("view", "weights show", "data check"):
            words += ["--out", str(tmp_path / f"out{seed}")]
        before, code = time.process_time(), None
        try:
            code = main(words)
        except Accepted:
            continue
        except SystemExit as stop:  # of the parser, which prints a box
            code = stop.code
        except BaseException as error:
            raise AssertionError(
                f"seed {seed}: {' '.join(words)[:300]}: {type(error).__name__}: {error}"
            ) from error
        finally:
            said = capsys.readouterr()
            assert time.process_time() - before < MAX_S, words
        if code == 0:
            continue
        refused += 1
        shown = f"seed {seed}: {' '.join(words)[:300]}: code {code}: {said.err[:500]}"
        assert code == 2, shown
        assert "Traceback" not in said.err and "__tyro" not in said.err and "unexpected" not in said.err, (
            shown
        )
        if said.err.startswith("g-ray:"):
            assert said.err.count("\n") == 1 and 15 < len(said.err) < 900, shown
    assert refused
