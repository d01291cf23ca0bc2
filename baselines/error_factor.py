"""The error of a prediction as a random factor: clip(1 + N(0, s), .1, 5). Source: Astrolabe's error model."""

from servegym.simulator.kernel import kernel
from servegym.simulator.random_stream import random_normal

LEAST_FACTOR, MOST_FACTOR = 0.1, 5.0


@kernel
def error_factor(rng, deviation):
    """Return clip(1 + N(0, deviation), .1, 5); exactly 1 without deviation (mutates rng otherwise)."""
    if deviation == 0.0:
        return 1.0
    return min(max(1.0 + deviation * random_normal(rng), LEAST_FACTOR), MOST_FACTOR)
