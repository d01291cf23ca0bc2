"""Named random streams: independent generators that all come from one seed.

A stream is a child of the seed's SeedSequence, keyed by its name, so that drawing more from one
never moves another, and the same (seed, name) is the same stream in any process.
"""

import zlib

import numpy as np

Seed = int | np.random.SeedSequence


def stream(seed: Seed, name: str) -> np.random.Generator:
    """Return the generator of one named stream; ValueError for a negative seed.

    Unlike SeedSequence.spawn this leaves the sequence as it was: asking twice gives equal streams.
    """
    if not isinstance(seed, np.random.SeedSequence):
        if seed < 0:
            raise ValueError(f"seed = {seed}; must be >= 0")
        seed = np.random.SeedSequence(seed)
    key = (*seed.spawn_key, zlib.crc32(name.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))
