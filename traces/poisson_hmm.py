"""Poisson hidden Markov model: counts whose mean depends on a hidden state, fitted by EM.

Baum-Welch with Poisson emissions (Zucchini and MacDonald, Hidden Markov Models for Time Series,
2009, ch. 4): scaled forward and backward passes, then means and transitions re-estimated from the
expected visits. In each window the state may change once; read as continuous time, a state with
stay probability p lasts window / (1 - p) on average.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
PRIOR_JUMPS = 0.01  # added to every expected transition, so that no state traps the chain
LEAST_MEAN = 1e-3


@dataclass(frozen=True)
class PoissonHmm:
    """means: counts a window in each state. transitions: rows sum to 1."""

    means: Matrix
    transitions: Matrix
    log_likelihood: float


def fit_poisson_hmm(
    counts: NDArray[np.int64], n_states: int, most_steps: int = 300, tolerance: float = 1e-3
) -> PoissonHmm:
    """Return the model after EM from a fixed start, until the log likelihood gains < tolerance."""
    model = starting_model(counts, n_states)
    for _ in range(most_steps):
        better = em_step(counts, model)
        if better.log_likelihood - model.log_likelihood < tolerance:
            return better
        model = better
    return model


def starting_model(counts: NDArray[np.int64], n_states: int) -> PoissonHmm:
    """Return a silent state and the quantiles of the windows that are not empty; states stay 0.9."""
    levels = (np.arange(n_states - 1) + 0.5) / (n_states - 1)
    means = np.quantile(counts[counts > 0], levels) * (1.0 + 0.01 * np.arange(n_states - 1))
    transitions = np.full((n_states, n_states), 0.1 / (n_states - 1))
    np.fill_diagonal(transitions, 0.9)
    return PoissonHmm(np.concatenate([[0.02], means]), transitions, -np.inf)


def em_step(counts: NDArray[np.int64], model: PoissonHmm) -> PoissonHmm:
    """Return the re-estimated model, with the log likelihood (less a constant) of the old one."""
    log_odds = counts[:, None] * np.log(model.means) - model.means
    peak = log_odds.max(axis=1, keepdims=True)
    emission = np.exp(log_odds - peak)
    forward, scale = forward_pass(emission, model.transitions)
    backward = backward_pass(emission, model.transitions, scale)
    visits = forward * backward
    ahead = emission[1:] * backward[1:] / scale[1:, None]
    jumps = model.transitions * (forward[:-1].T @ ahead) + PRIOR_JUMPS
    means = (visits * counts[:, None]).sum(axis=0) / visits.sum(axis=0)
    likelihood = float(np.log(scale).sum() + peak.sum())
    transitions = jumps / jumps.sum(axis=1, keepdims=True)
    return PoissonHmm(np.maximum(means, LEAST_MEAN), transitions, likelihood)


def forward_pass(emission: Matrix, transitions: Matrix) -> tuple[Matrix, Matrix]:
    """Return state probabilities given the past, and each window's likelihood given the past."""
    forward, scale = np.empty_like(emission), np.empty(len(emission))
    now = emission[0] / emission.shape[1]
    for t in range(len(emission)):
        now = now if t == 0 else (forward[t - 1] @ transitions) * emission[t]
        scale[t] = now.sum()
        forward[t] = now / scale[t]
    return forward, scale


def backward_pass(emission: Matrix, transitions: Matrix, scale: Matrix) -> Matrix:
    """Return the factor by which what follows each window changes its state probabilities."""
    backward = np.ones_like(emission)
    for t in range(len(emission) - 2, -1, -1):
        backward[t] = transitions @ (emission[t + 1] * backward[t + 1]) / scale[t + 1]
    return backward
