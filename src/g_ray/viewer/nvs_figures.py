"""Pictures of an NVS table: curves over the zoom, and a contact sheet of predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from g_ray.viewer.theme import Theme, drawn, new_figure

LINES = {"plucker": ":", "prope": ":", "gta": "--", "rayrope": "--"}
COLOURS = {
    "plucker": "#7f7f7f",
    "prope": "#8c6d31",
    "gta": "#1f77b4",
    "gta_gray": "#1f77b4",
    "rayrope": "#d62728",
    "rayrope_gray": "#d62728",
}


def draw_curves(result: Mapping[str, Any], metric: str, theme: Theme) -> Figure:
    """A line per method over the settings, its interval shaded; references in grey."""
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    with drawn(theme):
        figure = new_figure(7.2, 4.4)
        axes = figure.add_subplot()
        for row_set, reference in ((result["rows"], False), (result.get("references", []), True)):
            for method in dict.fromkeys(row["method"] for row in row_set):
                cells = [row["metrics"][metric] for row in row_set if row["method"] == method]
                colour = theme.faint if reference else COLOURS.get(method)
                style = "-." if reference else LINES.get(method, "-")
                (line,) = axes.plot(
                    settings, [cell["mean"] for cell in cells], style, color=colour, label=method
                )
                low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
                axes.fill_between(settings, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.set_xlabel("largest zoom of the test views")
        axes.set_ylabel({"psnr": "PSNR, dB", "ssim": "SSIM", "lpips": "LPIPS"}[metric])
        axes.legend(fontsize=8, ncols=2)
        return figure


def draw_contact_sheet(
    columns: Sequence[tuple[str, Float[Tensor, "scene 3 h w"]]],
    labels: Mapping[str, Sequence[str]],
    theme: Theme,
) -> Figure:
    """Scenes down, named columns across; `labels` writes a line under each picture of a column."""
    count = len(columns[0][1])
    with drawn(theme):
        figure = new_figure(1.25 * len(columns), 1.42 * count + 0.3)
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
