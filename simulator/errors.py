"""What can stop a run, each with the instance or the policy at fault."""

from typing import TYPE_CHECKING

from servegym.simulator import state as layout

if TYPE_CHECKING:
    from servegym.simulator.simulation import Simulation


class NoProgressError(RuntimeError):
    """An instance preempts on and on without streaming a token, or idles before a request it cannot admit."""


def raise_engine_error(simulation: "Simulation") -> None:
    """Raise what the state's error code says."""
    cluster = simulation.state.shared[0]
    code, i = int(cluster["error"]), int(cluster["error_instance"])
    policy = simulation.dispatch.name
    if code == layout.NO_PROGRESS:
        n = int(simulation.state.instances[i]["preemptions_since"])
        raise NoProgressError(f"instance {i}: {n} preemptions in a row without one token streamed")
    if code == layout.IDLE_REFUSES_HEAD:
        raise NoProgressError(f"instance {i} is idle and does not admit its first waiting request")
    if code == layout.TIME_OVERFLOW:
        raise ValueError(
            f"instance {i} runs beyond 106 days, the longest time of int64 picoseconds"
        )
    request = int(cluster["next_arrival"]) - 1
    m = len(simulation.state.instances)
    if code == layout.BAD_KEY:
        raise ValueError(
            f"ordering policy {simulation.config.order!r} gave NaN as key of request {i}"
        )
    if code == layout.BAD_READ:
        raise ValueError(
            f"a policy ({_deciders(simulation)}) looked at instance {i} around request {request}; there is 0 .. {m - 1}"
        )
    if code == layout.NEEDS_OUTLOOK:
        raise ValueError(
            "metrics are refreshed every metrics_interval_s and store no predicted needs of running requests, which "
            "something reads: build Simulation(..., keeps_outlook=True)"
        )
    if code == layout.BAD_INSTANCE:
        raise ValueError(
            f"dispatch policy {policy!r} chose instance {i} for request {int(cluster['error_request'])}; it must be "
            f"one that accepts the request, in 0 .. {m - 1}"
        )
    if code == layout.BAD_QUEUE:
        raise ValueError(
            f"queue policy {simulation.config.queue!r} chose queue {i}; it must be one that is not empty, in "
            f"0 .. {len(simulation.state.queues) - 2}"
        )
    if code == layout.BAD_MOVE:
        raise ValueError(
            f"migration policy {simulation.config.migration!r} wrote a move with source, destination, request = "
            f"{simulation.state.ordered[i].tolist()}; there are {m} instances and "
            f"{len(simulation.state.requests)} requests"
        )
    if code == layout.HELD_FOREVER:
        gateway = simulation.state.gateway[0]
        raise NoProgressError(
            f"{int(gateway['n_queued'] + gateway['n_held'])} requests are still held at the gateway "
            f"{simulation.config.max_hold_s:g} s after everything else has ended ({_deciders(simulation)})"
        )
    raise ValueError(
        f"a policy ({_deciders(simulation)}) wrote into the engine's state: error {code}"
    )


def _deciders(simulation: "Simulation") -> str:
    """Name the policies that may have been at work."""
    named = {role: simulation.decider(role)[0] for role in layout.ROLES}
    return ", ".join(f"{role} {policy.name!r}" for role, policy in named.items() if policy)
