"""Settings that do nothing in a run, or cannot do what they are for: said, since the run does not fail.

Each is one sentence, of a config, what it played, and how often its gateway held.
"""

from collections.abc import Mapping

from servegym.baselines.scaling.freeness import N_TIER, least_mean_freeness
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.traces import Trace


def idle_settings(
    config: ClusterConfig, trace: Trace, tier_mix: str | None, n_holds: int
) -> list[str]:
    """Return what to know of the settings of a run; tier_mix: as asked for, n_holds: how often its gateway held."""
    found = [
        mix_note(config, tier_mix),
        tenant_note(config, trace),
        queue_note(config, trace, n_holds),
        stale_note(config),
        band_note(config, trace),
    ]
    return [note for note in found if note]


def shared_notes(by_system: Mapping[str, list[str]]) -> list[str]:
    """Return the notes of several systems, each once, with the names of those that have it unless all do."""
    users: dict[str, list[str]] = {}
    for system, notes in by_system.items():
        for note in notes:
            users.setdefault(note, []).append(system)
    return [
        note if len(systems) == len(by_system) else f"{', '.join(systems)}: {note}"
        for note, systems in users.items()
    ]


def mix_note(config: ClusterConfig, tier_mix: str | None) -> str | None:
    """Say when a mix of tiers has one tier to draw from."""
    if tier_mix is None or config.tiers > 1:
        return None
    return f"tier mix {tier_mix} has one tier to draw from: --tiers gives the cluster more"


def tenant_note(config: ClusterConfig, trace: Trace) -> str | None:
    """Say when there is to be a queue a tenant and nobody has one."""
    if config.queue_by != "tenant" or trace.tenant is not None:
        return None
    return "queue_by = tenant, but the trace names no tenants: the gateway has one queue"


def n_queues(config: ClusterConfig, trace: Trace) -> int:
    """Return how many queues the gateway has."""
    if config.queue_by == "tenant" and trace.tenant is not None:
        return len(trace.tenant.names)
    return config.tiers if config.queue_by == "tier" else 1


def queue_note(config: ClusterConfig, trace: Trace, n_holds: int) -> str | None:
    """Say when a queue policy has nothing to choose between."""
    if config.queue is None:
        return None
    if config.max_local_waiting is None and n_holds == 0:
        return (
            f"queue = {config.queue} changes nothing: instances take all that comes, so nobody waits at the gateway; "
            "--max-local-waiting 0 keeps requests there until one can run"
        )
    if n_queues(config, trace) == 1:
        return (
            f"queue = {config.queue} has one queue to choose from: --queue-by and --tiers make more"
        )
    return None


def stale_note(config: ClusterConfig) -> str | None:
    """Say when refreshes are to be lost and there are none."""
    if config.metrics_interval_s > 0 or all(fault.kind != "metrics" for fault in config.faults):
        return None
    return "faults of kind metrics change nothing: without --metrics-interval-s everybody sees the truth"


def band_note(config: ClusterConfig, trace: Trace) -> str | None:
    """Say when a fleet scaled by freeness hardly ever grows, because even a full instance is above the band's low."""
    if config.scaling != "freeness" or not len(trace):
        return None
    policy = find_policy("scaling", config.scaling)
    given = policy.param_values(config.scaling_params, trace)
    values = dict(zip((param.name for param in policy.params), given.tolist(), strict=True))
    least = least_mean_freeness(config, trace)
    if values["signal"] != N_TIER or values["headroom"] or least < values["low"]:
        return None
    return (
        f"scaling freeness hardly ever adds an instance: F of a full one is {least:.2f} at this trace's mean lengths, "
        f"not below low = {values['low']:g}; low=150,high=800 suits the default fleet"
    )
