"""Contact sheets: pictures in rows and named columns."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from g_ray.viewer.theme import Theme, new_figure, use_theme


def draw_contact_sheet(
    columns: Sequence[tuple[str, Float[Tensor, "scene 3 h w"]]],
    labels: Mapping[str, Sequence[str]],
    theme: Theme,
) -> Figure:
    """Draw scenes as rows under named columns; `labels` has a line for each picture of a column."""
    count, (height, width) = len(columns[0][1]), columns[0][1].shape[-2:]
    with use_theme(theme):
        figure = new_figure(1.25 * len(columns), (1.25 * height / width + 0.17) * count + 0.3)
        grid = figure.subplots(count, len(columns), squeeze=False)
        for j, (name, images) in enumerate(columns):
            for i, image in enumerate(images):
                axes = grid[i, j]
                axes.imshow(image.clamp(0, 1).movedim(0, -1).cpu().numpy(), interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
                axes.set_xlabel(labels.get(name, [""] * count)[i], fontsize=7, labelpad=2)
                if i == 0:
                    axes.set_title(name, fontsize=8)
        return figure
