"""What must hold between any two events of a simulation: no request and no KV block is lost or doubled."""

import numpy as np

from servegym.simulator.simulation import Simulation


def check_conservation(simulation: Simulation) -> None:
    """Assert that seats, queues, blocks and the decoders' books agree, for every instance, now."""
    state, seated_somewhere, waiting_somewhere = simulation.state, 0, 0
    size = simulation.config.block_size
    for i, instance in enumerate(state.instances):
        seats = state.slots[instance["first_slot"] :][: instance["n_running"]]
        seated = seats["request"]
        assert len(set(seated.tolist())) == len(seated), f"instance {i}: a request sits twice"
        assert (state.requests["instance"][seated] == i).all()
        assert (state.requests["finish_ps"][seated] < 0).all()
        seated_somewhere += len(seated)
        waiting_somewhere += int(instance["n_waiting"])
        assert 0 <= instance["free_blocks"] <= state.engines[instance["engine"]]["kv_blocks"]
        if simulation.config.engine != "static":
            phases = state.phases[i * size : (i + 1) * size]
            assert phases.sum() == instance["n_decoding"]
            assert (phases >= 0).all()
    arrived = int(state.shared[0]["next_arrival"])
    ended = int((state.requests["finish_ps"][:arrived] >= 0).sum())
    assert arrived == seated_somewhere + waiting_somewhere + ended


def check_drained(simulation: Simulation) -> None:
    """Assert that after the last event everything is free again."""
    state = simulation.state
    total = state.engines["kv_blocks"][state.instances["engine"]]
    np.testing.assert_array_equal(state.instances["free_blocks"], total)
    for name in (
        "n_running",
        "n_decoding",
        "n_waiting",
        "kv_tokens",
        "waiting_blocks",
        "held_tokens",
    ):
        assert not state.instances[name].any(), name
    assert not state.phases.any()
