"""Every process of a machine has a GPU of its own; the GPUs here are faked."""

import pytest
import torch

from g_ray.calibration.estimators import ESTIMATORS
from g_ray.runtime.device import LOCAL_RANK, choose_device
from g_ray_lab.scoring import evaluation_run
from g_ray_lab.scoring.evaluated_models import StandingModel
from g_ray_lab.scoring.evaluation_plan import Limits
from g_ray_lab.scoring.evaluation_run import Evaluation, run_evaluation
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.store import Shard


@pytest.fixture
def used(monkeypatch):
    """Four GPUs; the list gets the devices that processes make their own."""
    devices = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: devices.append(str(device)))
    return devices


@pytest.mark.parametrize(
    ("local_rank", "name", "device"),
    [
        (None, "auto", "cuda:0"),
        (3, "auto", "cuda:3"),
        (2, "cuda", "cuda:2"),
        (5, "auto", "cuda:1"),
        (3, "cuda:1", "cuda:1"),
        (3, "cpu", "cpu"),
    ],
)
def test_a_process_of_torchrun_has_the_gpu_of_its_number(monkeypatch, used, local_rank, name, device):
    if local_rank is not None:
        monkeypatch.setenv(LOCAL_RANK, str(local_rank))
    assert str(choose_device(name)) == device
    assert used == ([] if device == "cpu" else [device])


def test_estimators_run_where_their_process_does(monkeypatch, used):
    monkeypatch.setenv(LOCAL_RANK, "2")
    assert str(ESTIMATORS["anycalib"]().device) == "cuda:2"


@pytest.mark.parametrize(("local_rank", "expected"), [(0, ["cuda:0", "cuda:1"]), (1, ["cuda:2", "cuda:3"])])
def test_workers_of_an_evaluation(monkeypatch, used, miniature_root, tmp_path, local_rank, expected):
    """As `--jobs 2`, alone and as the second process of torchrun; the workers run here, one after the other."""

    def make_model(evaluation):
        choose_device("auto")
        return StandingModel()

    def run_here(run, jobs, workers, get_name):
        for job in jobs:
            yield run(job)
            monkeypatch.setenv(LOCAL_RANK, str(local_rank))

    monkeypatch.setenv(LOCAL_RANK, str(local_rank))
    monkeypatch.setattr(Evaluation, "make_model", make_model)
    monkeypatch.setattr(evaluation_run, "run_in_processes", run_here)
    evaluation = Evaluation(
        "eth3d-fov",
        PROTOCOLS["eth3d-fov"],
        miniature_root("eth3d"),
        tmp_path / "out",
        limits=Limits(views=(2,), sets=4, width=56),
    )
    run_evaluation(evaluation, jobs=2, shard=Shard(local_rank + 1, local_rank + 1))
    assert used[1:] == expected  # the first is that of the process that starts them
