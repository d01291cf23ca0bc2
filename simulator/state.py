"""The whole state of a simulated cluster: a handful of record arrays in one NamedTuple.

Few arrays matter: passing a state to a policy costs about 7 machine words an array. Axes: M instances, N requests,
R routers, C seats of an instance. Fixed configuration stands in `engines` and the first part of `shared`; all else
changes. Times are int64 picoseconds. Later work (gateway queues, migration, faults) adds records beside these.
"""

from typing import NamedTuple

import numpy as np

NEVER = np.int64(2**63 - 1)
LATEST_PS = 9_200_000_000_000_000_000  # 106 days, with room below NEVER for one more iteration
NO_REQUEST = -1
NO_INSTANCE = -1

VLLM_V1, VLLM_V0, SARATHI, STATIC = 0, 1, 2, 3
ENGINE_KINDS = ("vllm-v1", "vllm-v0", "sarathi", "static")
FCFS, PRIORITY, BY_POLICY = 0, 1, 2

# Statuses; a request in the system is UNFINISHED, in a queue or in a seat.
UNFINISHED, FINISHED, REJECTED, FAILED, CANCELLED = 0, 1, 2, 3, 4

# What stopped a run.
OK, NO_PROGRESS, IDLE_REFUSES_HEAD, TIME_OVERFLOW = 0, 1, 2, 3
BAD_INSTANCE, HELD_IN_PUSH_MODE, BAD_READ, BAD_KEY = 4, 5, 6, 7

COUNTS, BLOCKS = 0, 1  # how much of an instance a reader wants up to date

ESTIMATOR_STREAM, POLICY_STREAM = 0, 1
N_STREAMS = 2

SHARED = np.dtype(
    [
        ("block_size", "i8"),  # tokens in a KV block
        ("block_shift", "i8"),  # its logarithm to base 2; -1 if it is no power of two
        ("order", "i8"),  # FCFS | PRIORITY | BY_POLICY: the waiting order of every instance
        ("is_time_dependent", "i8"),  # 1: order keys are evaluated anew at every iteration start
        ("metrics_interval_ps", "i8"),  # 0: routers see the truth
        ("n_routers", "i8"),
        ("state_pointer", "i8"),  # this State in memory, while a run is under way
        ("catch_up_address", "i8"),  # compiled `catch_up`, which accessors inside policies call
        ("dispatch_address", "i8"),
        ("order_address", "i8"),
        ("estimator_address", "i8"),
        ("dispatch_memory", "i8"),  # where each policy's part of `memory` and `params` ends
        ("dispatch_params", "i8"),
        ("order_params", "i8"),
        ("estimator_memory", "i8"),
        ("estimator_params", "i8"),
        ("now_ps", "i8"),  # the instant being decided
        ("router", "i8"),  # who decides it
        ("next_arrival", "i8"),  # index of the next request to arrive
        ("error", "i8"),  # OK or what stopped the run
        ("error_instance", "i8"),
        ("n_bad_predictions", "i8"),  # not finite or below one token, replaced
    ]
)

# One row per distinct profile of the fleet.
ENGINE = np.dtype(
    [
        ("kind", "i8"),  # VLLM_V1 | VLLM_V0 | SARATHI | STATIC
        ("max_num_seqs", "i8"),
        ("max_num_batched_tokens", "i8"),
        ("kv_blocks", "i8"),
        ("watermark_blocks", "i8"),
        ("largest_need", "i8"),  # blocks of the largest request that fits
        ("largest_tokens", "i8"),  # prompt + output - 1 of the largest request that fits
        ("reserve_full_prompt", "i8"),
        ("bypass_blocked", "i8"),
        ("batch_size", "i8"),
        ("batch_wait_ps", "i8"),
        ("knee_tokens", "i8"),
        ("c0_ms", "f8"),
        ("c_token_ms", "f8"),
        ("c_above_knee_ms", "f8"),
        ("c_decode_step_ms", "f8"),
        ("c_seq_ms", "f8"),
        ("c_prefill_step_ms", "f8"),
        ("c_prefill_attention_ms", "f8"),
        ("calibration", "f8"),
        ("host_overhead_ms", "f8"),
        ("kv_ps", "i8"),  # one KV token read by a decode
    ]
)

