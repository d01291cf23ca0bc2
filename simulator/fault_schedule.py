"""Schedules of faults drawn at random: every instance works and fails in turn, independently of the others.

Time to failure and time to repair are exponential, of means mtbf_s and mttr_s (an alternating renewal process; Trivedi,
Probability and Statistics, 2002). Every instance and kind has a stream of its own: others leave it alone.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from servegym.simulator.config import ClusterConfig, Fault
from servegym.simulator.state import FAULT_KINDS

FAULT_STREAM = 9  # spawn key; those of the other streams of a seed are in build.py
LEAST_S = 1e-9

Kind = Literal["crash", "slow", "metrics", "link"]


def draw_faults(
    config: ClusterConfig,
    mtbf_s: float,
    mttr_s: float,
    until_s: float,
    seed: int,
    *,
    kinds: Sequence[Kind] = ("crash",),
    factor: float = 2.0,
) -> tuple[Fault, ...]:
    """Return the faults that begin before until_s, by time, for ClusterConfig(faults=...).

    mtbf_s: mean time between the end of a fault and the next; mttr_s: mean duration; seconds. factor: of slow ones.
    ValueError for a time that is not positive and finite, or an unknown kind.
    """
    for name, value in (("mtbf_s", mtbf_s), ("mttr_s", mttr_s), ("until_s", until_s)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} = {value}; must be > 0 and finite")
    for kind in kinds:
        if kind not in FAULT_KINDS:
            raise ValueError(f"kinds = {tuple(kinds)}; must be some of {FAULT_KINDS}")
    faults = []
    for i in range(config.most_instances):
        for kind in kinds:
            key = (FAULT_STREAM, FAULT_KINDS.index(kind), i)
            random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
            at_s = random.exponential(mtbf_s)
            while at_s < until_s:
                duration_s = max(random.exponential(mttr_s), LEAST_S)
                faults.append(
                    Fault(kind=kind, instance=i, at_s=at_s, duration_s=duration_s, factor=factor)
                )
                at_s += duration_s + random.exponential(mtbf_s)
    return tuple(sorted(faults, key=lambda fault: (fault.at_s, fault.instance)))
