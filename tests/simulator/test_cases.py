"""Cases that must hold, of the engine as a whole: conservation, progress, ties, staleness, orders.

Each test's docstring says why it is there. The arithmetic of hand-worked ones stands in comments.
"""

from itertools import pairwise

import numpy as np
import pytest
from events import events_of, streamed_tokens
from flat_profile import FLAT

from servegym.baselines.saturation import scale_to_load
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, REJECTED, UNFINISHED
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.traces import Trace
from servegym.traces.workload import generate

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
ORDERS = ("fcfs", "priority", "sjf")
DISPATCH = [
    name
    for name in policy_names("dispatch")
    if find_policy("dispatch", name).function.__module__.startswith("servegym.")
]
LOG = ["instance", "admitted_ps", "first_token_ps", "finish_ps", "preemptions", "status"]


def simulation_of(trace: Trace, dispatch: str = "least-requests", **options) -> Simulation:
    """Return a simulation before its first event; seed and horizon_s are the simulation's, the rest the config's."""
    run = {name: options.pop(name) for name in ("seed", "horizon_s") if name in options}
    return Simulation(trace, ClusterConfig(**options), find_policy("dispatch", dispatch), **run)


def run(trace: Trace, dispatch: str = "least-requests", **options) -> np.ndarray:
    """Return the request records of a whole run."""
    simulation = simulation_of(trace, dispatch, **options)
    simulation.run()
    return simulation.state.requests


def at_once(prompt: int, output: int, n: int) -> Trace:
    """Return n equal requests that all arrive at t = 0."""
    return Trace(np.zeros(n), np.full(n, prompt), np.full(n, output))


# CASE 2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_case_02_progress_on_kv_of_hardly_more_than_the_largest(engine, order):
    """A KV pool that starves everybody made simulators preempt for ever (Vidur) and engines hang (vLLM)."""
    # the largest holds 60 + 101 - 1 = 160 tokens = 10 blocks of 16, the pool 11; together they want 110
    random = np.random.default_rng(2)
    prompt, output = random.integers(1, 61, 20), random.integers(1, 102, 20)
    prompt[7], output[7] = 60, 101
    trace = Trace(np.arange(20) * 1e-3, prompt, output, tier=np.arange(20) % 3)
    simulation = simulation_of(
        trace,
        instances=1,
        profile=FLAT,
        engine=engine,
        order=order,
        estimator="oracle",
        tiers=3,
        kv_blocks=11,
    )
    instance, seen = simulation.state.instances[0], []
    for _ in events_of(simulation):
        check_blocks(simulation)
        seen.append((int(instance["n_iterations"]), streamed_tokens(simulation)))
    # a prompt fits the budget, so every iteration that ends has streamed a token and none is lost
    # (in a static batch, too: it decodes until the longest is done)
    for (iterations, tokens), (later, more) in pairwise(seen):
        assert more > tokens if later > iterations else more == tokens
    assert (simulation.state.requests["status"] == FINISHED).all()
    assert seen[-1][1] == output.sum()
    if engine != "static":
        # somebody was preempted, nobody more often than there are others' tokens to wait for
        assert 0 < instance["n_preemptions"] < output.sum()
    check_drained(simulation)


# CASE 4


def starved_trace(n: int = 24) -> Trace:
    """Return a trace with bursts, one-token outputs, a request that fits nowhere, and three tiers."""
    random = np.random.default_rng(4)
    arrival_s = np.sort(random.choice([0.0, 0.0101, 0.02, 0.05, 0.0789], n))
    prompt, output = random.integers(1, 50, n), random.integers(1, 16, n)
    output[::6] = 1
    prompt[5] = 500
    return Trace(arrival_s, prompt, output, tier=random.integers(0, 3, n))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dispatch", DISPATCH)
def test_case_04_requests_and_blocks_are_conserved_at_every_event(dispatch, engine):
    """Simulators leaked KV blocks and lost requests in flight at the horizon; only counting at each event finds it."""
    trace, n_preemptions = starved_trace(), 0
    for order in ORDERS:
        for horizon_s in (None, 0.063):
            options = {
                "instances": 2,
                "profile": FLAT,
                "engine": engine,
                "order": order,
                "tiers": 3,
                "kv_blocks": 8,
                "batch_size": 4,
                "horizon_s": horizon_s,
            }
            simulation, n_events = simulation_of(trace, dispatch, **options), 0
            for _ in events_of(simulation):
                check_conservation(simulation)
                check_blocks(simulation)
                n_events += 1
            assert n_events > (5 if horizon_s else 20)
            # a look at every event changes nothing
            records = simulation.state.requests
            np.testing.assert_array_equal(records[LOG], run(trace, dispatch, **options)[LOG])
            check_counts(trace, simulation)
            n_preemptions += int(simulation.state.instances["n_preemptions"].sum())
    assert n_preemptions > 0 or engine == "static"


