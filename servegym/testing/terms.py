"""The terms of rewards from the table of requests: what their sums over an episode must be.

    latency    -(end - arrival + penalty)          end: finished, dropped, or the last instant of the episode
    weighted   2^-tier times that
    slo        2^-tier, minus it if the SLO is missed; 0 for who is unfinished and not yet late
    ttft       -(first token - arrival); without a token -(end - arrival + penalty)

Plain sums over rows, against the kernels' running books (simulator/tally.py). Dropped: rejected, failed or cancelled.
"""

import math
from typing import Any

import gymnasium

from servegym.simulator.result import Result
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.slo import DEFAULT_SLO, Slo, tier_weight
from servegym.simulator.state import UNFINISHED
from servegym.testing.playing import Make, Step, play, serving

DROPPED = ("rejected", "failed", "cancelled")
RELATIVE = 1e-9  # of sums of float64
CLOSE_S = 1e-9  # the same, where a sum is near 0


def expected_terms(result: Result, slo: Slo, end_s: float) -> dict[str, float]:
    """Return what each term's sum must be for an episode that ended at end_s (`simulator/slo.py` has the limits)."""
    sums: dict[str, float] = {"latency": 0.0, "weighted_latency": 0.0, "slo": 0.0, "ttft": 0.0}
    for row in result.requests.to_dict("records"):
        weight = tier_weight(row["tier"])
        lost_s = _penalty_s(row, slo, result.config.reject_penalty_s)
        latency_s = _end_s(row, end_s) - row["arrival_s"] + lost_s
        has_token = not math.isnan(row["first_token_s"])
        sums["latency"] -= latency_s
        sums["weighted_latency"] -= weight * latency_s
        sums["ttft"] -= row["first_token_s"] - row["arrival_s"] if has_token else latency_s
        sums["slo"] += weight * _slo_sign(row, slo, end_s)
    return sums


def _end_s(row: dict[str, Any], end_s: float) -> float:
    return end_s if row["status"] == "unfinished" else row["finish_s"]


def _penalty_s(row: dict[str, Any], slo: Slo, reject_penalty_s: float | None) -> float:
    if row["status"] not in DROPPED:
        return 0.0
    if reject_penalty_s is not None:
        return reject_penalty_s
    return (1 + row["tier"]) * (slo.ttft_s + slo.tpot_s * (row["output_tokens"] - 1))


def _slo_sign(row: dict[str, Any], slo: Slo, end_s: float) -> int:
    """Return 1 for an SLO met, -1 for one missed, 0 for one that is still open."""
    factor = 1 + row["tier"]
    if row["status"] in DROPPED:
        return -1
    has_token, n_more = not math.isnan(row["first_token_s"]), row["output_tokens"] - 1
    first_s = row["first_token_s"] if has_token else end_s
    is_late = first_s - row["arrival_s"] > factor * slo.ttft_s
    if has_token and n_more:
        is_late |= (_end_s(row, end_s) - first_s) / n_more > factor * slo.tpot_s
    if is_late:
        return -1
    return 1 if row["status"] == "finished" else 0


def check_sums(make: Make, seed: int, n_steps: int) -> None:
    """Rewards, their terms and the time between decisions add up to what the table of requests says."""
    env = make()
    inner = serving(env)
    played = play(env, seed, n_steps)
    steps, result = played.steps[1:], inner.result()
    elapsed_s = sum(step[4]["elapsed_s"] for step in steps)
    assert all(step[4]["elapsed_s"] >= 0.0 for step in steps), "a negative elapsed_s"
    sums = {name: sum(step[4]["terms"][name] for step in steps) for name in steps[0][4]["terms"]}
    slo = inner.options.slo
    is_ended = inner.batch.is_ended(0)
    expected = expected_terms(result, slo, elapsed_s)
    for name, value in expected.items():
        if name == "slo" and not is_ended:
            continue  # who is late is known at the end
        assert _is_close(sums[name], value), f"sum of {name} = {sums[name]}, by the table {value}"
    if slo == DEFAULT_SLO or inner.options.config.reject_penalty_s is not None:
        total_s = -result.total_latency_s
        assert _is_close(sums["latency"], total_s), (
            f"sum of latency = {sums['latency']}, not {total_s}"
        )
    if env is inner or not _has_reward_wrapper(env):
        paid = sum(step[1] for step in steps)
        asked = sums[inner.options.reward]
        assert _is_close(paid, asked), f"sum of rewards = {paid}, of {inner.options.reward} {asked}"
    _check_end(inner, steps, elapsed_s)


def _check_end(inner: Any, steps: list[Step], elapsed_s: float) -> None:
    """AssertionError unless the episode ended as it must, and its time is that of what happened."""
    assert not any(step[2] or step[3] for step in steps[:-1]), "a step after the end"
    _, _, terminated, truncated, _ = steps[-1]
    assert not (terminated and truncated), "both terminated and truncated"
    if not inner.batch.is_ended(0):
        return
    requests, horizon_s = inner.simulation.state.requests, inner.options.horizon_s
    n_open = int((requests["status"] == UNFINISHED).sum()) + len(inner.trace) - len(requests)
    assert terminated == (n_open == 0), (
        f"terminated = {terminated}; {n_open} requests have not ended"
    )
    if truncated and horizon_s is not None:
        assert _is_close(elapsed_s, horizon_s), (
            f"truncated after {elapsed_s} s; the horizon is {horizon_s}"
        )
    if terminated:
        last_s = int(requests["finish_ps"].max()) / PS_PER_S
        assert elapsed_s >= last_s - CLOSE_S, (
            f"elapsed_s sums to {elapsed_s}; a request ended at {last_s}"
        )
        assert horizon_s is None or elapsed_s <= horizon_s + CLOSE_S, (
            f"elapsed_s sums to {elapsed_s}"
        )


def _has_reward_wrapper(env: gymnasium.Env) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.RewardWrapper) or type(env).__module__.endswith("reward"):
            return True
        env = env.env
    return False


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= max(CLOSE_S, RELATIVE * abs(b))
