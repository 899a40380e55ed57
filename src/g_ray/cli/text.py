"""Plain text for the terminal: aligned tables, and names of files."""

import re
from collections.abc import Mapping, Sequence


def format_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as aligned columns: the first to the left, the others to the right."""
    heads = list(rows[0])
    cells = [heads, *([format_cell(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    lines = [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return "–" if value is None else str(value)


def make_file_name(name: str) -> str:
    """A name that any file system takes."""
    return re.sub(r"[^\w.-]+", "_", name)
