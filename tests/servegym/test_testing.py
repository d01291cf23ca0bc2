"""servegym.testing catches what is wrong with a policy: one broken policy of each kind, and what they have in common.

Every policy here obeys the decorators' own checks, and nearly all run without an error in an ordinary simulation.
"""

import subprocess
import sys

import numpy as np
import pytest

from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import (
    Param,
    admission_policy,
    dispatch_policy,
    estimator,
    find_policy,
    migration_policy,
    ordering_policy,
    queue_policy,
    remaining_policy,
    scaling_policy,
)
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ROLES
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    is_accepting,
    is_active,
    is_ready,
    n_instances,
    n_queues,
    n_waiting,
    predicted_tokens,
    prompt_tokens,
    queue_length,
)
from servegym.testing import check_conservation, check_drained, check_policy, random_case
from servegym.testing.clusters import ENGINES
from servegym.traces import Trace


@kernel
def first_accepting(cluster, request):
    """Return the first instance that accepts the request, else HOLD."""
    for i in range(n_instances(cluster)):
        if is_accepting(cluster, request, i):
            return i
    return HOLD


# Dispatch.


@dispatch_policy(source="test", name="test-sound", memory=1, params=(Param("a", 1, "", 0, 9),))
def sound(cluster, request, params, memory, rng):
    """Return the first accepting instance, counting."""
    memory[0] += params[0]
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-careless")
def careless(cluster, request, params, memory, rng):
    """Return instance 0, whether it accepts or not."""
    return 0


@dispatch_policy(source="test", name="test-meddler")
def meddler(cluster, request, params, memory, rng):
    """Write where nothing that the run depends on stands: only a look at the state tells."""
    cluster.instances[0].spare[0] = 7
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-hoarder")
def hoarder(cluster, request, params, memory, rng):
    """Keep a counter where no snapshot of its own is."""
    cluster.instances[0].spare[1] += 1
    i = int(cluster.instances[0].spare[1]) % n_instances(cluster)
    return i if is_accepting(cluster, request, i) else first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-spiller", memory=2)
def spiller(cluster, request, params, memory, rng):
    """Write behind its memory."""
    memory[4] += 1.0
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-peeper", memory=2)
def peeper(cluster, request, params, memory, rng):
    """Choose by what lies behind its memory."""
    last = n_instances(cluster) - 1
    if memory[3] > 0 and is_accepting(cluster, request, last):
        return last
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-tuner", params=(Param("a", 1, "", 0, 1e9),))
def tuner(cluster, request, params, memory, rng):
    """Change its own parameter."""
    params[0] += 1.0
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-stubborn")
def stubborn(cluster, request, params, memory, rng):
    """Hold the seventh request for ever."""
    return HOLD if request.index == 7 else first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-narrow", params=(Param("i", 0, "instance", 0, 4),))
def narrow(cluster, request, params, memory, rng):
    """Return the instance that is set if it accepts: for 4 it often is none."""
    i = int(params[0])
    return i if is_accepting(cluster, request, i) else first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-outside", params=(Param("a", 2, "", 0, 1),))
def outside(cluster, request, params, memory, rng):
    """Have a default that its own bounds refuse."""
    return first_accepting(cluster, request)


@dispatch_policy(source="test", name="test-dicer")
def dicer(cluster, request, params, memory, rng):
    """Take the next policy's random stream, too."""
    rng[1] += np.uint64(1)
    return first_accepting(cluster, request)


# Ordering, estimation, remaining.


@ordering_policy(source="test", name="test-nan", params=(Param("a", 1, "", 0, 1),))
def nan_key(request, now_ps, params):
    """Return NaN for some prompts."""
    return np.nan if prompt_tokens(request) % 5 == 0 else 1.0


@ordering_policy(source="test", name="test-beyond-params", params=(Param("a", 1, "", 0, 1),))
def beyond_params(request, now_ps, params):
    """Return the prompt times a parameter that there is not."""
    return prompt_tokens(request) * params[1]


