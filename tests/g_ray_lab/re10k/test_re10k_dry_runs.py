"""Dry runs of the tables on RealEstate10K at the paper's scale, on a miniature and with a tiny network."""

from dataclasses import dataclass, replace

import pytest

from g_ray.cli.main import main
from g_ray_lab.recipes.nvs_recipes import re10k_paper, tiny
from g_ray_lab.scoring import indexed_protocols
from g_ray_lab.tables import synthesis_table


@dataclass(frozen=True)
class SmallProtocol(indexed_protocols.RE10KProtocol):
    width: int = 36
    height: int = 18


def make_recipe(method):
    """The paper's recipe and schedule with the network and the loss of nvs-tiny."""
    recipe, small = re10k_paper(method), tiny(method)
    data = replace(recipe.data, width=36, height=36, batch=1)
    return replace(recipe, model=replace(small.model, layers=1), loss=small.loss, data=data)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("nvs-fov", ("gta", "plucker")),
        ("nvs-frequency", ("alpha_10",)),
        ("nvs-rayrope", ("lpips_rayrope", "lpips_clamped_rayrope_gray")),
        ("nvs-plucker", ("re10k_gta_gray",)),
    ],
)
def test_every_table(miniature, tmp_path, monkeypatch, capsys, table, rows):
    monkeypatch.setattr(synthesis_table, "re10k_paper", make_recipe)
    monkeypatch.setattr(indexed_protocols, "RE10KProtocol", SmallProtocol)
    words = ["reproduce", table, "--scale", "paper", "--dry-run", "--out", str(tmp_path / "out")]
    words += ["--data", str(miniature.chunks), "--index", str(miniature.index), "--methods", *rows]
    assert main(words) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    for row in rows:
        assert f"| train {row} |" in printed and f"| score {row} |" in printed
    assert f"| {2 * re10k_paper('gta').schedule.steps:,} |" in printed  # two seeds
    assert "| **all, one after the other** |" in printed and not (tmp_path / "out").exists()
