"""Non-negative least squares: the x >= 0 with the least |a x - b|, by the active-set method.

Columns enter one at a time, the one whose gradient falls most; a column that the least squares of the entered ones
would make negative leaves again. A column that those in use span, but for a share SPANNED of it, stays out at 0, so
that no two large numbers cancel. Source: Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23,
algorithm NNLS, but for that rule.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDING = 1e-11  # with columns and target of length 1: a gradient or an x below this is none
SPANNED = 1e-7  # a column of length 1 of which others leave no more than this unexplained tells nothing new
TIE = 1e-9  # gradients that differ by less are equal: the first column wins


def solve(a: Floats, b: Floats, first: int | None = None) -> Floats:
    """Return x float64[n] >= 0 with the least |a x - b| for a float64[m, n], b float64[m].

    first: the column that enters first, if b leans its way; among columns that span the same it is then used.
    """
    lengths, target = np.linalg.norm(a, axis=0), float(np.linalg.norm(b))
    if target == 0.0 or not lengths.any():
        return np.zeros(a.shape[1])
    a = a / np.where(lengths > 0, lengths, 1.0)
    x = solve_scaled(a, b / target, first)
    return np.where(x > ROUNDING, x, 0.0) * target / np.where(lengths > 0, lengths, 1.0)


def solve_scaled(a: Floats, b: Floats, first: int | None) -> Floats:
    """Return the solution for columns of length 1 (or 0) and a target of length 1."""
    n = a.shape[1]
    x, is_in, is_refused = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
    for _ in range(30 * n):
        gradient = np.where(is_in | is_refused, 0.0, a.T @ (b - a @ x))
        if gradient.max() <= ROUNDING:
            return x
        entering = int(np.argmax(gradient >= gradient.max() * (1.0 - TIE)))
        if first is not None and not is_in.any() and gradient[first] > ROUNDING:
            entering = first
        if np.linalg.norm(unexplained(a, is_in, entering)) <= SPANNED:
            is_refused[entering] = True
            continue
        is_in[entering] = True
        is_refused[:] = False
        x, is_in = shrink(a, b, x, is_in)
    raise AssertionError("non-negative least squares went round in circles")


def shrink(a: Floats, b: Floats, x: Floats, is_in: NDArray[np.bool_]) -> tuple[Floats, NDArray]:
    """Return the least squares of the entered columns, less those that had to leave to keep x >= 0."""
    while True:
        wanted = least_squares(a, b, is_in)
        is_negative = is_in & (wanted <= 0.0)
        if not is_negative.any():
            return wanted, is_in
        shares = np.full(len(x), np.inf)  # of the way to `wanted` that keeps each >= 0
        shares[is_negative] = 0.0
        np.divide(x, x - wanted, out=shares, where=is_negative & (x > 0.0))
        leaving = int(np.argmin(shares))
        x = np.maximum(x + shares[leaving] * (wanted - x), 0.0)
        x[leaving], is_in[leaving] = 0.0, False


def unexplained(a: Floats, is_in: NDArray[np.bool_], columns: int | slice) -> Floats:
    """Return what the least squares of the columns in use leave of other columns."""
    others, used = a[:, columns], a[:, is_in]
    return others - used @ np.linalg.lstsq(used, others, rcond=None)[0]


def least_squares(a: Floats, b: Floats, is_in: NDArray[np.bool_]) -> Floats:
    """Return the least squares of the entered columns, 0 elsewhere."""
    x = np.zeros(a.shape[1])
    x[is_in] = np.linalg.lstsq(a[:, is_in], b, rcond=None)[0]
    return x
