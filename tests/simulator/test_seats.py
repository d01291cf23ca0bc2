"""The books of the running requests against a plain count, request by request."""

import numpy as np
import pytest
from flat_profile import FLAT
from hypothesis import given, settings
from hypothesis import strategies as st

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.seats import (
    blocks_for_iteration,
    blocks_for_stretch,
    computed_by,
    count_decoder,
    find_next_finish,
    iterations_within,
    remove_slot,
)
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import NEVER, State
from servegym.traces import Trace

SIZES = (1, 3, 16)
# prompt tokens, tokens already streamed (>= 1), tokens still to come (>= 1)
decoders = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=8
)


def seat_decoders(rows: list[tuple[int, int, int]], block_size: int, iteration: int) -> State:
    """Return the state of one instance, at its `iteration`, on which exactly these decode."""
    prompt, streamed, left = np.array(rows).T
    trace = Trace(np.zeros(len(rows)), prompt, streamed + left)
    config = ClusterConfig(
        instances=1, profile=FLAT, kv_blocks=10_000, block_size=block_size, max_num_seqs=8
    )
    state = Simulation(trace, config, find_policy("dispatch", "round-robin")).state
    instance = state.instances[0]
    instance["iteration"] = iteration
    instance["n_running"] = instance["n_decoding"] = len(rows)
    for r, slot in enumerate(state.slots[: len(rows)]):
        slot["request"], slot["finish_iteration"] = r, iteration + left[r]
        count_decoder(state, 0, instance, slot, 1)
    return state


def computed_tokens(rows: list[tuple[int, int, int]]) -> list[int]:
    """Tokens in KV: the prompt and all streamed tokens but the last."""
    return [prompt + streamed - 1 for prompt, streamed, _ in rows]


def blocks_taken(rows: list[tuple[int, int, int]], size: int, first: int, k: int) -> int:
    """Blocks taken in iterations first .. first + k - 1 from now, counted one by one.

    The iteration that computes token number c (from 0) takes a block when c is a multiple of size.
    """
    return sum((c + j) % size == 0 for c in computed_tokens(rows) for j in range(first, first + k))


@pytest.mark.parametrize("size", SIZES)
@given(rows=decoders, iteration=st.integers(0, 1000))
def test_decoders_know_what_they_computed(size, rows, iteration):
    state = seat_decoders(rows, size, iteration)
    instance, computed = state.instances[0], computed_tokens(rows)
    slots = state.slots[: len(rows)]
    assert [computed_by(state, instance, slot) for slot in slots] == computed
    # every decode reads its context with the token being computed
    assert instance["kv_tokens"] == sum(c + 1 for c in computed)
    assert state.phases.sum() == len(rows)


@pytest.mark.parametrize("size", SIZES)
@given(
    rows=decoders,
    iteration=st.integers(0, 1000),
    first=st.integers(0, 50),
    k=st.integers(0, 100),
)
def test_blocks_of_a_stretch_are_the_sum_over_its_iterations(size, rows, iteration, first, k):
    state = seat_decoders(rows, size, iteration)
    instance = state.instances[0]
    assert blocks_for_iteration(state, 0, instance) == blocks_taken(rows, size, 0, 1)
    assert blocks_for_stretch(state, 0, instance, first, k) == blocks_taken(rows, size, first, k)


@pytest.mark.parametrize("size", SIZES)
@given(
    rows=decoders,
    iteration=st.integers(0, 1000),
    first=st.integers(0, 3),
    blocks=st.integers(0, 40),
)
def test_iterations_within_is_the_most_that_the_blocks_allow(size, rows, iteration, first, blocks):
    state = seat_decoders(rows, size, iteration)
    k = int(iterations_within(state, 0, state.instances[0], first, blocks))
    assert blocks_taken(rows, size, first, k) <= blocks < blocks_taken(rows, size, first, k + 1)


@settings(max_examples=50)
@given(rows=decoders, data=st.data())
def test_counting_a_decoder_out_undoes_counting_it_in(rows, data):
    state = seat_decoders(rows, 16, 5)
    instance = state.instances[0]
    gone = data.draw(st.integers(0, len(rows) - 1))
    before = [int(r) for r in state.slots["request"][: len(rows)]]
    count_decoder(state, 0, instance, state.slots[gone], -1)
    remove_slot(state, instance, gone)
    find_next_finish(state, instance)
    rest = [row for i, row in enumerate(rows) if i != gone]
    kept = state.slots[: len(rest)]
    assert [int(r) for r in kept["request"]] == before[:gone] + before[gone + 1 :]
    assert instance["n_running"] == instance["n_decoding"] == len(rest)
    assert instance["kv_tokens"] == sum(c + 1 for c in computed_tokens(rest))
    assert blocks_for_iteration(state, 0, instance) == blocks_taken(rest, 16, 0, 1)
    assert instance["next_finish"] == min((5 + left for *_, left in rest), default=NEVER)


def test_removing_a_prefill_leaves_the_decoders_alone():
    # two decoders and one request that prefills, in the third seat
    state = seat_decoders([(8, 1, 5), (8, 1, 9)], 16, 0)
    instance = state.instances[0]
    instance["n_running"] = 3
    remove_slot(state, instance, 2)
    assert (instance["n_running"], instance["n_decoding"]) == (2, 2)
    assert state.slots["finish_iteration"][:2].tolist() == [5, 9]
