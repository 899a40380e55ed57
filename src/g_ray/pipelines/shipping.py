"""Put the weights of a finished run into the package: `python -m g_ray.cli.ship RUN NAME`. For maintainers.

Writes NAME.safetensors (weights in half precision, with their recipe), NAME.log.jsonl (the run's metrics) and the card
NAME.json: digest, recipe, command, machine, and scores that are measured here on the very file that is shipped.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from g_ray.models.checkpoint import FOLDER
from g_ray.runtime.files import atomic_path, strip_paths, write_atomically, write_json

if TYPE_CHECKING:
    from g_ray.recipes.nvs import NVSRecipe
    from g_ray.recipes.reconstruction import ReconstructionRecipe
    from g_ray.training.recipe import Recipe

MAX_BYTES = 20 * 10**6
"""Bytes of a file of weights that a package should carry."""


@dataclass(frozen=True)
class Ship:
    """Put the weights of a finished run into the package, with their log and a card."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of a finished g-ray train."""
    name: tyro.conf.Positional[str]
    """Name of the weights."""
    folder: Path = FOLDER
    """Where weights are kept."""
    scenes: int = 256
    """Test rooms to score them on."""

    def run(self) -> None:
        from g_ray.recipes.nvs import NVSRecipe
        from g_ray.recipes.reconstruction import ReconstructionRecipe
        from g_ray.recipes.stored import read_recipe
        from g_ray.training.checkpoint import WEIGHTS, CheckpointStore
        from g_ray.training.history import METRICS

        weights = self.run_folder / WEIGHTS
        if not weights.is_file():
            raise ValueError(f"{weights}: no such file; give the folder of a finished g-ray train")
        recipe = read_recipe(weights)
        if not isinstance(recipe, NVSRecipe | ReconstructionRecipe):
            raise ValueError(
                f"{weights} is a {type(recipe).__name__}: only synthesis and reconstruction networks are shipped"
            )
        last, _ = CheckpointStore(self.run_folder / "checkpoints").find_newest()
        if last is None:
            raise ValueError(f"{self.run_folder} has no intact checkpoint to tell its recipe and machine")
        document, provenance = strip_paths(last.read_document("recipe")), last.read_document("provenance")
        document["name"] = find_recipe_name(recipe, document["name"])
        shipped = self.folder / f"{self.name}.safetensors"
        more = make_config(recipe) if isinstance(recipe, ReconstructionRecipe) else {}
        write_half_precision(weights, shipped, document, last.step, more)
        write_atomically(self.folder / f"{self.name}.log.jsonl", (self.run_folder / METRICS).read_bytes())
        card = {
            "name": self.name,
            "bytes": shipped.stat().st_size,
            "sha256": hashlib.sha256(shipped.read_bytes()).hexdigest(),
            "step": last.step,
            "command": format_command(
                provenance.pop("command", ["", "train", document["name"]]), provenance["processes"]
            ),
            "recipe": document,
            "validation": last.read_validation(),
            "scores": score_nvs(recipe, shipped, self.scenes)
            if isinstance(recipe, NVSRecipe)
            else score_reconstruction(recipe, shipped, self.scenes),
            "provenance": strip_paths(provenance),
        }
        write_json(self.folder / f"{self.name}.json", card)
        print(f"{shipped}: {card['bytes'] / 1e6:.1f} MB, {json.dumps(card['scores'])}")


def find_recipe_name(recipe: "Recipe", otherwise: str) -> str:
    """As `g-ray train` knows it: a study calls its networks by the rows of its table."""
    from g_ray.recipes import RECIPES

    settings = replace(recipe, seed=0).to_settings()
    return next((name for name, make in RECIPES.items() if make().to_settings() == settings), otherwise)


