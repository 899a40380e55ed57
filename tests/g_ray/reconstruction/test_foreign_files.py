"""`g-ray reconstruct` never overwrites or deletes what it did not make, and says so before it computes anything."""

from pathlib import Path

import pytest

from g_ray.cli.main import main
from g_ray.export.result import Reconstruction
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.reconstruction.reconstruction_run import open_work_folder


def list_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(capture, out, photos=None, calibration=None):
    sources = [
        str(photos or capture / "photos"),
        "--calibration",
        str(calibration or capture / "cameras.json"),
    ]
    words = ["--model", "network", "--weights", str(capture / "weights.safetensors"), "--poses", "ignore"]
    return main(["reconstruct", *sources, *words, "--out", str(out)])


@pytest.fixture
def no_network(monkeypatch):
    def fail(*given, **named):
        raise AssertionError("the network has run")

    monkeypatch.setattr(NetworkPredictor, "__call__", fail)


@pytest.mark.parametrize(
    "name",
    [
        "transforms.json",
        "cameras.json",
        "unfinished/mine.txt",
        "unfinished/settings.json",
        "images/mine.png",
        "points.ply",
        "report.html",
        "result.json",
    ],
)
def test_foreign_files_stay(capture, tmp_path, capsys, no_network, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("[]")
    before = list_contents(tmp_path)
    assert run(capture, tmp_path) == 2
    assert "did not make" in capsys.readouterr().err and list_contents(tmp_path) == before


def test_the_folder_of_the_photographs_is_not_filled(capture, tmp_path, capsys, no_network):
    """`reconstruct S --calibration S --out S` must not replace the cameras in S."""
    for path in (capture / "photos").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "cameras.json").write_text((capture / "cameras.json").read_text())
    before = list_contents(tmp_path)
    assert run(capture, tmp_path, photos=tmp_path, calibration=tmp_path / "cameras.json") == 2
    assert list_contents(tmp_path) == before


def test_an_empty_out_is_not_the_current_folder(capture, tmp_path, monkeypatch, capsys, no_network):
    monkeypatch.chdir(tmp_path)
    assert run(capture, "") == 2
    assert "an empty word after --out" in capsys.readouterr().err and not list_contents(tmp_path)
    assert main(["rays", str(capture / "cameras.json"), "--out="]) == 2
    assert "an empty word after --out:" in capsys.readouterr().err and not list_contents(tmp_path)


def test_a_work_folder_with_foreign_files_is_not_taken(tmp_path):
    """It is deleted at the end of a run."""
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"mine\.txt"):
        open_work_folder(tmp_path, {"size": 32})
    assert (tmp_path / "unfinished" / "mine.txt").read_text() == "mine"


def test_a_result_is_not_saved_over_foreign_files(room_results, tmp_path):
    views, photos = room_results.mixed()
    result = Reconstruction(views)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "transforms.json").write_text("{}")
    with pytest.raises(ValueError, match="did not make"):
        result.save(tmp_path / "mine", photos)
    assert list_contents(tmp_path / "mine") == {"transforms.json": b"{}"}
    for _ in range(2):  # over a result of its own
        assert result.save(tmp_path / "new", photos).finished
