"""A run that waits for an agent stands still: asked again it asks the same, and answered it is the native run.

The agents here answer by rules that also exist as native policies, in random clusters with everything on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from flat_profile import FLAT

from servegym.envs import agent
from servegym.simulator.calls import centre
from servegym.simulator.config import ClusterConfig
from servegym.simulator.gateway import view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.links import core_of
from servegym.simulator.policy import (
    AGENT,
    Policy,
    admission_policy,
    dispatch_policy,
    find_policy,
    queue_policy,
    scaling_policy,
)
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import NEVER, ROLES, Request, State
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    REJECT,
    is_accepting,
    is_ready,
    n_instances,
    n_queues,
    now_s,
)
from servegym.testing.clusters import random_case
from servegym.testing.conservation import check_blocks, check_conservation
from servegym.testing.replays import GIVEN
from servegym.traces import Trace

AGENTS = {
    "dispatch": agent.dispatch,
    "admission": agent.admission,
    "queue": agent.queue,
    "scaling": agent.scaling,
}

# Rules without memory, each as a native policy and as what an agent answers.


@kernel
def instance_by_turns(cluster, request):
    """Return the first instance that accepts, from one on that depends on the request; HOLD at some instants."""
    if int(now_s(cluster) * 100) % 7 == 0:
        return HOLD
    for k in range(n_instances(cluster)):
        i = (request.index + k) % n_instances(cluster)
        if is_accepting(cluster, request, i):
            return i
    return HOLD


@kernel
def admission_by_turns(cluster, request):
    """Reject every eleventh request; hold some, by request and time; accept the rest."""
    if request.index % 11 == 10:
        return REJECT
    return HOLD if (request.index + int(now_s(cluster) * 40)) % 3 == 0 else ACCEPT


@kernel
def queue_by_turns(cluster):
    """Return the last ready queue, or HOLD at some instants."""
    chosen = HOLD
    if int(now_s(cluster) * 100) % 5 == 0:
        return HOLD
    for q in range(n_queues(cluster)):
        if is_ready(cluster, q):
            chosen = q
    return chosen


@kernel
def scaling_by_turns(cluster):
    """Return -1, 0, 1, by time."""
    return int(now_s(cluster) * 20) % 3 - 1


@dispatch_policy(source="test: a rule of instants", name="test-instance-by-turns")
def native_dispatch(cluster, request, params, memory, rng):
    """Return what the agent answers."""
    return instance_by_turns(cluster, request)


@admission_policy(source="test: a rule of instants", name="test-admission-by-turns")
def native_admission(cluster, request, params, memory, rng):
    """Return what the agent answers."""
    return admission_by_turns(cluster, request)


@queue_policy(source="test: a rule of instants", name="test-queue-by-turns")
def native_queue(cluster, params, memory, rng):
    """Return what the agent answers."""
    return queue_by_turns(cluster)


@scaling_policy(source="test: a rule of instants", name="test-scaling-by-turns")
def native_scaling(cluster, params, memory, rng):
    """Return what the agent answers."""
    return scaling_by_turns(cluster)


NATIVE = {
    "dispatch": native_dispatch,
    "admission": native_admission,
    "queue": native_queue,
    "scaling": native_scaling,
}


@kernel
def answer_by_turns(all_state, role):
    """Return what the rule of a role says about the decision that waits."""
    state = core_of(all_state)
    cluster, request = (
        view_of(state),
        Request(state.requests, np.int64(state.shared[0].asked_request)),
    )
    if role == 0:
        return instance_by_turns(cluster, request)
    if role == 1:
        return admission_by_turns(cluster, request)
    if role == 2:
        return queue_by_turns(cluster)
    return scaling_by_turns(cluster)


def by_turns(simulation: Simulation, role: str) -> int:
    """Return the rule's answer."""
    return int(answer_by_turns(simulation.state, list(AGENTS).index(role)))


# Playing an agent.


@dataclass(frozen=True)
class Asked:
    """A decision that waited: who, about whom (-1: nobody), when."""

    role: str
    request: int
    now_s: float


def answer(simulation: Simulation, role: str, value: int) -> None:
    """Write the agent's answer into its memory, [is answered, answer]."""
    begin = int(simulation.state.policies[ROLES.index(role)]["memory_begin"])
    simulation.state.memory[begin : begin + 2] = 1.0, value


def present(simulation: Simulation) -> list[bytes]:
    """Return the state as bytes, array by array."""
    return [array.tobytes() for array in simulation.state]


