"""How long an iteration takes, in whole picoseconds.

t = calibration * (c0 + c_token*T + c_above_knee*max(0, T - knee) + [B>0]*(c_decode_step + c_seq*B)
    + [P>0]*(c_prefill_step + c_prefill_attention*PA)) + host_overhead, rounded once, plus kv_ps * KV.
Source: fits in profiles.csv; docs/engine.md section 1 fixes the order of the additions.
"""

import math

import numpy as np

from servegym.simulator.kernel import kernel
from servegym.simulator.state import LATEST_PS

EXACT_BELOW = 2.0**51
SHIFTER = 1.5 * 2.0**52


@kernel
def iteration_ps(engine, prefill_tokens, twice_attention, n_decodes, kv_tokens):
    """Return the duration (int64 ps) of an iteration; `twice_attention` is 2 * PA, an integer."""
    tokens = prefill_tokens + n_decodes
    inner_ms = engine.c0_ms + engine.c_token_ms * tokens
    inner_ms += engine.c_above_knee_ms * max(0, tokens - engine.knee_tokens)
    if n_decodes > 0:
        inner_ms += engine.c_decode_step_ms + engine.c_seq_ms * n_decodes
    if prefill_tokens > 0:
        inner_ms += engine.c_prefill_step_ms + engine.c_prefill_attention_ms * (twice_attention / 2)
    rest_ms = engine.calibration * inner_ms + engine.host_overhead_ms
    rest_ps = rest_ms * 1e9
    if engine.slow_factor != 1.0:
        rest_ps = round_half_even(rest_ps) * engine.slow_factor
    kv_ps = engine.kv_ps * float(kv_tokens)
    if rest_ps + kv_ps > LATEST_PS:
        return LATEST_PS + 1  # too long for int64: whoever starts it stops the run
    return int(round_half_even(rest_ps)) + engine.kv_ps * kv_tokens


@kernel
def round_half_even(value):
    """Return the nearest whole float to value >= 0, ties to even (numpy.rint).

    Adding 1.5 * 2**52 leaves no bits for the fraction of values below 2**51; those from 2**52 on are whole.
    """
    if value < EXACT_BELOW:
        return (value + SHIFTER) - SHIFTER
    return np.rint(value)


@kernel
def iterations_until(first_ps, step_ps, span_ps):
    """Return the least k >= 1 such that k iterations of first, first + step, ... last at least span_ps.

    k*first + step*k*(k-1)/2 >= span: solved in float64, corrected by whole steps in integers.
    """
    if span_ps <= first_ps:
        return 1
    if step_ps == 0:
        return (span_ps + first_ps - 1) // first_ps
    half = first_ps - 0.5 * step_ps
    k = int(2.0 * span_ps / (half + math.sqrt(half * half + 2.0 * step_ps * span_ps)))
    k = max(k, 1)
    while k > 1 and stretch_ps(first_ps, step_ps, k - 1) >= span_ps:
        k -= 1
    while stretch_ps(first_ps, step_ps, k) < span_ps:
        k += 1
    return k


@kernel
def stretch_ps(first_ps, step_ps, k):
    """Return the length of k iterations of first, first + step, first + 2*step, ... (int64 ps)."""
    return k * first_ps + step_ps * (k * (k - 1) // 2)
