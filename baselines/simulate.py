"""simulate: one trace, one cluster, one system, one seed; a Result.

    simulate(trace, instances=8, system="power-of-two", load=0.95).summary()

Options are fields of ClusterConfig and override those of a config that is given. replay runs a
saved result again: identical, request by request.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from servegym.baselines.saturation import scale_to_load, scale_to_rate
from servegym.baselines.system_file import check_tiers
from servegym.baselines.systems import System, find_system
from servegym.simulator.config import SCENARIOS, ClusterConfig
from servegym.simulator.policy import Policy, find_policy
from servegym.simulator.result import Result, SavedResult, result_of
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace
from servegym.traces import load as load_trace
from servegym.traces.names import near_match

PLAYED = ["status", "instance", "admitted_s", "first_token_s", "finish_s", "preemptions"]


def simulate(
    trace: Trace | str | Path,
    config: ClusterConfig | None = None,
    system: str | Policy | System = "least-requests",
    *,
    seed: int = 0,
    horizon_s: float | None = None,
    load: float | None = None,
    rate_per_s: float | None = None,
    **options: Any,
) -> Result:
    """Run a trace, or its file, to its end, or to horizon_s, and return what it gave.

    What the system sets goes over the config; result.config is what it ran with.
    load: scale arrivals to that multiple of the fleet's saturation rate; rate_per_s: to that mean
    rate; neither: times as recorded. ValueError for a bad option, NoProgressError from the engine.
    """
    if not isinstance(config, ClusterConfig | None):
        raise ValueError(f"config = {config!r}; must be a ClusterConfig (options go by name)")
    trace = trace if isinstance(trace, Trace) else load_trace(trace)
    config = with_options(config, options)
    chosen = find_system(system)
    check_tiers(chosen.name, config.tiers)
    if load is not None and rate_per_s is not None:
        raise ValueError(f"load = {load}, rate_per_s = {rate_per_s}; must give one of them")
    if load is not None:
        trace = scale_to_load(trace, config, load)
    elif rate_per_s is not None:
        trace = scale_to_rate(trace, rate_per_s)
    simulation = Simulation(
        trace,
        chosen.configure(config),
        chosen.policy,
        dispatch_params=chosen.params,
        seed=seed,
        horizon_s=horizon_s,
    )
    simulation.run()
    return result_of(simulation, system=chosen.name, offered_load=load, copy=False)


def with_options(config: ClusterConfig | None, options: dict[str, Any]) -> ClusterConfig:
    """Return the config with some fields replaced, validated anew; scenario="tight" sets its fields first."""
    scenario = options.get("scenario")
    if scenario is not None:
        if scenario not in SCENARIOS:
            raise ValueError(f"unknown scenario {scenario!r}; {near_match(scenario, SCENARIOS)}")
        options = SCENARIOS[scenario] | {k: v for k, v in options.items() if k != "scenario"}
    if config is None:
        return ClusterConfig(**options)
    return ClusterConfig(**(config.model_dump() | options)) if options else config


class ReplayError(RuntimeError):
    """A run could not be repeated: playing it again gave some request something else."""


def replay(folder: str | Path) -> Result:
    """Run a saved result again, from its trace and manifest (see rerun)."""
    return rerun(SavedResult.read(Path(folder)))


def rerun(saved: SavedResult) -> Result:
    """Return the Result of a saved run, played again.

    ValueError if its policy is not registered in this process, or a profile is not what it was; ReplayError if the
    table of requests comes out differently.
    """
    kept, config = saved.manifest, saved.config
    for row, then in zip(config.fleet_profiles, kept["profiles"], strict=True):
        if asdict(row) != then:
            raise ValueError(f"profile {row.name} is not what it was when {kept['system']} ran")
    simulation = Simulation(
        saved.trace,
        config,
        find_policy("dispatch", kept["dispatch"]),
        dispatch_params=kept["params"],
        seed=kept["seed"],
        horizon_s=kept["horizon_s"],
    )
    simulation.run()
    result = result_of(simulation, system=kept["system"], offered_load=kept["load"], copy=False)
    if not result.requests[PLAYED].astype(str).equals(saved.requests[PLAYED].astype(str)):
        raise ReplayError(
            f"a second run of {kept['system']} differs from the one saved; was its policy or the "
            f"simulator (then {kept['engine_hash']}) changed since?"
        )
    return result
