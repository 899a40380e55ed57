"""Which token of a sequence belongs to which view, and where in its patch grid it sits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of one kind: the patches of a view in row-major order, or special tokens.

    Special tokens (camera, register, class) look nowhere: their rotation is the identity. They may
    belong to a view (a camera token does) or to none (a global class token: `view=None`).
    """

    view: int | None
    rows: int = 0
    columns: int = 0
    special: int = 0

    @property
    def is_patches(self) -> bool:
        return self.special == 0

    @property
    def count(self) -> int:
        return self.rows * self.columns if self.is_patches else self.special


@dataclass(frozen=True)
class Layout:
    """The sequence as a tuple of segments. Plain Python numbers: known without asking the device."""

    segments: tuple[Segment, ...]

    @classmethod
    def from_grids(
        cls, grids: Sequence[tuple[int, int]], *, special: int = 0, leading: int = 0, trailing: int = 0
    ) -> "Layout":
        """Lay views out one after the other, each with its `(rows, columns)` patches.

        `special` tokens stand before the patches of every view and belong to it; `leading` and `trailing`
        tokens stand at the ends of the whole sequence and belong to no view.
        """
        segments = [Segment(None, special=leading)]
        for view, (rows, columns) in enumerate(grids):
            segments += [Segment(view, special=special), Segment(view, rows, columns)]
        segments.append(Segment(None, special=trailing))
        return cls(tuple(segment for segment in segments if segment.count))

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def view_count(self) -> int:
        return max([0, *(1 + segment.view for segment in self.segments if segment.view is not None)])

    def iterate_spans(self) -> Iterator[tuple[Segment, slice]]:
        """Yield every segment with the slice of the sequence that it fills."""
        start = 0
        for segment in self.segments:
            yield segment, slice(start, start + segment.count)
            start += segment.count

    def find_runs(self) -> list[tuple[int | None, slice]]:
        """Find the longest stretches of consecutive tokens that belong to the same view (or to none)."""
        stretches = []
        for view, spans in groupby(self.iterate_spans(), key=lambda span: span[0].view):
            slices = [span for _, span in spans]
            stretches.append((view, slice(slices[0].start, slices[-1].stop)))
        return stretches

    def get_view_of_token(self, device: torch.device | str | None = None) -> Int[Tensor, "token"]:
        """Index of each token's view; −1 for tokens that belong to none."""
        owners = [-1 if view is None else view for view, _ in self.find_runs()]
        lengths = [span.stop - span.start for _, span in self.find_runs()]
        return torch.tensor(owners, device=device).repeat_interleave(torch.tensor(lengths, device=device))

    def get_patch_mask(self, device: torch.device | str | None = None) -> Bool[Tensor, "token"]:
        """Mark patches: False for special tokens."""
        return torch.cat([torch.full((s.count,), s.is_patches, device=device) for s in self.segments])

    def compute_grid_positions(
        self,
        offsets: Sequence[tuple[float, float]],
        *,
        normalized: bool,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "token sample 2"]:
        """Compute (column, row) of every sample in patches or, `normalized`, u/W − ½, v/H − ½; 0 for special tokens."""
        # float64 until the camera's dtype is known: column + 0.5 over the width rounds differently in float32.
        corner = torch.tensor(offsets, dtype=torch.float64, device=device)
        parts = []
        for segment in self.segments:
            if not segment.is_patches:
                parts.append(corner.new_zeros(segment.special, len(offsets), 2))
                continue
            rows, columns = torch.meshgrid(
                torch.arange(segment.rows, device=device),
                torch.arange(segment.columns, device=device),
                indexing="ij",
            )
            samples = (
                torch.stack([columns, rows], -1).reshape(-1, 1, 2) + corner
            )  # [patch sample 2], row-major
            if normalized:
                samples = samples / samples.new_tensor([segment.columns, segment.rows]) - 0.5
            parts.append(samples)
        return torch.cat(parts)

    def select(self, views: Sequence[int]) -> "Layout":
        """Keep only the segments of some views, in the order in which they stand here."""
        return Layout(tuple(segment for segment in self.segments if segment.view in views))
