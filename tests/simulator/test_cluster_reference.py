"""The kernels agree with the reference on whole clusters: the same picoseconds, places, holds, moves and ends.

The fast set runs a few dozen cases a kind; `pytest -m slow` runs at least 300 a kind and prints what happened in them.
"""

from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from random_cluster_cases import (
    KINDS,
    ClusterCase,
    random_cluster_case,
    reference_of,
    simulation_of,
)
from reference.cluster import ReferenceCluster
from reference.engine import NoProgressError as ReferenceNoProgress

from servegym.simulator import state as layout
from servegym.simulator.errors import NoProgressError
from servegym.simulator.simulation import Simulation

LOG_FIELDS = (
    "admitted_ps",
    "first_token_ps",
    "ended_ps",
    "preemptions",
    "recomputed_tokens",
    "migrations",
    "instance",
)
STATUS = {
    layout.UNFINISHED: "unfinished",
    layout.FINISHED: "finished",
    layout.REJECTED: "rejected",
    layout.FAILED: "failed",
    layout.CANCELLED: "cancelled",
}
# What must happen in the many cases of a kind, each at least so often.
OFTEN = {
    "gateway-push-limit": {"hold": 20, "rejected": 10},
    "gateway-pull": {"hold": 20, "rejected": 10, "preemption": 10},
    "observation": {"preemption": 10},
    "migration": {
        "cold": 20,
        "committed": 20,
        "refused": 20,
        "ended first": 5,
        "preempted first": 5,
        "no room": 5,
        "stages exceeded": 5,
    },
    "timeouts": {
        "cancelled while running": 20,
        "cancelled while waiting": 20,
        "cancelled while queued": 20,
        "cancelled while held": 3,
        "retry": 20,
    },
    "faults": {"lost": 20, "failed": 10, "crash": 20},
    "scaling": {"start": 10, "absent again": 10},
    "headroom": {
        "committed": 20,
        "cold": 20,
        "preemption": 20,
        "drain": 20,
        "absent again": 10,
        "headroom decides": 40,
    },
    "everything": {
        "committed": 10,
        "source lost": 3,
        "destination lost": 3,
        "link lost": 3,
        "cancelled while parked": 3,
    },
}


def compare(case: ClusterCase) -> Counter:
    """Run both on one case, reading everything at every read; return what happened."""
    simulation, reference = simulation_of(case), reference_of(case)
    if _both_stop(case, simulation, reference):
        return Counter({"no progress": 1})
    _compare_requests(case, simulation, reference)
    _compare_moves(case, simulation, reference)
    _compare_counts(case, simulation, reference)
    happened = _happened(reference)
    happened["headroom decides"] = _headroom_decides(case, simulation)
    return +happened


def _both_stop(case, simulation: Simulation, reference: ReferenceCluster) -> bool:
    """Step both through the reads to the end; True if both found that nothing moves on."""
    for read_ps in [*case.reads_ps, None]:
        try:
            reference.run(read_ps)
        except ReferenceNoProgress:
            with pytest.raises(NoProgressError):
                simulation.run() if read_ps is None else simulation.run_until_ps(read_ps)
            return True
        simulation.run() if read_ps is None else simulation.run_until_ps(read_ps)
        if read_ps is not None:
            _compare_instances(case, simulation, reference, read_ps)
    return False


def _compare_instances(case, simulation, reference, read_ps) -> None:
    for i, engine in enumerate(reference.engines):
        seen = {**engine.observe()._asdict(), **engine.details()._asdict()}
        found = simulation.observe(i)
        expected = {name: seen[name] for name in found if name in seen}
        assert {name: found[name] for name in expected} == expected, (case.name, read_ps, i)
    gateway = simulation.state.gateway[0]
    queued = sum(len(queue) for queue in reference.gateway.queues)
    assert gateway["n_queued"] == queued, (case.name, read_ps)
    assert gateway["n_held"] == len(reference.gateway.fifo), (case.name, read_ps)


def _compare_requests(case, simulation, reference) -> None:
    records = simulation.state.requests
    for request in reference.requests[: len(records)]:
        record = records[request.index]
        assert STATUS[int(record["status"])] == request.status, (case.name, request.index)
        for field in LOG_FIELDS:
            expected = getattr(request, field)
            expected = -1 if expected is None else expected
            if field == "migrations":
                expected = min(expected, 255)  # a byte in the kernels
            found = record["finish_ps" if field == "ended_ps" else field]
            if field == "instance" and request.status != "finished":
                continue
            assert found == expected, (case.name, request.index, field, int(found), expected)
        if request.status in ("cancelled", "failed"):
            assert record["generated"] == request.generated, (case.name, request.index, "generated")
    for request in reference.requests[len(records) :]:
        assert request.status == "not_offered"


