"""The whole state of a simulated cluster: a handful of record arrays in one NamedTuple.

Few arrays matter: passing a state to a policy costs about 7 machine words an array. Axes: M instances, N requests,
R routers, C seats of an instance, K tiers, Q gateway queues. Fixed configuration stands in `engines`, `policies` and
the first part of `shared`, `gateway` and `control`; all else changes. Times are int64 picoseconds.
"""

from typing import NamedTuple

import numpy as np

NEVER = np.int64(2**63 - 1)
LATEST_PS = 9_200_000_000_000_000_000  # 106 days, with room below NEVER for one more iteration
NO_REQUEST = np.int64(
    -1
)  # typed, as all request indices: every other type would compile its own kernels
NO_INSTANCE = -1

VLLM_V1, VLLM_V0, SARATHI, STATIC = 0, 1, 2, 3
ENGINE_KINDS = ("vllm-v1", "vllm-v0", "sarathi", "static")
FCFS, PRIORITY, BY_POLICY = 0, 1, 2

# Statuses; a request in the system is UNFINISHED, in a queue or in a seat.
UNFINISHED, FINISHED, REJECTED, FAILED, CANCELLED = 0, 1, 2, 3, 4

# What stopped a run.
OK, NO_PROGRESS, IDLE_REFUSES_HEAD, TIME_OVERFLOW = 0, 1, 2, 3
BAD_INSTANCE, HELD_FOREVER, BAD_READ, BAD_KEY = 4, 5, 6, 7
BAD_QUEUE, BAD_MOVE, LEDGER_FULL, NEEDS_INSTANTS = 8, 9, 10, 11
ASKED = 12  # a decision waits for an agent outside: no error, the run goes on with its answer
NEEDS_OUTLOOK = 13

COUNTS, BLOCKS = 0, 1  # how much of an instance a reader wants up to date

# Conditions of an instance.
ABSENT, ACTIVE, STARTING, DRAINING, DOWN = 0, 1, 2, 3, 4

# Decisions open to a policy: rows of `policies` and of `streams`, in the order of params and memory.
ROLES = (
    "dispatch",
    "ordering",
    "estimation",
    "remaining",
    "admission",
    "queue",
    "migration",
    "scaling",
)
DISPATCH, ORDERING, ESTIMATION, REMAINING, ADMISSION, QUEUEING, MIGRATION, SCALING = range(8)

# What a move is doing, and how it ended.
COPYING, STOPPING, COPYING_LAST, JOINING, RETURNING = 0, 1, 2, 3, 4
(
    COLD,
    COMMITTED,
    ENDED_FIRST,
    PREEMPTED_FIRST,
    NO_ROOM,
    TOO_LONG,
    LOST_DESTINATION,
    LOST_SOURCE,
    LOST_LINK,
    UNDER_WAY,
) = range(10)
OUTCOMES = (
    "cold",
    "committed",
    "ended first",
    "preempted first",
    "no room",
    "stages exceeded",
    "destination lost",
    "source lost",
    "link lost",
    "under way",  # when the result was taken; never in the engine's own ledger
)

CRASH, SLOW, METRICS_LOSS, LINK_LOSS = 0, 1, 2, 3
FAULT_KINDS = ("crash", "slow", "metrics", "link")

ANY_ROUTER = -1  # the view of queue, migration and scaling policies: placements of all routers

# One decision's policy. Addresses belong to a process; 0: nobody decides.
POLICY = np.dtype(
    [
        ("address", "i8"),
        ("observe_address", "i8"),  # estimators and remaining lengths: is shown completions
        ("params_begin", "i8"),
        ("params_end", "i8"),
        ("memory_begin", "i8"),
        ("memory_end", "i8"),
    ]
)

