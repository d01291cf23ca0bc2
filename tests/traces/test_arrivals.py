"""Arrival processes against theory: rate, CV, index of dispersion; and what never changes."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from servegym.traces import Trace, generate
from servegym.traces.arrivals import (
    PROCESSES,
    ArrivalProcess,
    Clients,
    Diurnal,
    Drift,
    Gamma,
    Mmpp,
    Modulated,
    OnOff,
    Poisson,
    ReplayedRate,
    UniformPhases,
    Weibull,
    arrival_process,
    clients,
    process_name,
    rate,
)
from servegym.traces.arrivals.rate import unit_arrivals, window_counts
from servegym.traces.dispersion import index_of_dispersion

TWO_STATES = ((0.0, 1.0), (1.0, 0.0))
EXAMPLES: dict[str, dict] = {
    "poisson": {},
    "deterministic": {},
    "gamma": {"cv": 2.0},
    "weibull": {"shape": 0.5},
    "on-off": {"on_s": 5.0, "off_s": 20.0},
    "mmpp": {"rates": (1.0, 4.0), "stay_s": (30.0, 10.0), "jumps": TWO_STATES},
    "drift": {"over_s": 100.0},
    "diurnal": {"period_s": 60.0, "amplitude": 0.9},
    "replayed-rate": {"window_s": 10.0, "rates": (1.0, 0.0, 3.0)},
    "modulated": {"window_s": 10.0, "n_windows": 12, "amplitudes": (0.3, 0.2)},
    "phases": {"sizes": (5, 9), "least_s": (1.0, 0.0), "most_s": (3.0, 0.5), "pause_s": 7.0},
    "clients": {
        "window_s": 100.0,
        "names": ("a", "b"),
        "families": ("GW", "-G"),
        "rates": ((1.0, 2.0), (0.0, 3.0)),
        "shapes": ((0.5, 0.7), (0.0, 2.0)),
    },
}


def example(name: str) -> ArrivalProcess:
    """One process of each kind."""
    return arrival_process(name, **EXAMPLES[name])


def iod(arrival_s: np.ndarray, window_s: float) -> float:
    """The index of dispersion of a trace that has one."""
    found = index_of_dispersion(arrival_s, window_s)
    assert found is not None
    return found


def units_are(monkeypatch: pytest.MonkeyPatch, units: list[float]) -> None:
    """Put given arrivals of a unit Poisson process in place of random ones."""
    monkeypatch.setattr(rate, "unit_arrivals", lambda n, seed: np.array(units))


def test_every_process_has_an_example_and_its_name():
    assert set(EXAMPLES) == set(PROCESSES)
    assert [process_name(example(name)) for name in PROCESSES] == list(PROCESSES)


@pytest.mark.parametrize("name", PROCESSES)
def test_arrivals_are_valid_repeatable_and_a_longer_trace_begins_with_the_shorter(name: str):
    process = example(name)
    long, again = process.draw(400, 2.0, 5), process.draw(400, 2.0, 5)
    Trace(long, np.ones(400), np.ones(400))  # finite, >= 0, in order
    np.testing.assert_array_equal(long, again)
    np.testing.assert_array_equal(process.draw(150, 2.0, 5), long[:150])
    assert process.draw(0, 2.0, 5).shape == (0,)
    if name != "deterministic":
        assert not np.array_equal(long, process.draw(400, 2.0, 6))


@pytest.mark.parametrize("name", PROCESSES)
def test_process_never_moves_a_length(name: str):
    base = generate("azure-conv", 100, 3.0, seed=1)
    other = generate("azure-conv", 100, 8.0, 1, arrivals=name, **EXAMPLES[name])
    np.testing.assert_array_equal(other.prompt_tokens, base.prompt_tokens)
    np.testing.assert_array_equal(other.output_tokens, base.output_tokens)
    assert other.workload_hash != base.workload_hash


# Excluded: a drift has another rate in the long run, and phases end in their last one.
@pytest.mark.parametrize("name", sorted(set(PROCESSES) - {"drift", "phases"}))
def test_long_run_rate_is_the_rate_asked_for(name: str):
    n = 60_000
    for rate_per_s in (2.0, 6.0):
        arrival_s = example(name).draw(n, rate_per_s, 11)
        # sigma = sqrt(IoD / n). At 6/s IoD is 193 (on-off) and 51 (mmpp) by mmpp_dispersion: 5 sigma.
        width = {"on-off": 0.28, "mmpp": 0.145}.get(name, 0.05)
        assert n / arrival_s[-1] == pytest.approx(rate_per_s, rel=width)


@pytest.mark.parametrize("window_s", [1.0, 10.0, 60.0])
def test_poisson_counts_have_dispersion_one(window_s: float):
    arrival_s = Poisson().draw(200_000, 5.0, 3)
    n_windows = 40_000 / window_s
    assert iod(arrival_s, window_s) == pytest.approx(1.0, abs=4 * sqrt(2 / n_windows))


@pytest.mark.parametrize(
    ("process", "cv"),
    [
        (Gamma(0.5), 0.5),
        (Gamma(3.0), 3.0),
        (Weibull(1.0), 1.0),
        # G(1 + 2/k) / G(1 + 1/k)^2 - 1 at k = 1/2: G(5) / G(3)^2 - 1 = 24/4 - 1 = 5.
        (Weibull(0.5), sqrt(5.0)),
    ],
)
def test_renewal_gaps_have_their_cv_and_counts_its_square(process: ArrivalProcess, cv: float):
    arrival_s = process.draw(200_000, 5.0, 4)
    gaps = np.diff(arrival_s, prepend=0.0)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)
    # 40,000 s in windows of 100 s: 400 of them, 500 requests each; 4 sigma = .28.
    assert iod(arrival_s, 100.0) == pytest.approx(cv * cv, rel=0.28)


def test_deterministic_arrivals_come_on_the_beat():
    np.testing.assert_array_equal(example("deterministic").draw(4, 4.0, 0), [0.25, 0.5, 0.75, 1.0])


def test_drift_inverts_its_integral(monkeypatch: pytest.MonkeyPatch):
    # At 1/s: L(t) = .5 t + t^2/20 up to t = 10, where it is 10; then 1.5 a second.
    # L(4) = 2 + .8 = 2.8; L(12) = 10 + 3 = 13.
    units_are(monkeypatch, [2.8, 10.0, 13.0])
    np.testing.assert_allclose(Drift(10.0).draw(3, 1.0, 0), [4.0, 10.0, 12.0], rtol=1e-12)
    flat = Drift(10.0, start=1.0, end=1.0)
    np.testing.assert_allclose(flat.draw(3, 2.0, 0), [1.4, 5.0, 6.5], rtol=1e-12)


def test_drifting_rate_is_felt_in_the_counts():
    counts = window_counts(Drift(1_000.0, 0.2, 1.8).draw(11_000, 10.0, 0), 500.0)
    # Mean rate .2 + 1.6 t/1000: .6 in the first half, 1.4 in the second; times 10/s * 500 s.
    assert counts[0] == pytest.approx(3_000, abs=5 * sqrt(3_000))
    assert counts[1] == pytest.approx(7_000, abs=5 * sqrt(7_000))


def test_diurnal_times_satisfy_the_integral_of_their_rate():
    process, rate_per_s = Diurnal(period_s=50.0, amplitude=1.0), 3.0
    times = process.draw(1_000, rate_per_s, 2)
    turns = 2.0 * np.pi * times / 50.0
    integral = rate_per_s * (times + 50.0 / (2.0 * np.pi) * (1.0 - np.cos(turns)))
    np.testing.assert_allclose(integral, unit_arrivals(1_000, 2), rtol=1e-9)


def test_replayed_rate_inverts_its_integral_and_starts_again(monkeypatch: pytest.MonkeyPatch):
    # Rates 1, 0, 3 in windows of 10 s, mean 4/3: L = 10, 10, 40 at 10, 20, 30 s.
    # 5 -> 5 s; 25 = 10 + 15 -> 20 + 15/3 = 25 s; 45 = 40 + 5 -> 30 + 5 = 35 s.
    process = ReplayedRate(10.0, (1.0, 0.0, 3.0))
    units_are(monkeypatch, [5.0, 25.0, 45.0])
    np.testing.assert_allclose(process.draw(3, 4.0 / 3.0, 0), [5.0, 25.0, 35.0], rtol=1e-12)


def test_replayed_rate_is_silent_where_the_trace_was():
    recorded = np.array([0.0, 1.0, 2.0, 25.0, 26.0, 30.5])
    process = ReplayedRate.of(recorded, 10.0)
    assert process.rates == (0.3, 0.0, 0.2)
    place = process.draw(5_000, 2.0, 0) % 30.0
    assert not np.any((place > 10.0) & (place < 20.0))
    assert np.mean(place < 10.0) == pytest.approx(0.6, abs=5 * sqrt(0.24 / 5_000))


def test_modulated_rates_keep_mean_and_variance_for_every_seed():
    process = Modulated(10.0, 12, (0.2, 0.0, 0.1))
    rates = [process.draw_rates(seed) for seed in range(5)]
    for drawn in rates:
        # (.2^2 + .1^2) / 2 = .025: cosines of whole periods are orthogonal.
        assert drawn.mean() == pytest.approx(1.0) and drawn.var() == pytest.approx(0.025)
    assert np.ptp([drawn[0] for drawn in rates]) > 0.01


def test_modulated_counts_have_the_dispersion_of_their_rate():
    # In a window of rate l * x, x of mean 1 and variance v, counts have IoD 1 + l * w * v.
    process = Modulated(10.0, 100, (0.03,) * 49)
    variance = 49 * 0.03**2 / 2
    found = [iod(process.draw(50_000, 5.0, seed), 10.0) for seed in range(5)]
    assert np.mean(found) == pytest.approx(1.0 + 50.0 * variance, rel=0.1)


def mmpp_dispersion(l1: float, l2: float, s1: float, s2: float, window_s: float) -> float:
    """The formula for two states in the header of arrivals/markov.py."""
    s = s1 + s2
    burst = 2.0 * (l1 - l2) ** 2 * s1 * s2 / (s * s * (l1 * s2 + l2 * s1))
    return 1.0 + burst * (1.0 - (1.0 - exp(-s * window_s)) / (s * window_s))


@pytest.mark.parametrize("window_s", [1.0, 10.0, 60.0])
def test_two_state_mmpp_has_its_textbook_dispersion(window_s: float):
    # 1 : 4 with 30 s and 10 s: mean 1.75; at 3.5 req/s the rates are 2 and 8.
    process = Mmpp((1.0, 4.0), (30.0, 10.0), TWO_STATES)
    found = [iod(process.draw(60_000, 3.5, seed), window_s) for seed in range(10)]
    expected = mmpp_dispersion(2.0, 8.0, 1 / 30, 1 / 10, window_s)
    assert expected > 1.5 and np.mean(found) == pytest.approx(expected, rel=0.05)


def test_on_off_is_an_mmpp_with_a_silent_state():
    process = OnOff(5.0, 20.0)
    found = [iod(process.draw(60_000, 4.0, seed), 10.0) for seed in range(10)]
    assert np.mean(found) == pytest.approx(
        mmpp_dispersion(20.0, 0.0, 1 / 5, 1 / 20, 10.0), rel=0.05
    )
    gaps = np.diff(process.draw(60_000, 4.0, 0))
    # A burst of 5 s at 20/s has 101 requests counting the first: 1 in 101 gaps leads to another.
    assert np.mean(gaps > 1.0) == pytest.approx(1 / 101, rel=0.15)


def test_occupancy_weighs_states_by_visits_and_stays():
    # From 0 always to 1; from 1 to 0 or 2 alike; from 2 always to 1. Visits 1 : 2 : 1.
    # Stays 10, 5, 20 s: times 10 : 10 : 20.
    jumps = ((0.0, 1.0, 0.0), (0.5, 0.0, 0.5), (0.0, 1.0, 0.0))
    process = Mmpp((1.0, 1.0, 1.0), (10.0, 5.0, 20.0), jumps)
    np.testing.assert_allclose(process.occupancy(), [0.25, 0.25, 0.5])


def test_phases_keep_their_bounds_and_pause_once():
    process = UniformPhases((100, 50), (0.1, 1.0), (0.2, 2.0), pause_s=30.0)
    # 100 * .15 + 50 * 1.5 + 30 = 120 s for 150 requests.
    assert process.rate_per_s == pytest.approx(150 / 120)
    gaps = np.diff(process.draw(200, process.rate_per_s, 0), prepend=0.0)
    assert gaps[:100].min() >= 0.1 and gaps[:100].max() <= 0.2
    assert 31.0 <= gaps[100] <= 32.0
    assert gaps[101:].min() >= 1.0 and gaps[101:].max() <= 2.0
    half = process.draw(200, process.rate_per_s / 2, 0)
    np.testing.assert_allclose(np.diff(half, prepend=0.0), 2 * gaps)


def test_clients_send_by_their_rates_and_are_named():
    process = Clients(**EXAMPLES["clients"])
    # Rates 1 + 2 and 0 + 3 in two windows of 100 s: 3 a second on average, half of them each.
    assert process.rate_per_s == pytest.approx(3.0)
    times, tenant = process.draw_labelled(30_000, 3.0, 0)
    assert tenant.names == ("a", "b")
    assert tenant.codes.mean() == pytest.approx(0.5, abs=0.02)
    first = int(times[0] // 100.0)
    of_b = times[tenant.codes == 1] // 100.0 % 2
    assert len(np.unique(of_b)) == 1, "b sends in every second window only"
    assert first in (0, 1)


@pytest.mark.parametrize(("family", "shape"), [("G", 0.05), ("W", 0.4)])
def test_bursty_client_starts_in_equilibrium(family: str, shape: float):
    process = Clients(10.0, ("a",), (family,), ((1.0,),), ((shape,),))
    n_first = [int((process.draw(200, 1.0, s) < 10.0).sum()) for s in range(2_000)]
    # 10 are due; starting with a whole gap would bring some (CV^2 - 1) / 2 more: 9.5 and 4.5.
    spread = float(np.std(n_first)) / sqrt(2_000)
    assert spread < 0.6
    assert np.mean(n_first) == pytest.approx(10.0, abs=4 * spread)


@pytest.mark.parametrize(("family", "shape"), [("G", 0.4), ("G", 3.0), ("W", 0.5), ("W", 2.0)])
def test_residual_gap_is_half_the_mean_of_the_squares(family: str, shape: float):
    random = np.random.default_rng(0)
    gaps = clients.unit_gaps((family, shape), 400_000, random)
    residuals = [clients.residual_gap((family, shape), random) for _ in range(20_000)]
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    # The mean residual of a renewal process is E[X^2] / (2 E[X]).
    assert np.mean(residuals) == pytest.approx((gaps**2).mean() / 2.0, rel=0.08)


def test_dispersion_of_counts_by_hand():
    # From the first arrival: windows of 2 s hold 3, 1, 2; the rest is no whole window.
    # Mean 2, sample variance (1 + 1 + 0) / 2 = 1.
    arrival_s = np.array([5.0, 5.5, 6.0, 7.5, 9.0, 10.5, 11.5])
    assert index_of_dispersion(arrival_s, 2.0) == pytest.approx(0.5)
    assert index_of_dispersion(arrival_s, 6.0) is None
    assert index_of_dispersion([], 1.0) is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gamma", {"cv": 0.0}, "cv = 0.0; must be finite and > 0"),
        ("weibull", {"shape": -1.0}, "shape = -1.0; must be finite and > 0"),
        ("on-off", {"off_s": float("inf")}, "off_s = inf; must be finite and > 0"),
        ("drift", {"end": 0.0}, "end = 0.0; must be finite and > 0"),
        ("diurnal", {"amplitude": 1.5}, r"amplitude = 1.5; must be in \[0, 1\]"),
        ("replayed-rate", {"rates": (1.0, -2.0)}, r"rates\[1\] = -2.0; must be finite and >= 0"),
        ("replayed-rate", {"rates": (0.0, 0.0)}, "at least one must be > 0"),
        ("modulated", {"amplitudes": (0.1, -0.2)}, r"amplitudes\[1\] = -0.2"),
        ("mmpp", {"stay_s": (1.0,)}, "2 rates need 2 stay_s and 2 rows of 2 jumps"),
        ("mmpp", {"stay_s": (1.0, 0.0)}, r"stay_s\[1\] = 0.0; must be finite and > 0"),
        ("mmpp", {"jumps": ((0.5, 0.5), (1.0, 0.0))}, r"jumps\[0\] = \(0.5, 0.5\); must be >= 0"),
        (
            "phases",
            {"least_s": (4.0, 0.0)},
            r"least_s\[0\] = 4.0; must be in \[0, most_s\[0\] = 3.0",
        ),
        ("phases", {"pause_s": -1.0}, "pause_s = -1.0; must be finite and >= 0"),
        ("clients", {"names": ("a",)}, "must be of one size"),
        ("clients", {"rates": ((0.0, 0.0), (0.0, 0.0))}, "rate_per_s = 0.0"),
        ("gamma", {"sv": 1.0}, "sv = 1.0; no parameter of gamma arrivals; known: cv"),
        ("drift", {"over": 1.0}, r"over = 1.0; .*did you mean 'over_s'\?"),
        (
            "poisson",
            {"cv": 2.0},
            "cv = 2.0; no parameter of poisson arrivals; it has no parameters",
        ),
    ],
)
def test_bad_parameters_are_named(name: str, change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        arrival_process(name, **(EXAMPLES[name] | change))


def test_missing_parameters_and_unknown_names_are_named():
    with pytest.raises(ValueError, match="on-off arrivals need on_s, off_s"):
        arrival_process("on-off")
    with pytest.raises(ValueError, match=r"arrivals = 'poison'; did you mean 'poisson'\?"):
        arrival_process("poison")


def test_a_process_can_be_given_and_changed():
    process = UniformPhases((2, 2), (1.0, 1.0), (1.0, 1.0), pause_s=5.0)
    paused = replace(process, pause_s=9.0)
    trace = generate("fixed-4-4", 4, paused.rate_per_s, 0, arrivals=paused)
    np.testing.assert_allclose(trace.arrival_s, [1.0, 2.0, 12.0, 13.0])
    with pytest.raises(ValueError, match="pause_s = 1.0; a process that is given takes no param"):
        generate("fixed-4-4", 4, 1.0, 0, arrivals=paused, pause_s=1.0)
