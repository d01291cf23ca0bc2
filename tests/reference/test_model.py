"""The time of one iteration by hand: every term of docs/engine.md section 1, and its rounding."""

from reference.model import IterationTime


def test_iteration_time_adds_every_term_once():
    time = IterationTime(
        c0=1.0,
        c_token=0.5,
        c_above_knee=0.25,
        knee=10,
        c_decode_step=2.0,
        c_seq=0.125,
        c_kv=0.001,
        c_prefill_step=4.0,
        c_prefill_attention=0.01,
        calibration=2.0,
        host_overhead_ms=3.0,
    )
    # T = 12 + 2; PA = 4 * 2.5 + 8 * (8 + 4.5) = 110
    # 1 + 7 + 0.25 * 4 + (2 + 0.25) + (4 + 1.1) = 16.35; * 2 + 3 = 35.7 ms; KV: 30 * 2 us = 0.06 ms
    assert time.duration_ps(12, 2, 30, [(0, 4), (8, 8)]) == 35_760_000_000
    # nothing decodes: 1 + 6 + 0.5 + 5.1 = 12.6; * 2 + 3 = 28.2 ms
    assert time.duration_ps(12, 0, 0, [(0, 4), (8, 8)]) == 28_200_000_000
    # nothing is prefilled: 1 + 1 + 2.25 = 4.25; * 2 + 3 = 11.5 ms
    assert time.duration_ps(0, 2, 30, []) == 11_560_000_000


def test_kv_coefficient_is_rounded_to_ps_before_it_is_multiplied():
    time = IterationTime(c0=0.0, c_kv=1.4e-9)  # 1.4 ps a token: 1 ps each, not 14 ps for ten
    assert time.duration_ps(0, 1, 10, []) == 10


def test_half_a_picosecond_rounds_to_even():
    halves = {k: IterationTime(c0=k / 2 / 1e9).duration_ps(1, 0, 0, [(0, 1)]) for k in (1, 3, 5)}
    assert halves == {1: 0, 3: 2, 5: 2}
