"""What counts as served well: a limit on TTFT and one on TPOT, looser for less urgent tiers.

Tier p must meet (1 + p) times the limits of tier 0 and weighs 2^-p. The default limits are ours.
A rejected, failed or cancelled request costs a penalty: the config's `reject_penalty_s`, else the
longest E2E that its tier's SLO allows.
"""

import math
from dataclasses import dataclass

import numpy as np

from servegym.simulator.build import records
from servegym.simulator.state import TARIFF


@dataclass(frozen=True)
class Slo:
    """The limits of tier 0, seconds. ValueError unless finite and > 0."""

    ttft_s: float = 1.0
    tpot_s: float = 0.1

    def __post_init__(self) -> None:
        for name, value in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"Slo: {name} = {value}; must be finite and > 0")

    def by_tier(self, n_tiers: int, reject_penalty_s: float | None) -> np.ndarray:
        """Return TARIFF[n_tiers]; a negative penalty stands for the longest E2E within the SLO."""
        factor = 1.0 + np.arange(n_tiers)
        limits = records(n_tiers, TARIFF)
        limits["ttft_s"] = self.ttft_s * factor
        limits["tpot_s"] = self.tpot_s * factor
        limits["penalty_s"] = -1.0 if reject_penalty_s is None else reject_penalty_s
        limits["weight"] = [tier_weight(tier) for tier in range(n_tiers)]
        return limits


DEFAULT_SLO = Slo()


def tier_weight(tier: int) -> float:
    """Return what a request of that tier weighs: 2^-tier."""
    return 0.5**tier