GATEWAY = np.dtype(
    [
        ("queue_by_tenant", "i8"),
        ("queue_by_tier", "i8"),
        ("is_direct", "i8"),  # 1: an arrival that nobody precedes goes straight to dispatch
        ("hold_timer_ps", "i8"),
        ("max_hold_ps", "i8"),
        ("n_queued", "i8"),  # requests in all queues
        ("n_held", "i8"),  # requests that the admission policy holds
        ("last_round_ps", "i8"),
        ("release_ps", "i8"),  # the last instant at which something may have made room
        ("last_event_ps", "i8"),  # of anything but a round by the timer
        ("n_holds", "i8"),  # rounds that a policy's HOLD ended
        ("n_admission_holds", "i8"),
        ("n_admission_rejects", "i8"),
        # Where a run that waits for an agent goes on.
        ("part", "i8"),  # of the instant being played: ARRIVING .. ENDING
        ("awaited", "i8"),  # request that has arrived and is not decided; NO_REQUEST
        ("is_in_round", "i8"),
        ("n_to_ask", "i8"),  # requests of the admission FIFO that the round still has to ask about
        ("chosen_queue", "i8"),  # whose head waits for an instance; -1
    ]
)

# Parts of an instant, in order.
ARRIVING, RETRYING, RELEASING, TICKING, ENDING = 0, 1, 2, 3, 4

# One gateway queue, a skew heap through the request records; the last one is the admission FIFO, a linked list.
QUEUE = np.dtype(
    [
        ("head", "i8"),
        ("tail", "i8"),
        ("n_waiting", "i8"),
        ("waiting_blocks", "i8"),
        ("waiting_prefill_tokens", "i8"),
        ("waiting_predicted_tokens", "i8"),
        ("waiting_work", "i8"),
        ("n_once_preempted", "i8"),
    ]
)

# Everything that acts on several instances at once, and when it is next due.
CONTROL = np.dtype(
    [
        ("rebalance_ps", "i8"),  # interval between migration ticks
        ("migration_stages", "i8"),
        ("last_stage_blocks", "i8"),
        ("scaling_ps", "i8"),  # interval between scaling ticks
        ("startup_ps", "i8"),
        ("min_instances", "i8"),
        ("is_failing", "i8"),  # on_failure: 1 fail, 0 retry
        ("client_retries", "i8"),
        ("retry_backoff_ps", "i8"),
        ("next_ps", "i8"),  # the least of the following
        ("next_fault", "i8"),  # index
        ("next_rebalance_ps", "i8"),
        ("next_scaling_ps", "i8"),
        ("next_ready_ps", "i8"),
        ("next_stage_ps", "i8"),
        ("n_moves", "i8"),  # under way, in the order in which they began
        ("n_ledger", "i8"),
        ("n_refused_moves", "i8"),
        ("n_timers", "i8"),
        ("n_retries", "i8"),  # clients about to ask again
        ("n_draining", "i8"),  # instances, those that are empty but not looked at yet included
        ("horizon_ps", "i8"),  # nobody arrives at or after it
        ("n_scale_ups", "i8"),
        ("n_scale_downs", "i8"),
        ("n_crashes", "i8"),
        ("n_crash_retries", "i8"),
        ("n_client_retries", "i8"),
        ("completed", "i8"),  # root of a skew heap of completions not shown yet
    ]
)

MOVE = np.dtype(
    [
        ("next_ps", "i8"),
        ("start_ps", "i8"),
        ("stop_ps", "i8"),  # -1: not stopped yet
        ("request", "i4"),
        ("source", "i4"),
        ("destination", "i4"),
        ("step", "i4"),  # COPYING .. RETURNING
        ("stage", "i4"),
        ("copied_blocks", "i4"),
        ("reserved_blocks", "i4"),
        ("attempt", "i4"),  # of the request when the move began
        ("held_blocks", "i4"),  # of a parked request, at its source
        ("preemptions", "i4"),  # of the request when the move began
        ("has_seat", "i2"),  # 1: a seat is parked at the destination
        ("has_ended", "i2"),  # 1: to be taken out of `moves`
        ("outcome", "i4"),  # of one that is RETURNING
    ]
)

# A move that ended.
LEDGER = np.dtype(
    [
        ("start_ps", "i8"),
        ("end_ps", "i8"),
        ("stop_ps", "i8"),
        ("request", "i4"),
        ("source", "i4"),
        ("destination", "i4"),
        ("blocks", "i4"),
        ("stages", "i4"),
        ("outcome", "i4"),
    ]
)

