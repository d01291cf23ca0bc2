"""Notes: what they rest on, and how warnings of many runs become one line."""

from servegym.experiments.grid import Cell
from servegym.experiments.notes import (
    kv_note,
    length_note,
    load_note,
    merged_warnings,
    rejected_note,
)
from servegym.experiments.report import with_interval
from servegym.experiments.statistics import Interval
from servegym.simulator.config import ClusterConfig


def cell(seed: int, *warnings: str, peak: float = 0.5, blocked: int = 0, **row) -> Cell:
    """Return a cell of system "a" that preempted nothing."""
    return Cell(
        {"system": "a", "seed": seed, "preemptions": 0, "admission_rejections": 0, **row},
        warnings,
        peak,
        blocked,
    )


def test_warnings_that_differ_in_numbers_only_become_one_with_a_count():
    cells = [
        cell(0, "12 requests unfinished"),
        cell(1, "1,500 requests unfinished", "odd"),
        cell(2),
    ]
    assert merged_warnings(cells) == [
        "12 requests unfinished (a, seed 0; 2 of 3 runs)",
        "odd (a, seed 1; 1 of 3 runs)",
    ]


def test_load_notes_begin_below_the_lowest_scenario_and_above_saturation():
    assert load_note(0.59) is not None and load_note(0.6) is None
    assert load_note(1.0) is None and "overload" in (load_note(1.01) or "")
    assert load_note(None) is None
    assert load_note(1.0000000000000002) is None  # a rate over the saturation rate is not exact
    assert "load 1.004 is an overload" in (load_note(1.004) or "")


def test_kv_note_gives_the_peak_and_stops_when_somebody_lacked_blocks():
    config = ClusterConfig()
    assert "peaks at 77 %" in (kv_note([cell(0, peak=0.2), cell(1, peak=0.77)], config) or "")
    assert kv_note([cell(0), cell(1, blocked=3)], config) is None
    assert kv_note([cell(0), cell(1, preemptions=1)], config) is None


def test_kv_note_advises_what_leaves_fewer_blocks_than_there_are():
    assert "--scenario tight" in (kv_note([cell(0)], ClusterConfig()) or "")
    note = kv_note([cell(0, peak=1.0)], ClusterConfig(kv_blocks=6_000)) or ""
    assert "tight" not in note and "--kv-blocks below 6,000" in note and "runs short" in note


def test_rejected_note_gives_the_share_over_all_runs():
    none, some = cell(0, offered=300, rejected=0), cell(1, offered=100, rejected=60)
    assert rejected_note([none]) is None
    assert (rejected_note([none, some]) or "").startswith("15 % of requests fit no instance")
    assert (rejected_note([cell(0, offered=9, rejected=9)]) or "").startswith("100 %")
    assert (rejected_note([cell(0, offered=1_000, rejected=3)]) or "").startswith("0.3 %")


def test_length_note_compares_the_arrivals_with_the_time_of_a_request():
    # 1,000 requests at 10/s arrive over 100 s: ten times an E2E of 10 s, but not of 11 s.
    assert length_note([cell(0, offered=1_000, rate_per_s=10.0, e2e_mean_s=10.0)]) is None
    note = length_note([cell(0, offered=1_000, rate_per_s=10.0, e2e_mean_s=11.0)])
    assert note is not None and "over 100 s and take 11.0 s on average in the worst run" in note
    assert length_note([cell(0, offered=5, rate_per_s=None, e2e_mean_s=None)]) is None


def test_numbers_are_shown_to_the_place_that_their_interval_supports():
    assert with_interval(Interval(8.6912, 7.0951, 10.287, 10)) == "8.69 [7.10, 10.29]"
    assert (
        with_interval(Interval(-0.03911, -0.08115, 0.002926, 10), "+") == "-0.039 [-0.081, +0.003]"
    )
    assert with_interval(Interval(12_345.6, 12_000.0, 12_700.0, 10)) == "12,346 [12,000, 12,700]"
    assert with_interval(Interval(0.0, 0.0, 0.0, 10), "+") == "0 [0, 0]"
    assert with_interval(Interval(0.25, None, None, 10)) == "0.250"
    assert with_interval(Interval(None, None, None, 10)) == "-"
