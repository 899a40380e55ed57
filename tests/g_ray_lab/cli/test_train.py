"""`g-ray train`: overrides, refusals, Ctrl-C, and help without torch."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from g_ray.cli.main import main
from g_ray_lab.cli.train_command import expand_recipe_name
from g_ray_lab.recipes import RECIPES
from g_ray_lab.training.run_files import CheckpointStore

QUICK = ["--no-tensorboard", "--sample-every", "None", "--device", "cpu", "--width", "8"]


def train(out, *more):
    return main(["train", "curve", "--out", str(out), *QUICK, "--schedule.warmup", "0", *more])


def test_a_run_and_what_is_stored_beside_the_weights(tmp_path, capsys):
    assert train(tmp_path / "run", "--schedule.steps", "4", "--optimizer.clip", "None", "--seed", "7") == 0
    said = capsys.readouterr().out
    assert said.startswith("4 steps, validation ") and str(tmp_path / "run" / "model.safetensors") in said
    (checkpoint,) = CheckpointStore(tmp_path / "run" / "checkpoints").list_checkpoints()
    recipe, provenance = checkpoint.read_document("recipe"), checkpoint.read_document("provenance")
    assert recipe["name"] == "curve" and recipe["settings"]["schedule"]["steps"] == 4
    assert recipe["settings"]["optimizer"]["clip"] is None and recipe["settings"]["seed"] == 7
    assert {"commit", "date", "hardware", "python", "libraries", "command"} <= provenance.keys()
    assert provenance["libraries"]["torch"].startswith("2.") and "safetensors" in provenance["libraries"]


def test_the_same_command_continues_and_another_recipe_is_refused(tmp_path, capsys):
    assert train(tmp_path / "run", "--schedule.steps", "4") == 0
    assert train(tmp_path / "run", "--schedule.steps", "4") == 0
    assert "already finished at step 4" in capsys.readouterr().err
    assert train(tmp_path / "run", "--schedule.steps", "6") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "schedule.steps: 4 → 6" in error and "--allow-changes" in error
    assert train(tmp_path / "run", "--schedule.steps", "6", "--allow-changes") == 0
    assert "changed since the run was started: schedule.steps: 4 → 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--schedule.steps", "1"],
            "schedule.warmup is 20 and schedule.steps 1: the warm-up must be shorter",
        ),
        (["--schedule.steps", "0"], "schedule.steps must be at least 1, got 0"),
    ],
)
def test_settings_that_contradict_each_other_are_one_line(words, line, capsys):
    assert main(["train", "curve", *words]) == 2
    assert capsys.readouterr().err == f"g-ray: {line}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["curve", "--nonsense", "1"],
        ["curve", "--schedule.nonsense", "1"],
        ["curve", "--schedule.steps", "many"],
        ["curve", "--precision", "fp8"],
        ["nvs-tiny", "--method", "gray"],
        ["recon-rooms", "--method", "gray"],
    ],
)
def test_unknown_recipes_and_overrides_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", *words])
    assert stop.value.code == 2


def test_help_fits_on_a_page_and_lists_families(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 64
    assert all(name in text for name in RECIPES) and "gta_gray" not in text


@pytest.mark.parametrize(
    ("words", "expanded"),
    [
        ("nvs-tiny-gta_gray --seed 1", "nvs-tiny --method gta_gray --seed 1"),
        ("recon-tiny-rope", "recon-tiny --method rope"),
        ("nvs-tiny --method gta", "nvs-tiny --method gta"),
        ("curve --help", "curve --help"),
    ],
)
def test_a_recipe_is_also_named_with_its_method(words, expanded):
    assert expand_recipe_name(words.split()) == expanded.split()


def test_two_methods_are_refused(capsys):
    assert main(["train", "nvs-tiny-gta", "--method", "plucker"]) == 2
    assert "nvs-tiny-gta and --method plucker contradict each other" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nvs-tiny", "--method", "plucker"], ["nvs-tiny-plucker"]])
def test_a_method_sets_defaults_that_options_override(words, monkeypatch):
    import g_ray_lab.training.engine as engine

    started = {}

    def record(name, recipe, run, provenance):
        started[name] = recipe
        return engine.TrainingOutcome(run.out, run.out, 0, 0, None)

    monkeypatch.setattr(engine, "train", record)
    assert main(["train", *words, "--out", "nowhere", "--model.conditioning", "camray", "--seed", "3"]) == 0
    (recipe,) = started.values()
    assert list(started) == ["nvs-tiny-plucker"]
    assert (recipe.model.conditioning, recipe.model.encoding, recipe.seed) == ("camray", "rope", 3)


@pytest.mark.parametrize("words", [["--save-every", "0"], ["--schedule.steps", "0"], ["--device", "tpu?"]])
def test_impossible_values_are_refused_in_words(words, tmp_path, capsys):
    try:
        code = main(["train", "curve", "--out", str(tmp_path), *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and words[0].strip("-") in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "--help"], ["train", "nvs-paper", "--method", "gta", "--help"]])
def test_help_does_not_import_torch(words):
    code = (
        "import sys\nfrom g_ray.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as stop:\n    assert stop.code == 0, stop.code\n"
        "heavy = {'torch', 'numpy', 'safetensors', 'PIL', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_saves_and_exits_130(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "g_ray", "train", "curve", "--out", str(out), *QUICK]
    process = subprocess.Popen(
        [*command, "--pause-s", "0.01", "--log-every", "1"], stderr=subprocess.PIPE, text=True
    )
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    (saved,) = CheckpointStore(out / "checkpoints").list_checkpoints()
    assert f"saved step {saved.step} in {out}; the same command continues" in said
    assert said.endswith("g-ray: stopped\n") and "Traceback" not in said
    assert json.loads((saved.path / "manifest.json").read_text())["step"] == saved.step


def test_settings_of_single_folders_on_the_command_line(monkeypatch, capsys):
    import g_ray_lab.training.engine as engine
    from g_ray_lab.recipes.stored_recipe import parse_recipe
    from g_ray_lab.sources.reconstruction_settings import FolderSettings

    started = []

    def record(name, recipe, run, provenance):
        started.append(recipe)
        return engine.TrainingOutcome(run.out, run.out, 0, 0, None)

    monkeypatch.setattr(engine, "train", record)
    words = ["train", "recon-scenes-stage2", "--out", "nowhere", "--data.folders", "a", "b"]
    assert main([*words, "--data.per-folder", "overlap=0.4,depth_max=80", "same"]) == 0
    (recipe,) = started
    assert recipe.data.per_folder == (FolderSettings(overlap=0.4, depth_max=80.0), FolderSettings())
    stored = {"kind": "ReconstructionRecipe", "settings": recipe.to_settings()}
    assert parse_recipe(json.loads(json.dumps(stored))) == recipe
    with pytest.raises(SystemExit):
        main([*words, "--data.per-folder", "overlap=much", "same"])
    said = capsys.readouterr().err
    assert "overlap=much" in said and "depth_convention" in said
