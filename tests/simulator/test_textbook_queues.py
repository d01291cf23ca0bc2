"""The engine as a single server meets the waits of queueing theory.

One seat and iterations of 10 ms: a request of one token takes 10 ms (M/D/1); with geometric output
lengths of mean 100 tokens service is memoryless up to the grid of 10 ms (M/M/1). Each mean wait must
lie in the 99.9 % t interval of independent runs, which must be narrow enough to mean something.
"""

import numpy as np
import pytest
from flat_profile import one_server
from scipy import stats

from servegym.baselines.simulate import simulate
from servegym.traces import Trace

N_RUNS, N_REQUESTS = 20, 40_000


def mean_waits(utilisation: float, mean_output: int, n_servers: int = 1) -> np.ndarray:
    """Return the mean queue time of each run, s; outputs are 1, or geometric with that mean."""
    service_s = 0.010 * mean_output
    rate_per_s = n_servers * utilisation / service_s
    waits = []
    for seed in range(N_RUNS):
        random = np.random.default_rng(seed)
        arrivals = np.cumsum(random.exponential(1 / rate_per_s, N_REQUESTS))
        outputs = random.geometric(1 / mean_output, N_REQUESTS)
        trace = Trace(arrivals, np.ones(N_REQUESTS, int), outputs)
        config = one_server(instances=n_servers, kv_blocks=10_000)
        waits.append(simulate(trace, config, "random", seed=seed).requests["queue_s"].mean())
    return np.array(waits)


def check_wait(waits: np.ndarray, expected_s: float, relative_width: float) -> None:
    """Assert that the expected wait lies in the interval, and that the interval is narrow."""
    half = stats.t.ppf(0.9995, len(waits) - 1) * waits.std(ddof=1) / np.sqrt(len(waits))
    assert half < relative_width * expected_s
    assert abs(waits.mean() - expected_s) < half


@pytest.mark.parametrize("utilisation", [0.5, 0.8])
def test_m_d_1_wait(utilisation: float):
    # Pollaczek-Khinchine with constant service S: rho * S / (2 * (1 - rho)); .5 gives S / 2
    check_wait(
        mean_waits(utilisation, mean_output=1),
        utilisation * 0.010 / (2 * (1 - utilisation)),
        relative_width=0.05,
    )


@pytest.mark.parametrize("utilisation", [0.5, 0.7])
def test_m_m_1_wait(utilisation: float):
    # rho / (mu - lambda) = rho * S / (1 - rho), S = 1 s; geometric service makes it 0.5 % less:
    # E[S^2] = (2 - p) / p^2 instead of 2 / p^2, p = .01
    expected_s = utilisation / (1 - utilisation) * (2 - 0.01) / 2
    check_wait(mean_waits(utilisation, mean_output=100), expected_s, relative_width=0.08)


def test_random_splitting_makes_independent_m_m_1_queues():
    # Four servers, each with a quarter of a Poisson stream of 4 * .5: the wait of one at .5
    check_wait(mean_waits(0.5, mean_output=100, n_servers=4), 1.0 * 0.995, relative_width=0.08)
