"""Random numbers from a stream kept in the state: splitmix64 on uint64[1].

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014). numpy's global generator is not
used in kernels: a snapshot could not hold it.
"""

import math

import numpy as np

from servegym.simulator.kernel import kernel

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_MIX = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_S11 = np.uint64(11)


@kernel
def next_uint64(rng):
    """Return the next 64 random bits (mutates rng, uint64[1])."""
    rng[0] += _GAMMA
    mixed = rng[0]
    mixed = (mixed ^ (mixed >> _S30)) * _FIRST_MIX
    mixed = (mixed ^ (mixed >> _S27)) * _SECOND_MIX
    return mixed ^ (mixed >> _S31)


@kernel
def random_below(rng, n):
    """Return a uniform integer in 0 .. n - 1 (n < 2**32; bias below n / 2**32)."""
    return np.int64(((next_uint64(rng) >> _S32) * np.uint64(n)) >> _S32)


@kernel
def random_float(rng):
    """Return a uniform float64 in [0, 1)."""
    return np.float64(next_uint64(rng) >> _S11) * 2.0**-53


@kernel
def random_normal(rng):
    """Return a standard normal deviate, from two uniform ones (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random_float(rng)))
    return radius * math.cos(2.0 * math.pi * random_float(rng))
