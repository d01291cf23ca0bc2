"""Each dispatch policy asked about a state worked out by hand, with the reason for its choice beside it.

FLAT instances take 10 ms an iteration and a block is 16 tokens.
"""

from itertools import combinations

import numpy as np
import pytest
from flat_profile import FLAT
from scipy import stats

from servegym.baselines.dispatch.power_of_two import MOST_SAMPLES
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import Cluster, Request
from servegym.simulator.views import HOLD, tier
from servegym.traces import Trace

BIG = "a100_sxm/Llama-3.1-8B/tp1"  # 28,616 blocks; FLAT has 1,000
FITS_ALL, FITS_BIG, FITS_NONE = 100, 100_000, 1_000_000  # prompt tokens
SEED = 2024


@dispatch_policy(source="test: the request's tier says where", name="test-by-tier")
def by_tier(cluster, request, params, memory, rng):
    """Return the request's tier as an instance."""
    return int(tier(request))


def pause(rows: list[tuple[int, int, int]], prompt: int = FITS_ALL, **options) -> Simulation:
    """Place rows (instance, prompt, output) at t = 0 and stop at 5 ms; one more request is about to arrive."""
    where, prompts, outputs = np.array([*rows, (0, prompt, 1)]).T
    arrival_s = np.append(np.zeros(len(rows)), 1.0)
    options = {"instances": 3, "profile": FLAT, "tiers": 100, "estimator": "oracle"} | options
    trace = Trace(arrival_s, prompts, outputs, tier=where)
    simulation = Simulation(trace, ClusterConfig(**options), by_tier)
    simulation.run(0.005)
    for i in range(options["instances"]):
        simulation.observe(i)
    return simulation


class Router:
    """One policy with its memory and random stream, asked about the last request of a paused simulation."""

    def __init__(self, name: str, simulation: Simulation, seed: int = SEED, **params: float):
        self.policy, self.simulation = find_policy("dispatch", name), simulation
        self.params = self.policy.param_values(params, simulation.trace)
        self.memory = np.zeros(self.policy.memory_size(simulation.config))
        self.rng = np.array([seed], np.uint64)

    def ask(self) -> int:
        """Return its choice."""
        state = self.simulation.state
        cluster = Cluster(state.shared, state.engines, state.instances, state.views)
        request = Request(state.requests, np.int64(len(state.requests) - 1))
        return int(self.policy(cluster, request, self.params, self.memory, self.rng))

    def ask_often(self, n: int) -> list[int]:
        """Return n choices in a row about the same state."""
        return [self.ask() for _ in range(n)]


# Instance 0: one request of 300 + 20 tokens, 19 blocks. Instance 1: three of 10 + 50, 1 block each.
# Instance 2: two of 20 + 30, 2 blocks each. So:   requests 1, 3, 2;   blocks 19, 3, 4;   tokens 320, 180, 100
ROWS = [(0, 300, 20), (1, 10, 50), (1, 10, 50), (1, 10, 50), (2, 20, 30), (2, 20, 30)]
LEAST = {"requests": 0, "kv": 1, "tokens": 2}
POWER = {"requests": "power-of-two", "kv": "power-of-two-kv", "tokens": "power-of-two-tokens"}


@pytest.mark.parametrize("seats", [1, 256])
@pytest.mark.parametrize("signal", LEAST)
def test_least_loaded_instance_is_chosen_by_each_signal(signal, seats):
    # with one seat the others wait, and count as much: requests, blocks of their prompts, tokens
    router = Router(f"least-{signal}", pause(ROWS, max_num_seqs=seats))
    # wherever the rotation starts
    assert router.ask_often(4) == [LEAST[signal]] * 4


@pytest.mark.parametrize("signal", LEAST)
def test_ties_rotate_over_the_least_loaded(signal):
    # all idle: every call starts its scan one further
    assert Router(f"least-{signal}", pause([])).ask_often(7) == [0, 1, 2, 0, 1, 2, 0]
    # 0 is busy, 1 and 2 idle: scans from 0 and 1 meet 1 first, the scan from 2 meets 2
    busy = pause([(0, 10, 50)])
    assert Router(f"least-{signal}", busy).ask_often(6) == [1, 1, 2, 1, 1, 2]


def test_round_robin_ignores_what_instances_hold():
    assert Router("round-robin", pause(ROWS)).ask_often(5) == [0, 1, 2, 0, 1]


def test_random_is_uniform():
    # chi-square of 8,000 draws over 5 instances; a fixed seed, so it passes or fails for ever
    counts = np.bincount(Router("random", pause([], instances=5)).ask_often(8000), minlength=5)
    assert stats.chisquare(counts).pvalue > 0.001


# Power of d.


@pytest.mark.parametrize("signal", LEAST)
@pytest.mark.parametrize("d", [3, 4, MOST_SAMPLES])
def test_power_of_d_that_samples_the_whole_fleet_is_the_least_loaded_choice(signal, d):
    simulation = pause(ROWS)
    for seed in range(300):
        assert Router(POWER[signal], simulation, seed, d=d).ask() == LEAST[signal]


