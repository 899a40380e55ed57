"""Checks of jaxtyping signatures at every call, made by beartype when a function is first called."""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def check_when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as `beartype` does, but not before the first call: a process calls few of the thousands of functions.

    jaxtyping hands over two functions for each of ours: one is called with the arguments before it, the other with
    arguments and result after it. The second has a return type, and checks that alone: the sizes of axes that the
    arguments had are still known.
    """
    returned = function.__annotations__.get("return", Any)
    if returned is not Any:
        function.__annotations__ = {"return": returned}
    checked: Callable[..., Any] | None = None

    def check(*arguments: Any, **named: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*arguments, **named)

    return check
