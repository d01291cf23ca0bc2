"""SLO shedding: reject a request whose predicted TTFT is beyond its tier's limit.

    predicted TTFT = (W / n + w + prompt) / prefill_tokens_per_s
    limit = ttft_s * (1 + tier)

w: prompt tokens that wait at the instance where the fewest do (whole blocks); W: those that wait at the gateway in
queues as urgent or more (queue_by = "tier"), each taken as mean_prompt_tokens; n: instances. prefill_tokens_per_s
is the rate at which an instance takes prompts in while it decodes: set it to what the profile sustains.
Source: deadline-based load shedding; the backlog over the service rate. Left out: waits for a seat or for KV
blocks, which depend on outputs.
"""

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, admission_policy
from servegym.simulator.views import (
    ACCEPT,
    REJECT,
    block_size,
    is_active,
    n_instances,
    n_queues,
    prompt_tokens,
    queue_length,
    tier,
    waiting_blocks,
)

TTFT_S, RATE, MEAN_PROMPT = 0, 1, 2


def mean_prompt_tokens(trace):
    """Return the trace's mean prompt tokens (1 for an empty trace)."""
    return float(trace.prompt_tokens.mean()) if len(trace) else 1.0


@kernel
def fewest_waiting_tokens(cluster):
    """Return the prompt tokens that wait at the active instance where the fewest do, and how many are active."""
    fewest, n_active = 0, 0
    for i in range(n_instances(cluster)):
        if is_active(cluster, i):
            tokens = waiting_blocks(cluster, i) * block_size(cluster)
            fewest = tokens if n_active == 0 else min(fewest, tokens)
            n_active += 1
    return fewest, n_active


@admission_policy(
    source="load shedding by predicted TTFT: prompt backlog over prefill rate",
    params=(
        Param("ttft_s", 1.0, "s", 0, 1e6),
        Param("prefill_tokens_per_s", 5000, "tokens/s", 1, 1e9),
        Param("mean_prompt_tokens", mean_prompt_tokens, "tokens", 1, 2**30),
    ),
)
def slo_shed(cluster, request, params, memory, rng):
    """Accept a request that will see its first token in time, by the backlog of prompts before it."""
    n_ahead = 0
    for q in range(min(n_queues(cluster), tier(request) + 1)):
        n_ahead += queue_length(cluster, q)
    here, n_active = fewest_waiting_tokens(cluster)
    backlog = here + n_ahead * params[MEAN_PROMPT] / max(n_active, 1) + prompt_tokens(request)
    limit_s = params[TTFT_S] * (1.0 + tier(request))
    return ACCEPT if backlog / params[RATE] <= limit_s else REJECT
