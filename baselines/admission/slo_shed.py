"""SLO shedding: reject a request whose predicted TTFT is beyond its tier's limit on every active instance.

    predicted TTFT = A + slack * (w + W / n) / R
    limit = ttft_s * (1 + tier)

A: the prompt's prefill alone on the instance, in iterations of the token budget (static: in one), so the TTFT itself
where nothing waits. w: tokens left to prefill there, of what waits and of what runs; W: those of the gateway's queues
that are as urgent or more (of all queues unless queue_by = "tier"); n: active instances. R, tokens/s: the rate at
which a loaded instance takes prompts in while it decodes, prefill_tokens_per_s, or where that is 0, for mean lengths
P and O of prompt and output,

    R = (b P / O) / t     b = min(seats, KV tokens / (P + O / 2), budget * O / (P + O))

with t the time of an iteration of b decodes, each with P + O / 2 tokens in KV, and b P / O tokens of prompts: each of b
requests is replaced once in O iterations. slack > 1 keeps a margin: at 1 the backlog of an overload settles where
predictions meet the limit, and half of what is let in misses it.
Source: deadline-based load shedding; the backlog over the service rate. Left out: waits for a seat or for KV blocks
beyond what b says, the order of an instance's queue, whether the instance could ever hold the request.
"""

from servegym.baselines.readings import is_queued_by_tier
from servegym.simulator.iteration_time import iteration_ps
from servegym.simulator.kernel import kernel
from servegym.simulator.outlook_views import (
    prefill_tokens_left,
    queue_prefill_tokens,
    waiting_prefill_tokens,
)
from servegym.simulator.policy import Param, admission_policy
from servegym.simulator.state import STATIC
from servegym.simulator.views import (
    ACCEPT,
    REJECT,
    block_size,
    is_active,
    kv_blocks,
    max_num_seqs,
    n_instances,
    n_queues,
    prompt_tokens,
    tier,
)

TTFT_S, SLACK, RATE, MEAN_PROMPT, MEAN_OUTPUT = range(5)


def mean_prompt_tokens(trace):
    """Return the trace's mean prompt tokens (1 for an empty trace)."""
    return float(trace.prompt_tokens.mean()) if len(trace) else 1.0


def mean_output_tokens(trace):
    """Return the trace's mean output tokens (1 for an empty trace)."""
    return float(trace.output_tokens.mean()) if len(trace) else 1.0


@kernel
def alone_s(cluster, i, prompt):
    """Return in how many seconds an idle instance i prefills a prompt: A."""
    engine = cluster.engines[cluster.instances[i].engine]
    budget = prompt if engine.kind == STATIC else engine.max_num_batched_tokens
    n_before = (prompt - 1) // budget
    last = prompt - n_before * budget
    # All attention in the last iteration: its time is linear in it, and the sum over chunks is that of the prompt.
    ps = iteration_ps(engine, last, prompt * (prompt + 1), 0, 0)
    return (ps + n_before * iteration_ps(engine, budget, 0, 0, 0)) / 1e12


@kernel
def loaded_rate(cluster, i, prompt, output):
    """Return the tokens/s at which a loaded instance i takes in prompts, for mean lengths: R."""
    engine = cluster.engines[cluster.instances[i].engine]
    kv_tokens = kv_blocks(cluster, i) * block_size(cluster)
    b = min(float(max_num_seqs(cluster, i)), kv_tokens / (prompt + output / 2))
    b = min(b, engine.max_num_batched_tokens * output / (prompt + output))
    tokens, kv = b * prompt / output, b * (prompt + output / 2)
    return tokens / (iteration_ps(engine, tokens, tokens * (prompt + 1), b, round(kv)) / 1e12)


@kernel
def tokens_ahead(cluster, request):
    """Return the tokens to prefill of the gateway's queues that are as urgent as the request or more: W."""
    n, tokens = n_queues(cluster), 0
    if is_queued_by_tier(cluster):
        n = min(n, tier(request) + 1)
    for q in range(n):
        tokens += queue_prefill_tokens(cluster, q)
    return tokens


@kernel
def n_active_instances(cluster):
    """Return the number of active instances: n."""
    n = 0
    for i in range(n_instances(cluster)):
        n += is_active(cluster, i)
    return n


@admission_policy(
    source="load shedding by predicted TTFT: prompt backlog over prefill rate",
    params=(
        Param("ttft_s", 1.0, "s", 0, 1e6),
        Param("slack", 2.0, "times", 0, 1e3),
        Param("prefill_tokens_per_s", 0, "tokens/s (0: R)", 0, 1e9),
        Param("mean_prompt_tokens", mean_prompt_tokens, "tokens", 1, 2**30),
        Param("mean_output_tokens", mean_output_tokens, "tokens", 1, 2**30),
    ),
)
def slo_shed(cluster, request, params, memory, rng):
    """Accept a request that will see its first token in time, by the backlog of prompts before it."""
    limit_s = params[TTFT_S] * (1.0 + tier(request))
    share = tokens_ahead(cluster, request) / max(1, n_active_instances(cluster))
    for i in range(n_instances(cluster)):
        if not is_active(cluster, i):
            continue
        backlog = waiting_prefill_tokens(cluster, i) + prefill_tokens_left(cluster, i) + share
        rate = params[RATE]
        if rate == 0:
            rate = loaded_rate(cluster, i, params[MEAN_PROMPT], params[MEAN_OUTPUT])
        predicted_s = alone_s(cluster, i, prompt_tokens(request))
        if predicted_s + params[SLACK] * backlog / rate <= limit_s:
            return ACCEPT
    return REJECT
