"""Crashes, slow instances and lost metrics by hand (10 ms an iteration), and a crash at every event of a run."""

from typing import Any

import numpy as np
import pytest
from events import events_of
from flat_profile import FLAT

from servegym.simulator.config import ClusterConfig, Fault
from servegym.simulator.fault_schedule import draw_faults
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FAILED, FINISHED
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.traces import Trace

MS = 10**9
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")


def load(*rows: tuple[float, int, int], dispatch: str = "least-requests", **options: Any):
    """Return the simulation of FLAT instances; rows are (arrival in ms, prompt, output)."""
    arrival, prompt, output = np.array(rows).T
    config = ClusterConfig(**{"instances": 1, "profile": FLAT, **options})
    return Simulation(
        Trace(arrival / 1e3, prompt, output), config, find_policy("dispatch", dispatch)
    )


def play(*rows: tuple[float, int, int], **options: Any) -> Simulation:
    """Load and run to the end."""
    simulation = load(*rows, **options)
    simulation.run()
    return simulation


def crash(instance: int, at_ms: float, duration_ms: float) -> Fault:
    """Return a crash; times in ms."""
    return Fault(kind="crash", instance=instance, at_s=at_ms / 1e3, duration_s=duration_ms / 1e3)


def times(simulation: Simulation, field: str = "finish_ps") -> list[float]:
    """Return a time of every request, ms."""
    return (simulation.state.requests[field] / MS).tolist()


# Crashes.


def test_crash_sends_its_requests_back_to_the_gateway():
    # The iteration of 10-20 is lost at 15, with 20 tokens of A computed; at 35 its 21 known tokens are computed: second
    # token at 45, third at 55. B, in its first iteration, has nothing computed.
    simulation = play((0, 20, 3), (12, 8, 1), faults=(crash(0, 15, 20),))
    assert times(simulation) == [55, 45]
    assert simulation.state.requests["recomputed_tokens"].tolist() == [20, 0]
    assert times(simulation, "first_token_ps") == [10, 45]
    assert times(simulation, "admitted_ps") == [0, 35]
    summary = simulation.result().summary()
    assert (summary["crashes"], summary["crash_retries"]) == (1, 2)
    # busy: 0-10, 10-15 lost, 35-55 (the instance is charged for all of its 55 ms, down or not)
    assert summary["busy_fraction"] == pytest.approx(35 / 55)
    check_drained(simulation)


def test_crash_may_fail_its_requests():
    options = {"faults": (crash(0, 15, 20),), "on_failure": "fail"}
    simulation = play((0, 20, 3), (12, 8, 1), (20, 8, 1), **options)
    requests = simulation.state.requests
    assert requests["status"].tolist() == [FAILED, FAILED, FINISHED]
    assert times(simulation) == [15, 15, 45]
    assert requests["generated"].tolist() == [1, 0, 1]
    assert not requests["recomputed_tokens"].any()


def test_crash_at_the_end_of_an_iteration_comes_after_it():
    simulation = play((0, 20, 1), (0, 20, 2), faults=(crash(0, 10, 5),))
    assert times(simulation) == [10, 25]


def test_requests_of_a_crash_go_elsewhere_at_once():
    # A, on instance 0 since 0, comes before C, which has waited at the gateway for a seat since 1
    simulation = play(
        (0, 8, 4), (0, 8, 2), (1, 8, 1),
        instances=2, max_num_seqs=1, max_local_waiting=0, faults=(crash(0, 15, 100), crash(1, 15, 1)),
    )  # fmt: skip
    assert times(simulation) == [46, 56, 66]
    assert simulation.state.requests["instance"].tolist() == [1, 1, 1]


def test_overlapping_crashes_end_with_the_last():
    assert times(play((12, 8, 1), faults=(crash(0, 10, 10), crash(0, 15, 15)))) == [40]


def test_fault_that_ends_when_another_begins_ends_first():
    assert times(play((12, 8, 1), faults=(crash(0, 20, 10), crash(0, 10, 10)))) == [40]


def test_crashed_static_batch_begins_anew_and_keeps_what_it_streamed():
    # Prefill 0-10, decodes 10-20 (A's second and last token, it stays seated), 20-30 lost at 25. From 30 the whole
    # batch again: prefill, two decodes; first tokens stay those of 10.
    options = {"engine": "static", "batch_size": 2, "batch_wait_s": 0.0}
    simulation = play((0, 8, 2), (0, 8, 3), faults=(crash(0, 25, 5),), **options)
    assert times(simulation) == [60, 60]
    assert times(simulation, "first_token_ps") == [10, 10]
    assert times(simulation, "admitted_ps") == [0, 0]
    # each had its prompt and one decoded token in KV
    assert simulation.state.requests["recomputed_tokens"].tolist() == [9, 9]
    check_drained(simulation)


