"""`g-ray reproduce attention`: where networks attend across fields of view (paper, fig:attention)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.paper_table import Measured, NetworkAnalysis, SharedTable, compare_with_first

if TYPE_CHECKING:
    from g_ray.models.reconstruction_network import ReconstructionModel
    from g_ray_lab.result_pictures import AttentionRow
    from g_ray_lab.scoring.fov_attention import FovPair, PairScene
    from g_ray_lab.tables.dry_run import Part

PAIRS = {"small": 48, "paper": 200}
CENTER, ANYWHERE = "center", "anywhere"


@dataclass(frozen=True)
class Attention(NetworkAnalysis, SharedTable):
    """Where global attention looks between a wide image and a crop of it: inside the shared field of view or not."""

    data: tuple[Path, ...] = ()
    """Scene folders, or folders of them: a setting each, with crops from the middle and with crops from anywhere; at
    paper scale the folder of prepared datasets."""
    rooms: bool = False
    """Procedural rooms of the test split as a further setting (small scale): for networks that were trained on rooms,
    e.g. g-ray-rooms."""
    protocols: tuple[str, ...] = ("eth3d-fov",)
    """Paper scale: protocols of `g-ray evaluate` whose images are taken, a setting each."""
    pairs: int | None = None
    """Pairs per setting; 48 by default, at paper scale 200."""

    def list_parts(self) -> "Iterator[Part]":
        """Yield a pair of every setting for every network."""
        from g_ray_lab.scoring.fov_attention import score_pairs
        from g_ray_lab.tables.dry_run import Part, make_unit

        networks, count = self.find_networks(), self.pairs or PAIRS[self.scale]
        pairs = replace(self, pairs=1).make_pairs(networks[0].load())
        for network in networks:
            score = partial(lambda network: score_pairs(network.load(), pairs), network)
            yield Part(f"attention of {network.name}", make_unit(score, count))

    def measure(self) -> Measured | None:
        from g_ray.runtime.device import choose_device
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.scoring.fov_attention import (
            ATTENTION_METRICS,
            CHANCE,
            PRIOR,
            interleave_scores,
            make_scored_run,
            score_pairs,
            select_pairs,
        )
        from g_ray_lab.scoring.scored_runs import compute_differences, format_scores_csv, make_rows
        from g_ray_lab.scoring.store import Shard, Store
        from g_ray_lab.scoring.table_writer import format_trained_tables

        networks, progress = self.find_networks(), ProgressLine()
        pairs = self.make_pairs(networks[0].load())
        textures = {setting: [pair.measure_texture() for pair in group] for setting, group in pairs.items()}
        names = {setting: [pair.name for pair in group] for setting, group in pairs.items()}
        shard, device = Shard.parse(self.shard), choose_device("auto")
        found = {}
        for network in networks:
            progress(f"attention of {network.name}")
            found[network] = Store(self.out / "parts").measure_share(
                network.name,
                {"weights": network.digest, "pairs": names, "textures": textures},
                shard,
                lambda network=network: score_pairs(network.load().to(device), select_pairs(pairs, shard)),
                interleave_scores,
            )
        if None in found.values():
            return self.report_share(shard)
        runs, references = [], {}
        for network, scores in found.items():
            runs.append(make_scored_run(network.method, network.seed, scores["attention"], textures))
            # Rows with one encoding have one prior, which does not depend on the seed.
            prior = make_scored_run(f"{network.method}, {PRIOR}", 0, scores["prior"], textures)
            references.setdefault(prior.method, prior)
            references.setdefault(CHANCE, make_scored_run(CHANCE, 0, scores["chance"], textures))
        result = {
            "name": "attention",
            "rows": make_rows(runs),
            "references": make_rows(list(references.values())),
            "differences": compute_differences(runs, compare_with_first(networks)),
            "settings": {
                "metrics": ATTENTION_METRICS,
                "folders": [str(f) for f in self.data],
                "pairs": names,
            },
        }
        return Measured(result, format_trained_tables(result), format_scores_csv(runs))

    def make_pairs(self, model: "ReconstructionModel") -> "dict[str, list[FovPair]]":
        """Make the pairs of all settings at the size of the network."""
        from g_ray.models.inference import PatchFraming
        from g_ray_lab.scoring.fov_attention import PairSource

        count = self.pairs or PAIRS[self.scale]
        framing = PatchFraming(model.config.long_side, model.config.patch)
        return {
            f"{name} {where}": PairSource(scenes, count, where == CENTER).make_pairs(framing)
            for name, scenes in self._open_scenes(model.config.long_side, model.config.patch, count).items()
            for where in (CENTER, ANYWHERE)
        }

    def _open_scenes(self, side: int, patch: int, count: int) -> "dict[str, list[PairScene]]":
        """Open the scenes of every setting: scene folders and rooms, or protocols of prepared datasets."""
        from g_ray_lab.datasets.dataset_registry import DATASETS
        from g_ray_lab.scoring.fov_attention import open_folders, open_protocol, open_rooms
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        if not self.data and not (self.rooms and self.scale == "small"):
            raise ValueError("attention needs images with cameras: give --data FOLDER …, scene folders")
        if self.scale == "small":
            rooms = {"rooms": open_rooms(side, patch, count)} if self.rooms else {}
            return {**{folder.name: open_folders(folder) for folder in self.data}, **rooms}
        unknown = [name for name in self.protocols if name not in PROTOCOLS]
        if unknown or len(self.data) != 1:
            raise ValueError(
                f"unknown protocol {', '.join(unknown)}; g-ray evaluate list names them"
                if unknown
                else "--scale paper needs --data FOLDER, one with a folder for each dataset"
            )
        return {
            name: open_protocol(PROTOCOLS[name], self.data[0] / DATASETS[PROTOCOLS[name].dataset].download)
            for name in self.protocols
        }

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.result_pictures import draw_attention
        from g_ray_lab.scoring.fov_attention import choose_examples

        first = {network.method: network for network in reversed(self.find_networks())}
        models = {method: first[method].load() for method in reversed(first)}
        groups = self.make_pairs(next(iter(models.values())))
        rows = [
            make_attention_row(models, pair)
            for setting, group in groups.items()
            if setting.endswith(ANYWHERE)
            for pair in choose_examples(group)
        ]
        write_png(draw_attention(rows, LIGHT), self.out / "attention.png")


def make_attention_row(models: "dict[str, ReconstructionModel]", pair: "FovPair") -> "AttentionRow":
    """Return the maps of all methods and of the first two distinct priors for one pair."""
    from g_ray_lab.result_pictures import AttentionRow
    from g_ray_lab.scoring.fov_attention import PRIOR, PairAttention

    patch = next(iter(models.values())).config.patch
    coverage = pair.compute_coverage(patch)
    attentions = [(method, PairAttention.from_model(model, pair)) for method, model in models.items()]
    # Rows with one coordinate have one prior.
    coordinates = {
        method: getattr(model.aggregator.across, "coordinate", "none") for method, model in models.items()
    }
    priors = {coordinates[method]: (method, model) for method, model in reversed(models.items())}
    for method, model in reversed(priors.values()):
        attentions.append((f"{method}, {PRIOR}", PairAttention.from_positions(model, pair)))
    maps = tuple(
        (title, attention.compute_map(len(coverage)), attention.score(pair, patch)["inside"])
        for title, attention in attentions
    )
    return AttentionRow(pair.wide.image, pair.narrow.image, pair.box, maps, float(coverage.mean()))
