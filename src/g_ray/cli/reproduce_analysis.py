"""`g-ray reproduce runtime`, `attention`, `calibration-noise`, `calibration-estimated`: the paper's analysis section.

These tables train nothing: they measure networks that exist. Finished parts are kept in OUT/parts and reused.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray.cli.reproduce_tables import Scale

if TYPE_CHECKING:
    from g_ray.runtime.parts import Parts


@dataclass(frozen=True)
class Analysis(ABC):
    """Options that all measurements have."""

    out: Path
    """Folder for result.json, table.md and pictures; finished parts in it are reused."""
    scale: Scale = "small"
    """small: sizes for a CPU. paper: the settings of the paper, for GPUs and real data."""

    @abstractmethod
    def measure(self, parts: "Parts") -> dict[str, Any]:
        """Return the content of result.json."""

    @abstractmethod
    def format_tables(self, result: dict[str, Any]) -> str:
        """Return the tables as Markdown."""

    @abstractmethod
    def draw(self, result: dict[str, Any]) -> None:
        """Write the pictures beside the table."""

    def run(self) -> None:
        from g_ray.cli.reproduce_tables import is_study_folder
        from g_ray.runtime.files import strip_paths, write_atomically, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.parts import Parts
        from g_ray.runtime.provenance import collect_provenance

        claim_out(self.out, "reproduce", ours=is_study_folder(self.out))
        result = strip_paths(self.measure(Parts(self.out / "parts")))
        result = {"scale": self.scale, **result, "provenance": collect_provenance()}
        tables = self.format_tables(result)
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", tables + "\n")
        self.draw(result)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")


# Runtime and memory.


RUNTIME_VIEWS = (2, 4, 8, 16, 32, 50)
RUNTIME_SIZES = {"small": 112, "paper": 518}


@dataclass(frozen=True)
class Runtime(Analysis):
    """Seconds and peak memory with ray angles and with grid indices: one checkpoint, paired trials, 2 to 50 views."""

    weights: str | None = None
    """The checkpoint of all modes; by default g-ray-photos, at paper scale random weights of the paper's size."""
    views: tuple[int, ...] = RUNTIME_VIEWS
    size: int | None = None
    """Pixels per side; 112 by default, at paper scale 518."""
    trials: int = 12
    """Rounds of all modes. Multiples of 6 have every order of the modes equally often."""
    precision: str | None = None
    """fp32 or bf16; fp32 by default, at paper scale bf16."""
    device: str = "auto"
    """cpu (one thread, CPU seconds), cuda, …; auto takes a GPU where there is one."""

    def measure(self, parts: "Parts") -> dict[str, Any]:
        from g_ray.bench.paired_runtime import MODES, measure_runtime
        from g_ray.cli.text import ProgressLine
        from g_ray.predictors.settings import WEIGHTS
        from g_ray.training.distributed import choose_device

        device = str(choose_device(self.device, 0))
        settings = {
            "model": self.scale if self.scale == "paper" else "dino_small",
            "size": self.size or RUNTIME_SIZES[self.scale],
            "trials": self.trials,
            "precision": self.precision or {"small": "fp32", "paper": "bf16"}[self.scale],
            "device": device,
        }
        weights = self.weights or {"small": WEIGHTS, "paper": None}[self.scale]
        rows = measure_runtime(weights, self.views, **settings, parts=parts, progress=ProgressLine())
        unit = "CPU seconds on one thread" if device == "cpu" else "seconds"
        memory = "resident memory of the process" if device == "cpu" else "memory allocated on the GPU"
        return {
            "name": "runtime",
            "rows": rows,
            "settings": {**settings, "weights": weights, "modes": MODES, "unit": unit, "memory": memory},
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        from g_ray.bench.paired_runtime import format_runtime

        return format_runtime(result["rows"])

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.runtime_figure import draw_runtime
        from g_ray.viewer.theme import LIGHT, write_png

        write_png(draw_runtime(result["rows"], LIGHT), self.out / "runtime.png")
