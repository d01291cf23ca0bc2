"""splitmix64 against its published constants in plain integers, and what is drawn from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from servegym.simulator.build import random_stream
from servegym.simulator.random_stream import (
    next_uint64,
    random_below,
    random_float,
    random_normal,
)

SEEDS = st.integers(0, 2**64 - 1)
MASK = 2**64 - 1


def stream(seed: int) -> np.ndarray:
    """Return a stream that starts at that state."""
    return np.array([seed], np.uint64)


def splitmix64(state: int) -> int:
    """Return the number that follows a state (Steele, Lea and Flood 2014, figure 17)."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_published_first_numbers_of_seed_zero():
    # the test vector of Vigna's splitmix64.c for state 0
    rng = stream(0)
    assert [int(next_uint64(rng)) for _ in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@given(SEEDS)
def test_numbers_are_those_of_plain_integers(seed):
    rng = stream(seed)
    assert int(next_uint64(rng)) == splitmix64(seed)
    assert int(rng[0]) == (seed + 0x9E3779B97F4A7C15) & MASK


@given(SEEDS, st.integers(1, 2**32 - 1))
def test_random_below_is_in_range_and_the_scaled_high_half(seed, n):
    drawn = random_below(stream(seed), n)
    assert 0 <= drawn < n
    assert drawn == (splitmix64(seed) >> 32) * n >> 32


@given(SEEDS)
def test_random_float_is_in_the_half_open_unit_interval(seed):
    drawn = random_float(stream(seed))
    assert 0.0 <= drawn < 1.0
    assert drawn == (splitmix64(seed) >> 11) / 2**53


def test_normal_deviates_are_standard_normal():
    # Kolmogorov-Smirnov on 20,000 draws, and no sequel depends on its predecessor
    rng = stream(12345)
    draws = np.array([random_normal(rng) for _ in range(20_000)])
    assert stats.kstest(draws, "norm").pvalue > 0.001
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


@given(SEEDS)
def test_normal_deviate_is_that_of_box_and_muller(seed):
    rng = stream(seed)
    u, v = random_float(rng), random_float(rng)
    expected = np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * v)
    assert random_normal(stream(seed)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 7, 10, 64])
def test_random_below_is_uniform(n):
    # chi-square of 20,000 draws; a fixed seed, so it passes or fails for ever
    rng = stream(12345)
    counts = np.bincount([random_below(rng, n) for _ in range(20_000)], minlength=n)
    assert stats.chisquare(counts).pvalue > 0.001


def test_successive_draws_are_uncorrelated_pairs():
    rng = stream(99)
    draws = np.array([random_below(rng, 8) for _ in range(20_000)])
    pairs = np.bincount(draws[::2] * 8 + draws[1::2], minlength=64)
    assert stats.chisquare(pairs).pvalue > 0.001


def test_streams_of_one_seed_differ_by_key_and_of_one_key_by_seed():
    starts = {int(random_stream(seed, key)) for seed in range(50) for key in range(4)}
    assert len(starts) == 200
    assert random_stream(7, 2) == random_stream(7, 2)
