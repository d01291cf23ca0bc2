"""DriftSched's drift arms: the workload's phases, and that the published directions come out."""

from pathlib import Path

import numpy as np
import pytest

from servegym.baselines.simulate import simulate
from servegym.experiments.drift_arms import (
    ADAPTIVE,
    CLUSTER,
    STATIC,
    SYSTEMS,
    WORDS,
    drained_trace,
    main,
    play,
    report,
)
from servegym.traces.workload import generate

FIFO = SYSTEMS["FIFO"]


def test_second_phase_begins_a_pause_after_the_first_is_served():
    trace = drained_trace(WORDS, 0, CLUSTER, FIFO)
    finish_s = simulate(trace, CLUSTER, FIFO).requests["finish_s"].to_numpy()
    drawn = generate(WORDS, 3_000, None, 0, arrivals="fitted").arrival_s
    # 15 s and the first gap of the second phase, U(.005, .03) s
    pause_s = trace.arrival_s[1_000] - finish_s[:1_000].max()
    assert 15.005 <= pause_s <= 15.03
    assert np.diff(trace.arrival_s[1_000:]) == pytest.approx(np.diff(drawn[1_000:]), abs=1e-9)
    np.testing.assert_array_equal(trace.arrival_s[:1_000], drawn[:1_000])


def test_tiers_are_the_tenants():
    trace = drained_trace(WORDS, 0, CLUSTER, FIFO)
    assert trace.tenant is not None
    names = np.array(trace.tenant.names)[trace.tenant.codes]
    assert [set(names[trace.tier == p]) for p in range(3)] == [{"premium"}, {"standard"}, {"batch"}]


def test_feedback_corrects_the_unit_error_of_the_words_arm():
    static, adaptive = (play(WORDS, "FIFO", adapts, 0, "static") for adapts in (STATIC, ADAPTIVE))
    assert adaptive["prediction"]["mae_tokens"] < 0.7 * static["prediction"]["mae_tokens"]
    # it is a unit error: the static estimate is too high in every category, by its bias almost alone
    for error in static["prediction"]["categories"].values():
        assert error["bias_tokens"] > 0.8 * error["mae_tokens"]


def test_orders_differ_as_published():
    played = {system: play(WORDS, system, ADAPTIVE, 0, "static") for system in SYSTEMS}
    p50 = {system: each["e2e_s"]["p50"] for system, each in played.items()}
    assert p50["SJF"] < 0.75 * p50["FIFO"]
    for system in ("Priority", "Weighted", "Aging"):
        premium, _, batch = (tier["e2e_s"]["mean"] for tier in played[system]["tiers"])
        assert premium < 0.7 * batch, system
    assert {each["finished"] for each in played.values()} == {3_000}


def test_command_prints_the_papers_figures_beside_ours(capsys):
    main(["--seeds", "1"])
    printed = capsys.readouterr().out
    for figure in ("-38.8 %", "-40.5 %", "SJF -42 %", "SJF -16 %", "driftsched-tokens"):
        assert figure in printed
    assert printed.count("| --- |") == 3


@pytest.mark.slow
def test_page_has_the_tables_as_the_command_prints_them():
    page = (Path(__file__).resolve().parents[2] / "docs" / "driftsched.md").read_text("utf-8")
    assert report(10, "static") in page
    for table in report(10, "vllm-v1").split("\n\n")[2:]:
        assert table in page