def play(
    simulation: Simulation,
    rule: Callable[[Simulation, str], int],
    look: Callable[[Simulation], None] = lambda simulation: None,
) -> list[Asked]:
    """Run to the end, answering by a rule; asked twice at every decision, nothing may change. Return who was asked."""
    asked = []
    limit = int(NEVER) if simulation.horizon_ps is None else simulation.horizon_ps
    while simulation.proceed(limit):
        shared = simulation.state.shared[0]
        before = present(simulation)
        assert simulation.proceed(limit)
        assert changed(before, simulation) == []
        role = ROLES[int(shared["asked_role"])]
        asked.append(Asked(role, int(shared["asked_request"]), simulation.now_s))
        look(simulation)
        answer(simulation, role, rule(simulation, role))
    return asked


def changed(before: list[bytes], simulation: Simulation) -> list[str]:
    """Return the names of the arrays that are others than before."""
    pairs = zip(State._fields, before, present(simulation), strict=True)
    return [name for name, old, new in pairs if old != new]


def assert_served_the_same(mine: Simulation, other: Simulation) -> None:
    """Assert that every request got the same in two runs."""
    for name in GIVEN:
        np.testing.assert_array_equal(
            mine.state.requests[name], other.state.requests[name], err_msg=name
        )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("role", AGENTS)
def test_answered_by_a_policys_rule_it_is_the_policys_run(role, seed):
    """Whatever else the cluster does: faults, moves, scaling, impatient clients, stale metrics, a horizon."""
    native = random_case(NATIVE[role], seed)
    waiting = replace(native, policy=AGENTS[role], options=with_agent(native.options, role))
    mine, other = waiting.simulation(), native.simulation()
    other.run()
    asked = play(mine, by_turns, look=check_all)
    assert_served_the_same(mine, other)
    assert {each.role for each in asked} <= {role}


def check_all(simulation: Simulation) -> None:
    """Assert that no request and no block is lost at a decision."""
    check_conservation(simulation)
    check_blocks(simulation)


def with_agent(options: dict, role: str) -> dict:
    """Return options of a config with the agent in the place of the native rule."""
    return options if role == "dispatch" else options | {role: AGENT}


@pytest.mark.parametrize("seed", range(8))
def test_background_queue_policy_keeps_its_memory_while_dispatch_waits(seed):
    """Weighted spends credits of a queue each time it is asked: asked anew for every answer it would spend twice."""
    case = random_case(native_dispatch, seed)
    options = case.options | {"queue": "weighted", "queue_by": "tier", "max_local_waiting": 0}
    native = replace(case, options=options)
    waiting = replace(native, policy=agent.dispatch)
    mine, other = waiting.simulation(), native.simulation()
    other.run()
    asked = play(mine, by_turns)
    assert asked
    assert_served_the_same(mine, other)
    np.testing.assert_array_equal(memory_of(mine, "queue"), memory_of(other, "queue"))


def memory_of(simulation: Simulation, role: str) -> np.ndarray:
    """Return the memory of a role's policy."""
    record = simulation.state.policies[ROLES.index(role)]
    return simulation.state.memory[int(record["memory_begin"]) : int(record["memory_end"])]


@pytest.mark.parametrize("kind", ["dispatch", "admission", "queue", "scaling", "migration"])
def test_run_without_an_agent_names_the_decision_that_waits(kind):
    policy = find_policy(kind, AGENT)
    simulation = flat(
        [0.0],
        **({} if kind == "dispatch" else {kind: AGENT, "max_local_waiting": 0}),
        policy=policy if kind == "dispatch" else find_policy("dispatch", "least-requests"),
    )
    with pytest.raises(ValueError, match=f"{kind} = 'agent'"):
        simulation.run()


# Worked by hand: 10 ms an iteration, a prompt of 16 tokens and 2 of output take two iterations.


def flat(
    arrivals_s: list[float],
    policy: Policy = agent.dispatch,
    output_tokens: int = 2,
    horizon_s: float | None = None,
    **options,
) -> Simulation:
    """Return FLAT instances, one unless said."""
    n = len(arrivals_s)
    config = ClusterConfig(**({"instances": 1, "profile": FLAT, "estimator": "oracle"} | options))
    trace = Trace(arrivals_s, [16] * n, [output_tokens] * n)
    return Simulation(trace, config, policy, horizon_s=horizon_s)


def asked_of(asked: list[Asked]) -> list[tuple[str, int, float]]:
    """Return role, request and time, ms."""
    return [(each.role, each.request, round(each.now_s * 1e3, 9)) for each in asked]


def test_two_arrivals_at_one_instant_are_decided_one_after_the_other():
    """The second is asked about when the first waits where it was sent, in the same instant."""
    simulation, waiting = flat([0.0, 0.0], instances=2), []
    asked = play(
        simulation,
        lambda s, role: 1,
        look=lambda s: waiting.append(s.state.instances["n_waiting"].tolist()),
    )
    assert asked_of(asked) == [("dispatch", 0, 0.0), ("dispatch", 1, 0.0)]
    assert waiting == [[0, 0], [0, 1]]
    assert simulation.state.requests["instance"].tolist() == [1, 1]


