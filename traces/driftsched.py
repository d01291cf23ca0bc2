"""DriftSched's workload: four kinds of task, three tenants, and outputs that drift from a base.

3,000 requests: 1,000 with mix 40/25/25/10 and gaps U(.05, .15) s, a pause, 2,000 with mix
10/20/40/30 and gaps U(.005, .03) s. Observed lengths are not published; the stand-ins are lognormal
components fitted to real outputs of like tasks. As published (-words) lengths are cut at the base and
counted in words; -tokens has true lengths beyond the base, and its drift forms are ours.
"""

from functools import cache
from statistics import NormalDist

import numpy as np

from servegym.traces.arrivals import UniformPhases
from servegym.traces.demand.categories import CategoryLengths, LengthDrift
from servegym.traces.demand.distributions import QuantileTable, Uniform
from servegym.traces.demand.requests import Demand
from servegym.traces.workload import Workload

TENANTS = ("premium", "standard", "batch")
BASE_TOKENS = {"short_qa": 64, "summary": 256, "technical": 384, "report": 512}
MIXES = ((0.40, 0.25, 0.25, 0.10), (0.10, 0.20, 0.40, 0.30))
STARTS = (0, 1_000)
PROMPT_TOKENS = Uniform(20, 36)  # 14-19 words
WORDS_PER_TOKEN = 0.75  # English prose, the usual rule of thumb
ARRIVALS = UniformPhases((1_000, 2_000), (0.05, 0.005), (0.15, 0.03), pause_s=15.0)

# Lognormal (mu, sigma) of output tokens: one component of a mixture fitted by EM to each trace.
STAND_INS = {
    "short_qa": (3.749, 0.952),  # Azure 2023 code, the longer 27 %
    "summary": (5.070, 0.609),  # arXiv summarization, the main 96 %
    "technical": (5.818, 0.620),  # ShareGPT, the main 77 %
    "report": (6.034, 0.130),  # Azure 2023 conversation, the longer 31 %
}

DRIFTS = {
    "step": ("times 1.5 from request 2,000", LengthDrift(2_000, 2_000, (1.5,) * 4)),
    "ramp": ("growing to twice over 3,000", LengthDrift(0, 3_000, (2.0,) * 4)),
    "category": (
        "times 2, .5, 1.5, .75 by task from request 2,000",
        LengthDrift(2_000, 2_000, (2.0, 0.5, 1.5, 0.75)),
    ),
}


def driftsched_workloads() -> list[Workload]:
    """Return the published arm in words, the true lengths in tokens, and their drift forms."""
    words = tasks(tuple(BASE_TOKENS.values()), WORDS_PER_TOKEN)
    forms = [
        driftsched(f"tokens-{name}", f"outputs in tokens, {about}", tasks(drift=drift))
        for name, (about, drift) in DRIFTS.items()
    ]
    published = driftsched("words", "outputs in words, cut at the base", words)
    return [published, driftsched("tokens", "outputs in tokens, no drift", tasks()), *forms]


def tasks(
    limits: tuple[int, ...] | None = None,
    words_per_token: float = 1.0,
    drift: LengthDrift | None = None,
) -> CategoryLengths:
    """Return the four tasks' lengths."""
    outputs = tuple(lognormal_table(*STAND_INS[category]) for category in BASE_TOKENS)
    return CategoryLengths(
        TENANTS,
        tuple(BASE_TOKENS),
        STARTS,
        MIXES,
        PROMPT_TOKENS,
        outputs,
        limits,
        words_per_token,
        drift,
    )


def driftsched(variant: str, about: str, demand: Demand) -> Workload:
    """Return one variant as a workload."""
    return Workload(
        name=f"driftsched-{variant}",
        source=f"DriftSched's task mix and gaps; {about}; lognormal stand-ins from real traces",
        licence="none needed: a formula; its constants fitted to CC BY 4.0 and MIT data",
        citation="DriftSched: feedback-corrected length estimates on one L4 with Qwen1.5-1.8B",
        n_rows=0,
        recorded_rate_per_s=ARRIVALS.rate_per_s,
        made_by="traces/driftsched.py",
        demand=demand,
        arrivals=ARRIVALS,
    )


@cache
def lognormal_table(mu: float, sigma: float, steps: int = 2_000) -> QuantileTable:
    """Return a lognormal's quantiles, tokens >= 1, at even levels and from 0.01 % to 99.99 %."""
    inside = (*(np.arange(1, steps) / steps).tolist(), 0.9999)
    levels = (0.0001, *inside)
    normal = NormalDist(mu, sigma)
    values = [max(1, round(float(np.exp(normal.inv_cdf(level))))) for level in levels]
    mean = float(np.exp(mu + sigma * sigma / 2.0))
    return QuantileTable((0.0, *levels, 1.0), (values[0], *values, values[-1]), mean)
