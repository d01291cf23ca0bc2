"""Hand-worked runs of one instance, for each engine mode, with the arithmetic in comments.

Unless a test says otherwise an iteration takes 10 ms whatever it holds and a block is 16 tokens, so
times count iterations. `requests` takes (arrival_ms, prompt, output[, tier]).
"""

import random

import pytest

from reference.cluster import ENGINES, ReferenceCluster
from reference.engine import NoProgressError
from reference.model import LAST_PS, PS_PER_MS, InstanceSpec, IterationTime, Request

TEN_MS = IterationTime(c0=10.0)


def spec(engine: str, **changes) -> InstanceSpec:
    return InstanceSpec(**{"engine": engine, "time": TEN_MS, "kv_blocks": 100, **changes})


def small_budget(engine: str, budget: int, **changes) -> InstanceSpec:
    return spec(engine, max_num_batched_tokens=budget, max_num_seqs=min(8, budget), **changes)


def requests(*rows: tuple[float, ...]) -> list[Request]:
    trace = []
    for i, (arrival_ms, *counts) in enumerate(rows):
        prompt, output, tier = [*map(int, counts), 0][:3]
        trace.append(Request(i, round(arrival_ms * PS_PER_MS), prompt, output, tier=tier))
    return trace


def load(instance: InstanceSpec, trace: list[Request], **options) -> ReferenceCluster:
    return ReferenceCluster([instance], trace, lambda cluster, request: 0, **options)


def play(instance: InstanceSpec, *rows: tuple[float, ...]) -> list[Request]:
    """Run rows to the end on one instance and return the requests."""
    trace = requests(*rows)
    load(instance, trace).run()
    assert all(request.status == "finished" for request in trace)
    return trace


