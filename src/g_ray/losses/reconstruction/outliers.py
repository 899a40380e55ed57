"""A mean that does not listen to the worst few per cent."""

from jaxtyping import Float
from torch import Tensor

MANY = 1000
"""Fewer values than this are not filtered."""

LARGEST = 100.0
"""Where a value stops to count more, when there are many."""


def mean_below_quantile(values: Float[Tensor, "value"], quantile: float) -> Float[Tensor, ""]:
    """Mean of the values below their own quantile; of all of them where more than `MANY` would not remain.

    The quantile is the value of rank round(q (n − 1)), without interpolation. No values at all are 0.
    """
    if values.numel() == 0:
        return values.sum()
    if values.numel() <= MANY:
        return values.mean()
    values = values.clamp(max=LARGEST)
    rank = round(quantile * (values.numel() - 1))
    kept = values < values.detach().kthvalue(rank + 1).values
    return values[kept].mean() if int(kept.sum()) > MANY else values.mean()
