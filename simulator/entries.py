"""The engine's entries, called by address from policies and from Python: each compiled once, linked into nothing."""

from functools import lru_cache

from numba import int64

from servegym.simulator import views
from servegym.simulator.calls import (
    CATCH_UP,
    CLUSTER,
    PLAY,
    REQUEST,
    RUN,
    WHAT_IF,
    copies,
    python_address,
    state_at,
)
from servegym.simulator.event_loop import run
from servegym.simulator.instants import play
from servegym.simulator.iteration import advance
from servegym.simulator.kernel import IS_JIT_DISABLED, compile_entry
from servegym.simulator.refresh import last_refresh_ps, store_observed
from servegym.simulator.state import BLOCKS, NEVER
from servegym.simulator.stretch import split_at_read
from servegym.simulator.what_if import what_if
from servegym.simulator.what_if_snapshot import last_snapshot_ps, store_snapshot


def catch_up(state_pointer, i, until_ps, depth):
    """Bring instance i to until_ps, storing metrics and snapshot if it passes one; depth BLOCKS: its blocks, too."""
    state = state_at(state_pointer)
    shared, instance = state.shared[0], state.instances[i]
    is_stale = shared.metrics_interval_ps > 0 and until_ps < NEVER
    is_aged = shared.snapshot_interval_ps > 0 and until_ps < NEVER
    seen_ps = until_ps - shared.is_early  # refreshes come after faults, moves and cancellations
    refresh_ps = last_refresh_ps(shared, instance, seen_ps) if is_stale else -1
    snapshot_ps = last_snapshot_ps(shared, seen_ps) if is_aged else -1
    while True:
        is_refresh = is_stale and instance.seen_ps < refresh_ps
        is_snapshot = is_aged and copies(state).instances[i].seen_ps < snapshot_ps
        next_ps = until_ps
        if is_refresh:
            next_ps = refresh_ps
        if is_snapshot:
            next_ps = min(next_ps, snapshot_ps)
        advance(state, i, next_ps)
        if not (is_refresh or is_snapshot):
            break
        split_at_read(state, i, instance, next_ps)
        if is_refresh and next_ps == refresh_ps:
            store_observed(state, i, refresh_ps)
        if is_snapshot and next_ps == snapshot_ps:
            store_snapshot(state, i, snapshot_ps)
    if depth == BLOCKS:
        split_at_read(state, i, instance, until_ps)
    return 0


# Compiled with the engine, so that a new policy compiles itself alone; rarer accessors compile with the first policy
# that uses them.
ACCESSORS = {
    (CLUSTER,): (views.n_instances, views.now_s, views.n_tiers),
    (CLUSTER, int64): (
        views.n_waiting,
        views.n_running,
        views.used_blocks,
        views.free_blocks,
        views.kv_blocks,
        views.waiting_blocks,
        views.held_tokens,
        views.head_blocks,
    ),
    (CLUSTER, int64, int64): (views.tier_count,),
    (CLUSTER, REQUEST, int64): (views.is_accepting,),
    (REQUEST,): (
        views.prompt_tokens,
        views.predicted_tokens,
        views.output_tokens,
        views.tier,
        views.arrival_s,
    ),
}


@lru_cache(maxsize=1)
def _compiled():
    entry = compile_entry(catch_up, CATCH_UP)
    if entry.cache_hits == 0:
        for types, accessors in ACCESSORS.items():
            for accessor in accessors:
                accessor.compile(types)
    return entry


def catch_up_address() -> int:
    """Return the address of `catch_up` in this process (compiles on first use)."""
    return python_address(catch_up) if IS_JIT_DISABLED else _compiled().address


@lru_cache(maxsize=1)
def _compiled_run():
    return compile_entry(run, RUN)


def run_address() -> int:
    """Return the address of `run` in this process (compiles on first use)."""
    return python_address(run) if IS_JIT_DISABLED else _compiled_run().address


@lru_cache(maxsize=1)
def _compiled_play():
    return compile_entry(play, PLAY)


def play_address() -> int:
    """Return the address of `play` in this process (compiles on first use, apart from the rest)."""
    return python_address(play) if IS_JIT_DISABLED else _compiled_play().address


@lru_cache(maxsize=1)
def _compiled_what_if():
    return compile_entry(what_if, WHAT_IF)


def what_if_address() -> int:
    """Return the address of `what_if` in this process (compiles on first use, apart from the rest)."""
    return python_address(what_if) if IS_JIT_DISABLED else _compiled_what_if().address
