"""Policies: registered by decorating, found by name, given their own memory, parameters and chance, and checked."""

import pickle
from random import randrange

import numpy as np
import odd_policies
import pytest
from flat_profile import FLAT

from servegym.simulator import policy as registry
from servegym.simulator.arrival import LONGEST_PREDICTION
from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import (
    Param,
    Policy,
    dispatch_policy,
    estimator,
    find_policy,
    ordering_policy,
    policy_names,
)
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import n_instances, n_waiting, output_tokens, prompt_tokens
from servegym.simulator.views import output_tokens as the_truth
from servegym.traces import Trace

MS = 10**9


@pytest.fixture
def own_registry(monkeypatch):
    """What a test registers is forgotten after it."""
    policy_names("dispatch")  # everything that ships is there
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def simulate(trace: Trace, dispatch: Policy | str = "round-robin", **options) -> Simulation:
    """Run to the end on FLAT instances (10 ms an iteration); params are the dispatch policy's."""
    params = options.pop("params", None)
    config = ClusterConfig(**{"instances": 1, "profile": FLAT, **options})
    chosen = find_policy("dispatch", dispatch) if isinstance(dispatch, str) else dispatch
    simulation = Simulation(trace, config, chosen, dispatch_params=params)
    simulation.run()
    return simulation


def one_by_one(n: int, prompt: int = 10, output: int = 3) -> Trace:
    """Return n equal requests, one a second."""
    return Trace(np.arange(float(n)), np.full(n, prompt), np.full(n, output))


# Registration.


def test_policies_that_ship_are_found_by_the_names_of_their_functions():
    expected = {"round-robin", "random", "least-requests", "least-kv", "least-tokens"}
    expected |= {"power-of-two", "power-of-two-kv", "power-of-two-tokens"}
    assert expected <= set(policy_names("dispatch"))
    assert "sjf" in policy_names("ordering")
    assert {"constant", "oracle"} <= set(policy_names("estimation"))


@pytest.mark.parametrize("kind", ["dispatch", "ordering", "estimation"])
def test_every_policy_names_its_source_and_says_what_it_returns(kind):
    for name in policy_names(kind):
        policy = find_policy(kind, name)
        assert (policy.name, policy.kind) == (name, kind)
        assert policy.source and policy.summary.endswith(".")


@pytest.mark.parametrize(
    ("kind", "wrong", "near"),
    [
        ("dispatch", "least-request", "least-requests"),
        ("dispatch", "power-of-too", "power-of-two"),
        ("dispatch", "round_robin", "round-robin"),
        ("ordering", "sfj", "sjf"),
        ("estimation", "orcale", "oracle"),
    ],
)
def test_unknown_name_gives_the_near_match(kind, wrong, near):
    with pytest.raises(ValueError) as error:
        find_policy(kind, wrong)
    expected = f"unknown {kind} policy {wrong!r}; did you mean {near!r}?"
    assert str(error.value).startswith(expected)


def test_unknown_name_without_a_near_match_lists_what_there_is():
    with pytest.raises(ValueError, match=r"unknown ordering policy 'xyzzy'; known: .*sjf"):
        find_policy("ordering", "xyzzy")


def test_kinds_have_their_own_names(own_registry):
    @ordering_policy(source="test", name="round-robin")
    def order_of_the_same_name(request, now_ps, params):
        """Return 0."""
        return 0.0

    assert find_policy("ordering", "round-robin") is order_of_the_same_name
    assert find_policy("dispatch", "round-robin").kind == "dispatch"


def test_name_taken_by_another_module_is_refused(own_registry):
    with pytest.raises(ValueError) as error:

        @dispatch_policy(source="test", name="least-kv")
        def mine(cluster, request, params, memory, rng):
            """Return 0."""
            return 0

    assert str(error.value) == (
        "dispatch policy 'least-kv' exists already, in servegym.baselines.dispatch.least_kv"
    )


def test_defining_a_policy_anew_replaces_it_as_in_a_notebook(own_registry):
    def define(answer):
        @dispatch_policy(source="test", name="test-answer")
        def mine(cluster, request, params, memory, rng):
            """Return a constant of the surroundings."""
            return answer

        return mine

    trace = one_by_one(2)
    for answer in (0, 1):
        assert define(answer) is find_policy("dispatch", "test-answer")
        records = simulate(trace, "test-answer", instances=2).state.requests
        assert records["instance"].tolist() == [answer, answer]


