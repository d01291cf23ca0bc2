"""The named studies: what each searches, of which system, on what cluster and workload. One entry each.

headroom: how much memory n-tier keeps back for urgent tiers, how it falls from tier to tier, how many tiers there are,
and when it migrates; set-up and default of Beyond Binary Priorities, at a load that can be served. The mix is one
family across numbers of tiers (tier_mixes.py). ema: how fast DriftSched's estimate follows, where it clips, and its
safety factors by tenant, against the speed of drift; its L4 with continuous batches under SJF.
"""

from dataclasses import dataclass, field
from typing import Any

from servegym.traces.names import near_match
from servegym.tuning.drift import SPEEDS

SYSTEM = "system"  # any other system, its parameters given


@dataclass(frozen=True)
class Study:
    """A named study. params: as --param takes them. cluster, load, ...: defaults of the options of those names."""

    name: str
    summary: str
    system: str
    params: tuple[str, ...]
    workloads: tuple[str, ...]
    objective: str
    cluster: dict[str, Any] = field(default_factory=dict)
    tier_mix: str | None = None
    load: float | None = None
    requests: int = 10_000


HEADROOM = Study(
    name="headroom",
    summary="n-tier's headroom: its peak and decay, the number of tiers, the threshold of migration",
    system="n-tier",
    params=(
        "peak=0:0.6",
        "decay=0:10",
        "form=exponential,linear",
        "tiers=1:10",
        "migration.threshold=0.01:10:log",
    ),
    workloads=("zipf-64-512",),
    objective="mean-e2e",
    cluster={
        "profile": "a100_sxm/Llama-2-7B/tp1",
        "instances": 4,
        "kv_blocks": 128,
        "max_num_seqs": 64,
        "tiers": 4,
    },
    tier_mix="fair-enterprise",
    load=0.9,
)
EMA = Study(
    name="ema",
    summary="DriftSched's estimate: how fast it learns, clips and safety factors, at four speeds of drift",
    system="driftsched-sjf",
    params=(
        "alpha=0.005:1:log",
        "least_ratio=0:1",
        "most_ratio=1:10",
        "factor_premium=0.5:2",
        "factor_standard=0.5:2",
        "factor_batch=0.5:2",
    ),
    workloads=tuple(SPEEDS),
    objective="prediction-mae",
    cluster={"profile": "l4/Qwen1.5-1.8B/tp1", "instances": 1, "max_num_seqs": 32},
    load=0.8,
    requests=3_000,
)
STUDIES = {study.name: study for study in (HEADROOM, EMA)}


def find_study(name: str) -> Study:
    """Return the study of that name; ValueError with the near match."""
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; {near_match(name, [*STUDIES, SYSTEM])}")
    return STUDIES[name]
