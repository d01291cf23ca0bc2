"""What is predicted of those that wait and run: by hand, against a naive walk in Python, whoever looks how often."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import random_cases
import random_cluster_cases
from feature_reads import READS, outlooks
from flat_profile import FLAT
from outlook_naive import naive_row

from servegym.simulator import build
from servegym.simulator.config import ClusterConfig
from servegym.simulator.errors import NoProgressError
from servegym.simulator.outlook_views import predicted_tokens_left
from servegym.simulator.policy import dispatch_policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ENGINE_KINDS
from servegym.simulator.views import n_instances
from servegym.traces import Trace


@pytest.fixture(params=["walked", "followed"], autouse=True)
def _sums(request, monkeypatch):
    """Play every test twice: sums from a walk at each look, and sums that follow the seats."""
    if request.param == "followed":
        monkeypatch.setattr(build, "_needs_outlook", lambda simulation: True)


KINDS = ("gateway-push-limit", "gateway-pull", "migration", "timeouts", "faults", "scaling")


def flat(lengths, predicted=None, until_s=0.0, **options) -> Simulation:
    """Return one FLAT instance (10 ms an iteration, 1,000 blocks of 16) with all requests at 0, stopped at until_s."""
    prompts, outputs = np.array(lengths).T
    options = {"instances": 1, "profile": FLAT, "estimator": "oracle"} | options
    if predicted is not None:
        options |= {"estimator": "constant", "estimator_params": {"tokens": predicted}}
    trace = Trace(np.zeros(len(lengths)), prompts, outputs)
    dispatch = find_policy("dispatch", "round-robin")
    simulation = Simulation(trace, ClusterConfig(**options), dispatch)
    simulation.run(until_s)
    return simulation


def read(simulation: Simulation, *names: str) -> list[float]:
    """Return READS of instance 0 by name."""
    row = outlooks(simulation)[0]
    return [float(row[READS.index(name)]) for name in names]


RUNNING = ("predicted_tokens_left", "tokens_at_predicted_ends", "running_work")


def test_running_requests_by_hand():
    # Prefill ends at 10 ms with one token each, decodes at 20 and 30: 3 streamed, 47 and 5 left, 103 and 19 known.
    simulation = flat([(100, 50), (16, 8)], until_s=0.035)
    # KV at the ends: 100 + 50 - 1 and 16 + 8 - 1. Work: 47*103 + 47*46/2 = 5922, 5*19 + 5*4/2 = 105.
    assert read(simulation, *RUNNING) == [52, 149 + 23, 5922 + 105]
    assert read(simulation, "iteration_ms", "next_predicted_completion_s") == [10.0, 0.05]
    assert read(simulation, "n_prefilling", "prefill_tokens_left") == [0, 0]


def test_time_until_blocks_are_free_by_hand():
    # Seats last changed at 10 ms: 101 and 17 known, 7 and 2 blocks; 49 and 7 left, in [48, 64) and [6, 8). Two
    # iterations ended since. The one in flight needs 103 and 19 tokens, still 9 blocks: 991 are free.
    simulation = flat([(100, 50), (16, 8)], until_s=0.035)
    found = outlooks(simulation, blocks=[991, 992, 993, 1000, 1009])[0][len(READS) :]
    # lacking 1 of the first bucket's 2: 6 + 2*1/2 - 2 = 5; both: 8 - 2; 9: 64 - 2; twice what is held: 2 * 62
    assert found.tolist() == [0.0, 0.05, 0.06, 0.62, 1.24]


def test_request_that_outlives_its_prediction_has_ten_tokens_left():
    # predicted 5: streamed 3 at 35 ms, 5 at 55, 6 at 65
    simulation = flat([(100, 50)], predicted=5, until_s=0.035)
    assert read(simulation, *RUNNING) == [2, 104, 103 + 104]
    simulation.run(0.055)
    assert read(simulation, *RUNNING) == [10, 105 + 10 - 1, 10 * 105 + 45]
    simulation.run(0.065)
    assert read(simulation, *RUNNING) == [10, 106 + 10 - 1, 10 * 106 + 45]


def test_waiting_requests_by_hand():
    # one seat: two wait, 16 + 32 tokens to prefill, 8 + 4 to stream; work 8*16 + 28, 4*32 + 6
    simulation = flat([(100, 50), (16, 8), (32, 4)], until_s=0.035, max_num_seqs=1)
    names = ("waiting_prefill_tokens", "waiting_predicted_tokens", "waiting_work")
    assert read(simulation, *names) == [48, 12, 156 + 134]


def test_prefill_in_progress_by_hand():
    # budget 64: after 10 ms 64 of 100 tokens are computed; before it none
    simulation = flat([(100, 50)], until_s=0.005, max_num_seqs=4, max_num_batched_tokens=64)
    assert read(simulation, "n_prefilling", "prefill_tokens_left") == [1, 100]
    simulation.run(0.015)
    assert read(simulation, "n_prefilling", "prefill_tokens_left") == [1, 36]
    assert read(simulation, *RUNNING) == [50, 149, 50 * 100 + 50 * 49 // 2]
    simulation.run(0.025)
    assert read(simulation, "n_prefilling", "prefill_tokens_left") == [0, 0]


def test_idle_instance_has_nothing_left():
    simulation = flat([(16, 1)], until_s=1.0)
    row = outlooks(simulation, blocks=[1000, 1001])[0]
    expected = [0.0] * len(READS)
    expected[READS.index("iteration_ms")] = 10.0  # of nobody
    assert row.tolist() == [*expected, 0.0, np.inf]


def test_static_batch_ends_with_its_longest():
    # closed at 10 ms, prefilled by 20 ms; at 45 ms 3 tokens each. The longest has 47 left; 10 blocks come back at once
    # (150 - 1 and 23 tokens: 10 + 2), in [48, 64) of the 49 left when the prefill ended, two iterations ago.
    simulation = flat([(100, 50), (16, 8)], until_s=0.045, engine="static", batch_size=2)
    assert read(simulation, "predicted_tokens_left", "next_predicted_completion_s")[0] >= 47
    now = read(simulation, "next_predicted_completion_s")[0]
    simulation.run(0.075)
    assert read(simulation, "next_predicted_completion_s")[0] == pytest.approx(now - 0.03)


def looked_at(case, of, n_looks: int) -> Iterator[Simulation]:
    """Yield a case's simulation at its reads and at further instants; to the end, or where nothing moves on."""
    simulation = of(replace(case, config=with_truth(case.config)))
    end_ps = int(case.trace.arrival_s[-1] * 1.3e12) + 10**9
    rng = np.random.default_rng(len(case.trace))
    instants = {*rng.integers(0, end_ps, n_looks).tolist(), *case.reads_ps}
    limit = end_ps if case.horizon_ps is None else case.horizon_ps
    for at_ps in sorted(each for each in instants if each <= limit):
        try:
            simulation.run_until_ps(at_ps)
        except NoProgressError:
            return
        yield simulation


