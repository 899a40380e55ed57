"""A released network whose attention compares rays: same parameters, cameras as an argument of the call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.hosts.host_base import Host, HostCall
from g_ray.rays.views import Views


class Adapted(nn.Module):
    """A network with another position encoding. `original` is the network itself, which nothing here changes.

    Parameters, buffers, submodules and the state dict are those of the original, under the same names.
    """

    original: nn.Module

    def __init__(self, original: nn.Module, host: Host, name: str, options: dict[str, Any]) -> None:
        super().__init__()
        # Not registered as a submodule: all names would get a prefix.
        self.__dict__["original"] = original
        for part in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[part] = original.__dict__[part]
        self.training = original.training
        self.host, self.name = host, name
        self.encodings = host.build_encodings(original, name, options)

    def forward(
        self,
        *args: Any,
        cameras: Sequence[Camera] | Views,
        poses: Pose | Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call the network. All arguments but the cameras (one per view) and poses are its own.

        Networks that take `poses` themselves: give `cameras=Views(cameras, poses)`; `poses` is then theirs.
        """
        if isinstance(cameras, Views):
            kwargs = kwargs if poses is None else {**kwargs, "poses": poses}
        else:
            cameras = Views(cameras, poses)
        bound: Any = self.bind(cameras, args, kwargs)  # pyright: ignore[reportCallIssue]
        return bound(*args, **kwargs)

    # A compiler begins behind it, with positions as inputs: new cameras need no new code.
    @torch.compiler.disable
    def bind(self, views: Views, args: tuple = (), kwargs: dict[str, Any] | None = None) -> nn.Module:
        """Rebuild the network for one call, with positions computed: a module over the same parameters.

        It holds what belongs to this call alone, so it can be compiled or exported as it is.
        """
        encoding = next(iter(self.encodings.values()))
        if encoding.compares_poses and views.poses is None:
            raise ValueError(f"encoding {self.name!r} compares poses: pass poses=… beside the cameras")
        tensor = next(self.original.parameters(), None)
        if tensor is not None and tensor.device != views.cameras[0].device:
            views = views.to(tensor.device)
        call = HostCall(self.name, self.encodings, views, args, kwargs or {})
        return self.host.bind(self.original, call)

    def train(self, mode: bool = True) -> "Adapted":
        self.original.train(mode)
        self.training = mode
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "Adapted":
        self.original._apply(fn, recurse)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        return self.original.load_state_dict(state_dict, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"encoding={self.name!r}, host={self.host.TITLE!r}"