# One edge of a fault: its beginning or its end.
FAULT = np.dtype(
    [
        ("at_ps", "i8"),
        ("until_ps", "i8"),
        ("kind", "i4"),
        ("instance", "i4"),
        ("begins", "i4"),
        ("engine", "i4"),  # slow: the row of `engines` that holds from then on
        ("has_hit", "i4"),  # crash: 1 while it keeps its instance down
    ]
)

# When a client gives up, or asks again; at most one a request.
TIMER = np.dtype([("at_ps", "i8"), ("request", "i4"), ("kind", "i4")])
DEADLINE, OVERDUE, RETRY = 0, 1, 2  # overdue: cancelled when the iteration in flight ends

# What has accrued up to now, for rewards: see tally.py. By term: latency, weighted latency, time to first token.
TALLY = np.dtype(
    [
        ("present", "f8", (3,)),  # weight of the requests that accrue
        ("arrivals", "f8", (3,)),  # weighted sum of their arrivals, s
        ("ended", "f8", (3,)),  # weighted sum of what has accrued for the others, s
        ("slo", "f8"),  # weight that met its SLO less weight that missed it
        ("n_ended", "i8"),  # finished, rejected, failed or cancelled
        ("n_slo_met", "i8"),
    ]
)

# What a request of a tier costs: its SLO, the penalty for not being served (slo.py), its weight.
TARIFF = np.dtype([("ttft_s", "f8"), ("tpot_s", "f8"), ("penalty_s", "f8"), ("weight", "f8")])

SHARED = np.dtype(
    [
        ("block_size", "i8"),  # tokens in a KV block
        ("block_shift", "i8"),  # its logarithm to base 2; -1 if it is no power of two
        ("order", "i8"),  # FCFS | PRIORITY | BY_POLICY: the waiting order of every instance
        ("is_time_dependent", "i8"),  # 1: order keys are evaluated anew at every iteration start
        ("metrics_interval_ps", "i8"),  # 0: routers see the truth
        ("n_routers", "i8"),
        (
            "state_pointer",
            "i8",
        ),  # Core, Centre, Copies and the Core of a what-if, as they stand in `links`
        ("centre_pointer", "i8"),
        ("copies_pointer", "i8"),
        ("what_if_pointer", "i8"),
        ("catch_up_address", "i8"),  # compiled `catch_up`, which accessors inside policies call
        ("what_if_address", "i8"),  # compiled `what_if`, likewise; 0: not needed yet
        ("run_address", "i8"),  # compiled `run` of event_loop.py
        ("play_address", "i8"),  # compiled `play` of instants.py; 0: not needed yet
        ("n_tiers", "i8"),
        ("has_timeouts", "i8"),  # 1: some tier's requests are cancelled after a while
        ("unplayed_ps", "i8"),  # instant whose rest is still to be played; -1: none
        ("counts_tiers", "i8"),  # 1: `tiers` is kept
        ("local_limit", "i8"),  # -1: push; 0: pull; else waiting requests an instance accepts
        ("snapshot_interval_ps", "i8"),  # 0: what-if sees the present
        ("n_observing", "i8"),  # policies that are shown completions
        ("n_lost_metrics", "i8"),  # faults of that kind in the schedule
        ("keeps_outlook", "i8"),  # 1: refreshes store predicted needs, too
        ("now_ps", "i8"),  # the instant being decided
        ("is_early", "i8"),  # 1: the refreshes of the instant being played are still to come
        ("router", "i8"),  # who decides it
        ("next_arrival", "i8"),  # index of the next request to arrive
        ("error", "i8"),  # OK or what stopped the run
        ("error_instance", "i8"),  # or queue, or row of a move
        ("error_request", "i8"),
        ("n_bad_predictions", "i8"),  # not finite or below one token, replaced
        ("asked_role", "i8"),  # of ROLES, that waits for an agent
        ("asked_request", "i8"),  # what about; NO_REQUEST: a queue, or a control tick
        ("follows_outlook", "i8"),  # 1: outlooks follow the seats
        ("keeps_tally", "i8"),  # 1: `tally` is kept
        ("links_back", "i8"),  # 1: somebody may leave a queue from its middle: `waits` is kept
        ("ranks_waiting", "i8"),  # 1: waiting requests may move: `first_to_move` is kept
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
        ("slow_factor", "f8"),  # of a slowed instance, else 1
        ("block_copy_ps", "i8"),  # one KV block over a link
        ("profile", "i8"),  # row of the fleet's profiles
    ]
)

