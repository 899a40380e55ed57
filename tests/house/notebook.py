"""Run a notebook from top to bottom and collect what its cells print and draw. `make generated` rewrites its outputs.

Cells are executed in one scope, in the notebook's folder, as a kernel would; what they need is plain Python.
"""

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

matplotlib.use("Agg")  # before pyplot: no window
import matplotlib.pyplot as plt

QUICKSTART = Path(__file__).resolve().parents[2] / "examples" / "quickstart.ipynb"


def read_notebook(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def run_notebook(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of every code cell, in the notebook's format."""
    outputs, scope = [], {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for number, cell in enumerate(list_code(notebook)):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
            outputs.append(_collect_pictures())
            if text := printed.getvalue():
                lines = text.splitlines(keepends=True)
                outputs[-1].append({"output_type": "stream", "name": "stdout", "text": lines})
    return outputs


def list_code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _collect_pictures() -> list[dict[str, Any]]:
    pictures = []
    for number in plt.get_fignums():
        drawn, file = io.BytesIO(), io.BytesIO()
        plt.figure(number).savefig(drawn, format="png", dpi=72)
        Image.open(drawn).convert("RGB").quantize(128).save(file, "png", optimize=True)  # a third of the size
        data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": ["<Figure>"]}
        pictures.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return pictures


def main() -> None:
    notebook = read_notebook(QUICKSTART)
    for number, outputs in enumerate(run_notebook(notebook, QUICKSTART.parent)):
        list_code(notebook)[number] |= {"execution_count": number + 1, "outputs": outputs}
    QUICKSTART.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
