"""Linear serving: a score of every pair of a queue's head and an instance; the least goes next, unless waiting is less.

    score_qi = sum_k h_qk * a[k] + sum_j x_qij * (b[j] + b[F + j] * urgency)

h_q: HEAD_TERMS of the queue; x_qi: PAIR_TERMS, F of them; urgency: 2^-tier of the head. Pairs count that are legal: the
queue has a head, and the instance accepts it. Waiting scores a constant, c. The head's part is the same for all
instances, the rest does not depend on the queue; so the queue policy (joint least) and the dispatch policy (least of
a head's instances) agree by construction. Waiting is for whoever has something to wait for: where every instance is
empty, the best pair goes, so that runs drain.
All terms are bounded, so that what is fitted holds in longer queues. params: a, b, c. Source: this project.
Left out: TPOT has no term of its own; deadlines are those of the default SLO.
"""

import numpy as np

from servegym.baselines.features import PER_INSTANCE, PER_REQUEST, clipped
from servegym.simulator.kernel import kernel
from servegym.simulator.outlook_views import (
    decode_ms,
    outlook_of,
    prefill_s,
    waiting_prefill_tokens,
)
from servegym.simulator.slo import DEFAULT_SLO
from servegym.simulator.views import (
    HOLD,
    arrival_s,
    block_size,
    is_accepting,
    known_blocks_of,
    kv_blocks,
    max_num_seqs,
    n_instances,
    n_queues,
    n_running,
    n_waiting,
    now_s,
    prompt_tokens,
    queue_head,
    queue_length,
    tier,
    used_blocks,
    waiting_blocks,
)

TTFT_S = DEFAULT_SLO.ttft_s
HEAD_TERMS = (
    "tier_0",  # truth values, as far as they go
    "tier_1",
    "tier_2",
    "tier_3",  # or more
    "elapsed",  # waited / the tier's limit on TTFT, at most 1
    "late",  # whether that is over
    "overdue",  # the share of the wait that is beyond the limit
    "urgency_elapsed",  # products
    "urgency_late",
    "prompt",  # as in features.py, as is all that has a feature's name
    "urgency_prompt",
    "length",  # n / (n + 32) of n requests in the queue
    "urgency_length",
    "late_length",
)
PAIR_TERMS = (
    "running",
    "kv_with_request",
    "kv_full",  # kv_with_request from .75 to 1, as 0 to 1
    "kv_at_ends",
    "ends_full",  # the same of kv_at_ends
    "iteration",
    "first_token",  # in how long it would come, by prefill alone / the tier's limit on TTFT; at most 2
    "misses",  # whether it would come after the limit
)
N_HEAD, N_PAIR = len(HEAD_TERMS), len(PAIR_TERMS)
OF_PAIR = N_HEAD  # where b begins
WAIT = OF_PAIR + 2 * N_PAIR
N_WEIGHTS = WAIT + 1
N_TIERS = 4  # that have a term of their own
NEARLY_FULL = 0.75  # of the KV
HALF_LENGTH = 32.0  # requests of a queue that count half as much as very many
MOST_SOON = 2.0
RUNNING, KV_AT_ENDS, ITERATION, KV_WITH_REQUEST = 0, 7, 11, 15  # in the row of an instance