@estimator(source="test", name="test-negative")
def negative(request, params, memory, rng):
    """Predict fewer than no tokens for some prompts."""
    return 40.0 - prompt_tokens(request)


@remaining_policy(source="test", name="test-forgetful", memory=1)
def forgetful(request, generated, params, memory):
    """Return what memory it has not says."""
    return predicted_tokens(request) + memory[2]


@remaining_policy(source="test", name="test-undefined")
def undefined(request, generated, params, memory):
    """Return NaN for the first."""
    return np.nan if generated == 0 else 5.0


# Admission, queue, migration, scaling.


@admission_policy(source="test", name="test-maybe")
def maybe(cluster, request, params, memory, rng):
    """Answer 7."""
    return 7


@admission_policy(source="test", name="test-never")
def never(cluster, request, params, memory, rng):
    """Hold every third request for ever."""
    return HOLD if request.index % 3 == 0 else ACCEPT


@queue_policy(source="test", name="test-empty-queue")
def empty_queue(cluster, params, memory, rng):
    """Return the last queue, empty or not."""
    return n_queues(cluster) - 1


@queue_policy(source="test", name="test-last-word", memory=1)
def last_word(cluster, params, memory, rng):
    """Return a ready queue, and write behind its memory which."""
    for q in range(n_queues(cluster)):
        if is_ready(cluster, q):
            memory[1] = queue_length(cluster, q)
            return q
    return HOLD


@migration_policy(source="test", name="test-lost")
def lost(cluster, moves, params, memory, rng):
    """Write a move of nobody."""
    moves[0, 0], moves[0, 1], moves[0, 2] = 0, 1, -1
    return 1


@migration_policy(source="test", name="test-long-winded")
def long_winded(cluster, moves, params, memory, rng):
    """Write a row that it may not have, and say nothing of it."""
    moves[moves.shape[0], 0] = n_waiting(cluster, 0)
    return 0


@scaling_policy(source="test", name="test-greedy-scaling")
def greedy_scaling(cluster, params, memory, rng):
    """Ask for two instances at once."""
    return 2 if is_active(cluster, 0) else 0


BROKEN = {
    careless: r"chose instance 0 for request \d+; it must be one that accepts",
    meddler: r"writes into the engine's instances\[...\].spare",
    hoarder: r"writes into the engine's instances\[...\].spare",
    spiller: r"memory\[4\] of the dispatch policy is written",
    peeper: r"two runs differ, with other values beside its parameters and memory",
    tuner: r"parameters are written|two runs differ",
    stubborn: r"requests are still held at the gateway",
    narrow: r"looked at instance 4",
    outside: r"default of test-outside: a = 2; must be in \[0, 1\]",
    dicer: r"rng is written beyond its one item: the random stream of ordering",
    nan_key: r"gave NaN as key",
    beyond_params: r"two runs differ, with other values beside its parameters and memory",
    negative: r"predictions are no number of tokens",
    forgetful: r"two runs differ, with other values beside its parameters and memory",
    undefined: r"answers NaN",
    maybe: r"answers 7; must be ACCEPT, HOLD or REJECT",
    never: r"requests are still held at the gateway",
    empty_queue: r"chose queue \d; it must be one that is not empty",
    last_word: r"memory\[1\] of the queue policy is written",
    lost: r"wrote a move with source, destination, request = \[0, 1, -1\]",
    long_winded: r"writes moves beyond the 1 that it has room for",
    greedy_scaling: r"answers 2; must be -1, 0 or \+1",
}


@pytest.mark.parametrize("policy", BROKEN, ids=lambda policy: policy.name)
def test_broken_policy_is_caught_with_what_is_wrong(policy):
    with pytest.raises(AssertionError, match=BROKEN[policy]) as caught:
        check_policy(policy)
    assert f"{policy.kind} policy {policy.name!r}: " in str(caught.value)


