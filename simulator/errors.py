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
    if code == layout.BAD_KEY:
        raise ValueError(
            f"ordering policy {simulation.config.order!r} gave NaN as key of request {i}"
        )
    if code == layout.BAD_READ:
        raise ValueError(
            f"dispatch policy {policy!r} looked at instance {i} for request {request}; there is "
            f"0 .. {len(simulation.state.instances) - 1}"
        )
    if code == layout.BAD_INSTANCE:
        raise ValueError(
            f"dispatch policy {policy!r} chose instance {i} for request {request}; it must be one that "
            f"accepts the request, in 0 .. {len(simulation.state.instances) - 1}"
        )
    if code != layout.HELD_IN_PUSH_MODE:
        raise ValueError(f"dispatch policy {policy!r} wrote into the engine's state: error {code}")
    raise ValueError(
        f"dispatch policy {policy!r} returned HOLD for request {request}; in push mode every request is "
        "placed at its arrival"
    )
