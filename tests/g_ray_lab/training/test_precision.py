"""Loss scaling by GradScaler's rule, and what runs in half precision."""

import pytest
import torch

from g_ray_lab.training.learner import LossScale, autocast_to

CPU = torch.device("cpu")


def test_the_scale_follows_gradscaler_through_overflows_and_growth():
    """Over 3 growth intervals with overflows in between; the interval is 2000 in both."""
    theirs = torch.amp.GradScaler("cpu", init_scale=65536.0)
    ours = LossScale.from_precision("fp16")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    for step in range(6500):
        finite = step not in (0, 1, 700, 4000)
        theirs.scale(torch.zeros(1))  # makes the scaler's tensors
        parameter.grad = torch.tensor([1.0 if finite else float("inf")])
        theirs.step(optimizer)
        theirs.update()
        ours.update(finite)
        if step % 250 == 0:
            assert ours.scale == theirs.get_scale()
    assert ours.scale == theirs.get_scale()


def test_overflow_is_forgiven_until_the_scale_cannot_be_the_reason():
    scale = LossScale.from_precision("fp16")
    halvings = 0
    while scale.tolerates_overflow():
        scale.update(False)
        halvings += 1
    assert halvings == 26
    assert not LossScale.from_precision("fp32").tolerates_overflow()


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_arithmetic(precision, dtype):
    with autocast_to(precision, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
