"""`g-ray weights`: checkpoints of others become ours; what is in one of ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Convert:
    """VGGT becomes a reconstruction model to start from, DINOv2 with registers an encoder; tensors only are read."""

    source: tyro.conf.Positional[str]
    """A .safetensors, .pt or .pth file, or a Hugging Face id such as facebook/VGGT-1B."""
    out: Path
    """The .safetensors file to write."""
    method: str = "gray"
    """What the model shall know of cameras; "rope" computes what VGGT computes."""
    taps: tuple[int, int, int, int] = (4, 11, 17, 23)
    """Pairs that VGGT's dense heads look at."""
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Precision of the file."""

    def run(self) -> None:
        import torch

        from g_ray.models.convert import convert_checkpoint

        kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        kind, report = convert_checkpoint(
            self.source, self.out, method=self.method, taps=self.taps, dtype=kinds[self.dtype]
        )
        print(f"{kind} weights")
        for line in report.format_lines():
            print(f"  {line}")
        print(f"wrote {self.out}")


@dataclass(frozen=True)
class Show:
    """The config and the size of a reconstruction checkpoint."""

    source: tyro.conf.Positional[str]
    """A file, a folder with model.safetensors or a Hugging Face id."""

    def run(self) -> None:
        from g_ray.models.checkpoint import load_reconstruction

        model = load_reconstruction(self.source)
        for name, value in vars(model.config).items():
            print(f"{name}: {value}")
        for name, part in model.named_children():
            print(f"{name}: {sum(parameter.numel() for parameter in part.parameters()):,} parameters")


@dataclass(frozen=True)
class Weights:
    """Convert weights of VGGT and DINOv2, and look into ours."""

    what: Annotated[Convert, tyro.conf.subcommand("convert")] | Annotated[Show, tyro.conf.subcommand("show")]

    def run(self) -> None:
        self.what.run()
