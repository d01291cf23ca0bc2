"""The fit of iteration_time.py to measured iterations: coefficients >= 0 and the knee.

The coefficients c >= 0 with the least sum of ((predicted - measured) / measured)^2, and the knee by search: a
geometric grid of tokens, then ever finer steps around the best. Source: the rows of profiles.csv were fitted this way,
knees on a coarser grid. What measurements cannot tell apart is left at 0 and named by `unidentified`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from servegym.simulator.measured_iterations import MeasuredIterations
from servegym.simulator.nonnegative_least_squares import SPANNED, Floats, solve, unexplained
from servegym.simulator.profile import COEFFICIENTS

COMMON_TOKENS = (
    0.05,
    0.95,
)  # quantiles of the tokens of an iteration between which a knee is sought
FIRST_KNEE, KNEES_PER_DOUBLING = 8, 4
REFINEMENTS = 8  # steps between two neighbours of the best knee, each time finer


@dataclass(frozen=True)
class Fit:
    """Coefficients float64[8] in the order of COEFFICIENTS, the knee, and the sum of squares."""

    coefficients: Floats
    knee_tokens: int
    loss: float

    def by_name(self) -> dict[str, float]:
        """Return the coefficients by name; ValueError if the constant, which a profile needs, is 0."""
        if self.coefficients[COEFFICIENTS.index("c0_ms")] <= 0:
            raise ValueError(
                "the fit gives c0_ms = 0, iterations without a constant time; add small ones (one "
                "decode, a short prompt) and check the unit of t_ms"
            )
        return dict(zip(COEFFICIENTS, self.coefficients.tolist(), strict=True))

    def predict_ms(self, iterations: MeasuredIterations) -> Floats:
        """Return the predicted times, float64[n] ms."""
        return design(iterations, self.knee_tokens) @ self.coefficients


def design(iterations: MeasuredIterations, knee_tokens: int) -> Floats:
    """Return the matrix float64[n, 8] whose product with the coefficients is the time in ms."""
    tokens = iterations.tokens
    has_decode, has_prefill = iterations.decode_seqs > 0, iterations.prefill_tokens > 0
    columns = {
        "c0_ms": np.ones_like(tokens),
        "c_token_ms": tokens,
        "c_above_knee_ms": np.maximum(0.0, tokens - knee_tokens),
        "c_decode_step_ms": has_decode,
        "c_seq_ms": iterations.decode_seqs,
        "c_kv_ms": iterations.kv_tokens,
        "c_prefill_step_ms": has_prefill,
        "c_prefill_attention_ms": iterations.prefill_attention,
    }
    return np.column_stack([columns[name] for name in COEFFICIENTS]).astype(np.float64)


def fit(iterations: MeasuredIterations) -> Fit:
    """Return the best fit over knees; the one of the least tokens where knees do equally well."""
    lowest, highest = np.quantile(iterations.tokens, COMMON_TOKENS)
    grid = [k for k in knee_grid(highest) if k > lowest] or [int(highest)]
    tried = {knee: fit_with_knee(iterations, knee) for knee in grid}
    while True:
        best = min(tried.values(), key=lambda one: (one.loss, one.knee_tokens))
        new = [k for k in knees_between(sorted(tried), best.knee_tokens) if k not in tried]
        if not new:
            return best
        tried |= {knee: fit_with_knee(iterations, knee) for knee in new}


def knee_grid(highest: float) -> Iterator[int]:
    """Yield knees below `highest` tokens, each about 19 % above the one before."""
    knee, step = FIRST_KNEE, 0
    while knee < highest:
        yield knee
        step += 1
        knee = round(FIRST_KNEE * 2 ** (step / KNEES_PER_DOUBLING))


def knees_between(tried: list[int], best: int) -> list[int]:
    """Return whole numbers between the neighbours of the best of the knees tried."""
    place = tried.index(best)
    low, high = tried[max(place - 1, 0)], tried[min(place + 1, len(tried) - 1)]
    return [int(k) for k in np.linspace(low, high, REFINEMENTS + 1).round()]


def fit_with_knee(iterations: MeasuredIterations, knee_tokens: int) -> Fit:
    """Return the least squares of the relative error, from the triangle of a QR decomposition."""
    rows = design(iterations, knee_tokens) / iterations.t_ms[:, None]
    augmented = np.column_stack([rows, np.ones(len(rows))])
    triangle: Floats = np.asarray(np.linalg.qr(augmented, mode="r"))
    coefficients = solve(triangle[:, :-1], triangle[:, -1], first=0)
    errors = triangle[:, :-1] @ coefficients - triangle[:, -1]
    return Fit(coefficients, knee_tokens, float(errors @ errors))


def unidentified(iterations: MeasuredIterations, found: Fit) -> tuple[str, ...]:
    """Return the coefficients, all 0, that could be anything: others explain what they would."""
    rows = design(iterations, found.knee_tokens) / iterations.t_ms[:, None]
    lengths = np.linalg.norm(rows, axis=0)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    is_used = found.coefficients > 0
    is_spanned = np.linalg.norm(unexplained(rows, is_used, slice(None)), axis=0) <= SPANNED
    pairs = zip(COEFFICIENTS, is_spanned & ~is_used, strict=True)
    return tuple(name for name, is_unknown in pairs if is_unknown)
