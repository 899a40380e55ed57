"""The log of a run: metrics.jsonl, TensorBoard events and sample pictures."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.runtime.files import write_atomically

METRICS = "metrics.jsonl"
MAX_PER_STEP = 2
"""Entries of one step: its means, and its validation."""


class History:
    """Log of a run from step `first` on. Later entries, left by a killed run, are removed: they are repeated."""

    def __init__(self, folder: Path, first: int, tensorboard: bool) -> None:
        self.folder = folder
        _keep_until(folder / METRICS, first)
        self._file = (folder / METRICS).open("a", encoding="utf-8")
        self.note: str | None = None
        self._events = self._open_events(first) if tensorboard else None

    def _open_events(self, first: int) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            self.note = f"no TensorBoard here (pip install 'g-ray[lab]'): metrics go to {METRICS} only"
            return None
        return SummaryWriter(str(self.folder / "tensorboard"), purge_step=first + 1 if first else None)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write metrics after `step` steps."""
        try:
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._explain(error) from None
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, step)

    def has_validation(self, step: int) -> bool:
        """Whether a run that was killed right after validating has left its entry."""
        entries = read_metrics(self.folder)
        return any(entry["step"] == step and "validation" in entry for entry in entries[-MAX_PER_STEP:])

    def add_images(self, step: int, images: Float[Tensor, "n 3 height width"]) -> Path:
        """Write the pictures side by side as samples/step-….png."""
        strip = images.detach().float().cpu().clamp(0, 1)
        pixels = (strip.permute(2, 0, 3, 1).flatten(1, 2) * 255).round().byte().numpy()
        path = self.folder / "samples" / f"step-{step:08d}.png"
        try:
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(pixels).save(path)
        except OSError as error:
            raise self._explain(error) from None
        if self._events is not None:
            self._events.add_images("samples", strip, step)
        return path

    def _explain(self, error: OSError) -> OSError:
        return OSError(
            f"the log in {self.folder} cannot be written ({error.strerror or error}): free some space"
        )

    def __enter__(self) -> "History":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing writes once more what could not be written; that was reported.
        with suppress(OSError):
            self._file.close()
        if self._events is not None:
            self._events.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the entries of metrics.jsonl; an incomplete last line, left by a killed run, is ignored."""
    entries = []
    for line in (folder / METRICS).read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return entries


def _keep_until(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = [entry for entry in read_metrics(path.parent) if entry["step"] <= step]
    write_atomically(path, "".join(json.dumps(entry) + "\n" for entry in kept))
