"""Mutated folders of reconstructions, as `g-ray view` reads them: usable, or refused in one line."""

import json
import os
import random
import shutil

import pytest
import torch
from fuzz_mutations import mutate_bytes, mutate_document

from g_ray.export.result import Reconstruction, read_reconstruction
from g_ray.formats.cameras_json import read_cameras

COUNT = int(os.environ.get("G_RAY_FUZZ", "40"))


@pytest.fixture(scope="module")
def folder(room_results, tmp_path_factory):
    views, photos = room_results.mixed()
    out = tmp_path_factory.mktemp("result") / "out"
    Reconstruction(views[:2]).save(out, photos[:2])
    return out


@pytest.mark.parametrize("name", ["result.json", "cameras.json", "depth"])
def test_mutated_results(folder, tmp_path, name):
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and name in str(path)]
    accepted = 0
    for seed in range(COUNT):
        draw = random.Random(f"{name}{seed}")
        target = tmp_path / str(seed)
        for part in ("result.json", "cameras.json", "depth"):
            source = folder / part
            shutil.copytree(source, target / part) if source.is_dir() else None
            if source.is_file():
                target.mkdir(exist_ok=True)
                shutil.copyfile(source, target / part)
        file = target / draw.choice(names)
        if file.suffix == ".json" and draw.random() < 0.7:
            file.write_text(json.dumps(mutate_document(json.loads(file.read_text()), draw)))
        else:
            file.write_bytes(mutate_bytes(file.read_bytes(), draw))
        try:
            for view in read_reconstruction(target).views:
                assert bool(torch.isfinite(view.points()[view.valid]).all())
            accepted += 1
        except (ValueError, OSError) as error:
            assert "\n" not in str(error) and 10 < len(str(error)) < 700
        except Exception as error:
            raise AssertionError(f"seed {seed} of {name}: {type(error).__name__}: {error}") from error
        shutil.rmtree(target)
    assert accepted < COUNT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"cameras":' * 99999, "nested too deeply"),
        ('{"format": "g-ray-cameras", "format": 1}', "there twice"),
        ("[]", "must be an object"),
        (b"\xff\xfe".decode("latin1"), "not"),
    ],
)
def test_camera_files(tmp_path, content, message):
    (tmp_path / "cameras.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_cameras(tmp_path / "cameras.json")
