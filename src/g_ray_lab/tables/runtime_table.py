"""`g-ray reproduce runtime`: seconds and peak memory, paired trials of one checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.paper_table import Measured, Table

if TYPE_CHECKING:
    from g_ray_lab.tables.dry_run import Part

RUNTIME_VIEWS = (2, 4, 8, 16, 32, 50)
RUNTIME_SIZES = {"small": 112, "paper": 518}


@dataclass(frozen=True)
class Runtime(Table):
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

    def measure(self) -> Measured:
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.bench.paired_runtime import MODES, format_runtime, measure_runtime
        from g_ray_lab.scoring.store import Store

        weights, settings = self.choose_settings()
        store = Store(self.out / "parts")
        rows = measure_runtime(weights, self.views, **settings, store=store, progress=ProgressLine())
        is_cpu = settings["device"] == "cpu"
        unit = "CPU seconds on one thread" if is_cpu else "seconds"
        memory = "resident memory of the process" if is_cpu else "memory allocated on the GPU"
        units = {"modes": MODES, "unit": unit, "memory": memory}
        result = {"name": "runtime", "rows": rows, "settings": {**settings, "weights": weights, **units}}
        return Measured(result, format_runtime(rows))

    def choose_settings(self) -> tuple[str | None, dict[str, Any]]:
        """Return the weights and what else a measurement depends on."""
        from g_ray.predictors.model_settings import WEIGHTS
        from g_ray.runtime.device import choose_device

        settings = {
            "model": self.scale if self.scale == "paper" else "dino_small",
            "size": self.size or RUNTIME_SIZES[self.scale],
            "trials": self.trials,
            "precision": self.precision or {"small": "fp32", "paper": "bf16"}[self.scale],
            "device": str(choose_device(self.device)),
        }
        return self.weights or {"small": WEIGHTS, "paper": None}[self.scale], settings

    def list_parts(self) -> "Iterator[Part]":
        """Yield one run for every number of views; a trial runs every mode, and memory is measured once more."""
        from g_ray_lab.bench.paired_runtime import MODES, RuntimeCase
        from g_ray_lab.tables.dry_run import Part, Unit

        weights, settings = self.choose_settings()
        trials = settings.pop("trials")
        for views in self.views:
            case = RuntimeCase(weights, views=views, **settings)

            def prepare(case: RuntimeCase = case) -> Unit:
                network = case.build_network()
                return Unit(lambda: case.run(network), lambda: len(MODES) * (trials + 2))

            yield Part(f"{views} views", prepare)

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures import draw_runtime

        write_png(draw_runtime(result["rows"], LIGHT), self.out / "runtime.png")