def test_every_kind_has_a_broken_policy():
    assert {policy.kind for policy in BROKEN} == set(ROLES)


def test_sound_policy_passes():
    check_policy(sound)
    check_policy("test-sound", kind="dispatch", seeds=[100, 101])


def test_message_makes_the_case_again():
    with pytest.raises(AssertionError) as caught:
        check_policy(careless)
    again = str(caught.value).split("again: servegym.testing.")[1]
    call = again.partition(".simulation()")[0]
    case = eval(call, {"random_case": random_case, "find_policy": find_policy})
    assert again.startswith(case.text().removeprefix("servegym.testing."))
    with pytest.raises(ValueError, match="chose instance 0"):
        case.simulation().run()


def test_policy_that_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match="needs one of dispatch, ordering"):
        check_policy("test-sound")
    with pytest.raises(ValueError, match="is of kind 'dispatch'"):
        check_policy(sound, kind="queue")
    with pytest.raises(ValueError, match="must be what a decorator"):
        check_policy(sound.function)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="seeds = \\[\\]"):
        check_policy(sound, seeds=[])
    with pytest.raises(ValueError, match="unknown dispatch policy 'test-soundly'"):
        check_policy("test-soundly", kind="dispatch")


def test_policy_that_was_registered_anew_is_refused():
    def again(cluster, request, params, memory, rng):
        """Return instance 0."""
        return 0

    first, second = (dispatch_policy(source="test", name="test-twice")(again) for _ in range(2))
    with pytest.raises(ValueError, match="registered anew"):
        check_policy(first)
    assert find_policy("dispatch", "test-twice") is second


# The clusters.


def test_cases_are_many_things():
    cases = [random_case(sound, seed) for seed in range(60)]
    assert {case.options["engine"] for case in cases} == set(ENGINES)
    wanted = ("faults", "scaling", "migration", "timeout_s", "metrics_interval_s", "routers")
    for name in (*wanted, "max_local_waiting"):
        assert 10 <= sum(name in case.options for case in cases) <= 40, name
    assert 5 <= sum(case.horizon_s is not None for case in cases) <= 20


def test_twelve_cases_preempt_crash_move_scale_and_ask_again():
    # what the default seeds go through with a sound policy; else a check of it would say little
    counted = ("n_crashes", "n_scale_ups", "n_scale_downs", "n_ledger", "n_client_retries")
    total = dict.fromkeys(("preemptions", "rounds", *counted), 0)
    for seed in range(12):
        simulation = random_case(sound, seed).simulation()
        simulation.run()
        state = simulation.state
        total["preemptions"] += int(state.requests["preemptions"].sum())
        total["rounds"] += int(state.gateway[0]["last_round_ps"] > 0)  # cases with a gateway
        for name in counted:
            total[name] += int(state.control[0][name])
    assert min(total.values()) > 0, total


def test_case_is_the_same_again():
    first, second = (random_case(sound, 5) for _ in range(2))
    assert first.text() == second.text()
    assert first.trace.workload_hash == second.trace.workload_hash


# Conservation.


def paused() -> Simulation:
    """Return a cluster in the middle of its work."""
    trace = Trace(np.arange(40) * 0.01, np.full(40, 100), np.full(40, 50))
    simulation = Simulation(trace, ClusterConfig(instances=2, max_num_seqs=4), sound)
    simulation.run(0.3)
    check_conservation(simulation)
    return simulation


def test_lost_request_is_seen():
    simulation = paused()
    simulation.state.instances[0]["n_waiting"] -= 1
    with pytest.raises(AssertionError, match="31 requests arrived; "):
        check_conservation(simulation)


def test_end_that_is_none_is_seen():
    with pytest.raises(AssertionError, match="after the end: "):
        check_drained(paused())


def test_testing_needs_no_pytest():
    program = "import sys, servegym.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