# Three cache lines: what dispatch reads, what every iteration changes, what follows them; then the rest.
INSTANCE = np.dtype(
    [
        ("event_ps", "i8"),  # the first instant at which counts may differ from what stands here
        ("free_blocks", "i8"),
        ("n_running", "i4"),
        ("n_waiting", "i4"),
        ("engine", "i2"),  # row of `engines`
        ("is_active", "i2"),
        ("preemptions_since", "i4"),  # since a token was streamed
        ("stretch_end_ps", "i8"),  # end of the last of `stretch` iterations; NEVER: none in flight
        ("wake_ps", "i8"),  # next iteration start if none is in flight; NEVER: idle
        ("iteration_end_ps", "i8"),
        (
            "iteration_start_ps",
            "i8",
        ),  # of the iteration in flight; if none is, when the last one ended
        ("iteration", "i8"),  # decode iterations ended, the clock of `slots.finish_iteration`
        ("next_finish", "i8"),  # least finish_iteration among the decoders
        ("kv_tokens", "i8"),  # sum of computed + 1 over the decoders
        ("busy_ps", "i8"),  # in iterations that ended
        ("held_tokens", "i8"),  # prompt + predicted tokens of waiting and running requests
        ("stretch", "i4"),  # iterations in flight or to follow without any decision
        ("n_decoding", "i4"),  # slots[:n_decoding] decode, the rest of the running prefill
        ("tail_chunk", "i4"),  # tokens that the last prefilling request gets in flight
        ("is_decoding", "i4"),  # 1: the decoders take part in the iteration in flight
        ("head", "i4"),  # fcfs: first of a linked list; else root of a skew heap
        ("tail", "i4"),
        ("waiting_blocks", "i8"),
        ("n_iterations", "i8"),
        ("least_free_blocks", "i8"),  # ever
        ("largest_kv_tokens", "i8"),
        ("largest_prefill_tokens", "i8"),  # seen in one iteration, for the profile's fitted range
        ("first_slot", "i8"),  # this instance's part of `slots`
        ("last_taken_ps", "i8"),  # static: when the forming batch took its last request
        ("n_preemptions", "i4"),
        ("n_blocked_heads", "i4"),  # iteration starts that left a waiting head for want of blocks
        ("is_batch_closed", "i4"),  # static
        ("n_cut_by_blocks", "i4"),  # stretches cut short: by KV, by an arrival, by a read
        ("n_cut_by_arrival", "i4"),
        ("n_cut_by_read", "i4"),
        ("seen_ps", "i8"),  # the refresh that the five values below belong to
        ("seen_waiting", "i8"),
        ("seen_running", "i8"),
        ("seen_used_blocks", "i8"),
        ("seen_waiting_blocks", "i8"),
        ("seen_held_tokens", "i8"),
    ]
)

REQUEST = np.dtype(
    [
        ("arrival_ps", "i8"),
        ("admitted_ps", "i8"),  # start of its first iteration; -1: none yet
        ("key", "f8"),  # of an ordering policy
        ("next", "i4"),  # fcfs: next in the queue; else left child in the heap
        ("right", "i4"),  # right child in the heap
        ("instance", "i4"),
        ("preemptions", "i4"),
        ("recomputed_tokens", "i4"),  # stops at 2**31 - 1
        ("need_blocks", "i4"),  # ceil((prompt + output - 1) / block_size), the most it ever holds
        ("first_token_ps", "i8"),
        ("finish_ps", "i8"),  # finished or rejected
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("predicted_tokens", "i4"),
        ("generated", "i4"),  # streamed tokens; of a decoder derived from its slot
        ("computed", "i4"),  # known tokens in KV; of a decoder derived from its slot
        ("tier", "i2"),
        ("migrations", "u1"),
        ("status", "u1"),
    ]
)

# A running request's seat. finish_iteration fixes everything about a decoder: at iteration c it has streamed
# output - (finish - c) tokens and computed prompt + output - 1 - (finish - c).
SLOT = np.dtype([("finish_iteration", "i8"), ("request", "u4")])

# One router's own placements on one instance since the refresh at `since_ps`.
VIEW = np.dtype(
    [("since_ps", "i8"), ("waiting", "i8"), ("waiting_blocks", "i8"), ("held_tokens", "i8")]
)


class State(NamedTuple):
    """All that a run is; copying the arrays copies the run."""

    shared: np.ndarray  # SHARED[1]
    engines: np.ndarray  # ENGINE[distinct profiles]
    instances: np.ndarray  # INSTANCE[M]
    requests: np.ndarray  # REQUEST[N]
    slots: np.ndarray  # SLOT[M * C], instance i owns first_slot .. first_slot + C
    phases: np.ndarray  # int32[M * block_size]: decoders by (computed - iteration) mod block_size
    views: np.ndarray  # VIEW[R * M]
    params: np.ndarray  # float64: dispatch, then order, then estimator
    memory: np.ndarray  # float64: dispatch, then estimator
    streams: np.ndarray  # uint64[N_STREAMS]: random number generators


class Request(NamedTuple):
    """One request as policies see it; read it through the accessors of views.py."""

    records: np.ndarray  # REQUEST[N]
    index: int | np.int64  # pyright: ignore[reportIncompatibleMethodOverride]


class Cluster(NamedTuple):
    """The part of a State that policies see; read it through the accessors of views.py."""

    shared: np.ndarray  # SHARED[1]
    engines: np.ndarray  # ENGINE[distinct profiles]
    instances: np.ndarray  # INSTANCE[M]
    views: np.ndarray  # VIEW[R * M]
