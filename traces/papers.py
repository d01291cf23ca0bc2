"""The synthetic workloads of papers, from their formulas: Zipf totals, power-law and fixed lengths.

zipf-64-512: tiered SLA scheduling (UC Berkeley): totals by YCSB's Zipf 1.2 on [64, 512], prompt and
output 2:1, Poisson at 1,250 req/s. powerlaw-A-B: Llumnix (Sun et al., OSDI '24): mean prompt A, mean
output B, each rank 1 .. 2m-1 with probability r^-a, scaled to mean m. fixed-P-O: every request alike.
"""

import re
from functools import cache

from servegym.traces.arrivals import Poisson
from servegym.traces.demand.distributions import Fixed, PowerLaw, Zipf
from servegym.traces.demand.requests import Demand, Independent, Split
from servegym.traces.driftsched import driftsched_workloads
from servegym.traces.workload import Workload

LICENCE = "none needed: a formula"
EXPONENTS = {128: 2.0, 256: 1.5, 512: 1.15}  # by mean length
CAP_TOKENS = 6_144
PAIRS = ((128, 128), (256, 256), (512, 512), (128, 512), (512, 128))
ZIPF_RATE_PER_S = 1_250.0
FIXED = re.compile(r"fixed-([1-9]\d{0,8})-([1-9]\d{0,8})")


def zipf() -> Workload:
    """Return the workload of the tiered SLA scheduler."""
    source = "Zipf 1.2 totals on [64, 512], prompt:output 2:1, generator of YCSB as in Vidur"
    citation = "Beyond Binary Priorities: multi-tier SLA scheduling (UC Berkeley), its set-up"
    demand = Split(Zipf(1.2, 64, 512), prompt_to_output=2.0)
    return synthetic("zipf-64-512", source, citation, demand, ZIPF_RATE_PER_S)


def power_law(prompt: int, output: int) -> Workload:
    """Return a pair of Llumnix's power-law lengths, by their means."""
    marginals = [PowerLaw(EXPONENTS[mean], mean, CAP_TOKENS) for mean in (prompt, output)]
    source = f"power laws r^-{EXPONENTS[prompt]} and r^-{EXPONENTS[output]}, cut at {CAP_TOKENS}"
    citation = 'B. Sun et al., "Llumnix: Dynamic Scheduling for LLM Serving", OSDI 2024'
    return synthetic(f"powerlaw-{prompt}-{output}", source, citation, Independent(*marginals))


def fixed(prompt: int, output: int) -> Workload:
    """Return the workload whose requests are all alike."""
    demand = Independent(Fixed(prompt), Fixed(output))
    return synthetic(f"fixed-{prompt}-{output}", "fixed lengths", "none needed", demand)


def synthetic(
    name: str, source: str, citation: str, demand: Demand, rate_per_s: float | None = None
) -> Workload:
    """Return a workload that was fitted on nothing; Poisson where its paper gives a rate."""
    arrivals = None if rate_per_s is None else Poisson()
    made_by = "traces/papers.py"
    return Workload(name, source, LICENCE, citation, 0, rate_per_s, made_by, demand, arrivals)


@cache
def papers() -> dict[str, Workload]:
    """Return the papers' workloads by name."""
    listed = [zipf(), *(power_law(*pair) for pair in PAIRS), fixed(512, 128)]
    return {model.name: model for model in [*listed, *driftsched_workloads()]}


def paper_names() -> list[str]:
    """Return the names of the papers' workloads."""
    return sorted(papers())


def find_paper(name: str) -> Workload | None:
    """Return a paper's workload, any pair of fixed lengths, or None."""
    if (matched := FIXED.fullmatch(name)) is not None:
        return fixed(int(matched[1]), int(matched[2]))
    return papers().get(name)
