"""The kernels agree with the token-by-token reference: the same picoseconds, the same preemptions.

The fast set runs a few hundred cases; `pytest -m slow` runs at least 500 an engine mode and prints, for each, how many
had a preemption, a blocked head, and jumps cut short by blocks, by an arrival and by a read.
"""

from collections import Counter

import pytest
from random_cases import LOG_FIELDS, Case, random_case, reference_of, simulation_of
from reference.engine import NoProgressError as ReferenceNoProgress

from servegym.simulator import state as layout
from servegym.simulator.config import ClusterConfig
from servegym.simulator.errors import NoProgressError
from servegym.testing.conservation import check_conservation, check_drained
from servegym.traces import load

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
STATUS = {
    layout.UNFINISHED: "unfinished",
    layout.FINISHED: "finished",
    layout.REJECTED: "rejected",
}
COUNTERS = {
    "preemption": "n_preemptions",
    "blocked head": "n_blocked_heads",
    "cut by blocks": "n_cut_by_blocks",
    "cut by arrival": "n_cut_by_arrival",
    "cut by read": "n_cut_by_read",
}


def compare(case: Case) -> Counter:
    """Run both on one case, reading everything at every read; return which special things happened."""
    simulation, reference = simulation_of(case), reference_of(case)
    if _both_stop(case, simulation, reference):
        return Counter({"no progress": 1})
    _compare_requests(case, simulation, reference)
    if case.horizon_ps is None:
        check_drained(simulation)
    happened = Counter({"cases": 1})
    for label, field in COUNTERS.items():
        happened[label] += bool(simulation.state.instances[field].any())
    return happened


def _both_stop(case, simulation, reference) -> bool:
    """Step both through the reads to the end; True if both found that nothing moves on."""
    for read_ps in [*case.reads_ps, None]:
        try:
            reference.run(read_ps)
        except ReferenceNoProgress:
            with pytest.raises(NoProgressError):
                simulation.run() if read_ps is None else simulation.run_until_ps(read_ps)
            return True
        simulation.run() if read_ps is None else simulation.run_until_ps(read_ps)
        check_conservation(simulation)
        if read_ps is None:
            continue
        for i, engine in enumerate(reference.engines):
            assert simulation.observe(i) == engine.observe()._asdict(), (case, read_ps, i)
    return False


def _compare_requests(case, simulation, reference) -> None:
    records = simulation.state.requests
    for request in reference.requests[: len(records)]:
        record = records[request.index]
        for field in LOG_FIELDS:
            expected = getattr(request, field)
            expected = -1 if expected is None else expected
            if field == "finish_ps" and request.status == "rejected":
                expected = request.arrival_ps
            assert record[field] == expected, (case, request.index, field)
        assert STATUS[int(record["status"])] == request.status, (case, request.index)
    for request in reference.requests[len(records) :]:
        assert request.status == "not_offered"


@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_agree_with_the_reference(engine):
    happened = Counter()
    for seed in range(60):
        happened += compare(random_case(engine, seed))
    assert happened["cases"] == 60
    if engine != "static":
        assert all(happened[label] for label in COUNTERS), happened


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_agree_with_the_reference_on_many_cases(engine, capsys):
    happened = Counter()
    for seed in range(1000, 1600):
        happened += compare(random_case(engine, seed))
    with capsys.disabled():
        print(f"\n{engine}: {dict(happened)}")
    possible = COUNTERS if engine != "static" else {"blocked head": "", "cut by read": ""}
    assert happened["cases"] >= 500
    assert all(happened[label] >= 50 for label in possible), happened


VIDUR = {
    "profile": "a100_sxm/Llama-2-7B/tp1",
    "kv_blocks": 7424,
    "max_num_seqs": 128,
    "watermark": 0.01,
}
RECORDED = {
    "vllm/RTX4090_Llama-3.1-8B": {"profile": "rtx_4090/Llama-3.1-8B/tp1", "kv_blocks": 2588},
    "vllm/RTXPRO6000_Llama-3.1-8B": {
        "profile": "rtx_pro_6000/Llama-3.1-8B/tp1",
        "max_num_seqs": 128,
    },
    "vidur/trace_n1000_q2": {**VIDUR, "engine": "vllm-v0", "max_num_batched_tokens": 4096},
    "vidur/trace_n1000_q3p5": {**VIDUR, "engine": "sarathi", "max_num_batched_tokens": 512},
    "vidur/trace_n4000_q20": {
        **VIDUR,
        "engine": "sarathi",
        "max_num_batched_tokens": 512,
        "instances": 8,
    },
}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", RECORDED)
def test_kernels_agree_with_the_reference_on_recorded_inputs(data_dir, name, capsys):
    trace = load(data_dir / "reference" / f"{name}.csv")
    options = {"instances": 1, "estimator_params": {"tokens": 1.0}, **RECORDED[name]}
    case = Case(ClusterConfig(**options), trace, "test-by-index", (), None)
    happened = compare(case)
    assert happened["cases"] == 1
    with capsys.disabled():
        print(f"\n{name}: {len(trace)} requests agree; {dict(happened)}")