# Four cache lines: what dispatch reads, what every iteration changes, what changes with who waits or runs, what
# follows iterations; then the rest, three more.
INSTANCE = np.dtype(
    [
        ("event_ps", "i8"),  # the first instant at which counts may differ from what stands here
        ("free_blocks", "i8"),
        ("n_running", "i4"),
        ("n_waiting", "i4"),
        ("engine", "i2"),  # row of `engines`
        ("condition", "i2"),  # ACTIVE or why not
        ("preemptions_since", "i4"),  # since a token was streamed
        ("stretch_end_ps", "i8"),  # end of the last of `stretch` iterations; NEVER: none in flight
        ("wake_ps", "i8"),  # next iteration start if none is in flight; NEVER: idle
        ("iteration_end_ps", "i8"),
        ("iteration_start_ps", "i8"),  # of the iteration in flight, else end of the last one
        ("iteration", "i8"),  # decode iterations ended, the clock of `slots.finish_iteration`
        ("next_finish", "i8"),  # least finish_iteration among the decoders
        ("kv_tokens", "i8"),  # sum of computed + 1 over the decoders
        ("busy_ps", "i8"),  # in iterations that ended, or up to the crash that ended them
        ("held_tokens", "i8"),  # prompt + predicted tokens of waiting and running requests
        ("stretch", "i4"),  # iterations in flight or to follow without any decision
        ("n_decoding", "i4"),  # slots[:n_decoding] decode, the rest of the running prefill
        ("tail_chunk", "i4"),  # tokens that the last prefilling request gets in flight
        ("is_decoding", "i2"),  # 1: the decoders take part in the iteration in flight
        ("has_admitted", "i2"),  # 1: the iteration in flight admitted a request
        ("head", "i4"),  # fcfs: first of a linked list; else root of a skew heap
        ("tail", "i4"),
        ("waiting_blocks", "i8"),
        ("waiting_prefill_tokens", "i8"),  # prompt + streamed tokens of those that wait
        ("waiting_predicted_tokens", "i8"),  # output they are predicted to have left
        ("waiting_work", "i8"),  # KV-token work, see predicted_work.py
        ("seat_changes", "i8"),  # how often it changed who runs or who of them decodes
        ("seats_iteration", "i8"),  # `iteration` at the last of them
        ("first_slot", "i8"),  # this instance's part of `slots`
        ("released_ps", "i8"),  # last iteration end that finished a request or had admitted one
        ("n_iterations", "i8"),
        ("largest_kv_tokens", "i8"),  # seen in one iteration, for the profile's fitted range
        ("largest_prefill_tokens", "i8"),
        ("least_free_blocks", "i4"),  # ever
        ("n_parked", "i4"),  # seats of requests that move: stopped here, or expected here
        ("n_preemptions", "i4"),
        ("n_once_preempted", "i4"),  # waiting requests that were ever preempted
        ("n_blocked_heads", "i4"),  # iteration starts that left a waiting head for want of blocks
        ("is_batch_closed", "i4"),  # static
        ("last_taken_ps", "i8"),  # static: when the forming batch took its last request
        ("n_cut_by_blocks", "i4"),  # stretches cut short: by KV, by an arrival, by a read
        ("n_cut_by_arrival", "i4"),
        ("n_cut_by_read", "i4"),
        ("n_incoming", "i4"),  # moves to here under way
        ("seen_ps", "i8"),  # the refresh that the seven values below belong to
        ("seen_waiting", "i8"),
        ("seen_running", "i8"),
        ("seen_used_blocks", "i8"),
        ("seen_waiting_blocks", "i8"),
        ("seen_held_tokens", "i8"),
        ("seen_head_blocks", "i8"),
        ("seen_context_tokens", "i8"),
        ("link_free_ps", "i8"),
        ("link_down_until_ps", "i8"),
        ("lost_from_ps", "i8"),  # metrics are not refreshed in [lost_from_ps, lost_until_ps)
        ("lost_until_ps", "i8"),
        ("ready_ps", "i8"),  # of a starting instance
        ("charged_ps", "i8"),  # before charged_since_ps
        ("charged_since_ps", "i8"),  # NEVER: not yet
        ("charged_until_ps", "i8"),  # NEVER: still
        ("own_engine", "i4"),  # row of `engines` when it is not slowed
        ("was_before_crash", "i4"),  # its condition
        ("snapshot_ps", "i8"),  # when its copy for what-if was taken
        ("spare", "i8", (5,)),  # to the end of the line
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
        ("tenant", "i4"),  # codes of the trace's labels; 0 without
        ("category", "i2"),
        ("attempt", "u1"),  # of its client, from 0
        ("place", "u1"),  # AT_GATEWAY .. WITH_CLIENT, while it has not ended
    ]
)