def test_two_arrivals_at_one_instant_wait_at_the_gateway_for_one_seat():
    """Pull, one seat: r0 takes it at 0, ends at 20 ms; only then is anybody asked about r1."""
    simulation = flat([0.0, 0.0], max_num_seqs=1, max_local_waiting=0)
    asked = play(simulation, lambda s, role: 0)
    assert asked_of(asked) == [("dispatch", 0, 0.0), ("dispatch", 1, 20.0)]
    assert simulation.state.requests["finish_ps"].tolist() == [20 * 10**9, 40 * 10**9]


def test_held_requests_are_asked_about_in_order_of_arrival():
    """Held until the third has come; each round asks at once about the one just held, too, behind the older ones."""
    simulation = flat(
        [0.0, 1.0, 2.0],
        find_policy("dispatch", "least-requests"),
        admission=AGENT,
        hold_timer_s=100.0,
    )
    answers = iter([HOLD] * 6 + [ACCEPT] * 3)
    asked = play(simulation, lambda s, role: next(answers))
    seconds = [(each.request, each.now_s) for each in asked]
    first, second = [(0, 0.0), (0, 0.0)], [(1, 1.0), (0, 1.0), (1, 1.0)]
    assert seconds == first + second + [(2, 2.0), (0, 2.0), (1, 2.0), (2, 2.0)]
    assert next(answers, None) is None
    assert (simulation.state.requests["admitted_ps"] == 2 * 10**12).all()


def test_release_comes_before_the_control_ticks_of_its_instant():
    """Pull, one seat, ticks each 20 ms. At 20 ms r0 ends: first its seat is given away, then the tick is asked."""
    simulation = flat(
        [0.0, 0.005],
        max_num_seqs=1,
        max_local_waiting=0,
        scaling=AGENT,
        scaling_interval_s=0.02,
        hold_timer_s=10.0,
    )
    asked = play(simulation, lambda s, role: 0)
    assert asked_of(asked) == [
        ("dispatch", 0, 0.0),
        ("scaling", -1, 0.0),
        ("dispatch", 1, 20.0),
        ("scaling", -1, 20.0),
    ]  # r1 ends at 40 ms, when nothing is left to scale for


def test_arrival_release_and_ticks_of_one_instant_wait_in_their_order():
    """At 20 ms: r0 ends, r2 arrives, and r1 waits since 5 ms. Seats for two after a start at once, one of the ticks.

    Phase 7: r2's arrival plays a round: the seat of r0 goes to r1 (the older head). Phase 9: scaling starts instance 1,
    active in the same instant, so one more round follows, about r2.
    """
    simulation = flat(
        [0.0, 0.005, 0.02],
        max_num_seqs=1,
        max_local_waiting=0,
        scaling=AGENT,
        scaling_interval_s=0.02,
        startup_delay_s=0.0,
        max_instances=2,
        hold_timer_s=10.0,
    )

    def rule(s: Simulation, role: str) -> int:
        if role == "scaling":
            return int(s.now_s == 0.02)
        return int(s.state.shared[0]["asked_request"] == 2)

    asked = play(simulation, rule)
    assert asked_of(asked)[:5] == [
        ("dispatch", 0, 0.0),
        ("scaling", -1, 0.0),
        ("dispatch", 1, 20.0),
        ("scaling", -1, 20.0),
        ("dispatch", 2, 20.0),
    ]
    assert simulation.state.requests["instance"].tolist() == [0, 0, 1]


def test_client_that_asks_again_is_asked_about_again():
    """One seat. r1 waits from 0, gives up at 15 ms, asks again 10 ms later (backoff), when r0 has ended (20 ms)."""
    simulation = flat(
        [0.0, 0.0],
        max_num_seqs=1,
        timeout_s=(0.015),
        client_retries=1,
        retry_backoff_s=0.01,
        output_tokens=1,
        max_local_waiting=0,
        host_overhead_ms=10.0,
    )
    # an iteration takes 20 ms: r0, running, is cancelled at its end unless that ends it, which it does
    asked = play(simulation, lambda s, role: 0)
    assert asked_of(asked) == [("dispatch", 0, 0.0), ("dispatch", 1, 25.0)]
    requests = simulation.state.requests
    assert requests["attempt"].tolist() == [0, 1]
    assert requests["finish_ps"].tolist() == [20 * 10**9, 45 * 10**9]


def test_wait_at_the_end_of_an_awaited_run_has_ended():
    """After the last answer nobody is asked any more, and running on changes nothing."""
    simulation = flat([0.0])
    play(simulation, lambda s, role: 0)
    before = present(simulation)
    assert not simulation.proceed(int(NEVER))
    assert changed(before, simulation) == []
    assert int(n_at_gateway(simulation.state)) == 0


@kernel
def n_at_gateway(all_state):
    """Return how many requests wait at the gateway."""
    gateway = centre(core_of(all_state)).gateway[0]
    return gateway.n_queued + gateway.n_held
