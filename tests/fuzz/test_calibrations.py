"""Mutated calibrations of every format: a usable camera, or one line that names the file; never a traceback or a hang.

`G_RAY_FUZZ=2000 pytest tests/fuzz` (`make fuzz`) tries that many of each format instead of a few.
"""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch
from fuzz_mutations import mutate_bytes, mutate_document, mutate_text

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import CALIBRATIONS
from g_ray.formats.documents import ParsedFile
from g_ray.media.photos import Photo

COUNT = int(os.environ.get("G_RAY_FUZZ", "40"))
MAX_S = 10.0
"""CPU seconds for one file, on a busy machine."""


def mutate_file(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    try:
        document = ParsedFile(path).document
    except ValueError:
        document = None
    kind = draw.randrange(4)
    if document is not None and kind < 2:
        text = json.dumps(mutate_document(document, draw))  # JSON is YAML, but for a tab or two
        path.write_text(
            text if path.suffix != ".xml" else mutate_text(content.decode(), draw), errors="replace"
        )
    elif kind == 2 and path.suffix in (".yaml", ".yml", ".txt", ".json", ".xml"):
        path.write_text(mutate_text(content.decode(), draw), errors="replace")
    else:
        path.write_bytes(mutate_bytes(content, draw))


def check_outcome(example, photo) -> str | None:
    """Return the message of a refusal, or None if the camera can be used."""
    before = time.process_time()
    try:
        (view,) = assign_cameras([photo], str(example.path))
        rays, valid = view.camera.resize(16, 12).unproject_grid()
        assert bool(torch.isfinite(rays[valid]).all()), "rays that are not finite"
        assert view.pose is None or bool(torch.isfinite(view.pose.world_from_cam).all())
    except (ValueError, OSError) as error:
        message = str(error)
        assert "\n" not in message and 10 < len(message) < 600, message[:1000]
        message.encode()  # can be printed
        return message
    finally:
        assert time.process_time() - before < MAX_S, "too slow"
    return None


@pytest.mark.parametrize("name", [name for name in CALIBRATIONS if name != "exif"])
def test_mutated_calibrations(tmp_path, name):
    example = CALIBRATIONS[name].example(tmp_path / "example")
    photo = Photo(
        example.photo, tmp_path / "photos" / example.photo, example.camera.width, example.camera.height
    )
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "example", kept)
    files = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
    refused = 0
    for seed in range(COUNT):
        draw = random.Random(f"{name}{seed}")
        shutil.rmtree(tmp_path / "example")
        shutil.copytree(kept, tmp_path / "example")
        mutate_file(tmp_path / "example" / draw.choice(files), draw)
        try:
            refused += check_outcome(example, photo) is not None
        except Exception as error:
            raise AssertionError(
                f"seed {seed} of {name}: {type(error).__name__}: {str(error)[:300]}"
            ) from error
    assert refused > COUNT / 8  # mutations that change nothing would prove nothing