def check_counts(trace: Trace, simulation: Simulation) -> None:
    """Assert that offered = finished + rejected + unfinished, and that nothing is after the horizon."""
    records, horizon_ps = simulation.state.requests, simulation.horizon_ps
    counts = {status: int((records["status"] == status).sum()) for status in range(7)}
    assert counts[REJECTED] == 1
    if horizon_ps is None:
        assert counts[FINISHED] == len(trace) - 1
        check_drained(simulation)
        return
    offered = int((trace.arrival_s < horizon_ps / 1e12).sum())
    unfinished = int((records["finish_ps"] < 0).sum())
    assert unfinished > 0
    assert counts[FINISHED] > 0 or simulation.config.engine == "static"
    assert offered == len(records) == counts[FINISHED] + counts[REJECTED] + unfinished
    for name in ("admitted_ps", "first_token_ps", "finish_ps"):
        assert records[name].max() <= horizon_ps
    assert counts[UNFINISHED] + counts[FINISHED] + counts[REJECTED] == offered


# CASE 9


def test_case_09_simultaneous_arrivals_share_idle_instances_in_file_order():
    """Routers that read counts before the previous placement landed sent bursts to one instance (llm-d, BLIS)."""
    # rotation starts at request r mod 4 and all counts are equal every fourth time: r goes to r mod 4
    records = run(at_once(10, 5, 100), instances=4, profile=FLAT)
    assert np.bincount(records["instance"]).tolist() == [25] * 4
    assert (records["instance"] == np.arange(100) % 4).all()


def test_case_09_file_order_breaks_ties_on_one_instance():
    """Simultaneous arrivals served in hash or heap order made runs irreproducible (Vidur, simpy models)."""
    # one seat and one iteration of 10 ms each: request r ends at 10 * (r + 1) ms
    for order in ("fcfs", "priority", "sjf"):
        records = run(at_once(10, 1, 30), instances=1, profile=FLAT, max_num_seqs=1, order=order)
        assert (records["finish_ps"] == (np.arange(30) + 1) * 10 * 10**9).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_case_09_a_no_op_event_changes_nothing(engine):
    """Looking at an instance, or stopping at an instant, split jumps and moved results in the last bit."""
    trace, options = starved_trace(), {"instances": 2, "kv_blocks": 8, "tiers": 3, "engine": engine}
    expected = run(trace, **options)
    stopped = simulation_of(trace, **options)
    for instant_ps in range(0, 300_000_000_000, 777_777_777):
        stopped.run_until_ps(instant_ps)
        stopped.run_until_ps(instant_ps)
    stopped.run()
    np.testing.assert_array_equal(stopped.state.requests, expected)


# CASE 10

# The two of the N-tier paper, whose rule is "first index on ties": the fault is theirs, and is kept.
FIRST_OF_EQUALS = {"n-tier", "infaas-vllm"}


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_case_10_idle_ties_leave_no_instance_out(dispatch):
    """Least-loaded routers that break ties by index send all of a light load to instance 0 (vLLM, SGLang routers)."""
    # one second apart, each takes 50 ms: every instance is idle at every arrival
    trace = Trace(np.arange(1000.0), np.full(1000, 10), np.full(1000, 5))
    shares = np.bincount(run(trace, dispatch, instances=8, profile=FLAT)["instance"], minlength=8)
    if dispatch in FIRST_OF_EQUALS:
        assert shares.tolist() == [1000] + [0] * 7
        return
    # chance: 125 +- 10.5 each; 4.5 standard deviations below is 78
    assert shares.min() > 78
    if dispatch == "round-robin" or dispatch.startswith("least"):
        assert shares.tolist() == [125] * 8


