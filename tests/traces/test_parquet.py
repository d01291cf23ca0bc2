"""Saved traces come back bit for bit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegym.traces import Labels, Trace, load


def labelled(n: int = 50) -> Trace:
    """A trace with every optional column, and a label name that no request has."""
    random = np.random.default_rng(0)
    return Trace(
        np.cumsum(random.exponential(0.1, n)),
        random.integers(1, 9_999, n),
        random.integers(1, 999, n),
        random.integers(0, 4, n),
        category=Labels(["zeta", "unused", "alpha"], random.choice([0, 2], n)),
        tenant=Labels.of(f"tenant {t}" for t in random.integers(0, 9, n)),
        name="labelled",
        source="made for a test",
        notes=("one", "two"),
    )


def test_round_trip_keeps_everything_but_the_report(tmp_path: Path):
    trace = labelled()
    trace.save(tmp_path / "trace.parquet")
    again = Trace.load(tmp_path / "trace.parquet")
    assert again.workload_hash == trace.workload_hash
    assert (again.name, again.source, again.notes) == (trace.name, trace.source, trace.notes)
    assert again.category is not None and again.category.names == ("zeta", "unused", "alpha")
    assert again.report is not None and again.report.kept == len(trace)


def test_empty_trace_round_trips(tmp_path: Path):
    Trace([], [], []).save(tmp_path / "empty.parquet")
    assert len(load(tmp_path / "empty.parquet")) == 0


@given(st.lists(st.floats(0.0, 9_158_400.0), max_size=20))
def test_arrivals_are_bit_identical(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[float]
):
    path = tmp_path_factory.mktemp("trace") / "trace.parquet"
    trace = Trace(sorted(arrivals), [1] * len(arrivals), [1] * len(arrivals))
    trace.save(path)
    assert load(path).arrival_s.tobytes() == trace.arrival_s.tobytes()


def test_window_and_max_rows_apply_to_parquet_too(tmp_path: Path):
    trace = labelled()
    trace.save(tmp_path / "trace.parquet")
    assert load(tmp_path / "trace.parquet", max_rows=7).workload_hash == trace.head(7).workload_hash
    window = load(tmp_path / "trace.parquet", start_s=1.0, end_s=2.0)
    assert window.workload_hash == trace.window(1.0, 2.0).workload_hash


def test_table_of_another_tool_loads_by_column_name(tmp_path: Path):
    frame = labelled().to_frame()[["output_tokens", "arrival_s", "prompt_tokens", "tenant"]]
    frame.assign(ttft_s=0.5).to_parquet(tmp_path / "foreign.parquet")
    trace = load(tmp_path / "foreign.parquet")
    assert trace.prompt_tokens.tolist() == labelled().prompt_tokens.tolist()
    assert trace.tenant is not None and len(trace.tenant.names) == 9
    assert (trace.category, trace.name) == (None, "foreign")


def test_missing_columns_are_listed(tmp_path: Path):
    pd.DataFrame({"arrival_s": [0.0], "tokens": [1]}).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(
        ValueError, match=r"bad.parquet.*'prompt_tokens', 'output_tokens'.*'tokens'"
    ):
        load(tmp_path / "bad.parquet")


def test_bad_values_name_the_row(tmp_path: Path):
    frame = pd.DataFrame(
        {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 0], "output_tokens": [1, 1]}
    )
    frame.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"prompt_tokens\[1\] = 0; .*\(row 2 of bad.parquet\)"):
        load(tmp_path / "bad.parquet")
