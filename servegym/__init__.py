"""servegym: scheduling a cluster of LLM serving instances, simulated.

The front door. Importing it is cheap on purpose: it registers the environments with gymnasium, and every name below
loads its module on first use, so numba, pandas and torch stay out until then. The parts live in servegym.traces,
servegym.simulator, servegym.baselines, servegym.envs and servegym.experiments.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from servegym.envs.registration import register_envs

if TYPE_CHECKING:
    from servegym.baselines.saturation import saturation_rate, scale_to_load
    from servegym.baselines.simulate import replay, simulate
    from servegym.baselines.systems import System, find_system, system_names
    from servegym.experiments.compare import compare
    from servegym.experiments.plots import (
        kv_and_queue_over_time,
        latency_against_load,
        latency_cdf,
        tier_bars,
    )
    from servegym.experiments.recorder import record
    from servegym.experiments.saved import load_comparison, merge
    from servegym.experiments.timeline import timeline
    from servegym.simulator.config import ClusterConfig
    from servegym.simulator.policy import (
        Param,
        admission_policy,
        dispatch_policy,
        estimator,
        migration_policy,
        ordering_policy,
        queue_policy,
        remaining_policy,
        scaling_policy,
    )
    from servegym.simulator.result import Result
    from servegym.simulator.simulation import Simulation
    from servegym.simulator.slo import Slo
    from servegym.traces import Trace, Workload, generate, load, workload

# Where each name is defined; one line here and one above is all a new one needs.
_HOMES = {
    "ClusterConfig": "servegym.simulator.config",
    "Param": "servegym.simulator.policy",
    "Result": "servegym.simulator.result",
    "Simulation": "servegym.simulator.simulation",
    "Slo": "servegym.simulator.slo",
    "System": "servegym.baselines.systems",
    "Trace": "servegym.traces",
    "Workload": "servegym.traces",
    "admission_policy": "servegym.simulator.policy",
    "compare": "servegym.experiments.compare",
    "dispatch_policy": "servegym.simulator.policy",
    "estimator": "servegym.simulator.policy",
    "find_system": "servegym.baselines.systems",
    "generate": "servegym.traces",
    "kv_and_queue_over_time": "servegym.experiments.plots",
    "latency_against_load": "servegym.experiments.plots",
    "latency_cdf": "servegym.experiments.plots",
    "load": "servegym.traces",
    "load_comparison": "servegym.experiments.saved",
    "merge": "servegym.experiments.saved",
    "migration_policy": "servegym.simulator.policy",
    "ordering_policy": "servegym.simulator.policy",
    "queue_policy": "servegym.simulator.policy",
    "record": "servegym.experiments.recorder",
    "remaining_policy": "servegym.simulator.policy",
    "replay": "servegym.baselines.simulate",
    "saturation_rate": "servegym.baselines.saturation",
    "scale_to_load": "servegym.baselines.saturation",
    "scaling_policy": "servegym.simulator.policy",
    "simulate": "servegym.baselines.simulate",
    "system_names": "servegym.baselines.systems",
    "tier_bars": "servegym.experiments.plots",
    "timeline": "servegym.experiments.timeline",
    "workload": "servegym.traces",
}

__all__ = [
    "ClusterConfig",
    "Param",
    "Result",
    "Simulation",
    "Slo",
    "System",
    "Trace",
    "Workload",
    "admission_policy",
    "compare",
    "dispatch_policy",
    "estimator",
    "find_system",
    "generate",
    "kv_and_queue_over_time",
    "latency_against_load",
    "latency_cdf",
    "load",
    "load_comparison",
    "merge",
    "migration_policy",
    "ordering_policy",
    "queue_policy",
    "record",
    "remaining_policy",
    "replay",
    "saturation_rate",
    "scale_to_load",
    "scaling_policy",
    "simulate",
    "system_names",
    "tier_bars",
    "timeline",
    "workload",
]

register_envs()


def __getattr__(name: str) -> Any:
    """Load a public name's module and return it (PEP 562)."""
    if name == "__version__":
        return import_module("importlib.metadata").version("servegym")
    if name not in _HOMES:
        raise AttributeError(f"module 'servegym' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