def test_policy_is_pickled_by_its_name():
    policy = find_policy("dispatch", "power-of-two")
    assert pickle.loads(pickle.dumps(policy)) is policy


# A policy defined here, with a helper's help, in memory and parameters.


@dispatch_policy(
    source="test: the first k instances in turn",
    name="test-first-k",
    params=(Param("k", 2, "instances", 1, 64),),
    memory=1,
)
def first_k(cluster, request, params, memory, rng):
    """Return the next of the first k instances; if somebody waits there, the last instance."""
    i = int(memory[0]) % int(params[0])
    memory[0] += 1
    return n_instances(cluster) - 1 if n_waiting(cluster, i) > 0 else i


def test_policy_defined_in_a_test_runs_with_its_parameters():
    trace = one_by_one(6)
    plain = simulate(trace, first_k, instances=4).state
    assert plain.requests["instance"].tolist() == [0, 1, 0, 1, 0, 1]
    three = simulate(trace, first_k, instances=4, params={"k": 3}).state
    assert three.requests["instance"].tolist() == [0, 1, 2, 0, 1, 2]
    assert three.memory.tolist() == [6.0]


def test_policy_sees_what_it_just_placed():
    # 0 and 1 get one each; the next two find somebody waiting there
    trace = Trace(np.zeros(4), np.full(4, 10), np.full(4, 3))
    assert simulate(trace, first_k, instances=4).state.requests["instance"].tolist() == [0, 1, 3, 3]


# Parameters.


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"k": 0}, "test-first-k: k = 0; must be in [1, 64] instances"),
        ({"k": 65.0}, "test-first-k: k = 65.0; must be in [1, 64] instances"),
        ({"k": float("nan")}, "test-first-k: k = nan; must be in [1, 64] instances"),
        ({"k": float("inf")}, "test-first-k: k = inf; must be in [1, 64] instances"),
        ({"k": "2"}, "test-first-k: k = '2'; must be a number"),
        ({"k": True}, "test-first-k: k = True; must be a number"),
        ({"k": None}, "test-first-k: k = None; must be a number"),
        ({"l": 2}, "test-first-k: unknown parameter 'l'; known: k"),
        ({"kk": 2}, "test-first-k: unknown parameter 'kk'; did you mean 'k'? known: k"),
    ],
)
def test_bad_parameter_is_refused_before_the_run(params, message):
    with pytest.raises(ValueError) as error:
        simulate(one_by_one(1), first_k, params=params)
    assert str(error.value) == message


def test_default_of_a_parameter_may_depend_on_the_trace():
    # constant predicts the trace's mean output, here (2 + 2 + 8) / 3 = 4
    trace = Trace(np.zeros(3), np.full(3, 10), [2, 2, 8])
    assert simulate(trace).state.requests["predicted_tokens"].tolist() == [4, 4, 4]
    given = simulate(trace, estimator_params={"tokens": 6.6}).state
    assert given.requests["predicted_tokens"].tolist() == [7, 7, 7]


def test_dispatch_and_estimator_have_memory_and_parameters_of_their_own():
    # greedy writes to all its memory: 3 floats for each of 2 instances, its 2 parameters 11 + 12
    simulation = simulate(
        one_by_one(4),
        odd_policies.greedy,
        instances=2,
        order="sjf",
        estimator="test-counter",
        estimator_params={"step": 5.0},
    )
    state = simulation.state
    # counter has 2 floats of memory (four calls so far) and one parameter
    assert state.memory.tolist() == [2023.0] * 6 + [4.0, 21.0]
    # and the remaining length of what-if has one
    assert state.params.tolist() == [11.0, 12.0, 5.0, 10.0]
    assert state.requests["predicted_tokens"].tolist() == [5, 10, 15, 20]


def test_dispatch_and_estimator_draw_from_streams_of_their_own():
    # another dispatch policy, which draws or does not, leaves the predictions alone
    predictions = [
        simulate(one_by_one(50), name, instances=4, estimator="test-noisy").state.requests[
            "predicted_tokens"
        ]
        for name in ("round-robin", "random", "power-of-two")
    ]
    assert len(set(predictions[0].tolist())) > 20
    assert all((other == predictions[0]).all() for other in predictions)


# Predictions.


