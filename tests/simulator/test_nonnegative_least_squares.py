"""Non-negative least squares against scipy's, on well and badly conditioned problems."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from servegym.simulator.nonnegative_least_squares import SPANNED, solve


@st.composite
def problems(draw, spread: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A matrix and a target: columns of very different sizes, repeated, zero, positive or whole.

    spread: columns are sums of a few, up to differences of that size.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    a = rng.normal(size=(m, n))
    if spread is not None:
        a = spread * a + rng.normal(size=(m, 2)) @ rng.normal(size=(2, n))
    a *= 10.0 ** rng.integers(-6, 6, size=n)
    if draw(st.booleans()):
        a = a[:, rng.integers(0, n, size=n)]
    if draw(st.booleans()):
        a = np.abs(a)
    if draw(st.booleans()):
        a = np.round(a)
    return a, np.ones(m) if draw(st.booleans()) else rng.normal(size=m)


@given(problems(), st.sampled_from([None, 0]))
def test_no_non_negative_solution_is_better_than_ours(problem, first):
    a, b = problem
    x = solve(a, b, first)
    assert (x >= 0).all()
    assert np.linalg.norm(a @ x - b) == pytest.approx(nnls(a, b)[1], abs=1e-9)


@given(st.sampled_from([0.0, 1e-14, 1e-12, 1e-10]).flatmap(problems), st.sampled_from([None, 0]))
def test_nearly_dependent_columns_end_where_no_column_helps(problem, first):
    # Karush-Kuhn-Tucker: no gradient points down by more than what a spanned column can give,
    # and those of the columns in use are 0
    a, b = problem
    x = solve(a, b, first)
    lengths = np.linalg.norm(a, axis=0)
    gradient = a.T @ (b - a @ x) / np.where(lengths > 0, lengths, 1.0)
    assert (x >= 0).all()
    assert (gradient <= SPANNED * np.linalg.norm(b)).all()
    assert (np.abs(gradient[x > 0]) <= 1e-7).all()
    assert (x * lengths <= 1e9).all()


def test_negative_unconstrained_solution_is_cut_by_hand():
    # unconstrained x = (2, -1); with x1 = 0, x0 = a0.b / a0.a0 = (1 * 1 + 1 * 0) / 2
    a, b = np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 0.0])
    np.testing.assert_allclose(solve(a, b), [0.5, 0.0])


def test_of_equal_columns_the_first_is_used():
    column = np.array([1.0, 2.0, 3.0])
    x = solve(np.column_stack([column, 7 * column, column]), 5 * column)
    np.testing.assert_allclose(x, [5.0, 0.0, 0.0])


def test_of_columns_that_differ_by_rounding_the_first_is_used():
    a = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0 - 2.0**-52]])
    b = np.array([1.0, 1.0, 1.0 - 2.0**-52])
    assert solve(a[:, ::-1], b)[1] == 0.0
    assert solve(a, b)[1] == 0.0


def test_column_that_is_to_enter_first_is_used_among_columns_that_span_the_same():
    # the second and third sum up to the first: 2 * first + 3 * second = 5 * second + 2 * third
    a, b = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]), np.array([5.0, 2.0])
    np.testing.assert_allclose(solve(a, b), [0.0, 5.0, 2.0])
    np.testing.assert_allclose(solve(a, b, first=0), [2.0, 3.0, 0.0])


def test_nothing_to_explain_needs_nothing():
    assert solve(np.eye(3), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert solve(np.zeros((3, 2)), np.ones(3)).tolist() == [0.0, 0.0]
