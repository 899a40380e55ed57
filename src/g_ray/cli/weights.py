"""`g-ray weights`: convert, inspect, download and ship checkpoints."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from g_ray.models.foreign import LoadReport
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer


@dataclass(frozen=True)
class Convert:
    """Convert VGGT to a reconstruction model to start from, DINOv2 to an encoder, or RayRoPE's LVSM to ours."""

    source: tyro.conf.Positional[str]
    """A .safetensors, .pt or .pth file (only tensors are read), or a Hugging Face id such as facebook/VGGT-1B."""
    out: Path
    """The .safetensors file to write."""
    method: str | None = None
    """How the model uses cameras. VGGT: gray if not given; rope computes what VGGT computes. LVSM: a row of nvs-fov, or
    CONDITIONING+ENCODING such as plucker+none; rayrope if not given and the network predicts depths."""
    taps: tuple[int, int, int, int] = (4, 11, 17, 23)
    """Pairs of layers whose output VGGT's dense heads read."""
    depth: Literal["depth", "inverse", "asinh"] = "depth"
    """LVSM: depth coordinate of RayRoPE. Released networks have "depth", although their names say inv_d."""
    trained_on: Literal["re10k", "objects"] = "re10k"
    """LVSM: what it was trained on."""
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Precision of the file."""

    def run(self) -> None:
        from g_ray.runtime.out_folder import check_out_file

        check_out_file(self.out)
        try:
            kind, report = self._convert()
        except (LookupError, AttributeError, RuntimeError) as error:
            # Sizes are read off the shapes of tensors, which a partial checkpoint lacks.
            raise ValueError(
                f"{self.source} is only a part of a checkpoint ({type(error).__name__}: {str(error)[:80]}): "
                "download it again"
            ) from None
        print(f"{kind} weights")
        for line in report.format_lines():
            print(f"  {line}")
        print(f"wrote {self.out}")

    def _convert(self) -> "tuple[str, LoadReport]":
        import torch

        from g_ray.models.checkpoint import find_file
        from g_ray.models.convert import convert_checkpoint
        from g_ray.models.foreign import detect_kind, read_foreign
        from g_ray_lab.recipes.released_recipe import convert_released_lvsm

        state = read_foreign(find_file(self.source))
        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[self.dtype]
        if (kind := detect_kind(state)) == "lvsm":
            return kind, convert_released_lvsm(
                state,
                self.out,
                method=self.method,
                depth=self.depth,
                trained_on=self.trained_on,
                dtype=dtype,
            )
        return convert_checkpoint(state, self.out, method=self.method or "gray", taps=self.taps, dtype=dtype)


@dataclass(frozen=True)
class Show:
    """Print the config and the size of a reconstruction checkpoint, ours or VGGT's."""

    source: tyro.conf.Positional[str]
    """A file, a folder with model.safetensors or a Hugging Face id."""

    def run(self) -> None:
        from g_ray.models.checkpoint import load_reconstruction
        from g_ray.models.vggt import load_vggt
        from g_ray.predictors.detection import detect_model

        load = {"network": load_reconstruction, "vggt": load_vggt}[detect_model(self.source)]
        model = load(self.source)
        for name, value in vars(model.config).items():
            print(f"{name}: {value}")
        for name, part in model.named_children():
            print(f"{name}: {sum(parameter.numel() for parameter in part.parameters()):,} parameters")


@dataclass(frozen=True)
class Lpips:
    """Download the LPIPS weights (AlexNet, v0.1) into the cache, once; training and tables use them from there."""

    def run(self) -> None:
        from g_ray_lab.metrics.lpips_weights import fetch_weights

        fetch_weights()


@dataclass(frozen=True)
class Ship:
    """Put the weights of a finished run into the package, with log and model card. For maintainers."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of a finished g-ray train."""
    name: tyro.conf.Positional[str]
    """Name of the weights."""
    folder: Path | None = None
    """Folder for the files; the package's own if not given."""
    scenes: int = 256
    """Test rooms, or sets of views from --tests, to score them on."""
    tests: Path | None = None
    """Networks trained on scene folders: folder with NAME-test-pinhole, -zoom, -mixed, -fisheye to score them on."""
    photos: Path | None = None
    """Beside --tests: a scene folder with depth, whose last 40 % of frames are scored too."""
    size: int | None = None
    """Long side in pixels that `g-ray reconstruct` gives a reconstruction network, if another than in training."""

    def run(self) -> None:
        import json

        from g_ray.models.checkpoint import FOLDER
        from g_ray_lab.recipes.shipping import ship_run

        folder = self.folder or FOLDER
        card = ship_run(self.run_folder, self.name, folder, self.scenes, self._build_tests(), self.size)
        path = folder / f"{self.name}.safetensors"
        print(f"{path}: {card['bytes'] / 1e6:.1f} MB, {json.dumps(card['scores'])}")

    def _build_tests(self) -> "FoldersScorer | None":
        from g_ray_lab.recipes.stored_recipe import read_recipe
        from g_ray_lab.tables.reproduce import build_folders_scorer
        from g_ray_lab.training.training_checkpoint import WEIGHTS

        if self.tests is None:
            return None
        recipe = read_recipe(self.run_folder / WEIGHTS)
        return build_folders_scorer(recipe, self.tests, self.photos, self.scenes)


@dataclass(frozen=True)
class Weights:
    """Convert weights of VGGT, DINOv2 and LVSM, inspect checkpoints, download LPIPS, ship weights with the package."""

    what: (
        Annotated[Convert, tyro.conf.subcommand("convert")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Lpips, tyro.conf.subcommand("lpips")]
        | Annotated[Ship, tyro.conf.subcommand("ship")]
    )

    def run(self) -> None:
        self.what.run()