def test_case_10_load_is_shared_evenly_at_load_six_tenths():
    """The same on real lengths: ties and near-ties must not add up to a lean to some instance."""
    config = ClusterConfig(instances=8)
    for seed in range(4):
        trace = scale_to_load(generate("azure-conv", 4000, 1.0, seed), config, 0.6)
        shares = np.bincount(run(trace, instances=8)["instance"], minlength=8)
        assert shares.min() >= 450 and shares.max() <= 550, shares
        equal = Trace(trace.arrival_s, np.full(4000, 1000), np.full(4000, 200))
        equal = scale_to_load(equal, config, 0.6)
        shares = np.bincount(run(equal, instances=8)["instance"], minlength=8)
        assert shares.min() >= 490 and shares.max() <= 510, shares


# CASE 11


def mean_imbalance(interval_s: float, routers: int) -> float:
    """Return the mean over time of max - mean requests per instance, 8 instances at load .8, 3 seeds."""
    gaps = []
    options = {"instances": 8, "metrics_interval_s": interval_s, "routers": routers}
    for seed in range(3):
        trace = generate("azure-conv", 3000, 1.0, seed)
        trace = scale_to_load(trace, ClusterConfig(instances=8), 0.8)
        simulation = simulation_of(trace, **options)
        for instant_s in np.arange(5.0, trace.arrival_s[-1], 0.5):
            simulation.run(instant_s)
            now = simulation.state.instances[["n_waiting", "n_running"]]
            counts = now["n_waiting"] + now["n_running"]
            gaps.append(counts.max() - counts.mean())
    return float(np.mean(gaps))


def test_case_11_imbalance_grows_with_staleness_and_with_routers():
    """Stale metrics make routers herd; simulators with instant metrics hid it (llm-d, Ray Serve)."""
    by_age = [mean_imbalance(interval_s, routers=8) for interval_s in (0.0, 0.5, 5.0)]
    assert by_age[0] * 1.2 < by_age[1] and by_age[1] * 1.5 < by_age[2], by_age
    # own placements are known at once: the fewer routers, the less is hidden from each
    by_routers = [mean_imbalance(5.0, routers) for routers in (1, 2, 8)]
    assert by_routers[0] * 1.05 < by_routers[1] < by_routers[2], by_routers
    assert by_routers[2] == by_age[2]


# Blind ones, one that counts its own placements, and those that look at snapshots (snapshot_interval_s) instead.
WITHOUT_METRICS = {"round-robin", "random", "min-queries", "block", "astrolabe", "marginal"}


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_case_11_interval_zero_is_perfect_information_for_any_number_of_routers(dispatch):
    """A refresh interval of 0 that still delayed something made the baseline wrong."""
    trace = generate("azure-conv", 1000, 20.0, 0)
    one = run(trace, dispatch, instances=4, routers=1)
    eight = run(trace, dispatch, instances=4, routers=8, metrics_interval_s=0.0)
    np.testing.assert_array_equal(one, eight)
    if dispatch not in WITHOUT_METRICS:
        stale = run(trace, dispatch, instances=4, routers=8, metrics_interval_s=5.0)
        assert (stale["instance"] != one["instance"]).any()


# CASE 18


def sjf_against_fcfs(load: float) -> tuple[float, float]:
    """Return SJF's mean E2E, and the P99 E2E of the longest tenth, both over FCFS's; 4 seeds."""
    options = {"instances": 2, "max_num_seqs": 32, "estimator": "oracle"}
    means, tails = [], []
    for seed in range(4):
        trace = generate("azure-conv", 3000, 1.0, seed)
        trace = scale_to_load(trace, ClusterConfig(**options), load)
        size = trace.prompt_tokens + trace.output_tokens
        is_long = size >= np.quantile(size, 0.9)
        e2e = {}
        for order in ("fcfs", "sjf"):
            records = run(trace, order=order, **options)
            e2e[order] = records["finish_ps"] - records["arrival_ps"]
        means.append(e2e["sjf"].mean() / e2e["fcfs"].mean())
        tails.append(
            np.quantile(e2e["sjf"][is_long], 0.99) / np.quantile(e2e["fcfs"][is_long], 0.99)
        )
    return float(np.mean(means)), float(np.mean(tails))


def test_case_18_sjf_equals_fifo_at_low_load_and_trades_the_tail_at_overload():
    """SJF that helps an empty queue, or costs the long requests nothing, is measured wrongly."""
    mean, tail = sjf_against_fcfs(0.3)
    assert abs(mean - 1) < 0.01 and abs(tail - 1) < 0.01, (mean, tail)
    mean, tail = sjf_against_fcfs(1.2)
    assert mean < 0.8 and tail > 1.2, (mean, tail)
