"""Stepping a simulation through every event: arrivals, iteration starts and ends, control, rounds by the timer."""

from collections.abc import Iterator

from servegym.simulator.simulation import Simulation
from servegym.simulator.state import NEVER


def next_event_ps(simulation: Simulation) -> int | None:
    """Return the first instant after the present at which something happens, None when nothing will."""
    state = simulation.state
    present_ps, instants = int(state.shared[0]["now_ps"]), []
    if state.shared[0]["next_arrival"] < len(state.requests):
        instants.append(int(state.requests["arrival_ps"][state.shared[0]["next_arrival"]]))
    for instance in state.instances:
        is_flying = instance["stretch_end_ps"] != NEVER
        instants.append(int(instance["iteration_end_ps" if is_flying else "wake_ps"]))
    gateway, later = state.gateway[0], [int(state.control[0]["next_ps"])]
    if gateway["n_queued"] + gateway["n_held"] > 0:
        later.append(int(gateway["last_round_ps"] + gateway["hold_timer_ps"]))
    # of these, what stands in the past has happened
    instants += [instant for instant in later if instant > present_ps]
    first = min(instants, default=int(NEVER))
    # an iteration that starts at the present starts with the next call
    return None if first == NEVER else max(first, present_ps + 1)


def events_of(simulation: Simulation) -> Iterator[int]:
    """Run event by event up to the end or the horizon, with every instance observed; yield each instant, ps."""
    limit_ps = int(NEVER) if simulation.horizon_ps is None else simulation.horizon_ps
    while (instant := next_event_ps(simulation)) is not None and instant <= limit_ps:
        simulation.run_until_ps(instant)
        for i in range(len(simulation.state.instances)):
            simulation.observe(i)
        yield instant
    simulation.run()


def streamed_tokens(simulation: Simulation) -> int:
    """Return the output tokens streamed up to now; those of a decoder follow from its slot."""
    state = simulation.state
    total = int(state.requests["generated"].sum())
    for instance in state.instances:
        seats = state.slots[instance["first_slot"] :][: instance["n_running"]]
        for position, slot in enumerate(seats):
            request = state.requests[slot["request"]]
            untold = int(request["output_tokens"] - request["generated"])
            if position < instance["n_decoding"]:
                total += untold - int(slot["finish_iteration"] - instance["iteration"])
            elif simulation.config.engine == "static" and request["generated"] > 0:
                total += untold  # done, and seated until its batch ends
    return total
