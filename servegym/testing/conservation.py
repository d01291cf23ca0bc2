"""What must hold between any two events of a simulation: no request and no KV block is lost or doubled.

All checks are of the simulation's present, raise AssertionError with the instance at fault, and change nothing.
"""

import numpy as np

from servegym.simulator.simulation import Simulation
from servegym.simulator.state import (
    ACTIVE,
    AT_GATEWAY,
    CANCELLED,
    DRAINING,
    NEVER,
    NO_REQUEST,
    PARKED,
    UNFINISHED,
    WITH_CLIENT,
)

REQUEST_FIELDS = ("prompt_tokens", "output_tokens", "generated", "computed")


def check_conservation(simulation: Simulation) -> None:
    """Assert that seats, queues, blocks and the decoders' books agree, for every instance, now."""
    state, seated_somewhere, waiting_somewhere = simulation.state, 0, 0
    size = simulation.config.block_size
    for i, instance in enumerate(state.instances):
        seats = state.slots[instance["first_slot"] :][: instance["n_running"]]
        seated = seats["request"]
        assert len(set(seated.tolist())) == len(seated), f"instance {i}: a request sits twice"
        where = state.requests["instance"][seated]
        assert (where == i).all(), f"instance {i}: seats of requests of instances {where.tolist()}"
        ended = seated[state.requests["finish_ps"][seated] >= 0]
        assert not len(ended), f"instance {i}: requests {ended.tolist()} have ended, and sit"
        seated_somewhere += len(seated)
        waiting_somewhere += int(instance["n_waiting"])
        free, total = instance["free_blocks"], state.engines[instance["engine"]]["kv_blocks"]
        assert 0 <= free <= total, f"instance {i}: {free} of {total} blocks free"
        if simulation.config.engine != "static":
            phases = state.phases[i * size : (i + 1) * size]
            n, decoding = int(phases.sum()), int(instance["n_decoding"])
            assert n == decoding, f"instance {i}: {n} phases of {decoding} that decode"
            assert (phases >= 0).all(), f"instance {i}: a negative phase"
        on_it = (state.requests["instance"] == i) & (state.requests["status"] == UNFINISHED)
        predicted = state.requests["prompt_tokens"] + state.requests["predicted_tokens"]
        held, expected = int(instance["held_tokens"]), int(predicted[on_it].sum())
        assert held == expected, f"instance {i}: held_tokens = {held}; its requests have {expected}"
        is_open = instance["condition"] in (ACTIVE, DRAINING)
        assert is_open or not on_it.any(), f"instance {i} is down or absent, and has requests"
    arrived = int(state.shared[0]["next_arrival"])
    gateway, known = state.gateway[0], state.requests[:arrived]
    parked = int(((known["place"] == PARKED) & (known["status"] == UNFINISHED)).sum())
    at_gateway = int(gateway["n_queued"] + gateway["n_held"])
    in_queues = int(state.queues["n_waiting"].sum())
    assert at_gateway == in_queues, f"gateway: {at_gateway} requests, {in_queues} in its queues"
    if state.shared[0]["counts_tiers"]:
        tiers = simulation.config.tiers
        queued = (known["place"] == AT_GATEWAY) & (known["status"] == UNFINISHED)
        queued &= np.arange(arrived) != gateway["awaited"]
        expected = np.bincount(known["tier"][queued], minlength=tiers).tolist()
        counted = state.tiers[len(state.tiers) - tiers :].tolist()
        assert counted == expected, f"gateway: {counted} requests by tier; {expected} are there"
    ended = int((known["status"] != UNFINISHED).sum())
    timed = int((known["finish_ps"] >= 0).sum())
    assert ended == timed, f"{ended} requests have ended, {timed} have a time at which they did"
    with_clients = int(((known["place"] == WITH_CLIENT) & (known["status"] == CANCELLED)).sum())
    retries = int(state.control[0]["n_retries"])
    assert retries == with_clients, f"{retries} retries to come, of {with_clients} clients"
    awaited = int(gateway["awaited"] != NO_REQUEST)  # an agent is asked about it
    found = seated_somewhere + waiting_somewhere + parked + at_gateway + awaited + ended
    assert arrived == found, (
        f"{arrived} requests arrived; {seated_somewhere} run, {waiting_somewhere} wait at instances, "
        f"{parked} move, {at_gateway} are at the gateway, {awaited} awaits an agent, {ended} have ended: {found}"
    )


def check_blocks(simulation: Simulation) -> None:
    """Assert that the blocks in use are those of running and parked requests and of moves to here, one by one, now."""
    state = simulation.state
    moves = state.moves[: state.control[0]["n_moves"]]
    for i, instance in enumerate(state.instances):
        total = int(state.engines[instance["engine"]]["kv_blocks"])
        held = sum(held_blocks(simulation, i, p) for p in range(instance["n_running"]))
        held += int(moves["reserved_blocks"][moves["destination"] == i].sum())
        parked = state.requests[moves["request"][moves["source"] == i]]
        computed = parked["computed"][parked["place"] == PARKED]
        held += int((-(-computed // simulation.config.block_size)).sum())
        in_use = total - int(instance["free_blocks"])
        assert in_use == held, (
            f"instance {i}: {in_use} blocks in use, {held} held by requests and moves"
        )


def held_blocks(simulation: Simulation, i: int, position: int) -> int:
    """Return the blocks of instance i's request at that position of `slots`: ceil(tokens / block_size)."""
    state, engine = simulation.state, simulation.config.engine
    instance = state.instances[i]
    slot = state.slots[instance["first_slot"] + position]
    request = {name: int(state.requests[slot["request"]][name]) for name in REQUEST_FIELDS}
    known = request["prompt_tokens"] + request["generated"]
    if engine == "static":
        tokens = request["prompt_tokens"] + request["output_tokens"] - 1
    elif position < instance["n_decoding"]:
        # it has computed all but the `left` last; the iteration in flight computes one more
        left = int(slot["finish_iteration"] - instance["iteration"])
        tokens = request["prompt_tokens"] + request["output_tokens"] - 1 - left
        tokens += int(instance["stretch_end_ps"] != NEVER and instance["is_decoding"])
    elif engine != "vllm-v1":
        tokens = known  # taken whole at admission
    elif instance["stretch_end_ps"] == NEVER:
        tokens = request["computed"]
    else:
        is_last = position == instance["n_running"] - 1
        tokens = request["computed"] + int(instance["tail_chunk"]) if is_last else known
    return -(-tokens // simulation.config.block_size)


def check_drained(simulation: Simulation) -> None:
    """Assert that after the last event everything is free again."""
    state = simulation.state
    total = state.engines["kv_blocks"][state.instances["engine"]]
    free = state.instances["free_blocks"]
    assert (free == total).all(), f"after the end: free blocks {free.tolist()} of {total.tolist()}"
    for name in (
        "n_running",
        "n_decoding",
        "n_waiting",
        "kv_tokens",
        "waiting_blocks",
        "held_tokens",
        "n_parked",
        "n_incoming",
    ):
        left = state.instances[name].tolist()
        assert not any(left), f"after the end: {name} = {left}"
    assert not state.phases.any(), "after the end: phases of decoders are left"
    assert state.control[0]["n_moves"] == 0, "after the end: moves are under way"
