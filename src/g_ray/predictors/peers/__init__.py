"""PEERS: models of others behind `Predictor`, with what each takes. Importing this does not import torch or a peer.

A new peer is a class in a file here and a line in PEERS. Adapters import a peer's own package when it is loaded.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from g_ray.predictors.model_settings import ModelSettings

# What a peer takes and gives


Lenses = Literal["pinhole", "forward", "any"]
"""Images that a peer understands: of pinholes; of any lens whose rays all point forward (z > 0); of any lens.

Photographs that a peer does not understand reach it as virtual pinholes.
"""

Calibration = Literal["no", "yes", "with poses"]
"""Whether a peer takes calibration, and whether it uses it without poses."""

Poses = Literal["no", "all", "first", "two"]
"""Whether a peer takes poses: of all views, of some with the first among them, or of two views or more."""


@dataclass(frozen=True)
class PeerCard:
    """One line of `PEERS`."""

    title: str
    adapter: str
    """module:class below `g_ray.predictors.peers`."""
    package: str | None
    """What must be importable; None for what g-ray implements itself."""
    install: str
    """The command that brings the package."""
    weights: str
    """Hugging Face id or file that is loaded without --weights."""
    license: str
    """License of the weights."""
    lenses: Lenses = "pinhole"
    calibration: Calibration = "no"
    poses: Poses = "no"
    many: bool = True
    """Whether it compares views; otherwise it estimates depth of single photographs."""
    metric: bool = False
    """Whether its depth is in meters."""
    poses_alone: bool = False
    """Whether it takes poses without calibration."""
    takes: str | None = None
    """What it takes of a calibration, where that is less than all of it."""
    side: int = 518
    """Long side of its input in pixels without --size; of 3:2 photographs, where it keeps to a number of pixels."""

    def takes_calibration(self, with_poses: bool) -> bool:
        """Return whether it uses a calibration that it is given with or without poses."""
        return self.calibration == "yes" or (self.calibration == "with poses" and with_poses)

    def describe_inputs(self) -> str:
        """Describe in a few words what it takes in addition to photographs."""
        if self.calibration == "no":
            taken = []
        elif self.calibration == "with poses":
            taken = ["calibration together with poses"]
        else:
            rays = {"pinhole": "intrinsics", "forward": "rays with z > 0", "any": "rays of any lens"}
            taken = [self.takes or rays[self.lenses]]
        if self.poses != "no" and self.calibration != "with poses":
            taken.append("poses")
        return ", ".join(taken) or "nothing"


if TYPE_CHECKING:
    from g_ray.predictors.peers.peer_predictor import PeerPredictor

__all__ = ["PEERS", "PeerCard", "make_peer"]

PEERS: dict[str, PeerCard] = {
    "vggt": PeerCard(
        "VGGT",
        "vggt_family:NativeVGGT",
        package=None,
        install="pip install 'g-ray[hub]' to download the weights",
        weights="facebook/VGGT-1B",
        license="non-commercial; facebook/VGGT-1B-Commercial (gated) has a license of its own",
    ),
    "vggt-omega": PeerCard(
        "VGGT-Omega",
        "vggt_family:VGGTOmega",
        package="vggt_omega",
        install="pip install git+https://github.com/facebookresearch/vggt-omega",
        weights="facebook/VGGT-Omega",
        license="FAIR non-commercial, gated",
        side=512,
    ),
    "pi3": PeerCard(
        "π³",
        "pi3:Pi3",
        package="pi3",
        install="pip install git+https://github.com/yyfz/Pi3",
        weights="yyfz233/Pi3",
        license="CC BY-NC 4.0",
        side=616,
    ),
    "pi3x": PeerCard(
        "π³-X",
        "pi3:Pi3X",
        package="pi3",
        install="pip install git+https://github.com/yyfz/Pi3",
        weights="yyfz233/Pi3X",
        license="CC BY-NC 4.0",
        lenses="forward",
        calibration="yes",
        poses="two",
        metric=True,
        side=616,
    ),
    "mapanything": PeerCard(
        "MapAnything",
        "mapanything:MapAnything",
        package="mapanything",
        install="pip install git+https://github.com/facebookresearch/map-anything",
        weights="facebook/map-anything",
        license="CC BY-NC 4.0; facebook/map-anything-apache: Apache-2.0",
        lenses="any",
        calibration="yes",
        poses="first",
        poses_alone=True,
        metric=True,
    ),
    "da3": PeerCard(
        "DA3",
        "da3:DepthAnything3",
        package="depth_anything_3",
        install="pip install git+https://github.com/ByteDance-Seed/Depth-Anything-3",
        weights="depth-anything/DA3-LARGE-1.1",
        license="CC BY-NC 4.0; DA3-SMALL and DA3-BASE: Apache-2.0",
        calibration="with poses",
        poses="all",
        side=504,
    ),
    "da3-nested": PeerCard(
        "DA3-Nested",
        "da3:DepthAnything3",
        package="depth_anything_3",
        install="pip install git+https://github.com/ByteDance-Seed/Depth-Anything-3",
        weights="depth-anything/DA3NESTED-GIANT-LARGE-1.1",
        license="CC BY-NC 4.0",
        calibration="with poses",
        poses="all",
        metric=True,
        side=504,
    ),
    "worldmirror": PeerCard(
        "WorldMirror",
        "worldmirror:WorldMirror",
        package="src",
        install="git clone https://github.com/Tencent-Hunyuan/HunyuanWorld-Mirror, and put the folder on PYTHONPATH",
        weights="tencent/HunyuanWorld-Mirror",
        license="Tencent community license; not for the EU, the UK and South Korea",
        calibration="yes",
        poses="all",
        poses_alone=True,
    ),
    "omnivggt": PeerCard(
        "OmniVGGT",
        "vggt_family:OmniVGGT",
        package="omnivggt",
        install="git clone https://github.com/Livioni/OmniVGGT-official, and put the folder on PYTHONPATH",
        weights="Livioni/OmniVGGT",
        license="see its model card",
        calibration="with poses",
        poses="first",
    ),
    "any3r": PeerCard(
        "Any3R",
        "any3r:Any3R",
        package="any3r",
        install="pip install -e . in a clone of the repository that its model card names",
        weights="Jingong/Any3R",
        license="see its model card",
        lenses="any",
        calibration="yes",
    ),
    "wid3r": PeerCard(
        "Wid3R",
        "pi3:Wid3R",
        package="wid3r",
        install="git clone https://github.com/jdk9405/Wid3R, and put the folder on PYTHONPATH",
        weights="wid3r.bin",
        license="none stated",
        lenses="any",
        calibration="yes",
        takes="the type of lens",
        side=616,
    ),
    "moge": PeerCard(
        "MoGe-2",
        "single_view:MoGe",
        package="moge",
        install="pip install git+https://github.com/microsoft/MoGe",
        weights="Ruicheng/moge-2-vitl-normal",
        license="MIT",
        calibration="yes",
        takes="the horizontal field of view",
        many=False,
        metric=True,
        side=1024,
    ),
    "unik3d": PeerCard(
        "UniK3D",
        "single_view:UniK3D",
        package="unik3d",
        install="pip install git+https://github.com/lpiccinelli-eth/UniK3D",
        weights="lpiccinelli/unik3d-vitl",
        license="CC BY-NC-SA 4.0",
        lenses="any",
        calibration="yes",
        many=False,
        metric=True,
        side=1024,
    ),
}


def make_peer(name: str, settings: ModelSettings) -> "PeerPredictor":
    """Load a peer by its name; raises OSError naming the missing package."""
    from g_ray.predictors.peers.peer_predictor import PeerPredictor

    card = PEERS[name]
    module, adapter = card.adapter.split(":")
    make = getattr(import_module(f"g_ray.predictors.peers.{module}"), adapter)
    return PeerPredictor(name, card, make(card, settings), settings)
