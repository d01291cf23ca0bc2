"""Scaling by freeness: add an instance when the mean is below a band, drain one when it is above.

Mean over active instances of the signal, below `low` add, above `high` drain, at most once in `cooldown_s`.
signal = 0: F without headroom (headroom = 1: with). Source: Beyond Binary Priorities, band [-.5, 1.5], every 1 s, 10 s
between changes. signal = 1: Llumnix's freeness, free above the watermark less the blocks of all waiting requests, over
running + waiting. Source: Llumnix (OSDI '24): freeness:signal=1,low=10,high=60 every 10 s.

The defaults are the first paper's, for 128 blocks and 64 seats. F counts the first waiting request only, so a full
instance has about -(blocks of a prompt) / running at the least, and where seats are many or blocks are plenty it stays
above -.5 however long the queue: such a fleet shrinks and never grows back. low=150,high=800 suits the default fleet.
Llumnix's signal falls with the whole queue.

An idle instance counts as if it had one request: F = M, or what is free above the watermark where Llumnix's is
infinite. That is far above any band, so one of them lifts the mean of an otherwise full fleet over it, and the fleet
stays near the least that is not overfull. Without traffic it shrinks to min_instances, which the engine keeps, and
stays there. An order to drain that changed nothing starts no cool-down: the next burst is not kept waiting.
Whether it did is seen from how many instances drain or are absent: a crash makes nobody absent.
"""

import math

from servegym.baselines.freeness import available_blocks, freeness, remaining_steps
from servegym.baselines.headroom import (
    FRACTIONS,
    N_HEADROOM_PARAMS,
    headroom_memory,
    headroom_params,
    prepare_headroom,
)
from servegym.baselines.readings import is_given_up
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, scaling_policy
from servegym.simulator.views import is_active, n_instances, n_tiers, now_s

SIGNAL, LOW, HIGH, COOLDOWN = range(N_HEADROOM_PARAMS, N_HEADROOM_PARAMS + 4)
N_TIER, LLUMNIX = 0, 1  # signals
ADD, KEEP, DRAIN = 1, 0, -1
ORDER, ORDERED_S, N_GIVEN_UP = 0, 1, 2  # in memory, behind the table of headroom


@scaling_policy(
    name="freeness",
    source="Beyond Binary Priorities, Llumnix (band on mean freeness)",
    params=(
        *headroom_params(0),
        Param("signal", N_TIER, "0 n-tier, 1 llumnix", 0, 1, is_whole=True),
        Param("low", -0.5, "blocks a request", -1e9, 1e9, at_most="high"),
        Param("high", 1.5, "blocks a request", -1e9, 1e9),
        Param("cooldown_s", 10, "s", 0, 1e6),
    ),
    # the last order, when, instances that drained or were absent then
    memory=lambda config: headroom_memory(config) + 3,
)
def freeness_band(cluster, params, memory, rng):
    """Return +1 below the band or without any active instance, -1 above it, else 0."""
    prepare_headroom(cluster, params, memory)
    last = FRACTIONS + n_tiers(cluster)
    n_given_up = given_up(cluster)
    has_changed = memory[last + ORDER] == ADD or (
        memory[last + ORDER] == DRAIN and n_given_up > memory[last + N_GIVEN_UP]
    )
    if has_changed and now_s(cluster) - memory[last + ORDERED_S] < params[COOLDOWN]:
        return KEEP
    n_active, total = active_freeness(cluster, params[SIGNAL], memory)
    order = band_order(n_active, total, params[LOW], params[HIGH])
    memory[last + ORDER], memory[last + ORDERED_S] = order, now_s(cluster)
    memory[last + N_GIVEN_UP] = n_given_up
    return order


@kernel
def given_up(cluster):
    """Return the number of instances that drain or are absent."""
    n = 0
    for i in range(n_instances(cluster)):
        n += is_given_up(cluster, i)
    return n


@kernel
def llumnix_freeness(cluster, i):
    """Return Llumnix's freeness of instance i, blocks a request; an idle one counts as if it had one."""
    steps = remaining_steps(cluster, i, 0)
    return steps if math.isfinite(steps) else float(available_blocks(cluster, i))


@kernel
def active_freeness(cluster, signal, memory):
    """Return the number of active instances and the sum of their signals."""
    n_active, total = 0, 0.0
    for i in range(n_instances(cluster)):
        if is_active(cluster, i):
            n_active += 1
            if signal == LLUMNIX:
                total += llumnix_freeness(cluster, i)
            else:
                total += freeness(cluster, i, memory)
    return n_active, total


@kernel
def band_order(n_active, total, low, high):
    """Return the order for a mean of total / n_active."""
    if n_active == 0 or total < low * n_active:
        return ADD
    return DRAIN if total > high * n_active else KEEP


def least_mean_freeness(config, trace):
    """Return F without headroom, blocks a request, of the least free instance when full, at the trace's mean lengths.

    With M blocks of s tokens, S seats, P and O mean prompt and output tokens: a request that runs has
    b = (P + O / 2) / s blocks, n = min(S, M / b) >= 1 run, one that waits needs P / s: F = (M - n b - P / s) / n.
    """
    prompt, output = float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean())
    least = math.inf
    for row in config.fleet_profiles:
        blocks = config.kv_blocks_of(row)
        need = (prompt + output / 2) / config.block_size
        n = max(1.0, min(config.seats, blocks / need))
        least = min(least, (blocks - n * need - prompt / config.block_size) / n)
    return least