def _compare_moves(case, simulation, reference) -> None:
    control = simulation.state.control[0]
    expected = []
    for line in reference.moves.ledger:
        outcome = line.reason if line.outcome == "aborted" else line.outcome
        if outcome != "refused":
            fields = (line.began_ps, line.ended_ps, line.source, line.destination, line.request)
            expected.append((*fields, outcome, line.downtime_ps))
    found = []
    for entry in simulation.state.ledger[: control["n_ledger"]]:
        outcome = layout.OUTCOMES[entry["outcome"]]
        downtime = entry["end_ps"] - entry["stop_ps"] if outcome == "committed" else 0
        fields = ("start_ps", "end_ps", "source", "destination", "request")
        found.append((*(int(entry[name]) for name in fields), outcome, int(downtime)))
    assert _in_any_order(found) == _in_any_order(expected), case.name
    refused = sum(line.outcome == "refused" for line in reference.moves.ledger)
    assert control["n_refused_moves"] == refused, case.name


def _in_any_order(lines: list[tuple]) -> list[tuple]:
    """Return the lines with cold moves of a pair at one instant by request: who leaves a queue first means nothing."""
    groups = groupby(lines, key=lambda line: (*line[:4], line[5] == "cold"))
    return [line for key, group in groups for line in (sorted(group) if key[-1] else group)]


def _compare_counts(case, simulation, reference) -> None:
    state = simulation.state
    assert state.gateway[0]["n_holds"] == reference.gateway.n_holds, case.name
    assert state.shared[0]["n_bad_predictions"] == reference.n_clipped_predictions, case.name
    assert state.instances["n_preemptions"].sum() == reference.n_preemptions, case.name
    if case.horizon_ps is None and not any(r.status == "unfinished" for r in reference.requests):
        total = state.engines["kv_blocks"][state.instances["engine"]]
        np.testing.assert_array_equal(state.instances["free_blocks"], total)
        for name in ("n_running", "n_waiting", "n_parked", "n_incoming", "held_tokens"):
            assert not state.instances[name].any(), (case.name, name)


def _headroom_decides(case, simulation: Simulation) -> int:
    """Return 1 if some request fares otherwise without any headroom, else 0."""
    switched = (case.dispatch_params, case.config.migration_params, case.config.scaling_params)
    if not any(params.get("headroom") for params in switched):
        return 0
    dispatch, migration, scaling = ({**p, "headroom": 0} if p else {} for p in switched)
    options = {"migration_params": migration, "scaling_params": scaling}
    config = case.config.model_copy(update=options)
    without = simulation_of(replace(case, config=config, dispatch_params=dispatch))
    try:
        without.run()
    except NoProgressError:
        return 1
    fields = ["finish_ps" if f == "ended_ps" else f for f in LOG_FIELDS]
    records = simulation.state.requests[fields], without.state.requests[fields]
    return int((records[0] != records[1]).any())


def _happened(reference: ReferenceCluster) -> Counter:
    """Return in a Counter what happened at least once."""
    statuses = Counter(request.status for request in reference.requests)
    outcomes = Counter(line.reason or line.outcome for line in reference.moves.ledger)
    refused = Counter(line.outcome for line in reference.moves.ledger if line.outcome == "refused")
    cancelled = Counter(f"cancelled while {status}" for status in reference.clients.cancelled_while)
    others = Counter(
        {
            "hold": reference.gateway.n_holds,
            "preemption": reference.n_preemptions,
            "retry": sum(request.attempt > 1 for request in reference.requests),
            "crash": sum(f.kind == "crash" for f in reference.options.faults),
            "lost": reference.faults.n_lost,
            "start": reference.fleet.n_starts,
            "drain": reference.fleet.n_drains,
            "absent again": sum(charged > 0 for charged in reference.fleet.charged_ps),
        }
    )
    total = statuses + outcomes + refused + cancelled + others
    return Counter({"cases": 1, **{name: 1 for name, times in total.items() if times}})


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_agree_with_the_reference_on_clusters(kind):
    happened = Counter()
    for seed in range(40):
        happened += compare(random_cluster_case(kind, seed))
    assert happened["cases"] + happened["no progress"] == 40
    assert all(happened[name] for name in OFTEN[kind]), happened


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_agree_with_the_reference_on_many_clusters(kind, capsys):
    happened = Counter()
    for seed in range(1000, 1320):
        happened += compare(random_cluster_case(kind, seed))
    with capsys.disabled():
        print(f"\n{kind}: {dict(sorted(happened.items()))}")
    assert happened["cases"] >= 300
    assert all(happened[name] >= times for name, times in OFTEN[kind].items()), happened
