"""Predictions on disk: a file per set, with the key of everything that it depends on.

OUT/predictions/SCENE--0008--03.npz     arrays, and `key`: JSON of hashes by what they are of
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.runtime.files import atomic_path
from g_ray_lab.scoring.running.set_prediction import PredictedSet, from_arrays, to_arrays

KEY, NOTES, COST = "key", "notes", "cpu_seconds"
Key = Mapping[str, str]
"""What a result depends on → its hash or value."""


def name_difference(stored: Key, wanted: Key) -> str | None:
    """Say what two keys differ in, or return None if they are equal."""
    other = [part for part in wanted if stored.get(part) != wanted[part]]
    return f"other {', '.join(other)}" if other else None


class PredictionCache:
    """Files of predictions; one that is damaged or belongs to something else counts as missing, with the reason."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_path(self, name: str) -> Path:
        """Return the file of a set."""
        return self.folder / f"{name}.npz"

    def load(self, name: str, key: Key, count: int) -> tuple[PredictedSet | None, str | None]:
        """Return the prediction of so many views, or None, and why a file that is there cannot be used."""
        path = self.get_path(name)
        if not path.is_file():
            return None, None
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {array: stored[array] for array in stored.files}
            reason = name_difference(json.loads(str(arrays[KEY])), key)
            if reason is not None:
                return None, reason
            notes = json.loads(str(arrays[NOTES]))
            return from_arrays(arrays, count, notes, float(arrays[COST])), None
        except (OSError, KeyError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
            return None, "it is damaged"

    def save(self, name: str, key: Key, predicted: PredictedSet) -> None:
        """Write a prediction in one atomic step."""
        arrays: dict[str, Any] = {
            **to_arrays(predicted),
            KEY: np.array(json.dumps(dict(key), sort_keys=True)),
            NOTES: np.array(json.dumps(list(predicted.notes))),
            COST: np.array(predicted.cpu_seconds),
        }
        with atomic_path(self.get_path(name)) as scratch, scratch.open("wb") as file:
            np.savez(file, **arrays)
