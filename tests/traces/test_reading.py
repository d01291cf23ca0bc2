"""Reading in chunks: the same trace whatever the chunks, rows counted, memory bounded."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from servegym.traces import Labels, PrefixBlocks, Trace, load, parquet, table

N = 50
PEAK = """
import resource, sys
from servegym.traces import load
def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
load(sys.argv[1], max_rows=100_000)
before = peak_mb()
for options in (
    {"max_rows": 100_000}, {"end_s": 1.0}, {"start_s": 9.0, "max_rows": 150_000}
):
    trace = load(sys.argv[1], **options)
    print(len(trace), trace.report.rows_read, peak_mb() - before)
"""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 7 rows at a time."""
    monkeypatch.setattr(table, "ROWS_PER_CHUNK", 7)
    monkeypatch.setattr(parquet, "ROWS_PER_CHUNK", 7)


def plain(rows: list[str]) -> str:
    """A plain trace with tenants."""
    return "\n".join(["arrival_s,prompt_tokens,output_tokens,tenant", *rows])


def rows_of_a_trace() -> list[str]:
    """Rows with all-different lengths, every fifth failed, tenants that appear one by one."""
    return [f"{0.5 * k},{k + 1},{k % 5},{chr(122 - k // 10)}" for k in range(N)]


@pytest.mark.parametrize(
    "options",
    [{}, {"start_s": 3.0}, {"end_s": 11.0}, {"start_s": 3.0, "end_s": 11.0}, {"max_rows": 23}],
)
@pytest.mark.parametrize("sort", [False, True])
def test_chunks_do_not_change_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, sort: bool
):
    path = tmp_path / "t.csv"
    path.write_text(plain(rows_of_a_trace()))
    whole = load(path, sort=sort, **options)
    monkeypatch.setattr(table, "ROWS_PER_CHUNK", 7)
    chunked = load(path, sort=sort, **options)
    assert chunked.workload_hash == whole.workload_hash
    assert str(chunked.report) == str(whole.report)
    assert chunked.notes == whole.notes


def test_rows_past_the_window_are_not_read(tmp_path: Path, small_chunks: None):
    path = tmp_path / "t.csv"
    path.write_text(plain([*rows_of_a_trace()[:20], "broken,row,here,x"]))
    trace = load(path, end_s=2.0)
    # Arrivals 0, .5, 1, 1.5 and the first at or past 2.0 are read; outputs 0, 1, 2, 3: one failed.
    assert trace.report is not None
    assert (trace.report.rows_read, trace.report.kept) == (5, 3)
    with pytest.raises(ValueError, match=r"arrival_s\[20\] = 'broken'; .*\(row 22 of t.csv\)"):
        load(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("4.0,5,6,a", r"arrival_s\[20\] = 4; must not be before .*\(row 22 of t.csv\)"),
        ("99,0,6,a", r"prompt_tokens\[20\] = 0; must be >= 1 \(row 22 of t.csv\)"),
        ("99,5,,a", r"output_tokens\[20\] is missing \(row 22 of t.csv\)"),
    ],
)
def test_case_13_faults_in_later_chunks_keep_their_index_and_row(
    tmp_path: Path, small_chunks: None, row: str, message: str
):
    """An index within a chunk would send the user to the wrong row."""
    path = tmp_path / "t.csv"
    path.write_text(plain([*rows_of_a_trace()[:20], row]))
    with pytest.raises(ValueError, match=message):
        load(path)


def test_order_is_checked_between_chunks_and_sorting_spans_them(tmp_path: Path, small_chunks: None):
    rows = rows_of_a_trace()
    path = tmp_path / "t.csv"
    path.write_text(plain([*rows[7:14], *rows[:7], *rows[14:]]))
    with pytest.raises(ValueError, match=r"arrival_s\[7\] = 0; must not be before .*\(row 9 of"):
        load(path)
    ordered = tmp_path / "ordered.csv"
    ordered.write_text(plain(rows))
    assert load(path, sort=True).workload_hash == load(ordered).workload_hash


def test_azure_keeps_100_ns_over_chunks(tmp_path: Path, small_chunks: None):
    path = tmp_path / "t.csv"
    stamps = [f"2023-11-16 18:15:46.680{k:04d}" for k in range(20)]
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{s},5,6\n" for s in stamps)
    )
    assert load(path).arrival_s.tolist() == [k * 100 / 1e9 for k in range(20)]


def test_parquet_is_read_in_chunks_too(tmp_path: Path, small_chunks: None):
    trace = Trace(
        np.arange(N) / 4,
        np.arange(N) + 1,
        np.arange(N) + 1,
        session=Labels.of(f"s{k % 9}" for k in range(N)),
        prefix_blocks=PrefixBlocks.of([list(range(k % 4)) for k in range(N)], 512),
    )
    trace.save(tmp_path / "t.parquet")
    assert load(tmp_path / "t.parquet").workload_hash == trace.workload_hash
    assert load(tmp_path / "t.parquet", max_rows=10).workload_hash == trace.head(10).workload_hash


def test_a_part_of_a_two_million_row_file_takes_memory_for_that_part(tmp_path: Path):
    path = tmp_path / "big.csv"
    row = ",1000,100,tenant\n"
    path.write_text(plain([("0.5" + row) * 100_000 + ("9.5" + row) * 1_900_000]))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    figures = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in figures] == [
        ["100000", "100000"],
        ["100000", "100001"],
        ["50000", "150000"],
    ]
    # 100,000 requests of some 60 bytes are 6 MB; the whole file as Python strings would be 600.
    assert max(float(line[2]) for line in figures) < 40.0
