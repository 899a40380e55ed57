"""`g-ray reproduce nvs-trajectory`: the paper's figure of objects along short paths with a changing field of view."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from g_ray_lab.sources.batches import NVSBatch

FIGURE = "trajectory_{}.png"


@dataclass(frozen=True)
class NVSTrajectory:
    """What the networks of `nvs-objects` predict along short paths around test objects as the field of view changes.

    A figure per object (rows: truth and methods; columns: frames, named by their field of view) and all PSNRs.
    """

    out: Path
    """Folder for the figures and result.json."""
    networks: Path
    """Folder of a finished `nvs-objects`; the first network of every row is drawn."""
    data: Path | None = None
    """Folder of rendered objects; if not given, NETWORKS/data."""
    index: Path | None = None
    """Folder of the index; if not given, NETWORKS/index."""
    meshes: Path | None = None
    """Folder of the meshes that the objects were rendered from; if not given, the scanned objects of the shared data.
    Not needed for procedural ones."""
    objects: int = 4
    """Number of test objects."""
    frames: int = 5
    """Frames of a path."""

    def run(self) -> None:
        from g_ray.runtime.files import find_shared_data, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.provenance import collect_provenance
        from g_ray_lab.sources.object_index import read_index
        from g_ray_lab.sources.objects_nvs import TrajectoryObjects

        if self.objects < 1:
            raise ValueError(f"--objects {self.objects}: give 1 or more")
        claim_out(self.out, "reproduce")
        networks, size = load_networks(self.networks)
        root = self.data or self.networks / "data"
        scanned = find_shared_data() / "gso_mini"
        meshes = self.meshes or (scanned if scanned.is_dir() else None)
        source = TrajectoryObjects(root, meshes, size)
        entries = read_index(self.index or self.networks / "index", "mixed", root).entries
        scores: dict[str, Any] = {}
        for uid, entry in list(entries.items())[: self.objects]:
            batch = source.make_batch(uid, entry.contexts, self.frames)
            scores[uid] = self._draw(batch, networks)
            print(f"wrote {self.out / FIGURE.format(uid)}")
        write_json(self.out / "result.json", {"psnr": scores, "provenance": collect_provenance()})

    def _draw(self, batch: "NVSBatch", networks: dict[str, Any]) -> dict[str, list[float]]:
        """Write the figure of an object; return the PSNR of every frame by method."""
        import torch

        from g_ray.viewer.theme import LIGHT, draw_contact_sheet, write_png
        from g_ray_lab.metrics.image_metrics import psnr
        from g_ray_lab.scoring.nvs_scorer import make_predictor

        truth = batch.target_images[0]
        with torch.no_grad():
            predicted = {name: make_predictor(network)(batch)[0] for name, network in networks.items()}
        scores = {name: psnr(truth[:, None], images[:, None]).tolist() for name, images in predicted.items()}
        columns, labels = make_columns(batch, predicted, scores)
        write_png(draw_contact_sheet(columns, labels, LIGHT), self.out / FIGURE.format(batch.names[0]))
        return scores


def load_networks(folder: Path) -> tuple[dict[str, Any], int]:
    """Load the first network of every row of a finished `nvs-objects`, and return the size of their images."""
    from g_ray.models.lvsm_config import METHODS
    from g_ray_lab.recipes.nvs_recipes import NVSRecipe
    from g_ray_lab.recipes.stored_recipe import read_recipe
    from g_ray_lab.scoring.study_job import load_network
    from g_ray_lab.sources.nvs_settings import ObjectsData
    from g_ray_lab.training.run_files import WEIGHTS

    files = {method: folder / "runs" / f"{method}-seed0" / WEIGHTS for method in METHODS}
    recipes = {method: read_recipe(path) for method, path in files.items() if path.is_file()}
    sizes = {
        recipe.data.width
        for recipe in recipes.values()
        if isinstance(recipe, NVSRecipe) and isinstance(recipe.data, ObjectsData)
    }
    if len(sizes) != 1:
        raise ValueError(
            f"--networks {folder}: no finished networks of one size in runs/; give the --out of nvs-objects"
        )
    return {name: load_network(recipe, files[name]) for name, recipe in recipes.items()}, sizes.pop()


def make_columns(
    batch: "NVSBatch", predicted: "dict[str, Tensor]", scores: dict[str, list[float]]
) -> "tuple[list[tuple[str, Tensor]], dict[str, list[str]]]":
    """Return the columns of a figure: the given views, then every frame, with rows of truth and methods; and labels."""
    import torch

    truth, names = batch.target_images[0], list(predicted)
    rows = 1 + len(names)
    contexts = torch.ones(rows, *truth.shape[1:])
    count = min(rows, batch.context_images.shape[1])
    contexts[:count] = batch.context_images[0, :count]
    columns = [("given", contexts)]
    labels = {"given": [f"context {row + 1}" if row < count else "" for row in range(rows)]}
    for frame, camera in enumerate(batch.targets.cameras):
        fov = 2 * torch.rad2deg(torch.atan(camera.width / 2 / camera.parameter("fx"))).item()
        column = f"{frame + 1}: {fov:.0f}°"
        columns.append((column, torch.stack([truth[frame], *(predicted[name][frame] for name in names)])))
        labels[column] = ["truth", *(f"{name} {scores[name][frame]:.1f}" for name in names)]
    return columns, labels
