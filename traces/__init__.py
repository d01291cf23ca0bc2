"""Request traces: the Trace type, loaders for public formats, fitted workloads.

A trace is what arrives: times, prompt and output lengths, tiers. Nothing here knows of a cluster.
"""

from servegym.traces.labels import NOT_RECORDED, Labels
from servegym.traces.lengths import load_lengths
from servegym.traces.load import load
from servegym.traces.prefix_blocks import PrefixBlocks
from servegym.traces.report import LoadReport
from servegym.traces.tier_mixes import mix_names, tier_fractions
from servegym.traces.trace import Trace
from servegym.traces.workload import Workload, generate, workload, workload_names

__all__ = [
    "NOT_RECORDED",
    "Labels",
    "LoadReport",
    "PrefixBlocks",
    "Trace",
    "Workload",
    "generate",
    "load",
    "load_lengths",
    "mix_names",
    "tier_fractions",
    "workload",
    "workload_names",
]
