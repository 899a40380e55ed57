"""A protocol of several protocols: the columns of each are a group of the table, such as a shape of the test images."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from g_ray_lab.scoring.nvs_scorer import NVSProtocol
from g_ray_lab.scoring.rendered_protocols import FovProtocol
from g_ray_lab.scoring.shard import Shard
from g_ray_lab.scoring.study import GROUP
from g_ray_lab.sources.batches import NVSBatch


@dataclass(frozen=True)
class GroupedProtocol(NVSProtocol):
    """Protocols by the name of their group; the first one is the table of record, and the one that is drawn."""

    parts: Mapping[str, NVSProtocol]

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(
            f"{name}{GROUP}{setting}" for name, part in self.parts.items() for setting in part.settings
        )

    @property
    def shown_setting(self) -> str:
        name, part = next(iter(self.parts.items()))
        return f"{name}{GROUP}{part.shown_setting}"

    @property
    def digest(self) -> str:
        digests = {name: part.digest for name, part in self.parts.items()}
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]

    def describe_settings(self) -> dict[str, Any]:
        parts = {name: part.describe_settings() for name, part in self.parts.items()}
        return {"parts": parts} if self.limit is None else {"parts": parts, "limit": self.limit}

    def select(self, shard: Shard) -> "GroupedProtocol":
        parts = {name: part.select(shard) for name, part in self.parts.items()}
        return GroupedProtocol(parts, shard=shard, limit=self.limit)

    def limit_scenes(self, limit: int | None) -> "GroupedProtocol":
        parts = {name: part.limit_scenes(limit) for name, part in self.parts.items()}
        return GroupedProtocol(parts, shard=self.shard, limit=limit)

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        name, _, part = setting.partition(GROUP)
        return self.parts[name].make_batches(part)


def make_shapes(square: FovProtocol, *, factors: bool = True) -> GroupedProtocol:
    """Return the paper's change of shape between training and test, in rooms, for networks trained on square images.

    RealEstate10K is trained on square crops of 256×256 and tested at 256×144 with the vertical field of view of
    training: the focal length is 0.5625 of the trained one in pixels, so that in units of the image fx/W shrinks while
    fy/H stays. Half the height here, because 9/16 of 36 px are no whole patches of 6. `factors` adds one change at a
    time: `aspect` cuts off rows and keeps the focal length, `fov` halves the focal length and stays square.
    """
    side, half = square.height, square.height // 2
    if square.width != side:
        raise ValueError(f"{square.width}×{side} px: the change of shape starts from square images")
    parts: dict[str, NVSProtocol] = {
        "wide": square.reshape(side, half, fov_px=half),
        "square": square,
    }
    if factors:
        parts["aspect"] = square.reshape(side, half, fov_px=side)
        parts["fov"] = square.reshape(side, side, fov_px=half)
    return GroupedProtocol(parts)
