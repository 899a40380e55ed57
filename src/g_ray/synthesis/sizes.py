"""At which sizes a network works: views of another shape get about as many patches as it has seen in training."""

import math

from g_ray.cameras.base import Camera


def choose_working_size(width: int, height: int, tokens: int, patch: int) -> tuple[int, int]:
    """Width and height in whole patches, near the aspect of a view and near that many patches.

    Errors count by their logarithm: a tenth too wide is as bad as a tenth more patches. No side gets more patches than
    there are in all.
    """
    aspect = width / height

    def compute_error(columns: int, rows: int) -> float:
        return abs(math.log(columns / rows / aspect)) + abs(math.log(columns * rows / tokens))

    choices = [
        (min(max(1, columns), tokens), rows)
        for rows in range(1, tokens + 1)
        for columns in (math.floor(aspect * rows), math.ceil(aspect * rows))
    ]
    columns, rows = min(choices, key=lambda grid: compute_error(*grid))
    return columns * patch, rows * patch


def describe_size(camera: Camera, size: tuple[int, int]) -> str:
    return f"{camera.NAME} {camera.width}×{camera.height} → {size[0]}×{size[1]} px"