def ms(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / PS_PER_MS


def finishes(trace: list[Request]) -> list[float | None]:
    return [ms(request.finish_ps) for request in trace]


def first_tokens(trace: list[Request]) -> list[float | None]:
    return [ms(request.first_token_ps) for request in trace]


# What all modes but static share.

CONTINUOUS = ["vllm-v1", "vllm-v0", "sarathi"]


@pytest.mark.parametrize("engine", CONTINUOUS)
def test_single_request_takes_one_iteration_per_output_token(engine):
    time = IterationTime(c0=10.0, c_kv=0.001)
    (request,) = play(spec(engine, time=time), (5, 20, 3))
    # prefill 5-15; decode with KV = 21: 10.021 ms; with KV = 22: 10.022 ms
    assert ms(request.admitted_ps) == 5
    assert request.first_token_ps == 15_000_000_000
    assert request.finish_ps == 35_043_000_000


@pytest.mark.parametrize("engine", CONTINUOUS)
def test_one_output_token_ends_with_the_prefill_and_frees_the_blocks(engine):
    trace = requests((0, 20, 1))
    cluster = load(spec(engine), trace)
    cluster.run()
    assert trace[0].first_token_ps == trace[0].finish_ps == 10 * PS_PER_MS
    assert cluster.engines[0].free_blocks == 100 and cluster.engines[0].n_iterations == 1


def test_time_beyond_int64_picoseconds_is_an_error():
    cluster = load(spec("vllm-v1"), requests((LAST_PS / PS_PER_MS - 5, 8, 1)))
    with pytest.raises(OverflowError, match="instance 0"):
        cluster.run()


@pytest.mark.parametrize("engine", CONTINUOUS)
def test_arrival_at_the_end_of_an_iteration_joins_the_next(engine):
    rows = (0, 20, 1), (10, 20, 1), (10 + 1e-9, 20, 1)  # 1e-9 ms is one picosecond
    assert [ms(r.admitted_ps) for r in play(spec(engine), *rows)] == [0, 10, 20]


@pytest.mark.parametrize("engine", CONTINUOUS)
def test_requests_that_arrive_together_share_the_first_iteration(engine):
    assert first_tokens(play(spec(engine), (3, 20, 1), (3, 30, 1))) == [13, 13]


@pytest.mark.parametrize("engine", CONTINUOUS)
def test_max_num_seqs_keeps_the_next_one_waiting(engine):
    # the first two hold the seats for 3 iterations
    trace = play(spec(engine, max_num_seqs=2), (0, 8, 3), (0, 8, 3), (0, 8, 1))
    assert finishes(trace) == [30, 30, 40]


@pytest.mark.parametrize(
    ("order", "second"), [("fcfs", 1), ("priority", 2), (lambda request, now: -request.index, 3)]
)
def test_order_decides_who_is_admitted_next(order, second):
    # one seat; requests 1-3 wait while request 0 runs
    rows = (0, 8, 1), (1, 8, 1, 1), (2, 8, 1, 0), (3, 8, 1, 1)
    trace = play(spec("vllm-v1", order=order, max_num_seqs=1), *rows)
    assert finishes(trace)[second] == 20


def test_key_is_read_at_placement_unless_the_order_is_time_dependent():
    # One seat, busy until 40. Key: from 30 ms on the long prompt goes first, before that the short
    # one.
    def key(request: Request, now: int) -> float:
        return request.prompt_tokens if now < 30 * PS_PER_MS else -request.prompt_tokens

    rows = (0, 8, 4), (1, 20, 1), (2, 8, 1)
    fixed = play(spec("vllm-v1", order=key, max_num_seqs=1), *rows)
    dependent = play(spec("vllm-v1", order=key, time_dependent=True, max_num_seqs=1), *rows)
    assert finishes(fixed) == [40, 60, 50]
    assert finishes(dependent) == [40, 50, 60]


@pytest.mark.parametrize("engine", ["vllm-v1", "sarathi"])
@pytest.mark.parametrize(("bypass", "admitted"), [(False, 30), (True, 10)])
def test_small_request_behind_a_blocked_head_waits_unless_it_may_bypass(engine, bypass, admitted):
    # Of 5 blocks the first holds 3 until 30 ms; the head wants 3 of the other 2, the last one 1.
    trace = requests((0, 33, 3), (5, 33, 1), (6, 10, 1))
    cluster = load(spec(engine, kv_blocks=5, watermark=0.0, bypass_blocked=bypass), trace)
    cluster.run()
    assert [ms(r.admitted_ps) for r in trace] == [0, 30, admitted]
    assert cluster.n_blocked_heads == 2  # the iterations that start at 10 and at 20


def test_bypass_leaves_the_head_in_its_place():
    # as above; at 30 the head goes before a small one that came later
    rows = (0, 33, 3), (5, 33, 1), (6, 10, 1), (25, 33, 1)
    trace = play(spec("vllm-v1", kv_blocks=5, bypass_blocked=True), *rows)
    assert [ms(r.admitted_ps) for r in trace] == [0, 30, 10, 40]


# vllm-v1.


def test_v1_splits_a_prompt_by_the_budget():
    time = IterationTime(c0=10.0, c_prefill_attention=0.001)
    (request,) = play(small_budget("vllm-v1", 16, time=time), (0, 40, 1))
    # chunks 16, 16, 8: PA = 16 * 8.5 + 16 * (16 + 8.5) + 8 * (32 + 4.5) = 820
    assert request.finish_ps == 30_820_000_000


def test_v1_decodes_come_off_the_budget_of_a_chunk():
    # B gets 15 tokens in 10-20 and in 20-30, beside A's decodes
    assert first_tokens(play(small_budget("vllm-v1", 16), (0, 4, 10), (10, 30, 1))) == [10, 30]


def test_v1_takes_blocks_chunk_by_chunk():
    cluster = load(small_budget("vllm-v1", 32), requests((0, 40, 1)))
    cluster.run(until_ps=5 * PS_PER_MS)
    assert cluster.observe(None, 0).used_blocks == 2
    cluster.run(until_ps=15 * PS_PER_MS)
    assert cluster.observe(None, 0).used_blocks == 3


@pytest.mark.parametrize(("reserve_full_prompt", "admitted"), [(True, 10), (False, 0)])
def test_v1_asks_for_room_for_the_whole_prompt_unless_told_otherwise(reserve_full_prompt, admitted):
    # Of 4 blocks A takes 3, of 52 budget tokens 40: B's first 12 of 60 tokens fit the last block.
    # In 10-20 A is gone.
    changes = {"kv_blocks": 4, "reserve_full_prompt": reserve_full_prompt}
    trace = play(small_budget("vllm-v1", 52, **changes), (0, 40, 1), (0, 60, 1))
    assert ms(trace[1].admitted_ps) == admitted


def test_v1_preempts_the_last_and_recomputes_it():
    # Both hold 2 of 4 blocks and compute token 33 in the third iteration: B gives way at 20 ms.
    # It needs 3 blocks (known 33) and A, alone, holds 3, then 4, until its 20th token at 200.
    # B prefills 33 known tokens in 200-210 (token 3), 17 more tokens: 380.
    trace = requests((0, 31, 20), (0, 31, 20))
    cluster = load(spec("vllm-v1", kv_blocks=4), trace)
    cluster.run(until_ps=25 * PS_PER_MS)
    assert cluster.observe(None, 0).waiting_blocks == 3
    cluster.run()
    assert finishes(trace) == [200, 380]
    assert [(r.preemptions, r.recomputed_tokens) for r in trace] == [(0, 0), (1, 32)]
    assert first_tokens(trace) == [10, 10] and ms(trace[1].admitted_ps) == 0
    assert cluster.n_preemptions == 1
    # at 30, 40, ..., 190: the iteration that preempts looks at nobody
    assert cluster.n_blocked_heads == 17


def test_v1_preempted_request_goes_to_the_front_of_the_queue():
    # as above, with C waiting since 15 ms for the third seat: B goes first at 200 and takes 3 of 4
    # blocks, at 16 more tokens the fourth; C needs 2 blocks and starts when B ends
    instance = spec("vllm-v1", kv_blocks=4, max_num_seqs=2)
    trace = play(instance, (0, 31, 20), (0, 31, 20), (15, 17, 1))
    assert finishes(trace) == [200, 380, 390]


def test_v1_priority_victim_is_the_least_urgent_even_if_it_runs_first():
    # A (tier 1) is ahead in `running`. At 20 it needs a third block and is itself the victim: the
    # pass ends with nothing scheduled, which takes no time, so B decodes in 20-30 and on to 20 +
    # 190 = 210. A recomputes 31 + 2 known tokens in 210-220 (token 3) and has 17 to go.
    trace = play(spec("vllm-v1", kv_blocks=4, order="priority"), (0, 31, 20, 1), (5, 31, 20, 0))
    assert finishes(trace) == [390, 210]
    assert [r.recomputed_tokens for r in trace] == [32, 0]


def test_v1_self_victim_ends_the_pass_for_those_behind_it():
    # running: X, A (tier 1), B on 5 blocks. At 20 X decodes, A wants a third block and is its own
    # victim, and B, whose second token would need no block, sits out 20-30: tokens at 20, 40, 50.
    # A's 33 known tokens find 3 blocks at 50.
    instance = spec("vllm-v1", kv_blocks=5, order="priority")
    trace = play(instance, (0, 8, 5, 0), (0, 31, 3, 1), (5, 31, 3, 0))
    assert finishes(trace) == [50, 60, 50]


def test_v1_tokens_of_a_victim_already_scheduled_return_to_the_budget():
    # Budget 8. V (tier 1): 0-10 8 tokens, 10-20 8, then decodes. U: 7 + 7 beside it, 1 in 40-50, so
    # W: 6 of 19 in 40-50, 6 in 50-60. At 60 V decodes first and U needs a block of 4 (V 2, U 1, W
    # 1): V leaves, its token returns, and W gets 8 - 1 = 7 and ends its prompt at 70; with 6 it
    # would be 80.
    instance = small_budget("vllm-v1", 8, kv_blocks=4, order="priority", reserve_full_prompt=False)
    v, u, w = play(instance, (0, 16, 20, 1), (5, 15, 5), (6, 19, 1))
    assert (v.preemptions, v.recomputed_tokens) == (1, 20)
    assert first_tokens([v, u, w]) == [20, 50, 70]


def test_v1_watermark_binds_admission_and_not_the_running():
    # 8 blocks, 2 kept. A takes 4, B the next 2: 8 - 6 = 2 is enough. C (1 block) waits.
    # A's decode takes a fifth block from the reserve at 10. Both end at 20.
    trace = play(spec("vllm-v1", kv_blocks=8, watermark=0.25), (0, 64, 2), (0, 32, 2), (0, 16, 1))
    assert [ms(r.admitted_ps) for r in trace] == [0, 0, 20]
    assert finishes(trace) == [20, 20, 30]


@pytest.mark.parametrize(("engine", "finish"), [("vllm-v1", 20.6), ("sarathi", 21.0)])
def test_last_recomputed_token_is_a_decode_in_v1_and_prefill_in_sarathi(engine, finish):
    # One that comes back after 5 streamed tokens: known 12 + 5 = 17 in chunks of 16 and 1.
    time = IterationTime(c0=10.0, c_seq=0.1, c_prefill_step=0.5)
    trace = [Request(0, 0, prompt_tokens=12, output_tokens=6, generated=5)]
    load(small_budget(engine, 16, time=time), trace).run()
    # 10.5 + 10.1 (decode) or 10.5 + 10.5 (prefill)
    assert finishes(trace) == [finish]


@pytest.mark.parametrize("engine", ["vllm-v1", "sarathi"])
def test_budget_below_max_num_seqs_is_an_error(engine):
    with pytest.raises(ValueError, match="max_num_batched_tokens = 4"):
        load(spec(engine, max_num_batched_tokens=4, max_num_seqs=8), [])


# sarathi.


def test_sarathi_takes_the_blocks_of_the_whole_prompt_at_admission():
    cluster = load(small_budget("sarathi", 16), requests((0, 40, 1)))
    cluster.run(until_ps=5 * PS_PER_MS)
    assert cluster.observe(None, 0).used_blocks == 3
    cluster.run()
    assert first_tokens(cluster.requests) == [30]  # chunks 16, 16, 8


def test_sarathi_decodes_before_the_unfinished_prompt_and_admits_with_what_is_left():
    # Budget 16. A decodes from 10 on. B: 15 of 25 in 10-20, 10 in 20-30; C: the other 5 in 20-30,
    # then 15.
    trace = play(small_budget("sarathi", 16), (0, 4, 10), (10, 25, 1), (10, 20, 1))
    assert first_tokens(trace) == [10, 30, 40]
    assert ms(trace[2].admitted_ps) == 20


def test_sarathi_decode_wants_a_free_block_even_if_it_takes_none():
    # Both hold 2 of 4 blocks. From 10 on, at each start: none free, B is preempted, A decodes, and
    # B, whose known tokens still fit 2 blocks, is prefilled again in the same iteration: a token
    # each time.
    trace = play(spec("sarathi", kv_blocks=4), (0, 20, 5), (0, 20, 5))
    assert finishes(trace) == [50, 50]
    assert [(r.preemptions, r.recomputed_tokens) for r in trace] == [(0, 0), (4, 20 + 21 + 22 + 23)]


def test_sarathi_pass_goes_on_when_the_request_at_hand_is_the_victim():
    # A (tier 1) is ahead in `running`; 4 blocks, 2 each. At 20 A is its own victim, B decodes, A
    # (known 22) is prefilled anew; at 30 B is ahead, and A goes again. B has its 3 tokens at 40, A
    # 4 and one more.
    trace = play(spec("sarathi", kv_blocks=4, order="priority"), (0, 20, 5, 1), (5, 20, 3, 0))
    assert finishes(trace) == [50, 40]
    assert [(r.preemptions, r.recomputed_tokens) for r in trace] == [(2, 21 + 22), (0, 0)]


def test_sarathi_unfinished_prompt_can_be_the_victim():
    # Budget 17, 4 blocks: A takes 1 block and 16 tokens, B 3 blocks and one of its 33 tokens. At 10
    # A wants a block: B goes, and waits for A's fourth token at 40. Chunks 17 and 16: 60.
    trace = play(small_budget("sarathi", 17, kv_blocks=4), (0, 16, 4), (0, 33, 1))
    assert finishes(trace) == [40, 60]
    assert [r.recomputed_tokens for r in trace] == [0, 1]


@pytest.mark.parametrize(("kv_blocks", "admitted"), [(300, 10), (301, 0)])
def test_sarathi_keeps_one_percent_free_at_admission(kv_blocks, admitted):
    # floor(.01 * 300) = 3 = floor(.01 * 301); 200 + 98 blocks leave 2 or 3
    instance = spec("sarathi", kv_blocks=kv_blocks, max_num_batched_tokens=8192)
    assert ms(play(instance, (0, 3200, 1), (0, 1568, 1))[1].admitted_ps) == admitted


# vllm-v0.


def test_v0_prefill_goes_before_decodes():
    # A: 0-10 prefill, 10-20 decode; B arrives at 15 and is prefilled in 20-30; A's third token at
    # 40
    assert finishes(play(spec("vllm-v0"), (0, 20, 3), (15, 20, 1))) == [40, 30]


def test_v0_budget_counts_every_prompt_as_long_as_the_longest():
    # 60: 2 * 60 > 100, alone. 30 and 40: 2 * 40 <= 100, together. A decodes when no prompt is left.
    trace = play(spec("vllm-v0", max_num_batched_tokens=100), (0, 60, 2), (0, 30, 1), (0, 40, 1))
    assert first_tokens(trace) == [10, 20, 20] and finishes(trace)[0] == 30
    # exactly equal: 2 * 50 <= 100
    equal = spec("vllm-v0", max_num_batched_tokens=100)
    assert first_tokens(play(equal, (0, 50, 1), (0, 50, 1))) == [10, 10]


@pytest.mark.parametrize(("tier", "expected"), [(1, [120, 30]), (0, [100, 120])])
def test_v0_blocked_urgent_head_evicts_only_the_strictly_less_urgent(tier, expected):
    # 4 blocks; A holds 2, B needs 3. Tier 1: A is evicted at 10; B 10-30; A's 21 known tokens are
    # prefilled in 30-40 (token 2), 8 more: 120. Tier 0: B waits until A ends at 100.
    trace = play(spec("vllm-v0", kv_blocks=4, order="priority"), (0, 20, 10, tier), (5, 40, 2, 0))
    assert finishes(trace) == expected
    assert trace[0].preemptions == tier and trace[0].recomputed_tokens == 20 * tier


def test_v0_urgent_head_evicts_for_a_seat():
    # One seat. A (tier 1) is evicted at 10, B prefills in 10-20, A again in 20-30.
    trace = play(spec("vllm-v0", max_num_seqs=1, order="priority"), (0, 20, 2, 1), (5, 20, 1, 0))
    assert finishes(trace) == [30, 20] and trace[0].preemptions == 1


def test_v0_prompt_that_passes_a_blocked_head_delays_the_decodes():
    # as above: C in 10-20, so A ends at 40 instead of 30 and B starts then
    instance = spec("vllm-v0", kv_blocks=5, watermark=0.0, bypass_blocked=True)
    assert finishes(play(instance, (0, 33, 3), (5, 33, 1), (6, 10, 1))) == [40, 50, 20]


def test_v0_order_by_a_key_never_evicts_for_the_head():
    instance = spec("vllm-v0", max_num_seqs=1, order=lambda request, now: request.tier)
    assert finishes(play(instance, (0, 20, 2, 1), (5, 20, 1, 0))) == [20, 30]


# static.


def test_static_closes_by_size_and_all_finish_when_the_batch_ends():
    # {A, B} at 0: prefill to 10, B decodes to 30. C is taken at 30 and waits 50 ms for company.
    instance = spec("static", batch_size=2, batch_wait_ps=50 * PS_PER_MS)
    trace = play(instance, (0, 20, 1), (0, 20, 3), (5, 20, 1))
    assert first_tokens(trace) == [10, 10, 90]
    assert finishes(trace) == [30, 30, 90]
    assert [ms(r.admitted_ps) for r in trace] == [0, 0, 80]


def test_static_wait_starts_again_with_each_one_taken():
    # taken at 0, 20 and 70 (the instant at which it was due); closes at 120
    instance = spec("static", batch_wait_ps=50 * PS_PER_MS)
    assert finishes(play(instance, (0, 20, 1), (20, 20, 1), (70, 20, 1))) == [130, 130, 130]


def test_static_arrival_just_after_the_close_waits_for_the_next_batch():
    # closes at 50, ends at 60; the other is taken at 60, closes at 110
    instance = spec("static", batch_wait_ps=50 * PS_PER_MS)
    assert finishes(play(instance, (0, 20, 1), (50 + 1e-9, 20, 1))) == [60, 120]


def test_static_closes_when_the_next_does_not_fit_with_its_output():
    # 4 blocks: A needs 2. B, 17 + 32 - 1 tokens, needs 3: the batch closes at 20. B: 40 to 90, + 32
    # * 10.
    trace = requests((0, 20, 2), (20, 17, 32))
    cluster = load(spec("static", kv_blocks=4, batch_wait_ps=50 * PS_PER_MS), trace)
    cluster.run()
    assert finishes(trace) == [40, 410]
    assert cluster.n_blocked_heads == 1


def test_static_batch_times():
    time = IterationTime(c0=10.0, c_token=1.0, c_kv=0.001, c_prefill_attention=0.01)
    instance = spec("static", time=time, batch_wait_ps=0)
    trace = play(instance, (0, 10, 2), (0, 20, 3))
    # prefill: 10 + 30 + .01 * (55 + 210) = 42.65; decode of two: 12 + .001 * (11 + 21) = 12.032;
    # of one: 11 + .001 * 22 = 11.022
    assert [r.first_token_ps for r in trace] == [42_650_000_000] * 2
    assert [r.finish_ps for r in trace] == [65_704_000_000] * 2


def test_static_refuses_bypass():
    with pytest.raises(ValueError, match="bypass_blocked"):
        load(spec("static", bypass_blocked=True), [])


# Never fits, no progress.


@pytest.mark.parametrize(
    ("instance", "largest"),
    [
        (spec("vllm-v1", kv_blocks=10), 160),
        (spec("vllm-v1", kv_blocks=10, watermark=0.25), 128),  # floor(2.5) kept
        (spec("sarathi", kv_blocks=10), 144),  # floor(.1) kept, but at least 1
        (spec("sarathi", kv_blocks=10, watermark=0.25), 128),
        (spec("vllm-v0", kv_blocks=10), 144),
        (spec("vllm-v0", kv_blocks=10, max_num_batched_tokens=100), 100),
        (spec("static", kv_blocks=10), 160),
    ],
)
def test_case_01_exactly_equal_fits_and_one_token_more_never_does(instance, largest):
    # prompt + output - 1 tokens are the most it ever stores
    trace = requests((0, largest - 8, 9), (0, largest - 8, 10), (0, 8, 1))
    load(instance, trace).run()
    assert [r.status for r in trace] == ["finished", "rejected", "finished"]


def test_idle_instance_that_refuses_its_head_is_named():
    for engine in ENGINES:
        instance = ENGINES[engine](spec(engine, kv_blocks=4), index=7)
        instance.place(Request(3, 0, prompt_tokens=65, output_tokens=1), now=0)
        with pytest.raises(NoProgressError, match="instance 7"):
            instance.start_iteration(0)


def test_preemptions_without_progress_are_an_error():
    # Two requests of 80 tokens on 4 blocks of 16, forced in, whose order flips every 10 ms. Whoever
    # is alone fills the blocks in 4 iterations of 16 and preempts itself in the fifth, before its
    # prompt is done. Allowed are 2 requests + 1; the fourth such preemption raises.
    instance = small_budget(
        "vllm-v1",
        16,
        kv_blocks=4,
        reserve_full_prompt=False,
        order=lambda request, now: (now // (10 * PS_PER_MS) + request.index) % 2,
        time_dependent=True,
    )
    engine = ENGINES["vllm-v1"](instance, index=7)
    for request in requests((0, 80, 1), (0, 80, 1)):
        engine.place(request, now=0)
    with pytest.raises(NoProgressError, match="instance 7: 4 preemptions"):
        for now in range(0, 1000 * PS_PER_MS, 10 * PS_PER_MS):
            engine.start_iteration(now)
            engine.end_iteration(now + 10 * PS_PER_MS)
    assert engine.n_iterations == 16


@pytest.mark.parametrize(
    ("engine", "reserve_full_prompt"),
    [("vllm-v1", True), ("vllm-v1", False), ("vllm-v0", True), ("sarathi", True)],
)
def test_case_02_nasty_orders_on_little_memory_still_end(engine, reserve_full_prompt):
    """Twenty requests that each fit, on KV of 1.1 times the largest, in hostile orders."""
    nasty = {
        "least computed first": lambda request, now: request.computed,
        "flips": lambda request, now: (now // (30 * PS_PER_MS) + request.index) % 2,
        "noise": lambda request, now: random.Random(now + request.index).random(),
    }
    preemptions = []
    for order in ["fcfs", "priority", *nasty.values()]:
        instance = small_budget(
            engine,
            1000 if engine == "vllm-v0" else 64,
            kv_blocks=22,
            reserve_full_prompt=reserve_full_prompt,
            order=order,
            time_dependent=order in nasty.values(),
        )
        rows = [(i, 16 * (1 + i % 10), 321 - 16 * (1 + i % 10), i % 3) for i in range(20)]
        preemptions.append(sum(r.preemptions for r in play(instance, *rows)))
    assert min(preemptions) > 0
