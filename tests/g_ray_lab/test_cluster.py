"""Tasks run in jobs of their own: as processes that submitit starts, and on a Ray cluster of this machine."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from g_ray.runtime.files import write_json
from g_ray_lab import cluster
from g_ray_lab.cluster import Cluster


@pytest.fixture(params=["local", "ray"])
def where(request, monkeypatch):
    """A cluster; its jobs have to find the package that is being tested."""
    monkeypatch.setattr(cluster, "POLL_S", 0.1)
    root = str(Path(__file__).resolve().parents[2] / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    if request.param == "local":
        yield Cluster("local")
        return
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield Cluster("ray")
    ray.shutdown()


def test_tasks_run_in_other_processes(where, tmp_path):
    lines = []
    tasks = [partial(write_json, tmp_path / f"{number}.json", {"number": number}) for number in range(2)]
    where.run(tasks, tmp_path, lines.append)
    assert [json.loads((tmp_path / f"{number}.json").read_text())["number"] for number in range(2)] == [0, 1]
    with where.start([os.getpid], tmp_path) as (job,):
        assert cluster.get_result(job, tmp_path) != os.getpid()
    # One that fails is named in a line, and the others finish.
    bad = partial(write_json, tmp_path / "0.json" / "below.json", {})
    good = partial(write_json, tmp_path / "good.json", {})
    with pytest.raises(OSError, match=r"job \w+ failed: .*(FileExistsError|NotADirectoryError)") as caught:
        where.run([bad, good], tmp_path, lines.append)
    assert "the same command resumes" in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / "good.json").is_file()


def test_what_is_missing_or_wrong_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ValueError, match=r"--cluster ray needs Ray; install it with: pip install"):
        Cluster("ray").run([os.getpid], tmp_path, print)
    with pytest.raises(ValueError, match="0 jobs"):
        Cluster("ray", jobs=0)


def test_options():
    assert cluster.parse_options(("slurm_partition=gpu", "timeout_min=60", "num_gpus=0.5")) == {
        "slurm_partition": "gpu",
        "timeout_min": 60,
        "num_gpus": 0.5,
    }
