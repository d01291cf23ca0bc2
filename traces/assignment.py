"""Tiers and categories drawn at random for a trace that has none. They are methods of Trace.

Each has a random stream of its own: drawing one never moves the other, nor arrivals or lengths.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from servegym.traces.labels import Labels
from servegym.traces.streams import Seed, stream
from servegym.traces.tier_mixes import tier_fractions

if TYPE_CHECKING:
    from servegym.traces.trace import Trace


def assign_tiers(
    trace: "Trace", mix: Sequence[float] | str, seed: Seed, tiers: int | None = None
) -> "Trace":
    """Draw each request's tier at random: tier p with probability mix[p].

    mix: fractions, or the name of a mix (tier_mixes.py) together with the number of tiers.
    ValueError unless fractions are >= 0 and sum to 1 (within 1e-9).
    """
    if isinstance(mix, str):
        if tiers is None:
            raise ValueError(f"mix = {mix!r} needs the number of tiers, as in tiers=4")
        fractions, note = tier_fractions(mix, tiers), f"tiers {mix} of {tiers}"
    else:
        fractions, note = mix, f"tiers {list(mix)}"
        if tiers not in (None, len(mix)):
            raise ValueError(f"tiers = {tiers}; the mix has {len(mix)} fractions")
    tier = draw_codes(fractions, len(trace), seed, "tiers")
    return trace.replaced(tier=tier, notes=(*trace.notes, note))


def assign_categories(trace: "Trace", fractions: Mapping[str, float], seed: Seed) -> "Trace":
    """Draw each request's category at random: each name with its fraction.

    ValueError unless fractions are >= 0 and sum to 1 (within 1e-9).
    """
    codes = draw_codes(tuple(fractions.values()), len(trace), seed, "categories")
    shown = ", ".join(f"{name} {share:g}" for name, share in fractions.items())
    notes = (*trace.notes, f"categories {shown}")
    return trace.replaced(category=Labels(fractions, codes), notes=notes)


def draw_codes(fractions: Sequence[float], n: int, seed: Seed, name: str) -> NDArray[np.int64]:
    """Return n codes, k with probability fractions[k], from the named random stream."""
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.ndim != 1 or not (shares >= 0.0).all() or abs(shares.sum() - 1.0) > 1e-9:
        raise ValueError(f"fractions = {list(fractions)}; must be >= 0 and sum to 1")
    edges = np.cumsum(shares)
    edges /= edges[-1]
    return np.searchsorted(edges, stream(seed, name).random(n), side="right")
