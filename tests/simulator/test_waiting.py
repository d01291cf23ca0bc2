"""The queue of one instance against plain Python: a deque under fcfs, a sorted list under any other order."""

from collections import deque

import numpy as np
import pytest
from flat_profile import FLAT
from hypothesis import given
from hypothesis import strategies as st
from random_cases import REFERENCE_KEYS
from reference.model import Request

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, ordering_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import NO_REQUEST, State
from servegym.simulator.urgency import first_to_move
from servegym.simulator.views import prompt_tokens
from servegym.simulator.waiting import (
    append_waiting,
    comes_before,
    pop_waiting,
    put_back,
    remove_waiting,
    reorder_waiting,
    return_waiting,
    set_aside,
)
from servegym.traces import Trace

PS_PER_S = 10**12
KEYS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf)
# what a request is: (prompt, which also picks a key or a tier; arrival in s)
rows_of = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=40)


@ordering_policy(source="test: ties, both zeros, infinities", name="test-waiting-key")
def waiting_key(request, now_ps, params):
    """Return one of KEYS by the prompt's length."""
    tokens = prompt_tokens(request)
    if tokens == 1:
        return 0.0
    if tokens == 2:
        return -0.0
    if tokens == 3:
        return 1.0
    if tokens == 4:
        return -1.0
    return np.inf if tokens == 5 else -np.inf


def state_of(order: str, rows: list[tuple[int, int]], migration: str | None = None) -> State:
    """Return the state of one instance before anything waits; rows in order of arrival."""
    prompt, arrival = np.array(sorted(rows, key=lambda row: row[1])).T
    trace = Trace(arrival.astype(float), prompt, np.ones(len(rows)), tier=prompt)
    config = ClusterConfig(
        instances=1, profile=FLAT, order=order, tiers=10, migration=migration, link_gb_per_s=1.0
    )
    return Simulation(trace, config, find_policy("dispatch", "round-robin")).state


def sort_key(order: str, state: State, r: int) -> tuple[float, int, int]:
    """What the queue must be sorted by."""
    record = state.requests[r]
    key = int(record["tier"]) if order == "priority" else KEYS[int(record["prompt_tokens"]) - 1]
    return key, int(record["arrival_ps"]), r


def drain(state: State) -> list[int]:
    """Pop everything."""
    instance = state.instances[0]
    return [int(pop_waiting(state, instance)) for _ in range(instance["n_waiting"])]


