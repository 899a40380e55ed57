"""Files of a run: its log, and checkpoints that are written atomically, verified, and compared with the recipe."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from g_ray.models.weights import CheckpointError, read_weights
from g_ray.runtime.files import write_atomically, write_json


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted keys: {"optimizer": {"clip": 1.0}} → {"optimizer.clip": 1.0}."""
    flattened: dict[str, Any] = {}
    for key, value in settings.items():
        nested = isinstance(value, Mapping) and value
        flattened |= flatten_settings(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flattened


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return `key: old → new` for every setting that differs."""
    old, new = flatten_settings(before), flatten_settings(now)
    missing = "(not set)"
    return [
        f"{key}: {old.get(key, missing)} → {new.get(key, missing)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, missing) != new.get(key, missing)
    ]


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], where: object, allow: bool) -> list[str]:
    """Return the differences if they are allowed, or raise ValueError with them. The names of runs may differ."""
    changed = list_differences(_select_decisive(before), _select_decisive(now))
    if changed and not allow:
        raise ValueError(
            f"{where} was started differently ({'; '.join(changed)}): use the same settings, another --out, "
            "or --allow-changes to continue all the same"
        )
    return changed


def _select_decisive(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {**identity["settings"], "kind": identity["kind"], "processes": identity["processes"]}


# Atomic checkpoints.
#
# A checkpoint is a folder `step-00001000` with the weights, the state and JSON documents. It is written under a
# temporary name, flushed to the disk and renamed, so an interruption leaves earlier checkpoints unchanged and no
# incomplete one. A manifest with sizes and digests detects checkpoints that were damaged later.


WEIGHTS, STATE, MANIFEST = "model.safetensors", "state.pt", "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
TEMPORARY = ".tmp-"
PROBE_BYTES = 512
"""Written before a run starts: a folder may look writable and be full, or over its quota."""


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint."""

    path: Path

    @property
    def step(self) -> int:
        match = NAME.fullmatch(self.path.name)
        assert match is not None
        return int(match[1])

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    def read_document(self, name: str) -> dict[str, Any]:
        """recipe, provenance or manifest."""
        return json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))

    def read_validation(self) -> float | None:
        return self.read_document("manifest").get("validation")

    def is_validated(self) -> bool:
        """Whether validation has run, even if it gave no number; earlier versions ran it before saving."""
        return self.read_document("manifest").get("validated", True)

    def find_damage(self) -> str | None:
        """Compare every file with its size and digest; return what is wrong, or None."""
        try:
            files = self.read_document("manifest")["files"]
            for name, entry in files.items():
                if entry != _compute_fingerprint(self.path / name):
                    return f"{name} is not what was written"
        except (OSError, ValueError, KeyError) as error:
            return " ".join(str(error).split())
        return None

    def load_weights(self) -> dict[str, Tensor]:
        return read_weights(self.weights)

    def load_state(self) -> dict[str, Any]:
        """Tensors and plain values only: loading it cannot run code."""
        return torch.load(self.path / STATE, map_location="cpu", weights_only=True)


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of a run."""

    folder: Path
    keep: int = 2
    milestone_every: int | None = None
    milestones: tuple[int, ...] = ()

    def list_checkpoints(self) -> list[Checkpoint]:
        """Oldest first."""
        paths = self.folder.glob("step-*") if self.folder.is_dir() else []
        return sorted(
            (Checkpoint(path) for path in paths if NAME.fullmatch(path.name)),
            key=lambda checkpoint: checkpoint.step,
        )

    def find_newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest undamaged checkpoint, and a line for each newer one that is damaged."""
        notes = []
        for checkpoint in reversed(self.list_checkpoints()):
            damage = checkpoint.find_damage()
            if damage is None:
                return checkpoint, notes
            notes.append(f"{checkpoint.path} is damaged ({damage}); trying the one before")
        return None, notes

    def clean(self) -> None:
        """Remove what a killed run left half-written or half-deleted."""
        for path in self.folder.glob(f"{TEMPORARY}*") if self.folder.is_dir() else []:
            shutil.rmtree(path, ignore_errors=True)

    def save(
        self,
        step: int,
        weights: Mapping[str, Tensor],
        state: Mapping[str, Any],
        documents: Mapping[str, Mapping[str, Any]],
        validation: float | None = None,
        *,
        validated: bool = True,
    ) -> Checkpoint:
        """Write a checkpoint, then delete those that are no longer needed.

        Without `validated`, `record_validation` is to come.
        """
        final = self.folder / f"step-{step:08d}"
        scratch = self.folder / f"{TEMPORARY}{final.name}"
        try:
            scratch.mkdir(parents=True)
            _write_all(scratch, step, weights, state, documents, validation, validated)
            if final.exists():  # only a damaged one can stand here
                self._delete(final)
            scratch.rename(final)
            _flush(self.folder)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise CheckpointError(self._format_failure(step, error)) from error
        self.rotate()
        return Checkpoint(final)

    def record_validation(self, step: int, validation: float | None) -> None:
        """Add the validation to a saved checkpoint; it comes after saving, so that it can fail without a loss."""
        path = self.folder / f"step-{step:08d}" / MANIFEST
        document = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {**document, "validation": validation, "validated": True}, indent=2)
        self.rotate()

    def check_space(self, needed: int) -> None:
        """Raise CheckpointError if the folder cannot be written to, or has no room for a checkpoint of that size."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(bytes(PROBE_BYTES))
                probe.flush()
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise CheckpointError(
                f"checkpoints cannot be written to {self.folder} ({error.strerror or error}): choose another --out"
            ) from None
        if free < needed:
            raise CheckpointError(
                f"a checkpoint takes about {needed / 1e6:.2f} MB, but {self.folder} has {free / 1e6:.2f} MB of free "
                "space: free some, or choose another --out"
            )

    def rotate(self) -> None:
        """Keep the newest, the best validated and the milestones."""
        checkpoints = self.list_checkpoints()
        kept = set(checkpoints[-self.keep :])
        kept |= {checkpoint for checkpoint in checkpoints if checkpoint.step in self.milestones}
        if self.milestone_every:
            kept |= {checkpoint for checkpoint in checkpoints if checkpoint.step % self.milestone_every == 0}
        scores = {c: score for c in checkpoints if (score := c.read_validation()) is not None}
        if scores:
            kept.add(min(scores, key=lambda checkpoint: scores[checkpoint]))
        for checkpoint in checkpoints:
            if checkpoint not in kept:
                self._delete(checkpoint.path)

    def _delete(self, path: Path) -> None:
        """Rename before deleting, so that an interruption leaves no incomplete checkpoint under its name."""
        grave = path.with_name(f"{TEMPORARY}old-{path.name}")
        shutil.rmtree(grave, ignore_errors=True)
        path.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)

    def _format_failure(self, step: int, error: Exception) -> str:
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        left = self.list_checkpoints()
        intact = f"the one of step {left[-1].step} is intact" if left else "there is no earlier one"
        return f"could not save the checkpoint of step {step} in {self.folder} ({reason}); {intact}"


def _write_all(
    scratch: Path,
    step: int,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Any],
    documents: Mapping[str, Mapping[str, Any]],
    validation: float | None,
    validated: bool,
) -> None:
    # The recipe travels inside the weights, so that one file is enough to rebuild the model.
    metadata = {"format": "pt", "step": str(step), "recipe": json.dumps(documents.get("recipe"))}
    save_file(_unshare(weights), scratch / WEIGHTS, metadata=metadata)
    torch.save(dict(state), scratch / STATE)
    for name, document in documents.items():
        _write_json(scratch / f"{name}.json", document)
    files = {path.name: _compute_fingerprint(path) for path in sorted(scratch.iterdir())}
    _write_json(
        scratch / MANIFEST, {"step": step, "validation": validation, "validated": validated, "files": files}
    )
    for path in scratch.iterdir():
        _flush(path)
    _flush(scratch)


def _unshare(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors that share no memory, as safetensors requires; tied weights are written twice."""
    pointers: set[int] = set()
    separate = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().contiguous()
        pointer = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if pointer in pointers else tensor
        pointers.add(pointer)
    return separate


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _compute_fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _flush(path: Path) -> None:
    """Write a file or folder to the disk itself, not only to the system's cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# The log of a run: metrics.jsonl, TensorBoard events and sample pictures

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
