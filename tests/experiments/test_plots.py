"""Plots: the curves and bars are the numbers, and whoever has nothing to show says so."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest

from servegym.baselines.simulate import simulate
from servegym.experiments.compare import compare
from servegym.experiments.comparison import Comparison
from servegym.experiments.plots import (
    kv_and_queue_over_time,
    latency_against_load,
    latency_cdf,
    tier_bars,
)
from servegym.experiments.recorder import record
from servegym.experiments.statistics import mean_interval
from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result
from servegym.traces import Trace, generate

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def crowded(system: str = "random", seed: int = 0, **options) -> Result:
    """300 requests of three tiers on two instances whose KV is too small."""
    trace = generate("azure-conv", 300, 50.0, seed).assign_tiers([0.5, 0.3, 0.2], seed)
    config = ClusterConfig(instances=2, kv_blocks=700, tiers=3, max_num_seqs=32)
    return simulate(trace, config, system, seed=seed, **options)


@pytest.fixture(scope="module")
def result() -> Result:
    return crowded()


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    """Two systems at two loads, four seeds each."""
    return [
        compare(["round-robin", "random"], seeds=4, n_requests=300, load=load, progress=False)
        for load in (0.7, 1.1)
    ]


def labels_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def texts_of(ax: Any) -> str:
    return " ".join(text.get_text() for text in ax.texts)


@pytest.mark.parametrize(("metric", "scale"), [("e2e_s", 1.0), ("tpot_s", 1e3), ("ttft_s", 1.0)])
def test_cdf_is_the_share_of_requests_at_or_below(result: Result, metric: str, scale: float):
    ax: Any = latency_cdf(result, metric)
    values = scale * result.requests[metric].dropna().to_numpy()
    x, y = ax.lines[0].get_xydata().T
    assert np.unique(x).tolist() == np.unique(values).tolist()
    for time in np.unique(x):
        assert y[x == time].max() == pytest.approx(np.mean(values <= time))
    assert (x[1], x[-1], y[0], y[-1]) == (values.min(), values.max(), 0.0, 1.0)
    assert labels_of(ax) == [f"random: {len(values)} of 300"]
    unit = "[ms]" if scale > 1 else "[s]"
    assert unit in ax.get_xlabel() and "%" in ax.get_ylabel()


def test_a_cdf_of_many_requests_is_thinned_to_true_points():
    values = np.random.default_rng(0).exponential(size=30_000)
    frame = pd.DataFrame({"e2e_s": values, "tier": 0})
    many = simulate(Trace([0.0], [10], [1]))
    many.__dict__["requests"] = frame
    ax: Any = latency_cdf(many)
    x, y = ax.lines[0].get_xydata().T
    assert len(x) < 10_000
    ordered = np.sort(values)
    ranks = np.round(y[1:] * 30_000).astype(int)
    np.testing.assert_array_equal(x[1:], ordered[ranks - 1])


def test_cdf_by_tier_has_a_curve_a_tier(result: Result):
    ax: Any = latency_cdf([result, crowded("round-robin")], by="tier")
    sizes = result.requests["tier"].value_counts()
    expected = [
        f"{s}, tier {t}: {sizes[t]} of {sizes[t]}"
        for s in ("random", "round-robin")
        for t in range(3)
    ]
    assert labels_of(ax) == expected
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 6
    of_tier = result.requests[result.requests["tier"] == 2]["e2e_s"]
    assert ax.lines[2].get_xdata()[-1] == of_tier.max()


def test_runs_of_one_system_are_told_apart_by_what_differs(result: Result):
    ax: Any = latency_cdf([result, crowded(seed=1)])
    assert labels_of(ax) == ["random, seed 0: 300 of 300", "random, seed 1: 300 of 300"]


def test_a_long_tail_makes_the_axis_logarithmic_and_says_so():
    # One instance with one seat: the last of 100 requests waits a hundred times the first's time.
    burst = simulate(Trace(np.zeros(40), [100] * 40, [1] * 39 + [4000]), instances=1)
    ax: Any = latency_cdf(burst)
    assert ax.get_xscale() == "log" and "logarithmic" in ax.get_xlabel()
    ax.figure.canvas.draw()
    ticks = ax.get_xticklabels(which="both")
    boxes = sorted(t.get_window_extent().extents.tolist() for t in ticks if t.get_text())
    assert len(boxes) >= 2
    assert all(left[2] < right[0] for left, right in pairwise(boxes))
    assert latency_cdf(simulate(Trace([0.0, 9.0], [100, 100], [9, 9]))).get_xscale() == "linear"


def test_curves_against_load_are_means_and_intervals_of_the_runs(comparisons: list[Comparison]):
    ax: Any = latency_against_load(comparisons, "tpot_mean_s")
    bands = [band.get_paths()[0].vertices for band in ax.collections]
    for k, system in enumerate(("round-robin", "random")):
        assert ax.lines[k].get_label() == system
        np.testing.assert_allclose(ax.lines[k].get_xdata(), [0.7, 1.1])
        for point, comparison in enumerate(comparisons):
            runs: Any = comparison.runs
            own = runs[runs["system"] == system]["tpot_mean_s"].to_numpy()
            interval = mean_interval(1e3 * own)
            assert ax.lines[k].get_ydata()[point] == pytest.approx(interval.mean)
            heights = bands[k][np.isclose(bands[k][:, 0], (0.7, 1.1)[point]), 1]
            assert (heights.min(), heights.max()) == pytest.approx((interval.low, interval.high))
    assert ax.get_ylabel() == "TPOT mean [ms]"
    assert labels_of(ax) == ["round-robin", "random", "saturation"]


def test_a_table_of_runs_will_do_but_needs_a_load(comparisons: list[Comparison]):
    table = comparisons[0].runs
    with pytest.raises(ValueError, match="column 'load' is missing"):
        latency_against_load(table)
    ax: Any = latency_against_load(table.assign(load=0.7), "ttft_p50_s")
    assert ax.get_ylabel() == "TTFT P50 [s]"
    at_once = compare(
        ["random"],
        Trace(np.zeros(1000), [10] * 1000, [2] * 1000),
        seeds=1,
        whole=True,
        progress=False,
    )
    with pytest.raises(ValueError, match="all requests arrive at once, so it has no load"):
        latency_against_load(at_once)


def test_bars_are_each_tiers_mean_and_interval_over_seeds():
    runs = [crowded(system, seed) for seed in range(3) for system in ("random", "round-robin")]
    ax: Any = tier_bars(runs, "e2e_mean_s")
    assert [container.get_label() for container in ax.containers] == ["random", "round-robin"]
    assert len(ax.patches) == 6
    by_tier = [run.summary()["tiers"][1]["e2e_s"]["mean"] for run in runs if run.system == "random"]
    interval = mean_interval(by_tier)
    bar = ax.containers[0].patches[1]
    assert bar.get_height() == pytest.approx(interval.mean)
    middle = bar.get_x() + bar.get_width() / 2
    ends = [
        segment[:, 1].tolist()
        for collection in ax.collections
        for segment in collection.get_segments()
        if segment[0, 0] == pytest.approx(middle)
    ]
    assert ends and all(pair == pytest.approx([interval.low, interval.high]) for pair in ends)


def test_a_comparison_without_tiers_has_one_group(comparisons: list[Comparison]):
    ax: Any = tier_bars(comparisons[0], "slo_attainment")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0"]
    values: Any = comparisons[0].runs.groupby("system")["slo_attainment"].mean()
    heights = [container.patches[0].get_height() for container in ax.containers]
    assert heights == pytest.approx([100 * values["round-robin"], 100 * values["random"]])


def test_a_measure_that_no_tier_has_is_an_error(result: Result):
    with pytest.raises(ValueError, match="preemptions is not kept by tier"):
        tier_bars(result, "preemptions")


def test_kv_and_queue_curves_are_the_recording(result: Result):
    axes = kv_and_queue_over_time(result, n_samples=60)
    recording = record(result, 60)
    for i in range(2):
        np.testing.assert_allclose(axes[0].lines[i].get_ydata(), 100 * recording.kv_share[:, i])
        np.testing.assert_array_equal(axes[1].lines[i].get_ydata(), recording.waiting[:, i])
    total = result.summary()["preemptions"]
    assert labels_of(axes[0]) == ["instance 0", "instance 1", f"{total} preemptions"]
    rises = np.flatnonzero(np.diff(recording.preemptions.sum(axis=1), prepend=0))
    np.testing.assert_array_equal(axes[0].lines[2].get_xdata(), recording.time_s[rises])


def test_several_results_show_mean_and_range_over_instances(result: Result):
    other = crowded("round-robin")
    axes = kv_and_queue_over_time([result, other], n_samples=60)
    recording = record(other, 60)
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), recording.waiting.mean(axis=1))
    band = axes[1].collections[1].get_paths()[0].vertices
    assert band[:, 1].max() == recording.waiting.max()
    assert labels_of(axes[0])[1].startswith("round-robin:")


def test_plots_draw_on_the_callers_axes(result: Result, comparisons: list[Comparison]):
    from matplotlib.figure import Figure

    axes = Figure().subplots(5)
    assert latency_cdf(result, ax=axes[0]) is axes[0]
    assert latency_against_load(comparisons, ax=axes[1]) is axes[1]
    assert tier_bars(result, ax=axes[2]) is axes[2]
    assert kv_and_queue_over_time(result, ax=axes[3:])[1] is axes[4]
    assert all(ax.lines or ax.patches for ax in axes)
    with pytest.raises(ValueError, match="must be two axes"):
        kv_and_queue_over_time(result, ax=axes)


def test_legends_stand_beside_the_data(result: Result, comparisons: list[Comparison]):
    drawn = [
        latency_cdf([result, crowded("round-robin")]),
        latency_against_load(comparisons),
        tier_bars(comparisons[0]),
        kv_and_queue_over_time(result)[0],
    ]
    for ax in drawn:
        ax.figure.canvas.draw()
        frame, legend = ax.get_window_extent(), ax.get_legend().get_window_extent()
        assert legend.x0 >= frame.x1
        assert legend.x1 <= ax.figure.bbox.x1 + 1


def test_nothing_finished_is_said_and_no_error(result: Result):
    cut = crowded(horizon_s=0.05)
    assert len(cut.requests) and cut.summary()["finished"] == 0
    assert "no request is finished: nothing to show" in texts_of(latency_cdf(cut))
    assert "E2E mean is undefined in every tier: nothing" in texts_of(tier_bars(cut, "e2e_mean_s"))
    table = pd.DataFrame({"system": ["a"], "load": [1.0], "e2e_mean_s": [None]})
    assert "E2E mean is undefined in every run" in texts_of(latency_against_load(table))
    empty = simulate(Trace([], [], []))
    assert "no requests: nothing to show" in texts_of(kv_and_queue_over_time(empty)[0])
    assert "no request is started" in texts_of(latency_cdf(empty, "queue_s", by="tier"))


def test_unknown_metrics_and_groupings_are_named(result: Result, comparisons: list[Comparison]):
    with pytest.raises(ValueError, match="unknown metric 'e2e'; did you mean 'e2e_s'"):
        latency_cdf(result, "e2e")
    with pytest.raises(ValueError, match="by = 'tenant'; must be None or 'tier'"):
        latency_cdf(result, by="tenant")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown metric 'e2e_man_s'; did you mean 'e2e_mean_s'"):
        latency_against_load(comparisons, "e2e_man_s")
    with pytest.raises(ValueError, match="must hold at least one result"):
        latency_cdf([])


def test_importing_the_plots_imports_no_matplotlib():
    program = (
        "import sys, servegym.experiments.plots, servegym.experiments.timeline;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_same_run_twice_is_refused_since_its_interval_would_be_too_narrow(
    comparisons: list[Comparison],
):
    with pytest.raises(ValueError, match=r"has seed 0 2 times"):
        latency_against_load([comparisons[0], comparisons[0]])
