"""The finished reconstruction networks of a study, row by row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import find_file, load_reconstruction
from g_ray_lab.scoring.store import hash_file
from g_ray_lab.training.training_checkpoint import WEIGHTS


@dataclass(frozen=True)
class TrainedNetwork:
    """Weights of one row and seed."""

    method: str
    seed: int
    weights: Path

    @property
    def name(self) -> str:
        return f"{self.method}-seed{self.seed}"

    @property
    def digest(self) -> str:
        """A digest of the weights, for keys of results that depend on them."""
        return hash_file(self.weights)

    def load(self) -> ReconstructionModel:
        """Load the network, prepared for inference."""
        return load_reconstruction(self.weights)


def find_networks(
    source: Path, methods: Sequence[str] = (), seeds: int | None = None
) -> list[TrainedNetwork]:
    """Return the finished networks of a study (`source`/runs/ROW-seedN) in the order of RECONSTRUCTION_METHODS.

    Where `source` is a file of weights or the name of shipped ones, it is the only network. `methods` selects rows;
    `seeds` the networks with seeds below it, which every row must then have.
    """
    runs = source / "runs"
    if not runs.is_dir():
        weights = find_file(source)
        networks = [TrainedNetwork(load_reconstruction(weights).config.method, 0, weights)]
    else:
        matches = ((path, re.fullmatch(r"(\w+)-seed(\d+)", path.name)) for path in runs.iterdir())
        networks = [
            TrainedNetwork(match[1], int(match[2]), path / WEIGHTS)
            for path, match in matches
            if match is not None and match[1] in RECONSTRUCTION_METHODS and (path / WEIGHTS).is_file()
        ]
        order = list(RECONSTRUCTION_METHODS)
        networks.sort(key=lambda network: (order.index(network.method), network.seed))
    return _limit_seeds(_select_methods(networks, methods, source), seeds, source)


def _limit_seeds(networks: list[TrainedNetwork], seeds: int | None, source: Path) -> list[TrainedNetwork]:
    """Keep the networks with the first seeds; a row that lacks one would be compared with unequal means."""
    if seeds is None:
        return networks
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: give at least 1")
    names = [network.name for network in networks]
    wanted = {f"{network.method}-seed{seed}" for network in networks for seed in range(seeds)}
    missing = sorted(wanted.difference(names))
    if missing:
        raise ValueError(
            f"--networks {source}: --seeds {seeds}, but not finished: {', '.join(missing)}; give fewer --seeds"
        )
    return [network for network in networks if network.name in wanted]


def _select_methods(
    networks: list[TrainedNetwork], methods: Sequence[str], source: Path
) -> list[TrainedNetwork]:
    known = {network.method for network in networks}
    missing = [method for method in methods if method not in known]
    if missing or not networks:
        have = ", ".join(dict.fromkeys(network.method for network in networks)) or "none"
        raise ValueError(
            f"--networks {source}: no finished network of {', '.join(missing) or 'any row'} (it has: {have}); "
            "give the --out of a finished study"
        )
    return [network for network in networks if not methods or network.method in methods]
