"""Pictures of results, one call each; every function returns the matplotlib axes it drew on.

    latency_cdf(result)                     how latency is spread over requests, or tiers
    latency_against_load(comparisons)       how it grows with load
    tier_bars(comparison)                   what each tier gets
    kv_and_queue_over_time(result)          KV use, preemptions and queues

All take `ax=` to draw on axes of yours. The picture of a whole run is timeline.py.
"""

from servegym.experiments.plot_cdf import latency_cdf
from servegym.experiments.plot_load import latency_against_load
from servegym.experiments.plot_occupancy import kv_and_queue_over_time
from servegym.experiments.plot_tiers import tier_bars

__all__ = ["kv_and_queue_over_time", "latency_against_load", "latency_cdf", "tier_bars"]