def write_half_precision(
    weights: Path, shipped: Path, document: dict[str, Any], step: int, more: dict[str, str]
) -> None:
    """Half precision loses 3 decimal digits of 7, and half the bytes; the card's scores are measured after it."""
    from safetensors.torch import save_file

    from g_ray.training.checkpoint import read_weights

    halves = {name: weight.half() for name, weight in read_weights(weights).items()}
    size = sum(weight.numel() * weight.element_size() for weight in halves.values())
    if size > MAX_BYTES:
        raise ValueError(
            f"{weights} has {size / 1e6:.0f} MB in half precision: a package takes 20 MB at most"
        )
    with atomic_path(shipped) as scratch:
        metadata = {"format": "pt", "step": str(step), "recipe": json.dumps(document), **more}
        save_file(halves, scratch, metadata=metadata)


def score_nvs(recipe: "NVSRecipe", weights: Path, scenes: int) -> dict[str, Any]:
    """Per zoom, on rooms that no training run sees; nothing for networks that were trained on other data."""
    from g_ray.evaluation.nvs import FovProtocol, make_predictor
    from g_ray.pipelines.synthesis import load_network
    from g_ray.recipes.nvs import RoomsData

    data = recipe.data
    if not isinstance(data, RoomsData):
        return {}
    protocol = FovProtocol(data.width, data.height, scenes, fov_deg=data.fov_deg)
    predict = make_predictor(load_network(weights).model)
    summaries = {setting: protocol.score(predict, setting, None).summarize() for setting in protocol.settings}
    rows = {
        setting: {name: asdict(value) for name, value in row.items()} for setting, row in summaries.items()
    }
    return {"protocol": f"{scenes} test rooms, views zoomed by up to z", **rows}


def make_config(recipe: "ReconstructionRecipe") -> dict[str, str]:
    """What `load_reconstruction` builds the network from."""
    from g_ray.models.checkpoint import CONFIG

    return {CONFIG: json.dumps(asdict(recipe.model.build_config()))}


def score_reconstruction(recipe: "ReconstructionRecipe", weights: Path, scenes: int) -> dict[str, Any]:
    """Per lens, on rooms that no training run sees; nothing for networks that were trained on other data.

    The fields of view are those of the ablation's table, whatever the training's were.
    """
    from g_ray.data.rooms.reconstruction import RoomsReconstruction
    from g_ray.evaluation.reconstruction import RoomsScorer
    from g_ray.evaluation.study import ScoredRun, make_rows
    from g_ray.models.checkpoint import load_reconstruction
    from g_ray.recipes.reconstruction import RoomsViews

    if not isinstance(recipe.data, RoomsViews):
        return {}
    rooms = replace(recipe.data, fov_deg=RoomsViews.fov_deg).build_source(
        0, recipe.model.build_config().patch
    )
    assert isinstance(rooms, RoomsReconstruction)
    scorer = RoomsScorer.from_training(rooms, scenes)
    network = load_reconstruction(weights)
    scores = {setting: scorer.score_network(network, setting) for setting in scorer.settings}
    table = make_rows([ScoredRun("", recipe.seed, 0, 0.0, scores)])
    low, high = rooms.fov_deg
    return {
        "protocol": f"{scenes} test rooms, {scorer.rooms.views[1]} views of {rooms.width}×{rooms.width} px, "
        f"pinholes of {low:.0f}°–{high:.0f}°; trained on pinholes alone",
        **{row["setting"]: row["metrics"] for row in table},
    }


def format_command(words: list[str], processes: int = 1) -> str:
    """As a user types it, without the folder of this machine that it went to."""
    begin = ["g-ray"] if processes == 1 else ["torchrun", "--nproc-per-node", str(processes), "-m", "g_ray"]
    kept = [*begin, *words[1:]]
    while "--out" in kept:
        place = kept.index("--out")
        del kept[place : place + 2]
    return " ".join(kept)


if __name__ == "__main__":
    try:
        tyro.cli(Ship, prog="python -m g_ray.cli.ship").run()
    except (ValueError, OSError) as error:
        raise SystemExit(f"g-ray: {error}") from None
