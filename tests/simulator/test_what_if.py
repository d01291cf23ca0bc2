"""What-if: against the reference's, against what really happens, and by hand.

FLAT instances take 10 ms an iteration.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flat_profile import FLAT
from random_cases import REFERENCE_DISPATCH, Case, random_case, reference_of, simulation_of
from reference.cluster import ReferenceCluster
from reference.engine import Engine, NoProgressError
from reference.model import Request
from reference.options import Options
from reference.what_if import WhatIf, plug_in

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Param, dispatch_policy, remaining_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.simulator.views import (
    HOLD,
    finish_within_s,
    is_accepting,
    marginal_latency_s,
    n_instances,
    predicted_finish_s,
    predicted_tokens,
    prompt_tokens,
)
from servegym.traces import Trace

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
MOST_ASKED, EVERY = 400, 8  # instances asked about, in all; every so many requests


@dispatch_policy(
    source="test: predicts for every eighth request, then takes it in turns",
    name="test-look",
    memory=3 * MOST_ASKED + 1,
)
def look(cluster, request, params, memory, rng):
    """Write finish, marginal latency and the weighted one for every instance; choose by index."""
    chosen, n = HOLD, n_instances(cluster)
    for offset in range(n):
        i = (request.index + offset) % n
        if not is_accepting(cluster, request, i):
            continue
        if chosen == HOLD:
            chosen = i
        k = int(memory[0])
        if request.index % EVERY == 0 and k < MOST_ASKED:
            memory[3 * k + 1] = predicted_finish_s(cluster, request, i)
            memory[3 * k + 2] = marginal_latency_s(cluster, request, i, False)
            memory[3 * k + 3] = marginal_latency_s(cluster, request, i, True)
            memory[0] += 1
    return chosen


@dispatch_policy(
    source="test: looks at the last request",
    name="test-look-at-last",
    params=(Param("last", 0, "index", 0, 1e9),),
    memory=1,
)
def look_at_last(cluster, request, params, memory, rng):
    """Write the finish predicted for the last request where it goes; choose by index."""
    n = n_instances(cluster)
    for offset in range(n):
        i = (request.index + offset) % n
        if is_accepting(cluster, request, i):
            if request.index == params[0]:
                memory[0] = predicted_finish_s(cluster, request, i)
            return i
    return HOLD


@dispatch_policy(
    source="test: request i to the first accepting instance from i on", name="test-in-turn"
)
def in_turn(cluster, request, params, memory, rng):
    """Choose as `look` does, without looking."""
    n = n_instances(cluster)
    for offset in range(n):
        if is_accepting(cluster, request, (request.index + offset) % n):
            return (request.index + offset) % n
    return HOLD


@remaining_policy(source="test: any number", name="test-anything")
def anything_left(request, generated, params, memory):
    """Return a number without rhyme or reason, some of them none."""
    tokens = (prompt_tokens(request) * 31 + generated * 7 + predicted_tokens(request)) % 53
    return np.nan if tokens == 52 else tokens * 1.5 - 4.0


def anything(request: Request) -> float:
    """Return the same."""
    numbers = request.prompt_tokens * 31 + request.generated * 7 + request.predicted_tokens
    return float("nan") if numbers % 53 == 52 else numbers % 53 * 1.5 - 4.0


class Copies(WhatIf):
    """The reference's copies; who is done in a static batch is done, and the others reserve what is believed."""

    def _believe(self, request: Request, engine: Engine) -> None:
        if request.generated == request.output_tokens:
            return
        super()._believe(request, engine)
        if engine.spec.engine == "static" and request in engine.running:
            engine.free_blocks += request.blocks
            request.blocks = request.most_blocks(engine.spec.block_size)
            engine.free_blocks -= request.blocks


