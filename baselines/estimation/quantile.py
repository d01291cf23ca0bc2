"""The quantile estimator: a quantile of the output lengths, tracked from completions.

After every completion of y tokens under an estimate x:  log x <- log x + step * (q - [y <= x]).
At rest P(y <= x) = q. In logs the step is a share, whatever the lengths. It starts at the workload's mean.
Source: stochastic approximation (Robbins and Monro 1951) of the pinball loss's minimum (Koenker and Bassett 1978).
"""

import math

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.simulator.policy import Param, estimator

Q, STEP, START = 0, 1, 2
MOST_LOG = 20.0  # e**20 tokens are more than any request has


def track(request, output_tokens, params, memory):
    """Move the estimate towards the quantile (mutates memory[0], log(estimate / start))."""
    is_covered = output_tokens <= params[START] * math.exp(memory[0])
    moved = memory[0] + params[STEP] * (params[Q] - (1.0 if is_covered else 0.0))
    memory[0] = min(max(moved, -MOST_LOG), MOST_LOG)


@estimator(
    source="stochastic approximation of a quantile (Robbins and Monro 1951)",
    params=(
        Param("q", 0.5, "share of outputs at or below", 0.01, 0.99),
        Param("step", 0.05, "share a completion", 0, 1),
        Param("start", mean_output_tokens, "tokens", 1, 2**30),
    ),
    memory=1,
    observe=track,
)
def quantile(request, params, memory, rng):
    """Predict the q-quantile of the output tokens seen so far, the workload's mean at first."""
    return min(max(params[START] * math.exp(memory[0]), 1.0), 2.0**30)
