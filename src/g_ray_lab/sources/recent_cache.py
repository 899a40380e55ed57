"""A cache of what was made last."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


def weigh_one(value: object) -> int:
    return 1


class RecentCache(Generic[Value]):
    """The values that were used last, up to a total weight. A copy for another process is empty."""

    def __init__(self, limit: int, weigh: Callable[[Any], int] = weigh_one) -> None:
        self.limit, self.weigh = limit, weigh
        self.values: OrderedDict[Hashable, Value] = OrderedDict()
        self.weight = 0

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not there."""
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        value = make()
        self.values[key] = value
        self.weight += self.weigh(value)
        while self.weight > self.limit:
            self.weight -= self.weigh(self.values.popitem(last=False)[1])
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return RecentCache, (self.limit, self.weigh)
