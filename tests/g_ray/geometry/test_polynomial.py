"""The first positive root, against numpy and against polynomials made from their roots."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.cameras.inverse import evaluate_polynomial, find_first_positive_root

coefficient = st.floats(-2, 2).map(lambda x: 0.0 if abs(x) < 1e-3 else x)


@given(st.lists(coefficient, min_size=1, max_size=6))
def test_same_as_numpy(a):
    roots = np.roots([*reversed(a), 1.0])
    positive = roots.real[(abs(roots.imag) < 1e-7 * abs(roots)) & (roots.real > 0)]
    expected = positive.min() if len(positive) else np.inf
    found = float(find_first_positive_root(torch.tensor(a, dtype=torch.float64)))
    assert found == pytest.approx(expected, rel=1e-5)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=4, unique=True))
def test_roots_that_were_put_in(roots):
    p = np.poly(roots)[::-1]
    found = find_first_positive_root(torch.tensor(p[1:] / p[0]))
    assert float(found) == pytest.approx(min(roots), rel=1e-3)


def test_none_and_batch():
    a = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [-3.0, 2.0]])
    torch.testing.assert_close(find_first_positive_root(a), torch.tensor([torch.inf, torch.inf, 1.0, 0.5]))


def test_evaluate():
    a, t = torch.tensor([2.0, -1.0, 3.0]), torch.tensor([0.0, 1.0, 2.0])
    torch.testing.assert_close(evaluate_polynomial(a, t), 1 + 2 * t - t**2 + 3 * t**3)
