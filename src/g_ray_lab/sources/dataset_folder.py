"""The folder of a data set that is made here: it keeps its settings, and refuses others."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_json
from g_ray.runtime.out_folder import check_out

DATASET = "dataset.json"


def claim_folder(root: Path, settings: Any) -> None:
    """Note the settings (a dataclass) in the folder, or refuse it if it was made with others."""
    path = root / DATASET
    wanted = json.loads(json.dumps(asdict(settings)))  # as the file has it: lists, not tuples
    if not path.exists():
        check_out(root)
        write_json(path, wanted)
        return
    try:
        stored = dict(json.loads(path.read_text()))
    except ValueError:
        raise ValueError(f"{path} is not the settings file of a data set; choose another --out") from None
    others = [
        f"{key} {stored.get(key)} instead of {value}"
        for key, value in wanted.items()
        if stored.get(key) != value
    ]
    if others:
        raise ValueError(f"{root} was made with {', '.join(others)}; use the same settings, or another --out")