# How a waiting request is linked beside `next` and `right`. It hangs on whom stands before it in a list, or above it in
# a heap; the first hangs on nobody.
WAIT = np.dtype(
    [
        ("back", "i4"),
        ("left", "i4"),  # children and parent in the heap of first_to_move (urgency.py)
        ("right", "i4"),
        ("up", "i4"),
    ]
)

# Where a request is: at the gateway (queue or admission FIFO), at an instance (waiting, running or parked by a move),
# with its client before another attempt, or nowhere any more.
AT_GATEWAY, HELD, AT_INSTANCE, PARKED, WITH_CLIENT = 0, 1, 2, 3, 4

# A running request's seat. finish_iteration fixes everything about a decoder: at iteration c it has streamed
# output - (finish - c) tokens and computed prompt + output - 1 - (finish - c).
SLOT = np.dtype([("finish_iteration", "i8"), ("request", "u4")])

# One router's own placements on one instance since the refresh at `since_ps`.
VIEW = np.dtype(
    [
        ("since_ps", "i8"),
        ("waiting", "i8"),
        ("waiting_blocks", "i8"),
        ("held_tokens", "i8"),
        ("first_blocks", "i8"),  # of the first of them
        ("waiting_prefill_tokens", "i8"),
        ("waiting_predicted_tokens", "i8"),
        ("waiting_work", "i8"),
    ]
)

# What the running requests of one instance are predicted to need (outlook.py): a walk over its seats, kept, then what a
# refresh has stored, then the blocks they free. Decoders are due, or overdue: those have outlived their prediction.
FREED_BUCKETS = 24  # by iterations left, two an octave
OUTLOOK = np.dtype(
    [
        ("changes", "i8"),  # seat_changes at the walk; -1: none yet
        ("iteration", "i8"),  # at the walk
        ("next_due", "i8"),  # iteration that ends the first prediction to be outlived; NEVER: none
        ("last_due", "i8"),  # the last one
        ("n_due", "i8"),
        ("due_left", "i8"),  # tokens, of all that are due together
        ("due_known", "i8"),
        ("due_work", "i8"),
        ("still_left", "i8"),  # the same of those that prefill
        ("still_known", "i8"),
        ("still_work", "i8"),
        ("next_still", "i8"),  # tokens left of the first of them to end; 0: none prefills
        ("n_still", "i4"),
        ("is_batch", "i4"),  # 1: static, all end with the last
        ("freed_changes", "i8"),  # seat_changes when `freed` was filled
        ("freed_blocks", "i8"),  # sum of `freed`
        ("seen_tokens_left", "i8"),  # from here on: at the last refresh
        ("seen_end_tokens", "i8"),
        ("seen_work", "i8"),
        ("seen_next_left", "i8"),
        ("seen_prefilling", "i8"),
        ("seen_prefill_tokens", "i8"),
        ("seen_decoding", "i8"),
        ("seen_kv_tokens", "i8"),
        ("seen_waiting_prefill_tokens", "i8"),
        ("seen_waiting_predicted_tokens", "i8"),
        ("seen_waiting_work", "i8"),
        ("seen_since", "i8"),  # iterations since the last change of seats
        ("seen_freed_blocks", "i8"),
        ("spare", "i8", (4,)),
        ("freed", "i4", (FREED_BUCKETS,)),  # blocks of those that end in a bucket
        ("seen_freed", "i4", (FREED_BUCKETS,)),
    ]
)


