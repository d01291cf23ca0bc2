"""Normal deviates from a policy's own stream.

Source: Box and Muller (1958). Two uniforms make one deviate; the sine half of the pair is thrown away, so that the
stream alone is the state.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.random_stream import random_float


@kernel
def random_normal(rng):
    """Return a standard normal deviate (mutates rng, uint64[1])."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random_float(rng)))
    return radius * math.cos(2.0 * math.pi * random_float(rng))