def blocks_waited_for(state: State, waiting) -> int:
    """Blocks of 16 tokens for what the waiting requests know, one by one."""
    known = state.requests["prompt_tokens"] + state.requests["generated"]
    return sum(-(-int(known[r]) // 16) for r in waiting)


@pytest.mark.parametrize("order", ["priority", "test-waiting-key"])
@given(rows=rows_of, data=st.data())
def test_heap_gives_the_least_key_then_arrival_then_trace_order(order, rows, data):
    # pushes in any order, pops in between
    state, waiting, popped = state_of(order, rows), [], []
    instance = state.instances[0]
    for r in data.draw(st.permutations(range(len(rows)))):
        append_waiting(state, instance, r)
        waiting.append(r)
        if data.draw(st.booleans()):
            least = min(waiting, key=lambda r: sort_key(order, state, r))
            waiting.remove(least)
            popped.append((int(pop_waiting(state, instance)), least))
        assert instance["n_waiting"] == len(waiting)
        assert instance["waiting_blocks"] == blocks_waited_for(state, waiting)
    assert all(mine == expected for mine, expected in popped)
    assert drain(state) == sorted(waiting, key=lambda r: sort_key(order, state, r))
    assert instance["head"] == NO_REQUEST and instance["waiting_blocks"] == 0


@pytest.mark.parametrize("order", ["priority", "test-waiting-key"])
@given(rows=rows_of)
def test_case_10_comparator_is_a_strict_weak_order(order, rows):
    """A comparator that contradicts itself makes a queue depend on how it was filled (BLIS, llm-d routers)."""
    state = state_of(order, rows)
    for r in range(len(rows)):
        append_waiting(state, state.instances[0], r)
    before = {
        (a, b): bool(comes_before(state, a, b))
        for a in range(len(rows[:8]))
        for b in range(len(rows[:8]))
    }
    for a, b in before:
        # ties end with the trace index, so the order is even total: exactly one way round
        assert before[a, b] + before[b, a] == (a != b)
        assert before[a, b] == (sort_key(order, state, a) < sort_key(order, state, b))


@given(st.lists(st.sampled_from(["place", "preempt", "admit"]), max_size=60))
def test_fcfs_is_a_queue_to_whose_front_the_preempted_return(actions):
    state, expected, running, placed = state_of("fcfs", [(1, 0)] * 60), deque(), [], 0
    instance = state.instances[0]
    for action in actions:
        if action == "place":
            append_waiting(state, instance, placed)
            expected.append(placed)
            placed += 1
        elif action == "preempt" and running:
            expected.appendleft(running.pop())
            return_waiting(state, instance, expected[0])
        elif action == "admit" and expected:
            running.append(int(pop_waiting(state, instance)))
            assert running[-1] == expected.popleft()
        assert instance["n_waiting"] == len(expected)
    assert drain(state) == list(expected)


@given(rows=rows_of, instants=st.lists(st.integers(0, 100 * PS_PER_S), min_size=1, max_size=4))
def test_time_dependent_order_is_that_of_the_last_evaluation(rows, instants):
    state, key = state_of("test-shuffle", rows), REFERENCE_KEYS["test-shuffle"]
    instance = state.instances[0]
    for r in range(len(rows)):
        append_waiting(state, instance, r)
    for now_ps in instants:
        reorder_waiting(state, instance, now_ps)

    def expected(r: int) -> tuple[float, int, int]:
        prompt, arrival = (int(state.requests[r][name]) for name in ("prompt_tokens", "arrival_ps"))
        return key(Request(r, arrival, prompt, 1), instants[-1]), arrival, r

    assert drain(state) == sorted(range(len(rows)), key=expected)


def test_reordering_a_thousand_requests_in_a_row_keeps_them_all():
    # descending keys make the heap one long path, which a recursive walk would not survive
    rows = [(1 + r % 6, r // 250) for r in range(1000)]
    state = state_of("test-shuffle", rows)
    for r in reversed(range(1000)):
        append_waiting(state, state.instances[0], r)
    reorder_waiting(state, state.instances[0], 5 * PS_PER_S)
    assert sorted(drain(state)) == list(range(1000))


@pytest.mark.parametrize("order", ["fcfs", "priority", "test-waiting-key"])
@given(rows=rows_of, data=st.data())
def test_requests_leave_a_queue_from_its_middle(order, rows, data):
    """What is left keeps its order, and who moves first is the least urgent of those that are left and fit."""
    state, waiting = state_of(order, rows, migration="n-tier"), []
    instance, requests = state.instances[0], state.requests
    requests["instance"] = 0
    requests["generated"] = [16 * data.draw(st.integers(0, 2)) for _ in rows]
    blocks = [1 + int(n) // 16 for n in requests["generated"]]

    def urgency(r: int) -> tuple[int, ...]:
        return -int(requests["tier"][r]), blocks[r], int(requests["arrival_ps"][r]), r

    for r in data.draw(st.permutations(range(len(rows)))):
        append_waiting(state, instance, r)
        waiting.append(r)
        leaving = data.draw(st.sampled_from([NO_REQUEST, NO_REQUEST, *waiting]))
        if leaving != NO_REQUEST:
            remove_waiting(state, instance, leaving)
            waiting.remove(leaving)
            if data.draw(st.booleans()):
                return_waiting(state, instance, leaving)  # as one that was preempted
                waiting.insert(0, leaving)
        if data.draw(st.booleans()):
            aside = [set_aside(state, instance) for _ in waiting[:2]]
            for each in reversed(aside):
                put_back(state, instance, each)
        if order == "test-waiting-key" and data.draw(st.booleans()):
            reorder_waiting(state, instance, PS_PER_S)
        assert instance["n_waiting"] == len(waiting)
        for most in (0, 1, 2, 3):
            fitting = [r for r in waiting if blocks[r] <= most]
            expected = min(fitting, key=urgency, default=int(NO_REQUEST))
            assert int(first_to_move(state, 0, most)) == expected
    if order != "fcfs":
        waiting.sort(key=lambda r: sort_key(order, state, r))
    assert drain(state) == waiting
    assert (state.first_to_move == NO_REQUEST).all()