@pytest.mark.parametrize("engine", ENGINES)
def test_case_4_a_crash_at_any_event_loses_no_request_and_no_block(engine):
    """Crashes between two events of a stretch, in a prefill or with nothing in flight left books that did not agree."""
    rows = [(0, 20, 4), (0, 40, 1), (5, 9, 7), (12, 30, 3), (12, 3, 5), (33, 25, 2)]
    options: dict[str, Any] = {
        "instances": 2, "engine": engine, "max_num_seqs": 2, "kv_blocks": 6, "max_num_batched_tokens": 48,
        "batch_size": 2, "batch_wait_s": 0.01, "order": "sjf", "max_local_waiting": 2,
    }  # fmt: skip
    simulation, instants = load(*rows, **options), [0]
    for instant in events_of(simulation):
        instants += [instant, instant + 3 * MS]
    for at_ps in sorted(set(instants)):
        fault = crash(0, at_ps / MS, 21)
        simulation = load(*rows, faults=(fault,), **options)
        for _ in events_of(simulation):
            check_conservation(simulation)
            check_blocks(simulation)
        assert (simulation.state.requests["status"] == FINISHED).all(), fault
        check_drained(simulation)


# The other kinds.


def test_slow_instance_takes_longer_for_iterations_that_start_meanwhile():
    # 0-10, 10-30, 30-40: the last one starts after the end at 25
    slow = Fault(kind="slow", instance=0, at_s=0.005, duration_s=0.02, factor=2.0)
    assert times(play((0, 20, 3), faults=(slow,))) == [40]
    # 10-40 at 1.5 * 2
    more = (
        Fault(kind="slow", instance=0, at_s=0.01, duration_s=0.01, factor=2.0),
        Fault(kind="slow", instance=0, at_s=0.005, duration_s=0.02, factor=1.5),
    )
    assert times(play((0, 20, 3), faults=more)) == [50]


def test_slow_instance_costs_what_its_profile_costs():
    slow = Fault(kind="slow", instance=0, at_s=0.0, duration_s=10.0, factor=2.0)
    summary = play((0, 20, 3), faults=(slow,)).result().summary()
    assert summary["gpu_seconds"] == pytest.approx(0.060)


def test_routers_see_the_last_refresh_before_a_loss_of_metrics():
    # Refreshes at 0, 20 lost, 40. least-requests sees nothing at 25 but its own placement of A since 0; B goes to 1, C
    # (27), after a tie, to one of them, D at 45 sees the truth: A has ended at 11, B and C run for long.
    lost = tuple(Fault(kind="metrics", instance=i, at_s=0.02, duration_s=0.02) for i in range(2))
    options = {"instances": 2, "metrics_interval_s": 0.02}
    rows = [(1, 20, 1), (25, 20, 99), (45, 8, 1)]
    with_loss = play(*rows, faults=lost, **options).state.requests["instance"]
    without = play(*rows, **options).state.requests["instance"]
    assert with_loss[0] == without[0]
    assert with_loss[1] != with_loss[0]  # A, long gone, is still seen
    assert with_loss[2] != with_loss[1]


# Schedules.


def test_drawn_faults_repeat_and_last_as_long_as_they_should():
    config = ClusterConfig(instances=50, profile=FLAT)
    faults = draw_faults(config, 100.0, 10.0, 1000.0, seed=1, kinds=("crash", "link"))
    assert faults == draw_faults(config, 100.0, 10.0, 1000.0, seed=1, kinds=("crash", "link"))
    assert faults != draw_faults(config, 100.0, 10.0, 1000.0, seed=2, kinds=("crash", "link"))
    # a cycle lasts 110 s: 50 instances * 2 kinds * 1000 / 110 = 909 expected, deviation about 30
    assert 800 < len(faults) < 1020
    assert np.mean([f.duration_s for f in faults]) == pytest.approx(10.0, abs=1.5)
    assert all(f.at_s < 1000.0 for f in faults)
    starts = [(f.at_s, f.instance) for f in faults]
    assert starts == sorted(starts)
    ClusterConfig(instances=50, profile=FLAT, faults=faults)


def test_drawn_faults_of_one_instance_are_those_it_has_in_a_larger_fleet():
    small, large = (ClusterConfig(instances=n, profile=FLAT) for n in (1, 2))
    drawn = [draw_faults(c, 10.0, 1.0, 100.0, seed=3) for c in (small, large)]
    assert drawn[0] == tuple(f for f in drawn[1] if f.instance == 0)


@pytest.mark.parametrize("options", [{"mtbf_s": 0.0}, {"mttr_s": -1.0}, {"kinds": ("fire",)}])
def test_drawing_faults_refuses(options):
    config = ClusterConfig(instances=1, profile=FLAT)
    with pytest.raises(ValueError, match=next(iter(options))):
        draw_faults(config, **{"mtbf_s": 1.0, "mttr_s": 1.0, "until_s": 1.0, "seed": 0, **options})
