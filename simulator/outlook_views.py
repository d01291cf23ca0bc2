"""What a policy may see of the work that waits and runs: accessors beside those of views.py, by predicted lengths.

As there, with metrics_interval_s > 0 a router sees the last refresh plus its own placements since. Refreshes store
these values only for whoever asks (Simulation's keeps_outlook; a policy that uses one of these accessors has it set).
Rates: an iteration lasts as long as one of those that decode now, without prefill. Source: docs/engine.md section 9.
"""

from servegym.simulator.calls import centre_at, state_at
from servegym.simulator.iteration_time import iteration_ps
from servegym.simulator.kernel import kernel
from servegym.simulator.outlook import (
    Outlook,
    freed_blocks_at,
    iterations_ended,
    iterations_to_free,
    outlook_at,
)
from servegym.simulator.state import NEEDS_OUTLOOK
from servegym.simulator.views import (
    checked,
    counted,
    free_blocks,
    measured,
    observed,
)


@kernel
def outlook_of(cluster, i):
    """Return what the running requests of instance i are predicted to need, an Outlook (outlook.py) of integers.

    For whoever wants several of its values; the accessors below give one each.
    """
    i, shared = checked(cluster, i), cluster.shared[0]
    if shared.metrics_interval_ps > 0:
        seen = centre_at(shared.centre_pointer).outlooks[_observed(cluster, i)]
        return Outlook(
            seen.seen_prefilling,
            seen.seen_prefill_tokens,
            seen.seen_tokens_left,
            seen.seen_end_tokens,
            seen.seen_work,
            seen.seen_next_left,
            seen.seen_decoding,
            seen.seen_kv_tokens,
        )
    measured(cluster, i)
    return outlook_at(state_at(shared.state_pointer), i, shared.now_ps)


@kernel
def _observed(cluster, i):
    """Bring instance i's last refresh up to date, return i; an error that stops the run if it stores no outlook."""
    observed(cluster, i)
    if cluster.shared[0].keeps_outlook == 0:
        cluster.shared[0].error = NEEDS_OUTLOOK
    return i


@kernel
def n_prefilling(cluster, i):
    """Return the running requests of instance i whose prefill has not ended."""
    return outlook_of(cluster, i).n_prefilling


@kernel
def prefill_tokens_left(cluster, i):
    """Return the tokens that these have still to compute, those of the iteration in flight included."""
    return outlook_of(cluster, i).prefill_tokens


@kernel
def predicted_tokens_left(cluster, i):
    """Return the output tokens that the running requests of instance i are predicted to have left."""
    return outlook_of(cluster, i).tokens_left


@kernel
def tokens_at_predicted_ends(cluster, i):
    """Return the tokens that the running requests of instance i would have in KV, each at its predicted end."""
    return outlook_of(cluster, i).end_tokens


@kernel
def running_work(cluster, i):
    """Return the KV-token work that the running requests of instance i are predicted to have left."""
    return outlook_of(cluster, i).work


@kernel
def iteration_ms(cluster, i):
    """Return how long an iteration of those that decode on instance i now takes, ms; of nobody if none does."""
    return decode_ms(cluster, i, outlook_of(cluster, i))


@kernel
def decode_ms(cluster, i, outlook):
    """Return iteration_ms for an outlook of instance i at hand."""
    engine = cluster.engines[cluster.instances[checked(cluster, i)].engine]
    return iteration_ps(engine, 0, 0, outlook.n_decoding, outlook.kv_tokens) / 1e9


@kernel
def next_predicted_completion_s(cluster, i):
    """Return in how many seconds the first running request of instance i is predicted to end; 0 if none runs."""
    outlook = outlook_of(cluster, i)
    return outlook.next_left * decode_ms(cluster, i, outlook) / 1e3


@kernel
def time_until_free_s(cluster, i, blocks):
    """Return in how many seconds so many KV blocks of instance i are free, by predicted completions alone.

    0 if they are now. Each completion frees what the request held at the last change of seats; when what runs holds
    too few, the time goes on in proportion, and is infinite if it holds none.
    """
    lacking = blocks - free_blocks(cluster, i)
    if lacking <= 0:
        return 0.0
    return iterations_until_free(cluster, i, lacking) * iteration_ms(cluster, i) / 1e3


@kernel
def iterations_until_free(cluster, i, lacking):
    """Return in how many iterations so many more KV blocks of instance i are free (float)."""
    i, shared = checked(cluster, i), cluster.shared[0]
    if shared.metrics_interval_ps > 0:
        seen = centre_at(shared.centre_pointer).outlooks[_observed(cluster, i)]
        return iterations_to_free(seen.seen_freed, seen.seen_freed_blocks, lacking, seen.seen_since)
    instance = measured(cluster, i)
    kept = freed_blocks_at(state_at(shared.state_pointer), i)
    since = iterations_ended(instance, shared.now_ps) - instance.seats_iteration
    return iterations_to_free(kept.freed, kept.freed_blocks, lacking, since)


@kernel
def waiting_prefill_tokens(cluster, i):
    """Return the tokens that the waiting requests of instance i have to prefill: prompts, and what was streamed."""
    i, shared = checked(cluster, i), cluster.shared[0]
    if shared.metrics_interval_ps > 0:
        view = observed(cluster, _observed(cluster, i))
        seen = centre_at(shared.centre_pointer).outlooks[i].seen_waiting_prefill_tokens
        return seen + cluster.views[view].waiting_prefill_tokens
    return counted(cluster, i).waiting_prefill_tokens


@kernel
def waiting_predicted_tokens(cluster, i):
    """Return the output tokens that the waiting requests of instance i are predicted to have left."""
    i, shared = checked(cluster, i), cluster.shared[0]
    if shared.metrics_interval_ps > 0:
        view = observed(cluster, _observed(cluster, i))
        seen = centre_at(shared.centre_pointer).outlooks[i].seen_waiting_predicted_tokens
        return seen + cluster.views[view].waiting_predicted_tokens
    return counted(cluster, i).waiting_predicted_tokens


@kernel
def waiting_work(cluster, i):
    """Return the KV-token work that the waiting requests of instance i are predicted to need."""
    i, shared = checked(cluster, i), cluster.shared[0]
    if shared.metrics_interval_ps > 0:
        view = observed(cluster, _observed(cluster, i))
        seen = centre_at(shared.centre_pointer).outlooks[i].seen_waiting_work
        return seen + cluster.views[view].waiting_work
    return counted(cluster, i).waiting_work


@kernel
def prefill_s(cluster, i, tokens):
    """Return in how many seconds instance i prefills so many tokens in iterations of its whole budget, alone."""
    engine = cluster.engines[cluster.instances[checked(cluster, i)].engine]
    budget = engine.max_num_batched_tokens
    return tokens / budget * iteration_ps(engine, budget, budget * (budget + 1), 0, 0) / 1e12


@kernel
def queue_prefill_tokens(cluster, q):
    """Return the tokens that the requests of queue q of the gateway have to prefill; 0 for a q that is none."""
    queues = centre_at(cluster.shared[0].centre_pointer).queues
    return queues[q].waiting_prefill_tokens if 0 <= q < queues.shape[0] - 1 else 0


@kernel
def queue_predicted_tokens(cluster, q):
    """Return the output tokens that the requests of queue q of the gateway are predicted to have left."""
    queues = centre_at(cluster.shared[0].centre_pointer).queues
    return queues[q].waiting_predicted_tokens if 0 <= q < queues.shape[0] - 1 else 0
