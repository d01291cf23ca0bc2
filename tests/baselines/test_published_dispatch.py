"""The dispatch baselines of Astrolabe and of the N-tier paper, worked by hand. A block is 16 tokens."""

import pytest
from flat_profile import FLAT, SLOW
from policy_calls import Asked, paused

from servegym.baselines.dispatch.infaas_vllm import averaged, slowness_penalty, tier_scale
from servegym.baselines.dispatch.min_queries import COUNTS, RING, SIZE
from servegym.simulator.state import ABSENT
from servegym.simulator.views import HOLD

NAMES = ["infaas", "infaas-vllm", "llumnix-minus", "min-queries", "unprocessed-tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_only_accepting_instances_are_chosen(name):
    simulation = paused([(2, 3, 160, 9)], instances=3)
    simulation.state.instances["condition"][:2] = ABSENT
    assert Asked(simulation, "dispatch", name).dispatch() == 2
    simulation.state.instances["condition"][2] = ABSENT
    assert Asked(simulation, "dispatch", name).dispatch() == HOLD


@pytest.mark.parametrize("name", ["infaas", "llumnix-minus", "min-queries", "unprocessed-tokens"])
def test_idle_instances_share(name):
    asked = Asked(paused([], instances=3), "dispatch", name)
    assert {asked.dispatch() for _ in range(3)} == {0, 1, 2}


def test_infaas_sees_no_waiting_requests_and_llumnix_minus_does():
    # 100 blocks, one seat. Instance 0: 10 blocks run, 20 + 20 wait: 90 and 90 - 40. Instance 1: 30 run: 70.
    rows = [(0, 0, 160, 9), (0, 0, 320, 9), (0, 0, 320, 9), (1, 0, 480, 9)]
    simulation = paused(rows, kv_blocks=100, max_num_seqs=1)
    assert Asked(simulation, "dispatch", "infaas").dispatch() == 0
    assert Asked(simulation, "dispatch", "llumnix-minus").dispatch() == 1


@pytest.mark.parametrize("name", ["infaas", "llumnix-minus"])
def test_free_blocks_are_shared_by_the_running(name):
    # 100 blocks. Instance 0: 3 run on 3: 97 / 3 = 32.3. Instance 1: 1 runs on 60: 40
    rows = [(0, 0, 16, 9)] * 3 + [(1, 0, 960, 9)]
    assert Asked(paused(rows, kv_blocks=100), "dispatch", name).dispatch() == 1


def test_unprocessed_tokens_are_those_not_in_kv():
    # Instance 0: 300 + 50 tokens; instance 1: 60 + 70. At 5 ms nothing is computed: 350 and 130.
    rows = [(0, 0, 300, 50), (1, 0, 60, 70)]
    assert Asked(paused(rows), "dispatch", "unprocessed-tokens").dispatch() == 1
    # at 15 ms the prompts are: 50 and 70
    assert Asked(paused(rows, until_s=0.015), "dispatch", "unprocessed-tokens").dispatch() == 0


def test_min_queries_balances_placements_of_the_last_minute():
    simulation = paused([(0, 0, 16, 9)] * 5, instances=3)
    asked = Asked(simulation, "dispatch", "min-queries")
    shared = simulation.state.shared[0]
    for now_s, n, total in ((0, 4, 4), (30, 2, 6), (59, 1, 7), (60, 1, 4), (90, 2, 4), (300, 1, 1)):
        shared["now_ps"] = now_s * 10**12
        for _ in range(n):
            chosen = asked.dispatch()
            others = asked.memory[COUNTS:].copy()
            others[chosen] -= 1
            assert others[chosen] == others.min()
        # 4 are forgotten at 60, 2 at 90, the rest long before 300
        assert asked.memory[COUNTS:].sum() == asked.memory[SIZE] == total
    # what is on the instances played no part: instance 0 has five requests
    assert asked.memory[COUNTS:].tolist().count(1) == 1


def test_min_queries_counts_no_more_than_its_ring_holds():
    simulation = paused([], instances=2)
    asked = Asked(simulation, "dispatch", "min-queries")
    for _ in range(RING + 10):
        asked.dispatch()
    assert asked.memory[COUNTS:].tolist() == [RING / 2, RING / 2]


# INFaaS + vLLM.


def test_join_shortest_with_running_requests_counted_twice():
    # One seat. Instance 0: 1 runs, 2 wait: 2 + 2 = 4. Instance 1: 1 runs, 1 waits: 3.
    rows = [(0, 0, 16, 9)] * 3 + [(1, 0, 16, 9)] * 2
    simulation = paused(rows, max_num_seqs=1)
    assert Asked(simulation, "dispatch", "infaas-vllm").dispatch() == 1
    # with two seats both run: 2 * 2 and 2 * 2 + 1
    assert Asked(paused(rows, max_num_seqs=2), "dispatch", "infaas-vllm").dispatch() == 1
    tied = paused([(1, 0, 16, 9)], instances=3)
    assert Asked(tied, "dispatch", "infaas-vllm").dispatch() == 0


def test_one_iteration_of_the_prompt_counts_as_much_as_depth():
    # FLAT 10 ms, SLOW 20 ms: an idle SLOW costs 20, as much as FLAT with 5 running; with 6 FLAT costs 22
    for n, chosen in ((5, 0), (6, 1)):
        simulation = paused([(0, 0, 16, 9)] * n, instances=2, profile=(FLAT, SLOW))
        assert Asked(simulation, "dispatch", "infaas-vllm").dispatch() == chosen


def test_penalties_are_as_published():
    # target 1000: overloaded above 1300 with depth above 2, interfered above 1150 with depth of at most 1
    cases = {(1301, 3): 1.0, (1300, 3): 0.0, (1301, 2): 0.0, (1151, 1): 0.5, (1150, 1): 0.0}
    cases |= {(9999, 1): 0.5, (9999, 2): 0.0}
    for (latency_ms, depth), penalty in cases.items():
        assert slowness_penalty(float(latency_ms), depth, 1000.0) == penalty
    # tier p of 4: .7, .8, .9, 1; of 10 never below .5
    assert [round(tier_scale(p, 4), 3) for p in range(4)] == [0.7, 0.8, 0.9, 1.0]
    assert tier_scale(0, 10) == 0.5


def test_latency_is_averaged_with_most_weight_on_the_newest():
    assert averaged(0.0, 100.0) == 100.0
    assert averaged(100.0, 200.0) == pytest.approx(160.0)
    # 10 ms an iteration, 1 + 2 requests found there, then the same again
    asked = Asked(paused([(0, 0, 16, 9)] * 2), "dispatch", "infaas-vllm")
    asked.dispatch()
    assert asked.memory.tolist() == [30.0]
    asked.memory[0] = 130.0
    asked.dispatch()
    assert asked.memory.tolist() == [pytest.approx(0.6 * 30 + 0.4 * 130)]


def test_a_penalty_breaks_what_would_be_a_tie():
    # both idle, depth 0; instance 0 has been slow, more than 1.15 times 1 s
    asked = Asked(paused([], instances=2), "dispatch", "infaas-vllm")
    asked.memory[0] = 1200.0
    assert asked.dispatch() == 1
