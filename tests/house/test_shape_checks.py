"""What the checks of signatures in a test run refuse."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from shape_checks import check_when_called
from torch import Tensor


@jaxtyped(typechecker=check_when_called)
def repeat_rows(rows: Float[Tensor, "n 3"], times: int, *, extra: int = 0) -> Float[Tensor, "{times}*n 3"]:
    return rows.repeat(times + extra, 1)


def test_right_shapes_pass():
    assert repeat_rows(torch.ones(2, 3), 1).shape == (2, 3)


@pytest.mark.parametrize(
    ("rows", "times"), [(torch.ones(2, 4), 1), (torch.ones(2, 3).int(), 1), (torch.ones(2, 3), 1.0)]
)
def test_wrong_arguments_are_refused(rows, times):
    with pytest.raises(TypeCheckError, match="parameters"):
        repeat_rows(rows, times)


def test_a_result_must_fit_the_sizes_of_the_arguments():
    with pytest.raises(TypeCheckError, match="return value"):
        repeat_rows(torch.ones(2, 3), 1, extra=1)
