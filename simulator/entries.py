"""The engine function that accessors inside policies call by address: compiled once, linked into no policy."""

from functools import lru_cache

from servegym.simulator.calls import CATCH_UP, python_address, state_at
from servegym.simulator.iteration import advance
from servegym.simulator.kernel import IS_JIT_DISABLED, compile_entry
from servegym.simulator.observation import store_observed
from servegym.simulator.state import BLOCKS, NEVER
from servegym.simulator.stretch import split_at_read


def catch_up(state_pointer, i, until_ps, depth):
    """Bring instance i to until_ps, storing its metrics if it passes a refresh; depth BLOCKS: its blocks, too."""
    state = state_at(state_pointer)
    instance, interval_ps = state.instances[i], state.shared[0].metrics_interval_ps
    refresh_ps = (
        until_ps // interval_ps * interval_ps if interval_ps > 0 and until_ps < NEVER else -1
    )
    while True:
        is_due = instance.seen_ps < refresh_ps
        advance(state, i, refresh_ps if is_due else until_ps)
        if not is_due:
            break
        split_at_read(state, i, instance, refresh_ps)
        store_observed(state, i, refresh_ps)
    if depth == BLOCKS:
        split_at_read(state, i, instance, until_ps)
    return 0


@lru_cache(maxsize=1)
def _compiled():
    return compile_entry(catch_up, CATCH_UP)


def catch_up_address() -> int:
    """Return the address of `catch_up` in this process (compiles on first use)."""
    return python_address(catch_up) if IS_JIT_DISABLED else _compiled().address
