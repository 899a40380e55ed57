"""`g-ray weights`: convert and inspect checkpoints; the laboratory adds `lpips` and `ship`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, Union

import tyro

from g_ray.cli.commands import load_converter, load_subcommands

if TYPE_CHECKING:
    from g_ray.models.weights import LoadReport


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

        from g_ray.models.foreign_weights import convert_checkpoint, detect_kind, read_foreign
        from g_ray.models.weights import find_file

        state = read_foreign(find_file(self.source))
        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[self.dtype]
        if (kind := detect_kind(state)) == "lvsm":
            return kind, load_converter(kind)(
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
        from g_ray.models.vggt import load_vggt
        from g_ray.models.weights import load_reconstruction
        from g_ray.predictors.network_predictor import detect_model

        load = {"network": load_reconstruction, "vggt": load_vggt}[detect_model(self.source)]
        model = load(self.source)
        for name, value in vars(model.config).items():
            print(f"{name}: {value}")
        for name, part in model.named_children():
            print(f"{name}: {sum(parameter.numel() for parameter in part.parameters()):,} parameters")


AnyCommand = TypeVar("AnyCommand")


@dataclass(frozen=True)
class Weights(Generic[AnyCommand]):
    """Convert weights of VGGT, DINOv2 and LVSM, and inspect checkpoints."""

    what: AnyCommand

    @staticmethod
    def prepare(words: Sequence[str]) -> tuple[Any, Sequence[str], None]:
        """Return the type to parse: with the subcommands that other distributions add."""
        kinds = {"convert": Convert, "show": Show, **load_subcommands("weights")}
        choices = tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items())
        return Weights[Union[choices]], words, None  # noqa: UP007 (of a tuple)

    def run(self) -> None:
        self.what.run()  # pyright: ignore[reportAttributeAccessIssue]
