"""How long a request takes alone on an idle instance, and so how much slower others made it.

slowdown = E2E / unloaded E2E: exactly 1 for a request that met nobody. Unloaded: prefill in chunks
of the budget (at once in vllm-v0, in static after batch_wait_s), then output_tokens - 1 decodes.
"""

from servegym.simulator.iteration_time import iteration_ps, stretch_ps
from servegym.simulator.kernel import kernel
from servegym.simulator.state import FINISHED, SARATHI, STATIC, VLLM_V1


@kernel
def unloaded_ps(engine, prompt_tokens, output_tokens):
    """Return the E2E (int64 ps) of a lone request on an instance with that configuration."""
    is_chunked = engine.kind == VLLM_V1 or engine.kind == SARATHI
    budget = engine.max_num_batched_tokens if is_chunked else prompt_tokens
    duration = engine.batch_wait_ps if engine.kind == STATIC and engine.batch_size > 1 else 0
    computed = 0
    while computed < prompt_tokens:
        chunk = min(prompt_tokens - computed, budget)
        duration += iteration_ps(engine, chunk, chunk * (2 * computed + chunk + 1), 0, 0)
        computed += chunk
    first = iteration_ps(engine, 0, 0, 1, prompt_tokens + 1)
    return duration + stretch_ps(first, engine.kv_ps, output_tokens - 1)


@kernel
def slowdown(engine, request):
    """Return E2E / unloaded E2E of a finished request."""
    alone = unloaded_ps(engine, request.prompt_tokens, request.output_tokens)
    return (request.finish_ps - request.arrival_ps) / alone


@kernel
def sum_slowdowns(requests, instances, engines, tenants, sums, counts):
    """Add every finished request's slowdown to sums[tenant] and 1 to counts[tenant] (mutates both).

    tenants: int16[n], one a request. sums: float64, counts: int64, one a tenant.
    """
    for r in range(requests.shape[0]):
        request = requests[r]
        if request.status != FINISHED:
            continue
        sums[tenants[r]] += slowdown(engines[instances[request.instance].own_engine], request)
        counts[tenants[r]] += 1
