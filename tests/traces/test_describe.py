"""Figures of a trace against values worked out by hand; text and picture of the same."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from servegym.traces import Labels, PrefixBlocks, Trace
from servegym.traces.description import describe_text
from servegym.traces.plot import bin_width_s, length_edges, plot


def poisson(n: int = 4000) -> Trace:
    """Poisson arrivals at 2 req/s, lengths independent of each other."""
    random = np.random.default_rng(1)
    return Trace(
        np.cumsum(random.exponential(0.5, n)),
        random.integers(1, 2000, n),
        random.integers(1, 300, n),
        random.integers(0, 2, n),
        tenant=Labels(["a", "b"], random.integers(0, 2, n)),
        name="poisson",
    )


def test_windows_are_whole_and_counted_from_the_first_arrival():
    # From 5: counts in whole windows of 1 s are [3, 0, 1]; 8.5 falls in one that is cut off.
    trace = Trace([5.0, 5.1, 5.9, 7.5, 8.5], [1] * 5, [1] * 5)
    one, ten, _ = trace.describe()["windows"]
    # Mean 4/3, sample variance ((5/3)^2 + (4/3)^2 + (1/3)^2) / 2 = 7/3.
    assert one["windows"] == 3
    assert one["index_of_dispersion"] == pytest.approx((7 / 3) / (4 / 3))
    assert (one["peak_per_s"], one["empty_share"]) == (3.0, pytest.approx(1 / 3))
    assert (ten["windows"], ten["index_of_dispersion"]) == (0, None)


def test_lengths_gaps_and_correlation_are_the_textbooks():
    trace = Trace([0.0, 1.0, 4.0], [10, 20, 60], [3, 2, 1])
    figures = trace.describe()
    # Gaps 1 and 3: mean 2, standard deviation 1.
    assert figures["interarrival_cv"] == pytest.approx(0.5)
    assert figures["prompt_tokens"]["mean"] == 30.0
    assert (figures["prompt_tokens"]["p50"], figures["prompt_tokens"]["max"]) == (20.0, 60)
    # Prompts fall from their mean by (-20, -10, 30), outputs by (1, 0, -1).
    pearson = -50 / np.sqrt((400 + 100 + 900) * 2)
    assert figures["correlation"]["pearson"] == pytest.approx(pearson)
    assert figures["correlation"]["spearman"] == pytest.approx(-1.0)


def test_rank_correlation_shares_ranks_between_equal_lengths():
    # Ranks (.5, .5, 2, 3) and (0, 1, 2, 3) have covariance 4.5 and squares 4.5 and 5.
    trace = Trace([0, 1, 2, 3], [7, 7, 8, 9], [1, 2, 3, 4])
    assert trace.describe()["correlation"]["spearman"] == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_poisson_arrivals_are_poisson_at_every_window():
    for row in poisson().describe()["windows"]:
        # Sample IoD of m Poisson counts has a standard error of sqrt(2 / m); five of them.
        assert row["index_of_dispersion"] == pytest.approx(1.0, abs=5 * np.sqrt(2 / row["windows"]))


def test_shares_of_tiers_and_labels_are_of_all_requests():
    trace = Trace(
        [0, 1, 2, 3],
        [1] * 4,
        [1] * 4,
        [0, 2, 2, 2],
        tenant=Labels(["", "x", "unused"], [0, 1, 1, 1]),
        prefix_blocks=PrefixBlocks.of([[1], [1], [], [2]], 512),
    )
    figures = trace.describe()
    assert figures["tiers"] == {"0": 0.25, "2": 0.75}
    assert figures["labels"] == {"tenant": {"distinct": 1, "largest": {"x": 0.75, "": 0.25}}}
    assert figures["prefix_reuse_share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("n", [0, 1])
def test_case_06_what_is_undefined_is_none(n: int):
    """A NaN in a table reads as a measurement and breaks JSON."""
    figures = Trace([2.0] * n, [3] * n, [4] * n).describe()
    json.dumps(figures, allow_nan=False)
    assert (figures["mean_rate_per_s"], figures["interarrival_cv"]) == (None, None)
    assert figures["correlation"] == {"pearson": None, "spearman": None, "pearson_log": None}
    assert figures["prompt_tokens"]["mean"] == (3.0 if n else None)
    assert "nan" not in describe_text(figures).lower()


def test_text_has_every_figure_of_a_trace():
    text = describe_text(poisson().assign_categories({"chat": 1.0}, seed=0).describe())
    for part in ("poisson (source unknown)", "4,000 requests", "10 s", "prompt", "Spearman"):
        assert part in text
    assert "category: chat 100 %" in text and "note: categories chat 1" in text


@pytest.mark.parametrize(
    "trace", [poisson(), Trace([1.0], [5], [7]), Trace([0, 0], [1, 1], [1, 1])]
)
def test_every_request_is_in_the_picture(trace: Trace, tmp_path: Path):
    figure = plot(trace, tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")
    rate, prompt, output = figure.axes
    for axes, total in ((prompt, 100.0), (output, 100.0)):
        assert stairs(axes)[0].sum() == pytest.approx(total)
        assert stairs(axes)[0].max() <= axes.get_ylim()[1]
    rates, edges = stairs(rate)
    assert (rates * np.diff(edges)).sum() * seconds(rate) == pytest.approx(len(trace))


def stairs(axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    """The values and edges of a panel's histogram."""
    (patch,) = axes.patches
    assert isinstance(patch, StepPatch)
    values, edges, _ = patch.get_data()
    return values, edges


def seconds(axes: Axes) -> float:
    """The unit of the time axis, in s."""
    return {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86_400.0}[axes.get_xlabel()[9:-1]]


def test_an_empty_trace_is_not_drawn():
    with pytest.raises(ValueError, match="none has no requests: nothing to plot"):
        plot(Trace([], [], [], name="none"))


def test_bins_hold_whole_tokens_and_are_few():
    for least, most in ((1, 126_195), (894, 126_195), (6, 6), (3, 9)):
        edges = length_edges(least, most)
        assert 2 <= len(edges) <= 61
        assert (edges[0], edges[-1]) == (least - 0.5, most + 0.5)
        assert (np.diff(edges) >= 1.0).all() and (edges % 1.0 == 0.5).all()
    for span_s in (0.0, 3.0, 3600.0, 9.1e6):
        assert span_s / bin_width_s(span_s) < 250
