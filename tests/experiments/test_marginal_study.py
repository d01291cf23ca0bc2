"""The marginal study: a tiny grid, played once and then read back, and the page's tables."""

import re
from pathlib import Path

import pandas as pd
import pytest

from servegym.experiments.compare import compare
from servegym.experiments.marginal_study import Options, main, play_options
from servegym.experiments.marginal_tables import (
    KNOWN,
    MEAN,
    POLICIES,
    SHOWN,
    Place,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "marginal.md"


def tiny(folder: Path, **changed) -> Options:
    """Return two seeds of 100 requests at one place."""
    options = {
        "seeds": 2,
        "requests": 100,
        "workloads": ("azure-conv",),
        "scenarios": ("tight",),
        "loads": (1.0,),
        "out": folder / "runs.csv",
    }
    return Options(**options | changed)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    options = tiny(tmp_path_factory.mktemp("study"))
    return options, play_options(options)


def test_runs_are_those_of_one_comparison_over_all_seeds(played):
    _, runs = played
    known = KNOWN["0.5", "residual"]
    together = compare(
        [f"marginal:{known}", f"block:{known}", "least-requests"],
        workload="azure-conv",
        scenario="tight",
        load=1.0,
        seeds=2,
        n_requests=100,
        progress=False,
    )
    place = Place(runs)
    for line in together.lines:
        if line.metric.key == MEAN and line.difference is not None:
            difference = place.difference(line.system, together.reference, MEAN)
            assert difference.mean == pytest.approx(line.difference.mean, rel=1e-12)
            assert difference.low == pytest.approx(line.difference.low, rel=1e-12)


def test_residual_changes_nothing_under_true_lengths():
    systems = [f"{policy}:estimator=oracle" for policy in POLICIES]
    options = {"load": 1.0, "scenario": "tight", "seeds": 1, "n_requests": 1_000}
    plug_in, residual = (
        compare([f"{system},remaining={how}" for system in systems], progress=False, **options)
        for how in ("plug-in", "residual")
    )
    shown = [MEAN, *SHOWN]
    pd.testing.assert_frame_equal(plug_in.runs.filter(shown), residual.runs.filter(shown))


def test_differences_are_paired_by_seed_whatever_the_order_of_the_rows():
    # marginal 1, 2, 3 and block 2, 4, 3: differences 1, 2, 0, mean 1, s = 1; t(.975, 2) / sqrt(3) = 4.303 / 1.732
    runs = pd.DataFrame(
        {
            "system": ["marginal"] * 3 + ["block"] * 3,
            "seed": [0, 1, 2, 2, 0, 1],
            MEAN: [1.0, 2.0, 3.0, 3.0, 2.0, 4.0],
        }
    )
    difference = Place(runs).difference("block", "marginal", MEAN)
    assert difference.mean == pytest.approx(1.0)
    assert (difference.low, difference.high) == pytest.approx((-1.484, 3.484), abs=1e-3)


def test_command_prints_every_table(played, capsys):
    options, _ = played
    names = ("seeds", "requests", "workloads", "scenarios", "loads", "out")
    values = {name: getattr(options, name) for name in names}
    arguments = []
    for name, value in values.items():
        arguments += [f"--{name}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    main(arguments)
    printed = capsys.readouterr().out
    assert "### azure-conv, tight, load 1" in printed
    assert printed.count("| --- |") == 4
    for system in ("block -", "astrolabe -", "| least-requests |", "| llumnix-dispatch |"):
        assert system in printed


def test_no_seed_is_named(tmp_path):
    with pytest.raises(ValueError, match="seeds = 0; must be >= 1"):
        play_options(tiny(tmp_path, seeds=0))


def test_page_has_a_table_of_every_place_and_all_summaries():
    page = PAGE.read_text("utf-8").partition("## As printed")[2]
    for workload in Options().workloads:
        for scenario in Options().scenarios:
            for load in Options().loads:
                assert f"### {workload}, {scenario}, load {load:g}\n" in page
    # a row for each state of knowledge and each system that asks for none, in 12 tables, and the tables over all places
    rows = re.findall(r"^\| (?:0|0\.25|0\.5|1|none) \|", page, re.MULTILINE)
    assert len(rows) == 12 * len(KNOWN)
    assert len(re.findall(r"^\| [^|]*load [\d.]+ \|", page, re.MULTILINE)) == 12
    assert len(re.findall(r"^\| .*load [\d.]+, marginal \|", page, re.MULTILINE)) == 2 * 12
