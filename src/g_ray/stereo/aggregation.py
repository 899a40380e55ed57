"""Semi-global aggregation of a cost volume (Hirschmüller, 2008), vectorized over rows."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from g_ray.stereo.stereo_options import StereoOptions


def aggregate_costs(
    costs: Float[Tensor, "h d w"],
    guide: Float[Tensor, "h w"],
    options: StereoOptions,
    base: Int[Tensor, "h w"] | None = None,
) -> Float[Tensor, "h d w"]:
    """Mean over eight directions of the cheapest path that ends in a pixel with a hypothesis.

    A path pays its matching costs, `small_penalty` for a step to a neighboring hypothesis and up to `large_penalty`
    for any other, less where the guide image has an edge: large / (1 + |difference| / edge), at least 1.5 small.

    `base` is the hypothesis that index 0 stands for, where each pixel has a band of its own; a step between adjacent
    pixels is then counted between hypotheses, not between indices.

    Rows are the outer axis and all hypotheses of a row lie together, so that one step of a path is a handful of
    operations on a block that stays in the cache.
    """
    total = torch.zeros_like(costs)
    for reverse in (False, True):
        _add_paths(total, costs, guide, base, (-1, 0, 1), reverse, options)
    # The two horizontal directions are the vertical ones of the transposed volume.
    across, sideways = costs.permute(2, 1, 0).contiguous(), guide.mT.contiguous()
    part, turned = torch.zeros_like(across), None if base is None else base.mT
    for reverse in (False, True):
        _add_paths(part, across, sideways, turned, (0,), reverse, options)
    return total.add_(part.permute(2, 1, 0)).div_(8)


def _add_paths(
    total: Tensor,
    costs: Tensor,
    guide: Tensor,
    base: Tensor | None,
    slants: tuple[int, ...],
    reverse: bool,
    options: StereoOptions,
) -> None:
    """Add the path costs of one pass over the rows, downwards or upwards, for some slants (columns per row)."""
    small, large, edge = options.small_penalty, options.large_penalty, options.edge
    rows = range(len(costs))
    order = list(reversed(rows) if reverse else rows)
    first = costs[order[0]]
    state = first.expand(len(slants), *first.shape).clone()
    total[order[0]] += first * len(slants)
    for before, row in pairwise(order):
        state = _shift_columns(state, slants)
        lowest = state.amin(1, keepdim=True)
        if base is not None:
            moved = base[row] - _shift_columns(base[before].expand(len(slants), 1, -1), slants)
            state = _align_bands(state, moved)
        steps = (guide[row] - _shift_columns(guide[before].expand(len(slants), 1, -1), slants)).abs()
        jump = (large / (1 + steps / edge)).clamp_min(1.5 * small)
        best = torch.minimum(state, lowest + jump)
        stepped = state + small
        torch.minimum(best[:, 1:], stepped[:, :-1], out=best[:, 1:])
        torch.minimum(best[:, :-1], stepped[:, 1:], out=best[:, :-1])
        state = best.sub_(lowest).add_(costs[row])
        total[row] += state.sum(0)


def _align_bands(
    state: Float[Tensor, "slant d w"], moved: Int[Tensor, "slant 1 w"]
) -> Float[Tensor, "slant d w"]:
    """Path costs of the predecessor at the hypotheses of the pixel's own band; infinite outside of its band."""
    count = state.shape[1]
    index = torch.arange(count, device=state.device)[:, None] + moved
    aligned = state.gather(1, index.clamp(0, count - 1))
    return aligned.masked_fill_((index < 0) | (index >= count), torch.inf)


def _shift_columns(
    state: Shaped[Tensor, "slant d w"], slants: tuple[int, ...]
) -> Shaped[Tensor, "slant d w"]:
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
