"""What the checks of signatures in a test run refuse."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from shape_checks import check_when_called
from torch import Tensor

from g_ray.coordinates import tangent
from g_ray.encodings.rotary import make_geometric_frequencies


@check_when_called
def repeat_rows(rows: Float[Tensor, "n 3"], times: int, *, extra: int = 0) -> Float[Tensor, "{times}*n 3"]:
    return rows.repeat(times + extra, 1)


@check_when_called
def add(first: Float[Tensor, "n"], second: "Float[Tensor, 'n']") -> tuple[Float[Tensor, "n"], int]:
    """A sum, and a result that is wrong where the sum is."""
    total = first + second
    return (total, len(total)) if total[0] < 10 else (total[1:], "none")


@check_when_called
@dataclass
class Box:
    width: int
    lid: "Missing | None" = None


@check_when_called
def list_names(count: int) -> Iterator[str]:
    yield from ["a"] * count


def test_right_shapes_pass():
    assert repeat_rows(torch.ones(2, 3), 1).shape == (2, 3)


@pytest.mark.parametrize(
    ("rows", "times"), [(torch.ones(2, 4), 1), (torch.ones(2, 3).int(), 1), (torch.ones(2, 3), 1.0)]
)
def test_wrong_arguments_are_refused(rows, times):
    with pytest.raises(TypeCheckError, match="parameter"):
        repeat_rows(rows, times)


def test_a_result_must_fit_the_sizes_of_the_arguments():
    with pytest.raises(TypeCheckError, match="return value"):
        repeat_rows(torch.ones(2, 3), 1, extra=1)


def test_axes_with_one_name_have_one_size():
    assert add(torch.ones(2), torch.ones(2))[1] == 2
    with pytest.raises(TypeCheckError, match="second"):
        add(torch.ones(2), torch.ones(1))  # which would broadcast
    with pytest.raises(TypeCheckError, match="return"):
        add(torch.full((2,), 10.0), torch.ones(2))
    assert len(add(torch.ones(3), torch.ones(3))[0]) == 3  # sizes of another call are forgotten


def test_types_are_checked_without_arrays():
    assert Box(1).width == 1
    with pytest.raises(TypeCheckError, match="width"):
        Box("1")
    assert list(list_names(2)) == ["a", "a"]
    with pytest.raises(TypeCheckError, match="count"):
        list_names(2.0)


def test_the_library_is_checked():
    with pytest.raises(TypeCheckError, match="count"):
        make_geometric_frequencies(2.0)
    with pytest.raises(TypeCheckError, match="directions"):
        tangent(torch.ones(4))
