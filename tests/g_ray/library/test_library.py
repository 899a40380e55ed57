"""The library by itself: what it imports, what that costs, and the path from a scene folder to tokens."""

import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from PIL import Image

import g_ray

README = Path(__file__).resolve().parents[3] / "README.md"
NAMES = "from g_ray import OpenCVFisheye, Pinhole, Pose, Views, attention, encoding"
MOST_SECONDS = 0.35
"""For the imports of the twenty lines beyond those of torch; about 0.08 on a quiet core."""
MOST_FILES = 25

REFUSE_OTHERS = """
import sys
import torch, numpy, jaxtyping
known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names) | {"g_ray"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in known:
            raise ImportError(f"the library must not import {name}")
sys.meta_path.insert(0, Refuse())
"""

COUNT_FILES = f"""
import sys
{NAMES}
passed = set()
def note(frame, event, _):
    if event == "call" and "g_ray" in frame.f_code.co_filename:
        passed.add(frame.f_code.co_filename)
sys.setprofile(note)
"""

TIME_IMPORTS = f"""
import sys, time
import torch
for _ in range(4):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("g_ray", "jaxtyping")]:
        del sys.modules[name]
    start = time.perf_counter()
    {NAMES}
    print(time.perf_counter() - start)
"""


def read_twenty_lines() -> str:
    found = re.search(r"## Twenty lines\n+```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None and NAMES in found[1]
    return found[1]


def run(code: str) -> str:
    # Type checks of the test run would import beartype and slow the imports down.
    environment = {"PYTHONPATH": str(Path(g_ray.__file__).parents[1]), "G_RAY_TYPECHECK": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_twenty_lines_need_torch_numpy_and_jaxtyping_alone():
    run(REFUSE_OTHERS + read_twenty_lines())


def test_imports_are_quick():
    assert min(map(float, run(TIME_IMPORTS).split())) <= MOST_SECONDS


def test_the_twenty_lines_pass_few_files():
    out = run(COUNT_FILES + read_twenty_lines() + "\nsys.setprofile(None)\nprint('\\n'.join(sorted(passed)))")
    files = out.split()
    assert 10 < len(files) <= MOST_FILES, out


def test_a_scene_folder_becomes_tokens(tmp_path):
    frames = []
    for index in range(2):
        Image.new("RGB", (64, 48)).save(tmp_path / f"{index}.png")
        matrix = torch.eye(4)
        matrix[0, 3] = index
        frames.append({"file_path": f"{index}.png", "transform_matrix": matrix.tolist()})
    lens = {"camera_model": "OPENCV", "w": 64, "h": 48, "fl_x": 50.0, "fl_y": 50.0, "cx": 32.0, "cy": 24.0}
    (tmp_path / "transforms.json").write_text(json.dumps({**lens, "frames": frames}))

    scene = g_ray.read_scene(tmp_path)
    views = g_ray.Views(scene.cameras, scene.poses)
    tokens = views.tokens(patch=16)

    assert len(tokens) == 2 * 4 * 3 and bool(tokens.valid().all())
    apart = views.poses.translation[1] - views.poses.translation[0]
    assert torch.allclose(apart, torch.tensor([1.0, 0.0, 0.0], dtype=apart.dtype))
