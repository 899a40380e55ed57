"""Checks of signatures at every call in a test run: beartype checks types, and asks jaxtyping for shapes of arrays.

jaxtyping's own decorator binds the arguments of every call and makes two functions of each, which took more time than
all else in many tests. It is needed only where a shape is computed from an argument, as in Float[Tensor, "{count}"],
and for generators, whose arguments beartype checks when they run.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, install_import_hook, jaxtyped

check_types = beartype(conf=BeartypeConf(violation_type=TypeCheckError))
same_sizes = jaxtyped("context")  # in it, axes with one name have one size


def install(packages: list[str]) -> None:
    """Check all functions and dataclasses of packages that are imported from now on."""
    install_import_hook(packages, f"{__name__}.check_types")
    # The hook writes this decorator, by its full name, before every function and class.
    jaxtyping.jaxtyped = make_decorator


def make_decorator(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """Stand in for `jaxtyped` as the hook uses it."""
    return check_when_called


def check_when_called(part: Any) -> Any:
    """Decorate a function or a dataclass, but not before its first call: a process calls few of the thousands."""
    if inspect.isclass(part):
        if is_dataclass(part) and "__init__" in part.__dict__:
            part.__init__ = check_when_called(part.__init__)
        return part
    hints = {name: resolve(hint, part) for name, hint in part.__annotations__.items()}
    shapes = [shape for hint in hints.values() for shape in find_shapes(hint)]
    if any("{" in shape for shape in shapes) or inspect.isgeneratorfunction(part):
        return jaxtyped(part, typechecker=check_types)
    checked: Any = None

    @wraps(part)
    def check(*arguments: Any, **named: Any) -> Any:
        nonlocal checked
        if checked is None:
            part.__annotations__ = hints
            checked = check_types(part)
        if not shapes:
            return checked(*arguments, **named)
        with same_sizes:
            return checked(*arguments, **named)

    return check


def find_shapes(hint: Any) -> Iterator[str]:
    """Yield the shapes of all arrays in a type."""
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        yield hint.dim_str
    else:
        for inner in get_args(hint):
            yield from find_shapes(inner)


def resolve(hint: Any, function: Callable[..., Any]) -> Any:
    """Return the type that a string names; Any for a class that is being made, and what pyright alone imports."""
    try:
        return eval(hint, function.__globals__) if isinstance(hint, str) else hint
    except (NameError, TypeError):
        return Any