def test_case_20_bad_predictions_are_replaced_clipped_and_counted():
    """A learned estimator's NaN or negative length poisoned queues and sums without a word."""
    simulation = simulate(one_by_one(20), estimator="test-bad-lengths")
    # NaN, -inf, -5, 0, .4, .5 become 1, 1e30 and inf the longest: 8 of 10 are bad
    state = simulation.state
    predicted = state.requests["predicted_tokens"].tolist()
    assert predicted[:6] == [1] * 6
    assert predicted[6:8] == [2, 2]
    assert predicted[8:10] == [LONGEST_PREDICTION] * 2
    assert predicted[10:] == predicted[:10]
    assert state.shared[0]["n_bad_predictions"] == 16
    assert simulation.result().summary()["finished"] == 20
    assert (state.instances["held_tokens"] == 0).all()


# The truth.


@kernel
def true_size(request):
    """Return the prompt's and the true output's tokens."""
    return prompt_tokens(request) + the_truth(request)


def test_policy_that_reads_the_truth_must_say_so(own_registry):
    with pytest.raises(
        ValueError, match="'test-cheat' reads output_tokens, the truth.* oracle=True"
    ):

        @ordering_policy(source="test", name="test-cheat")
        def cheat(request, now_ps, params):
            """Return the truth."""
            return float(output_tokens(request))

    with pytest.raises(
        ValueError, match="'test-peek' reads output_tokens, the truth, in true_size"
    ):

        @dispatch_policy(source="test", name="test-peek")
        def peek(cluster, request, params, memory, rng):
            """Return by the truth, through a helper that knows the accessor by another name."""
            return true_size(request) % 2

    assert "test-cheat" not in policy_names("ordering")
    assert "test-peek" not in policy_names("dispatch")


def test_policy_that_reads_the_truth_from_the_records_must_say_so(own_registry):
    with pytest.raises(ValueError, match="the truth"):

        @dispatch_policy(source="test", name="test-burglar")
        def burglar(cluster, request, params, memory, rng):
            """Return by the truth, past the accessors."""
            return request.records[request.index].output_tokens % 2


def test_function_with_other_arguments_is_refused_when_it_is_decorated(own_registry):
    with pytest.raises(ValueError) as error:

        @dispatch_policy(source="test", name="test-short")
        def short(cluster, request):
            """Return 0."""
            return 0

    assert str(error.value) == (
        "dispatch policy 'test-short' takes (cluster, request); "
        "must take (cluster, request, params, memory, rng)"
    )


def test_policy_declared_an_oracle_may_read_the_truth(own_registry):
    @dispatch_policy(source="test", name="test-by-truth", oracle=True)
    def by_truth(cluster, request, params, memory, rng):
        """Return even outputs to instance 0, odd ones to 1."""
        return output_tokens(request) % 2

    trace = Trace(np.zeros(4), np.full(4, 10), [1, 2, 3, 4])
    assert by_truth.is_oracle and not first_k.is_oracle
    assert simulate(trace, by_truth, instances=2).state.requests["instance"].tolist() == [
        1,
        0,
        1,
        0,
    ]


def test_oracle_estimator_is_an_oracle_and_constant_is_none():
    assert find_policy("estimation", "oracle").is_oracle
    assert not find_policy("estimation", "constant").is_oracle
    assert not any(
        find_policy("dispatch", name).is_oracle
        for name in policy_names("dispatch")
        if not name.startswith("test-")
    )


# Orders.


@ordering_policy(source="test: turns round at 25 ms", name="test-turning", time_dependent=True)
def turning(request, now_ps, params):
    """Return the prompt's length, from 25 ms on its negative."""
    return float(prompt_tokens(request)) if now_ps < 25 * MS else -float(prompt_tokens(request))


@ordering_policy(source="test: the same, but fixed at placement", name="test-turned-once")
def turned_once(request, now_ps, params):
    """Return the prompt's length, from 25 ms on its negative."""
    return float(prompt_tokens(request)) if now_ps < 25 * MS else -float(prompt_tokens(request))


