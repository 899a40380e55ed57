"""The real launcher: two ranks under torchrun, all killed, started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

OVERRIDES = "--schedule.steps 40 --schedule.lr 3e-3 --schedule.warmup 5 --schedule.start 1e-4 --dropout 0.1 "
OVERRIDES += (
    "--optimizer.weight-decay 0.1 --optimizer.clip 0.5 --width 16 --batch 8 --save-every 4 --log-every 3 "
)
OVERRIDES += "--no-tensorboard --sample-every None --device cpu --allow-changes"


def torchrun(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "g_ray", "train", "curve", "--out", str(out), *OVERRIDES.split(), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def descendants(pid: int) -> list[int]:
    """The launcher and its ranks, which are in sessions of their own."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return [pid]
    return [pid, *(found for child in " ".join(lists).split() for found in descendants(int(child)))]


@pytest.mark.slow
def test_killed_and_continued_under_torchrun(runs, tmp_path):
    whole = runs.Processes(runs.small(), runs.quiet(tmp_path / "whole"), 2)
    killed = torchrun(tmp_path / "run", "--pause-s", "0.05")
    while runs.saved_step(tmp_path / "run") < 8 and killed.poll() is None:
        time.sleep(0.01)
    for pid in descendants(killed.pid):
        os.kill(pid, signal.SIGKILL)
    killed.communicate()
    assert 8 <= runs.saved_step(tmp_path / "run") < 40
    continued = torchrun(tmp_path / "run")
    said, complained = continued.communicate(timeout=120)
    assert continued.returncode == 0, complained
    assert said.count("weights:") == 1, "both ranks spoke"
    assert whole.codes() == [0, 0]
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)) for name in a)