class State(NamedTuple):
    """All that a run is; copying the arrays copies the run."""

    shared: np.ndarray  # SHARED[1]
    engines: np.ndarray  # ENGINE[distinct profiles]
    instances: np.ndarray  # INSTANCE[M]
    requests: np.ndarray  # REQUEST[N]
    slots: np.ndarray  # SLOT[M * C], instance i owns first_slot .. first_slot + C
    phases: np.ndarray  # int32[M * block_size]: decoders by (computed - iteration) mod block_size
    views: np.ndarray  # VIEW[R * M], or [(R + 1) * M]: the last M are all routers together
    params: np.ndarray  # float64, by role
    memory: np.ndarray  # float64, by role
    streams: np.ndarray  # uint64[roles]: random number generators
    policies: np.ndarray  # POLICY[roles]
    gateway: np.ndarray  # GATEWAY[1]
    queues: np.ndarray  # QUEUE[Q + 1]
    control: np.ndarray  # CONTROL[1]
    tiers: np.ndarray  # int32: requests by instance and tier, true, seen, and by view (tiers.py)
    moves: np.ndarray  # MOVE[most at a time]
    ordered: np.ndarray  # int64[most at a time, 3]: what a migration policy writes
    ledger: np.ndarray  # LEDGER[room], grown between ticks
    faults: np.ndarray  # FAULT[2 * faults], by time
    timers: np.ndarray  # TIMER[n], a binary heap
    timeouts_ps: np.ndarray  # int64[K], NEVER for none; empty without any
    tally: np.ndarray  # TALLY[1]
    tariffs: np.ndarray  # TARIFF[K]
    outlooks: np.ndarray  # OUTLOOK[M]
    waits: np.ndarray  # WAIT[N]; empty if nobody leaves a queue but from its front
    first_to_move: np.ndarray  # int32[M * K]: roots of skew heaps by instance and tier; or empty
    # What-if (what_if.py): instances as they stood at the last snapshot, if asked for, then one to play with.
    copied_shared: np.ndarray  # SHARED[1]
    copied_instances: np.ndarray  # INSTANCE[1] or [M + 1]
    copied_slots: np.ndarray  # SLOT[C] or [(M + 1) * C]
    copied_phases: np.ndarray  # int32[block_size] or [(M + 1) * block_size]
    copied_requests: np.ndarray  # REQUEST: those that a what-if writes over, and those of snapshots
    links: (
        np.ndarray
    )  # int64[4, LINK_WORDS]: descriptors of the arrays of Core, Centre, Copies, a what-if's Core


LINK_WORDS = 160  # seven a one-dimensional array, nine a matrix


class Core(NamedTuple):
    """The part of a State that instances are made of: fields as there.

    Kernels hand each other its address (calls.PartAt) and reach the rest through `centre` and `copies`.
    """

    shared: np.ndarray
    engines: np.ndarray
    instances: np.ndarray
    requests: np.ndarray
    slots: np.ndarray
    phases: np.ndarray
    views: np.ndarray
    params: np.ndarray
    memory: np.ndarray
    streams: np.ndarray
    policies: np.ndarray
    tiers: np.ndarray


class Centre(NamedTuple):
    """The part of a State that stands above the instances: gateway, moves, scaling, faults, clients."""

    gateway: np.ndarray
    queues: np.ndarray
    control: np.ndarray
    moves: np.ndarray
    ordered: np.ndarray
    ledger: np.ndarray
    faults: np.ndarray
    timers: np.ndarray
    timeouts_ps: np.ndarray
    tally: np.ndarray
    tariffs: np.ndarray
    outlooks: np.ndarray
    waits: np.ndarray
    first_to_move: np.ndarray


class Copies(NamedTuple):
    """The part of a State that a what-if plays with: the fields copied_..."""

    shared: np.ndarray
    instances: np.ndarray
    slots: np.ndarray
    phases: np.ndarray
    requests: np.ndarray


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