@pytest.mark.parametrize("signal", LEAST)
def test_power_of_whole_fleet_chooses_among_all_that_are_least_loaded(signal):
    # 1 and 3 are idle, 0 and 2 are not
    simulation = pause([(0, 10, 50), (2, 10, 50)], instances=4)
    chosen = [Router(POWER[signal], simulation, seed, d=4).ask() for seed in range(200)]
    assert set(chosen) == {1, 3}


@pytest.mark.parametrize("signal", LEAST)
def test_power_of_two_takes_the_less_loaded_of_its_two_samples(signal):
    # Ranks by requests: 0 < 2 < 1; by blocks: 1 < 2 < 0; by tokens: 2 < 1 < 0. Of the three pairs the least
    # loaded wins two, the middle one wins one, the most loaded none.
    wins = {"requests": [2, 0, 1], "kv": [0, 2, 1], "tokens": [0, 1, 2]}[signal]
    chosen = Router(POWER[signal], pause(ROWS)).ask_often(3000)
    counts = np.bincount(chosen, minlength=3)
    assert counts[np.argmin(wins)] == 0
    pair = [int(counts[wins.index(2)]), int(counts[wins.index(1)])]
    assert stats.chisquare(pair, [2000, 1000]).pvalue > 0.001


def test_power_of_one_is_random():
    counts = np.bincount(Router("power-of-two", pause(ROWS), d=1).ask_often(6000), minlength=3)
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize(("n", "d"), [(2, 2), (3, 2), (3, 3), (5, 2), (5, 4), (8, 3), (70, 64)])
def test_samples_are_distinct_instances(n, d):
    simulation = pause([], instances=n)
    for seed in range(100):
        router = Router("power-of-two", simulation, seed, d=d)
        router.memory[:] = -1
        router.ask()
        samples = router.memory[:d].tolist()
        assert len(set(samples)) == d and set(samples) <= set(range(n)), (seed, samples)


def test_every_pair_is_sampled_equally_often():
    router = Router("power-of-two", pause([], instances=6))
    counts = dict.fromkeys(combinations(range(6), 2), 0)
    for _ in range(6000):
        router.ask()
        first, second = sorted(int(i) for i in router.memory[:2])
        counts[first, second] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


# Fleets in which some cannot hold the request.

MIXED = {"instances": 5, "profile": (FLAT, BIG)}
NAMES = [
    "round-robin",
    "random",
    *(f"least-{signal}" for signal in LEAST),
    *POWER.values(),
]


@pytest.mark.parametrize("name", NAMES)
def test_only_instances_that_accept_are_chosen_however_idle_the_others(name):
    # 1 and 3 have the blocks; both are busier than the small ones
    rows = [(1, 10, 50)] * 3 + [(3, 10, 50)] * 3
    chosen = Router(name, pause(rows, FITS_BIG, **MIXED)).ask_often(200)
    assert set(chosen) == {1, 3}
    if name in ("round-robin", "random"):
        assert stats.chisquare(np.bincount(chosen)[[1, 3]]).pvalue > 0.001


@pytest.mark.parametrize("name", NAMES)
def test_the_one_instance_that_accepts_is_always_found(name):
    # one of eight: seven tries in eight at random miss it, and must not end in HOLD
    simulation = pause([], FITS_BIG, instances=8, profile=(*[FLAT] * 7, BIG))
    for seed in range(100):
        assert Router(name, simulation, seed).ask() == 7


@pytest.mark.parametrize("name", NAMES)
def test_hold_when_nobody_accepts(name):
    simulation = pause([], FITS_NONE, **MIXED)
    assert Router(name, simulation).ask_often(3) == [HOLD] * 3


@pytest.mark.parametrize("signal", LEAST)
def test_least_loaded_among_those_that_accept(signal):
    rows = [(1, 10, 50)] * 2 + [(3, 10, 50)] * 3
    assert set(Router(f"least-{signal}", pause(rows, FITS_BIG, **MIXED)).ask_often(10)) == {1}


def test_random_is_uniform_over_those_that_accept():
    simulation = pause([], FITS_BIG, instances=6, profile=(BIG, FLAT, BIG, BIG, FLAT, FLAT))
    counts = np.bincount(Router("random", simulation).ask_often(6000), minlength=6)
    assert counts[[1, 4, 5]].tolist() == [0, 0, 0]
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 0.001


def test_round_robin_goes_on_behind_the_instance_it_chose():
    # 100,000 tokens fit 1 and 3 only; 0 and 2 are passed over, not remembered
    router = Router("round-robin", pause([], FITS_BIG, **MIXED))
    assert router.ask_often(4) == [1, 3, 1, 3]
    assert router.memory.tolist() == [4.0]
