"""Semi-global aggregation of a cost volume (Hirschmüller, 2008), vectorized over rows."""

import torch
from jaxtyping import Float
from torch import Tensor


def aggregate_costs(
    costs: Float[Tensor, "h d w"],
    guide: Float[Tensor, "h w"],
    small_penalty: float,
    large_penalty: float,
    edge: float,
) -> Float[Tensor, "h d w"]:
    """Mean over eight directions of the cheapest path that ends in a pixel with a hypothesis.

    A path pays its matching costs, `small_penalty` for a step to a neighboring hypothesis and up to `large_penalty`
    for any other, less where the guide image has an edge: large / (1 + |difference| / edge), at least 1.5 small.

    Rows are the outer axis and all hypotheses of a row lie together, so that one step of a path is a handful of
    operations on a block that stays in the cache.
    """
    total = torch.zeros_like(costs)
    settings = (small_penalty, large_penalty, edge)
    for reverse in (False, True):
        _add_paths(total, costs, guide, (-1, 0, 1), reverse, settings)
    # The two horizontal directions are the vertical ones of the transposed volume.
    across, sideways = costs.permute(2, 1, 0).contiguous(), guide.mT.contiguous()
    part = torch.zeros_like(across)
    for reverse in (False, True):
        _add_paths(part, across, sideways, (0,), reverse, settings)
    return total.add_(part.permute(2, 1, 0)).div_(8)


def _add_paths(
    total: Tensor,
    costs: Tensor,
    guide: Tensor,
    slants: tuple[int, ...],
    reverse: bool,
    settings: tuple[float, float, float],
) -> None:
    """Add the path costs of one pass over the rows, downwards or upwards, for some slants (columns per row)."""
    small, large, edge = settings
    rows = range(len(costs))
    order = list(reversed(rows) if reverse else rows)
    first = costs[order[0]]
    state = first.expand(len(slants), *first.shape).clone()
    total[order[0]] += first * len(slants)
    for before, row in zip(order, order[1:], strict=False):
        state = _shift_columns(state, slants)
        steps = (guide[row] - _shift_columns(guide[before].expand(len(slants), 1, -1), slants)).abs()
        jump = (large / (1 + steps / edge)).clamp_min(1.5 * small)
        lowest = state.amin(1, keepdim=True)
        best = torch.minimum(state, lowest + jump)
        stepped = state + small
        torch.minimum(best[:, 1:], stepped[:, :-1], out=best[:, 1:])
        torch.minimum(best[:, :-1], stepped[:, 1:], out=best[:, :-1])
        state = best.sub_(lowest).add_(costs[row])
        total[row] += state.sum(0)


def _shift_columns(state: Float[Tensor, "slant d w"], slants: tuple[int, ...]) -> Float[Tensor, "slant d w"]:
    """The predecessor of each pixel along each slant; at the border the pixel straight above stands in."""
    shifted = []
    for part, slant in zip(state, slants, strict=True):
        if slant == 0:
            shifted.append(part)
        elif slant > 0:
            shifted.append(torch.cat([part[:, :1], part[:, :-1]], 1))
        else:
            shifted.append(torch.cat([part[:, 1:], part[:, -1:]], 1))
    return torch.stack(shifted)