def pack(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """Return the weights as the functions read them, float64: head, both rows of pair, wait."""
    parts = [tensors[name].ravel() for name in ("head", "pair", "wait")]
    return np.concatenate(parts).astype(np.float64)


def unpack(weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors that weights of this length are, float32."""
    head, pair, wait = np.split(weights.astype(np.float32), [OF_PAIR, WAIT])
    return {"head": head, "pair": pair.reshape(2, N_PAIR), "wait": wait}


def size(weights: np.ndarray) -> int:
    """Return how many numbers packed weights are."""
    return N_WEIGHTS


def memory_size(weights: np.ndarray, config: object) -> int:
    """Return the floats of memory that a decision needs."""
    return 0


@kernel
def urgency_of(request):
    """Return what a request weighs: 2^-tier."""
    return 0.5 ** tier(request)


@kernel
def limit_s(request):
    """Return the limit on the request's TTFT, s."""
    return TTFT_S * (1.0 + tier(request))


@kernel
def head_score(cluster, q, head, a):
    """Return the part of the score of queue q, whose first one is `head`; a: N_HEAD weights and more."""
    share = max(0.0, (now_s(cluster) - arrival_s(head)) / limit_s(head))
    urgency = urgency_of(head)
    late, elapsed = 1.0 if share >= 1.0 else 0.0, min(share, 1.0)
    prompt = clipped(prompt_tokens(head) * PER_REQUEST[1])
    n = queue_length(cluster, q)
    length = n / (n + HALF_LENGTH)
    score = a[min(tier(head), N_TIERS - 1)]
    score += elapsed * (a[4] + urgency * a[7])
    score += late * (a[5] + urgency * a[8] + length * a[13])
    score += (1.0 - 1.0 / max(share, 1.0)) * a[6]
    return score + prompt * (a[9] + urgency * a[10]) + length * (a[11] + urgency * a[12])


@kernel
def weight_of(params, j, urgency):
    """Return what a pair's term weighs for a head of that urgency."""
    return params[OF_PAIR + j] + urgency * params[OF_PAIR + N_PAIR + j]


@kernel
def pair_score(cluster, request, i, params):
    """Return the rest of the score of a request on instance i, which accepts it."""
    urgency, used = urgency_of(request), used_blocks(cluster, i)
    outlook, share = outlook_of(cluster, i), 1.0 / kv_blocks(cluster, i)
    ms = decode_ms(cluster, i, outlook)
    taken = used + waiting_blocks(cluster, i) + known_blocks_of(cluster, request)
    at_ends = outlook.end_tokens * share / block_size(cluster)
    seated = n_running(cluster, i) / max_num_seqs(cluster, i)
    score = clipped(seated * PER_INSTANCE[RUNNING]) * weight_of(params, 0, urgency)
    score += clipped(taken * share * PER_INSTANCE[KV_WITH_REQUEST]) * weight_of(params, 1, urgency)
    score += above(taken * share) * weight_of(params, 2, urgency)
    score += clipped(at_ends * PER_INSTANCE[KV_AT_ENDS]) * weight_of(params, 3, urgency)
    score += above(at_ends) * weight_of(params, 4, urgency)
    score += clipped(ms * PER_INSTANCE[ITERATION]) * weight_of(params, 5, urgency)
    tokens = outlook.prefill_tokens + waiting_prefill_tokens(cluster, i) + prompt_tokens(request)
    soon_s, limit = first_token_s(cluster, i, tokens, ms), limit_s(request)
    score += min(soon_s / limit, MOST_SOON) * weight_of(params, 6, urgency)
    if now_s(cluster) - arrival_s(request) + soon_s > limit:
        score += weight_of(params, 7, urgency)
    return score


@kernel
def above(share):
    """Return how far a share of the KV is above NEARLY_FULL, as a share of the rest; at least 0."""
    return clipped((share - NEARLY_FULL) / (1.0 - NEARLY_FULL))


@kernel
def first_token_s(cluster, i, tokens, ms):
    """Return in how long so many tokens are prefilled at instance i, s.

    In whole iterations, in which the running decode as well, which takes ms.
    """
    budget = cluster.engines[cluster.instances[i].engine].max_num_batched_tokens
    return prefill_s(cluster, i, tokens) + np.ceil(tokens / budget) * ms * 1e-3


@kernel
def best_instance(cluster, request, params):
    """Return the accepting instance with the least score for a request, HOLD if none accepts, and that score."""
    chosen, least = HOLD, 0.0
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        score = pair_score(cluster, request, i, params)
        if chosen == HOLD or score < least:
            chosen, least = i, score
    return chosen, least


@kernel
def has_work(cluster):
    """Return whether any instance has requests, as the router sees it."""
    for i in range(n_instances(cluster)):
        if n_running(cluster, i) + n_waiting(cluster, i) > 0:
            return True
    return False


def learned_serve_dispatch(cluster, request, params, memory, rng):
    """Return the accepting instance with the least score for the request, HOLD if none accepts."""
    chosen, _ = best_instance(cluster, request, params)
    return chosen


def learned_serve_queue(cluster, params, memory, rng):
    """Return the queue of the pair with the least score; HOLD if there is none, or if waiting scores less."""
    chosen, least = HOLD, 0.0
    for q in range(n_queues(cluster)):
        if queue_length(cluster, q) == 0:
            continue
        head = queue_head(cluster, q)
        i, score = best_instance(cluster, head, params)
        if i == HOLD:
            continue
        score += head_score(cluster, q, head, params)
        if chosen == HOLD or score < least:
            chosen, least = q, score
    if chosen != HOLD and params[WAIT] < least and has_work(cluster):
        return HOLD
    return chosen
