"""Hundreds of views, a few at a time: chunks that share views, so that their worlds can be joined."""

OVERLAP = 3
"""Views that neighbouring chunks share: enough for a robust scale."""


def split_into_chunks(count: int, size: int, overlap: int = OVERLAP) -> list[tuple[int, ...]]:
    """Chunks of at most `size` of `count` views in their order; each shares `overlap` views with the one before.

    The last chunk is as full as the others: it shares more rather than being short of views.
    """
    if count < 1:
        raise ValueError("no views to reconstruct")
    if size >= count:
        return [tuple(range(count))]
    if not 1 <= overlap < size:
        raise ValueError(
            f"chunks of {size} views cannot share {overlap} and go on: allow more views at a time"
        )
    starts = [*range(0, count - size, size - overlap), count - size]
    return [tuple(range(start, start + size)) for start in starts]
