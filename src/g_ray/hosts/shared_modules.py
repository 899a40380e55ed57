"""Modules that share their parameters with others: a network is rebuilt around replaced layers, and itself untouched.

A call of an adapted network must not write on the network's modules: two threads may call it with different cameras,
and checkpointing runs layers again long after the call. So every call has modules of its own on the path from the root
to the attention layers. They cost microseconds, since parameters, buffers and all other modules are shared.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn


def share_module(
    module: nn.Module,
    kind: type[nn.Module] | None = None,
    children: Mapping[str, nn.Module] | None = None,
    **attributes: Any,
) -> nn.Module:
    """Make a second module over the same parameters, buffers and hooks.

    `kind` is its class (the module's own by default), `children` replace submodules, `attributes` are set on it.
    """
    shared = object.__new__(kind or type(module))
    shared.__dict__.update(module.__dict__)
    # The dicts of parameters and buffers stay the same objects, so that `to` and FSDP, which write there, reach both.
    shared.__dict__["_modules"] = {**module._modules, **(children or {})}
    # What `module.compile()` has stored calls the original, without replaced children.
    shared.__dict__.pop("_compiled_call_impl", None)
    shared.__dict__.update(attributes)
    return shared


def replace_modules(module: nn.Module, replacements: Mapping[str, nn.Module]) -> nn.Module:
    """Rebuild a network with some modules, named as in `named_modules()`, replaced by others."""
    if "" in replacements:
        return replacements[""]
    below: dict[str, dict[str, nn.Module]] = {}
    for path, replacement in replacements.items():
        name, _, rest = path.partition(".")
        below.setdefault(name, {})[rest] = replacement
    children = {name: replace_modules(module.get_submodule(name), parts) for name, parts in below.items()}
    return share_module(module, children=children)