def with_truth(config: ClusterConfig) -> ClusterConfig:
    """Return the config with metrics that are always true."""
    return config.model_copy(update={"metrics_interval_s": 0.0, "routers": 1})


def compare_with_naive(case, of) -> int:
    """Compare all readings of a case with the naive ones; return how many were of a busy instance."""
    busy = 0
    for simulation in looked_at(case, of, 12):
        kv_blocks = int(simulation.state.engines["kv_blocks"][0])
        blocks = [1, kv_blocks // 2, kv_blocks, 2 * kv_blocks]
        found = outlooks(simulation, blocks=blocks)
        for i, row in enumerate(found):
            assert row.tolist() == naive_row(simulation.state, i, blocks), (case, i)
            busy += bool(row[READS.index("predicted_tokens_left")] > 0)
    return busy


@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_readings_agree_with_a_naive_walk(engine):
    cases = [random_cases.random_case(engine, seed) for seed in range(40)]
    assert sum(compare_with_naive(case, random_cases.simulation_of) for case in cases) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_readings_agree_with_a_naive_walk_on_whole_clusters(kind):
    cases = [random_cluster_cases.random_cluster_case(kind, seed) for seed in range(25)]
    assert sum(compare_with_naive(case, random_cluster_cases.simulation_of) for case in cases) > 25


@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_every_change_of_seats_is_noted(engine):
    for seed in range(40):
        before = None
        for simulation in looked_at(
            random_cases.random_case(engine, seed), random_cases.simulation_of, 60
        ):
            instance = simulation.state.instances[0]
            n = int(instance["n_running"])
            seats = simulation.state.slots[:n]["request"].tolist()
            decoding = simulation.state.slots[: instance["n_decoding"]]["finish_iteration"].tolist()
            now = (seats, decoding, int(instance["seat_changes"]))
            assert before is None or before[2] != now[2] or before == now
            before = now


@pytest.mark.parametrize("kind", KINDS)
def test_looking_changes_nothing(kind):
    for seed in range(8):
        case = random_cluster_cases.random_cluster_case(kind, seed)
        often = [
            (int(simulation.state.shared[0]["now_ps"]), outlooks(simulation, blocks=[1, 10**6]))
            for simulation in looked_at(case, random_cluster_cases.simulation_of, 40)
        ]
        if not often:
            continue
        alone = random_cluster_cases.simulation_of(replace(case, config=with_truth(case.config)))
        alone.run_until_ps(often[-1][0])
        np.testing.assert_array_equal(outlooks(alone, blocks=[1, 10**6]), often[-1][1])


def stale_pair(engine: str, seed: int) -> tuple[Simulation, Simulation]:
    """Return a run with stale metrics and two routers, and its twin with true ones: same placements, same life."""
    rng = np.random.default_rng(seed)
    n = 120
    outputs = rng.integers(1, 120, n)
    trace = Trace(np.sort(rng.uniform(0, 2.0, n)), rng.integers(1, 200, n), outputs)
    options = {
        "instances": 2,
        "profile": FLAT,
        "engine": engine,
        "kv_blocks": int(rng.choice([25, 40, 200])),
        "max_num_seqs": int(rng.choice([4, 16])),
        "estimator_params": {"tokens": 40.0},
    }
    policy = find_policy("dispatch", "test-by-index")
    stale = ClusterConfig(metrics_interval_s=0.1, routers=2, **options)
    return (
        Simulation(trace, stale, policy, keeps_outlook=True),
        Simulation(trace, ClusterConfig(**options), policy),
    )


def own_placements(simulation: Simulation, i: int, router: int, since_s: float, now_s: float):
    """Return prompt tokens of what a router placed on instance i since the refresh."""
    trace = simulation.trace
    mine = [
        r
        for r in range(len(trace))
        if r % 2 == i and r % 2 == router and since_s <= trace.arrival_s[r] <= now_s
    ]
    return trace.prompt_tokens[mine].astype(int)


@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_stale_metrics_show_the_last_refresh_and_own_placements(engine):
    seen_busy = 0
    for seed in range(4):
        stale, true = stale_pair(engine, seed)
        for refresh in range(25):
            refresh_s, now_s = refresh * 0.1, refresh * 0.1 + 0.037 + 0.002 * refresh
            true.run(refresh_s)
            at_refresh = outlooks(true, blocks=[150])
            stale.run(now_s)
            for router in range(2):
                found = outlooks(stale, router, blocks=[150])
                for i in range(2):
                    expected = at_refresh[i].copy()
                    prompts = own_placements(stale, i, router, refresh_s, now_s)
                    expected[READS.index("waiting_prefill_tokens")] += prompts.sum()
                    expected[READS.index("waiting_predicted_tokens")] += 40 * len(prompts)
                    work = sum(40 * int(p) + 40 * 39 // 2 for p in prompts)
                    expected[READS.index("waiting_work")] += work
                    assert found[i].tolist() == expected.tolist(), (seed, refresh, router, i)
                    seen_busy += bool(len(prompts))
    assert seen_busy > 50


@pytest.mark.parametrize("_sums", ["walked"], indirect=True)
def test_stale_metrics_without_an_outlook_are_an_error():
    stale, _ = stale_pair("vllm-v1", 0)
    bare = Simulation(stale.trace, stale.config, stale.dispatch)
    bare.run(0.5)
    outlooks(bare)
    with pytest.raises(ValueError, match="keeps_outlook=True"):
        bare.run(1.0)


def test_policy_that_reads_predictions_has_them_kept():
    @dispatch_policy(source="test", name="test-least-left")
    def least_left(cluster, request, params, memory, rng):
        """Return the instance with the least predicted output left."""
        chosen = 0
        for i in range(n_instances(cluster)):
            if predicted_tokens_left(cluster, i) < predicted_tokens_left(cluster, chosen):
                chosen = i
        return chosen

    assert least_left.uses_outlook and not find_policy("dispatch", "least-kv").uses_outlook
    stale, _ = stale_pair("vllm-v1", 0)
    simulation = Simulation(stale.trace, stale.config, least_left)
    simulation.run()
    assert (simulation.state.requests["finish_ps"] > 0).all()


def test_snapshot_keeps_what_was_kept():
    case = random_cases.random_case("vllm-v1", 5)
    for simulation in looked_at(case, random_cases.simulation_of, 5):
        snapshot = simulation.snapshot()
        before = outlooks(simulation, blocks=[10])
        simulation.run()
        outlooks(simulation, blocks=[10])
        simulation.restore(snapshot)
        np.testing.assert_array_equal(outlooks(simulation, blocks=[10]), before)
