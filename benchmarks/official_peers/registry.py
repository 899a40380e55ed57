"""Peers by the names of `g-ray reconstruct --model`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from official_peers import calls, loaders, networks


@dataclass(frozen=True)
class OfficialPeer:
    """How a peer is built, called, and given photographs."""

    build: Callable[[], nn.Module]
    call: calls.Official
    load_images: Mapping[str, loaders.Loader] = field(default_factory=dict)
    """By the value of `--fit` that they belong to."""


OFFICIAL: dict[str, OfficialPeer] = {
    "vggt": OfficialPeer(
        networks.build_vggt, calls.call_vggt, {"crop": loaders.load_vggt, "pad": loaders.load_vggt_padded}
    ),
    "vggt-omega": OfficialPeer(networks.build_omega, calls.call_omega, {"crop": loaders.load_omega}),
    "pi3": OfficialPeer(networks.build_pi3, calls.call_pi3, {"crop": loaders.load_pi3}),
    "pi3x": OfficialPeer(networks.build_pi3x, calls.call_pi3x, {"crop": loaders.load_pi3}),
    "omnivggt": OfficialPeer(networks.build_omnivggt, calls.call_omnivggt),
    "da3": OfficialPeer(networks.build_da3, calls.call_da3, {"crop": loaders.load_da3}),
    "worldmirror": OfficialPeer(networks.build_worldmirror, calls.call_worldmirror),
    "moge": OfficialPeer(networks.build_moge, calls.call_moge),
    "unik3d": OfficialPeer(networks.build_unik3d, calls.call_unik3d),
    "mapanything": OfficialPeer(
        networks.build_mapanything, calls.call_mapanything, {"crop": loaders.load_mapanything}
    ),
}
