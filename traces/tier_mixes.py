"""Tier mixes: what fraction of requests each of K priority tiers gets, by name.

As published (Beyond Binary Priorities, UC Berkeley): a table at K = 2, 3, 5 and a formula elsewhere,

    uniform     1 / K
    gaussian    exp(-d^2 / (K / 2)), d = |p - K // 2|, normalised
    enterprise  .1 first, .6 last, .3 / (K - 2) each between
    power-law   (p + 1)^-1.5, normalised

so the shape jumps at K = 4 and 5: enterprise has 60 % in its last tier, then 2 %. The fair-* mixes
are one family across K: the K = 5 table as a density on [0, 1], re-binned into K equal bins.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from servegym.traces.names import near_match

Fractions = tuple[float, ...]

PUBLISHED: dict[str, dict[int, Fractions]] = {
    "gaussian": {2: (0.30, 0.70), 3: (0.15, 0.70, 0.15), 5: (0.05, 0.20, 0.50, 0.20, 0.05)},
    "enterprise": {2: (0.25, 0.75), 3: (0.10, 0.30, 0.60), 5: (0.10, 0.30, 0.50, 0.08, 0.02)},
    "power-law": {2: (0.10, 0.90), 3: (0.05, 0.15, 0.80), 5: (0.02, 0.08, 0.70, 0.15, 0.05)},
}
FAIR = "fair-"
FAIR_BINS = 5


def uniform(tiers: int) -> Fractions:
    """Return equal fractions."""
    return (1.0 / tiers,) * tiers


def gaussian(tiers: int) -> Fractions:
    """Return a bell around tier K // 2."""
    distance = np.arange(tiers) - tiers // 2
    return normalised(np.exp(-(distance**2) / (tiers / 2)))


def enterprise(tiers: int) -> Fractions:
    """Return a tenth first, 60 % last, the rest evenly between; ValueError below two tiers."""
    return normalised(np.array([0.1, *[0.3 / (tiers - 2)] * (tiers - 2), 0.6]))


def power_law(tiers: int) -> Fractions:
    """Return fractions that fall with the tier's number: the most urgent is the most frequent."""
    return normalised((np.arange(tiers) + 1.0) ** -1.5)


FORMULAS: dict[str, Callable[[int], Fractions]] = {
    "uniform": uniform,
    "gaussian": gaussian,
    "enterprise": enterprise,
    "power-law": power_law,
}


def mix_names() -> list[str]:
    """Return the names of all mixes."""
    return [*FORMULAS, *(FAIR + name for name in PUBLISHED)]


@cache
def tier_fractions(mix: str, tiers: int) -> Fractions:
    """Return the fraction of each tier, most urgent first; one tier has all.

    ValueError for an unknown mix (with the near match) or fewer than one tier.
    """
    if mix not in mix_names():
        raise ValueError(f"tier mix = {mix!r}; {near_match(mix, mix_names())}")
    if tiers < 1:
        raise ValueError(f"tiers = {tiers}; must be >= 1")
    if tiers == 1:
        return (1.0,)
    if mix.startswith(FAIR):
        return rebinned(PUBLISHED[mix.removeprefix(FAIR)][FAIR_BINS], tiers)
    table = PUBLISHED.get(mix, {})
    return table[tiers] if tiers in table else FORMULAS[mix](tiers)


def rebinned(fractions: Fractions, tiers: int) -> Fractions:
    """Return the shape of some fractions in another number of equal bins."""
    cumulative = np.concatenate([[0.0], np.cumsum(fractions)])
    edges = np.linspace(0.0, 1.0, tiers + 1)
    return normalised(np.diff(np.interp(edges, np.linspace(0.0, 1.0, len(cumulative)), cumulative)))


def normalised(weights: np.ndarray) -> Fractions:
    """Return weights divided by their sum."""
    return tuple((weights / weights.sum()).tolist())