class Look:
    """`look` for the reference; `seen` holds its answers in picoseconds."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self.remaining = plug_in

    def __call__(self, cluster: ReferenceCluster, request: Request) -> int:
        n = len(cluster.engines)
        order = [(request.index + k) % n for k in range(n)]
        fitting = [i for i in order if cluster.fits(request, i)]
        if request.index % EVERY == 0:
            self.seen += [self.ask(Copies(cluster, self.remaining), request, i) for i in fitting]
        return fitting[0]

    def ask(self, what_if: WhatIf, request: Request, i: int) -> tuple[float, float, float]:
        """Return the same three answers, infinite if the copy comes to a standstill."""
        try:
            return (
                what_if.finish_ps(request, i),
                what_if.marginal_latency_ps(request, i),
                what_if.marginal_latency_ps(request, i, by_tier=True),
            )
        except NoProgressError:
            return float("inf"), float("inf"), float("inf")


REFERENCE_DISPATCH["test-look"] = Look


def looking_case(engine: str, seed: int) -> Case | None:
    """Return a random case with few tokens that looks into the future; None for one with many."""
    case, rng = random_case(engine, seed), np.random.default_rng([seed, 9])
    if (case.trace.prompt_tokens + case.trace.output_tokens).sum() > 2000:
        return None
    changes: dict[str, Any] = {"snapshot_interval_s": float(rng.choice([0.0, 0.0, 0.004, 0.1]))}
    changes["remaining"] = str(rng.choice(["plug-in", "test-anything"]))
    changes["estimator"] = case.config.estimator
    if engine == "static":  # its blocks are reserved, and believed ones may be more than there are
        changes["kv_blocks"] = 100_000
    config = ClusterConfig(**{**case.config.model_dump(), **changes})
    return replace(case, config=config, dispatch="test-look")


def compare(case: Case) -> Counter:
    """Play a case in both simulators; return what was compared."""
    config = case.config
    cluster = reference_of(case)
    interval_ps = round(config.snapshot_interval_s * 1e12)
    cluster.options = Options(snapshot_interval_ps=interval_ps)
    cluster.dispatch.remaining = anything if config.remaining == "test-anything" else plug_in  # pyright: ignore
    cluster.run()
    simulation = simulation_of(case)
    simulation.run()
    expected = np.array(cluster.dispatch.seen).reshape(-1, 3) / 1e12  # pyright: ignore
    n = int(simulation.state.memory[0])
    seen = simulation.state.memory[1 : 1 + 3 * n].reshape(-1, 3)
    assert len(seen) == len(expected)
    np.testing.assert_array_equal(seen[:, 0], expected[:, 0])
    np.testing.assert_allclose(seen, expected, rtol=1e-9, atol=1e-9)
    is_finite = np.isfinite(expected[:, 0])
    return Counter(
        predictions=int(is_finite.sum()),
        standstills=int((~is_finite).sum()),
        delays=int((np.abs(expected[is_finite, 1] - expected[is_finite, 0]) > 1e-9).sum()),
        aged=n if interval_ps > 0 else 0,
        preempting=n if cluster.n_preemptions > 0 else 0,
        keyed=n if config.order not in ("fcfs", "priority") else 0,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_predictions_are_those_of_the_reference(engine):
    cases = [case for seed in range(1000, 1150) if (case := looking_case(engine, seed))]
    happened = sum((compare(case) for case in cases), Counter())
    possible = {"predictions", "delays", "aged", "keyed"}
    possible |= set() if engine == "static" else {"preempting"}
    assert all(happened[label] >= 20 for label in possible), happened


@pytest.mark.parametrize("engine", ENGINES)
def test_true_lengths_predict_what_happens_if_nothing_else_arrives(engine):
    n_compared = n_preempted = 0
    for seed in range(2000, 2150):
        case = random_case(engine, seed)
        options = {**case.config.model_dump(), "estimator": "oracle", "estimator_params": {}}
        last = len(case.trace) - 1
        # the last request only, seen from every instance; it goes to the first
        simulation = Simulation(
            case.trace, ClusterConfig(**options), look_at_last, dispatch_params={"last": last}
        )
        for read_ps in case.reads_ps:
            simulation.run_until_ps(read_ps)
            simulation.observe(0)
        simulation.run()
        record = simulation.state.requests[last]
        if record["status"] != FINISHED:
            continue
        e2e_s = (record["finish_ps"] - record["arrival_ps"]) / 1e12
        assert simulation.state.memory[0] == e2e_s
        n_compared += 1
        n_preempted += int(simulation.state.requests["preemptions"].sum() > 0)
    assert n_compared > 100
    assert engine == "static" or n_preempted > 15


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "priority"},
        {"order": "test-aging", "metrics_interval_s": 0.03, "routers": 2},
        {"order": "sjf", "snapshot_interval_s": 0.05, "metrics_interval_s": 0.03},
    ],
    ids=str,
)
def test_looking_changes_nothing(engine, options):
    random = np.random.default_rng(7)
    n = 200
    trace = Trace(
        np.sort(random.uniform(0, 1.5, n)),
        random.integers(1, 90, n),
        random.integers(1, 60, n),
        tier=random.integers(0, 3, n),
    )
    fleet: dict[str, Any] = {"instances": 2, "profile": FLAT, "kv_blocks": 40, "tiers": 3}
    config = ClusterConfig(engine=engine, max_num_seqs=24, **fleet, **options)
    logs = []
    for policy in (look, in_turn):
        simulation = Simulation(trace, config, policy)
        simulation.run()
        logs.append(simulation.state.requests)
        if policy is look:
            assert simulation.state.memory[0] == 2 * n / EVERY
    assert (logs[0]["status"] == FINISHED).all()
    assert engine == "static" or (logs[0]["preemptions"] > 0).any()
    np.testing.assert_array_equal(logs[0], logs[1])


@dispatch_policy(
    source="test: asks about the last request",
    name="test-ask-last",
    params=(
        Param("last", 0, "index", 0, 1e9),
        Param("tokens", 0, "tokens", 0, 1e12),
        Param("limit_s", 1e9, "s", 0, 1e9),
    ),
    memory=3,
)
def ask_last(cluster, request, params, memory, rng):
    """Write finish, marginal latency and the weighted one for instance 0; choose 0."""
    if request.index == params[0]:
        memory[0] = finish_within_s(cluster, request, 0, params[1], params[2])
        memory[1] = marginal_latency_s(cluster, request, 0, False)
        memory[2] = marginal_latency_s(cluster, request, 0, True)
    return 0


def ask(
    rows: list[tuple[float, int, int]], tiers: list[int], params: Any = None, **options: Any
) -> list[float]:
    """Return what is predicted for the last of rows (arrival ms, prompt, output) on one FLAT instance, ms.

    Predicted outputs are 3 tokens; one request runs at a time.
    """
    arrival_ms, prompts, outputs = np.array(rows).T
    trace = Trace(arrival_ms / 1e3, prompts.astype(int), outputs.astype(int), tier=tiers)
    options = {"estimator_params": {"tokens": 3.0}, "max_num_seqs": 1, "tiers": 2, **options}
    config = ClusterConfig(instances=1, profile=FLAT, **options)
    params = {"last": len(rows) - 1} | (params or {})
    simulation = Simulation(trace, config, ask_last, dispatch_params=params)
    simulation.run()
    return [round(1e3 * seconds, 6) for seconds in simulation.state.memory[:3].tolist()]


FIRST, NEWCOMER = (0.0, 10, 20), (15.0, 10, 5)


def test_newcomer_waits_for_what_is_left_of_the_one_before_it():
    # at 15 ms the first has streamed 1 of 3, ends at 30; the newcomer ends at 60
    assert ask([FIRST, NEWCOMER], [0, 0]) == [45.0, 45.0, 45.0]


def test_request_that_outlives_its_prediction_has_ten_tokens_left():
    # at 45 ms it has streamed 4 > 3; its fifth iteration is in flight: 40 + 10 * 10 = 140 ms, then 30 ms
    assert ask([FIRST, (45.0, 10, 5)], [0, 0]) == [125.0, 125.0, 125.0]


def test_urgent_newcomer_pays_for_those_whom_it_delays():
    # second (tier 1) would run from 30 to 60 ms; the newcomer takes that, second ends at 90: 45 + 30, 45 + 30 / 2
    rows = [FIRST, (5.0, 10, 7), NEWCOMER]
    assert ask(rows, [0, 1, 0], order="priority") == [45.0, 75.0, 60.0]


def test_prediction_may_be_another_than_the_requests_own():
    # 5 tokens from 30 ms on: 80 - 15; marginal latency stays with the estimator's
    assert ask([FIRST, NEWCOMER], [0, 0], {"tokens": 5.0}) == [65.0, 45.0, 45.0]


def test_what_is_later_than_the_limit_is_infinity_and_what_is_not_is_told():
    for limit_s, finish_ms in ((0.0449, np.inf), (0.045, 45.0), (0.046, 45.0)):
        assert [finish_ms, 45.0, 45.0] == ask([FIRST, NEWCOMER], [0, 0], {"limit_s": limit_s})


def test_length_is_cut_to_what_the_instance_can_hold():
    # 10 blocks of 16: 160 + 1 - 10 = 151 tokens, from 30 ms on: 1540 - 15
    options = {"kv_blocks": 10, "watermark": 0.0}
    assert ask([FIRST, NEWCOMER], [0, 0], {"tokens": 1e9}, **options) == [1525.0, 45.0, 45.0]


def test_snapshot_is_of_its_time_and_knows_the_routers_own_placements():
    # R = 0: the first was placed since and is believed to run from 0 to 30 ms
    options: dict[str, Any] = {"snapshot_interval_s": 0.1}
    assert ask([FIRST, NEWCOMER], [0, 0], **options) == [45.0, 45.0, 45.0]
    assert ask([FIRST, (45.0, 10, 5)], [0, 0], **options) == [30.0, 30.0, 30.0]
    # R = 40 ms: it has outlived its prediction there, 4 streamed, and ends at 140
    options["snapshot_interval_s"] = 0.04
    assert ask([FIRST, (45.0, 10, 5)], [0, 0], **options) == [125.0, 125.0, 125.0]


def test_snapshot_lacks_what_other_routers_placed_since():
    # the first is router 0's, the newcomer router 1's: to it the instance is idle
    options: dict[str, Any] = {"snapshot_interval_s": 0.1, "routers": 2}
    assert ask([FIRST, NEWCOMER], [0, 0], **options) == [30.0, 30.0, 30.0]
    # placed before R = 10 ms, it is seen by everybody
    options["snapshot_interval_s"] = 0.01
    assert ask([FIRST, NEWCOMER], [0, 0], **options) == [45.0, 45.0, 45.0]


def test_only_policies_that_look_pay_for_looking():
    trace = Trace([0.0], [10], [5])
    config = ClusterConfig(instances=1, profile=FLAT, snapshot_interval_s=0.1)
    state = Simulation(trace, config, in_turn).state
    assert state.shared[0]["what_if_address"] == state.shared[0]["snapshot_interval_ps"] == 0
    assert len(state.copied_requests) == 0
    state = Simulation(trace, config, look).state
    assert state.shared[0]["what_if_address"] != 0
    assert state.shared[0]["snapshot_interval_ps"] == 10**11