def test_time_dependent_order_is_evaluated_anew_and_another_at_placement():
    # One seat, busy until 30 ms with request 0; 1 (long) and 2 (short) came before 25 ms, 3 (middle) after.
    rows = np.array([(0.0, 8, 3), (0.001, 30, 1), (0.002, 10, 1), (0.026, 20, 1)]).T
    trace = Trace(*rows)
    anew = simulate(trace, max_num_seqs=1, order="test-turning").state.requests
    once = simulate(trace, max_num_seqs=1, order="test-turned-once").state.requests
    # anew: -30, -20, -10, so 1, 3, 2. At placement: 30, 10, -20, so 3, 2, 1.
    assert (anew["finish_ps"] // MS).tolist() == [30, 40, 60, 50]
    assert (once["finish_ps"] // MS).tolist() == [30, 60, 50, 40]


def test_estimator_defined_in_a_test_feeds_the_order(own_registry):
    @estimator(source="test", name="test-inverse")
    def inverse(request, params, memory, rng):
        """Return fewer tokens for longer prompts."""
        return 1000.0 - 10.0 * prompt_tokens(request)

    # sjf by prompt + predicted = 1000 - 9 * prompt: the longest prompt is first
    trace = Trace([0.0, 0.001, 0.002], [5, 6, 7], np.ones(3))
    records = simulate(trace, max_num_seqs=1, order="sjf", estimator="test-inverse").state.requests
    assert (records["finish_ps"] // MS).tolist() == [10, 30, 20]


# Compilation.


def test_policy_can_be_called_as_the_python_function_it_is():
    memory = np.zeros(2)
    assert odd_policies.counter(None, np.array([3.0]), memory, None) == 3.0
    assert memory.tolist() == [1.0, 21.0]


def test_policy_compiles_on_first_use_only(own_registry):
    @dispatch_policy(source="test", name="test-lazy")
    def lazy(cluster, request, params, memory, rng):
        """Return 0."""
        return 0

    assert lazy._compiled == {}
    address = lazy.address
    assert address == lazy.address and len(lazy._compiled) == 1


def test_policy_that_does_not_compile_says_which(own_registry):
    @dispatch_policy(source="test", name="test-broken")
    def broken(cluster, request, params, memory, rng):
        """Use what does not exist."""
        return cluster.no_such_thing

    with pytest.raises(ValueError, match=r"'test-broken' \(.*test_policy.py:\d+\) .*no_such_thing"):
        simulate(one_by_one(1), broken)


def test_policy_typed_at_a_prompt_works_without_a_file(own_registry):
    source = (
        "@dispatch_policy(source='test', name='test-typed')\n"
        "def typed(cluster, request, params, memory, rng):\n"
        "    return n_instances(cluster) - 1\n"
    )
    names = {"dispatch_policy": dispatch_policy, "n_instances": n_instances}
    exec(compile(source, "<stdin>", "exec"), names)
    records = simulate(one_by_one(2), "test-typed", instances=3).state.requests
    assert records["instance"].tolist() == [2, 2]


def test_a_policy_that_draws_from_numpys_generator_is_refused():
    """Two runs of one seed would differ: no state holds that generator."""
    with pytest.raises(
        ValueError, match=r"uses np.random or random in lottery.*random_below\(rng, n\)"
    ):

        @dispatch_policy(source="test")
        def lottery(cluster, request, params, memory, rng):
            return np.random.randint(0, 2)


def test_a_helper_that_draws_from_pythons_generator_is_refused():
    with pytest.raises(ValueError, match="uses np.random or random in _shuffled"):

        @dispatch_policy(source="test")
        def hidden_lottery(cluster, request, params, memory, rng):
            return _shuffled()


def _shuffled():
    return randrange(2)


@pytest.mark.parametrize("statement", ["raise ValueError", "assert request", "print(request)"])
def test_a_policy_that_raises_asserts_or_prints_is_refused(statement):
    """Compiled, it would return 0 instead, and every request would go to instance 0."""
    names: dict = {"__name__": "test"}
    exec(
        f"def loud(cluster, request, params, memory, rng):\n    {statement}\n    return 0\n", names
    )
    with pytest.raises(ValueError, match="'loud' raises, asserts or prints in loud"):
        dispatch_policy(source="test")(names["loud"])


def test_the_truth_is_guarded_however_it_is_spelt():
    def by_record(cluster, request, params, memory, rng):
        return request.records[request.index].output_tokens % 2

    def by_lambda(cluster, request, params, memory, rng):
        peek = lambda r: the_truth(r)  # noqa: E731
        return peek(request) % 2

    def by_blocks(cluster, request, params, memory, rng):
        return request.records[request.index].need_blocks % 2

    for function in (by_record, by_lambda, by_blocks):
        with pytest.raises(ValueError, match="reads output_tokens, the truth"):
            dispatch_policy(source="test")(function)
