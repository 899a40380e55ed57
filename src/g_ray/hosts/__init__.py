"""Released networks with another position encoding, by one line: `adapt(model)`.

A host is found by the name of the network's class, so no package of a network is imported here.
"""

from typing import Any

from torch import nn

from g_ray.hosts.adapted import Adapted
from g_ray.hosts.da3_host import DA3Host
from g_ray.hosts.dino_host import DINOHost
from g_ray.hosts.dust3r_host import DUSt3RHost
from g_ray.hosts.host_base import Host
from g_ray.hosts.lvsm_host import LVSMHost
from g_ray.hosts.pi3_host import Pi3Host
from g_ray.hosts.timm_host import TimmHost
from g_ray.hosts.vggt_host import VGGTHost
from g_ray.hosts.wan_host import WanHost

__all__ = ["HOSTS", "Adapted", "Host", "adapt", "find_host"]

HOSTS: dict[str, Host] = {
    "vggt": VGGTHost(),
    "pi3": Pi3Host(),
    "da3": DA3Host(),
    "dust3r": DUSt3RHost(),
    "lvsm": LVSMHost(),
    "dino": DINOHost(),
    "timm": TimmHost(),
    "wan": WanHost(),
}


def adapt(model: nn.Module, encoding: str = "gray", **options: Any) -> Adapted:
    """Give a released network another position encoding: `adapted(images, cameras=cameras, poses=poses)`.

    Its parameters are shared, and nothing of the model is changed; `adapted.original` is the model. `encoding` is a
    name from ENCODINGS, with the encoding's options; "rope" computes the network's own coordinates.

    >>> import g_ray
    >>> adapted = g_ray.adapt(model, encoding="gray")  # doctest: +SKIP
    >>> out = adapted(images, cameras=cameras)  # doctest: +SKIP
    """
    return Adapted(model, find_host(model), encoding, options)


def find_host(model: nn.Module) -> Host:
    """Find the host of a network by its classes' qualified names; a subclass is found by its base."""
    for kind in type(model).__mro__:
        name = f".{kind.__module__}.{kind.__qualname__}"
        for host in HOSTS.values():
            # The package may be a copy inside another: third_party.vggt.models.vggt.VGGT.
            if any(name.endswith(f".{known}") for known in host.CLASSES):
                return host
    known = ", ".join(host.TITLE for host in HOSTS.values())
    raise ValueError(
        f"no adapter for {type(model).__qualname__}: there are adapters for {known}; "
        "for another network call g_ray.attention in its layers"
    )
