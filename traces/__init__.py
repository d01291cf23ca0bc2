"""Request traces: the Trace type, loaders for public formats, fitted workloads.

A trace is what arrives: times, prompt and output lengths, tiers. Nothing here knows of a cluster.
"""

from servegym.traces.labels import Labels
from servegym.traces.load import load
from servegym.traces.report import LoadReport
from servegym.traces.trace import Trace
from servegym.traces.workload import Workload, generate, workload, workload_names

__all__ = [
    "Labels",
    "LoadReport",
    "Trace",
    "Workload",
    "generate",
    "load",
    "workload",
    "workload_names",
]
