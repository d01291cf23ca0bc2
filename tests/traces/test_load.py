"""Loaders on small made files, one for each pitfall that users of comparable tools have met."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from servegym.traces import Trace, load
from servegym.traces.load import NoArrivalsError

VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"


@pytest.fixture
def written(tmp_path: Path):
    """Write a small file and return its path."""

    def write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def columns(trace: Trace) -> list[list]:
    """Arrivals and lengths as lists."""
    return [trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist()]


def test_case_14_azure_2023_keeps_seven_digits_without_a_final_newline(written):
    """CRLF, 100 ns fractions and no final newline: a float parse or a line count loses them."""
    path = written(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.9999999,374,44\r\n"
        "2023-11-17 00:00:00.0000001,396,109\r\n"
        "2023-11-17 00:59:59.9999998,400,1"
    )
    trace = load(path)
    assert columns(trace) == [[0.0, 2e-7, 3599.9999999], [374, 396, 400], [44, 109, 1]]
    assert np.rint(trace.arrival_s * 1e12).astype(np.int64).tolist()[1:] == [
        200_000,
        3_599_999_999_900_000,
    ]


@pytest.mark.parametrize(
    "content",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,374,44\n2024-05-10 00:00:01+00:00,396,109\n",
        "TIMESTAMP,model,ContextTokens,GeneratedTokens\n"
        "2025-05-10T00:00:00.00993Z,a,374,44\n2025-05-10T00:00:01.0Z,b,396,109\n",
    ],
)
def test_case_14_later_azure_traces_have_zones_mixed_fractions_and_more_columns(written, content):
    """Azure 2024 and 2025 share the header names, but neither the positions nor the time format."""
    assert columns(load(written(content))) == [[0.0, 0.99007], [374, 396], [44, 109]]


def test_case_14_mooncake_times_are_milliseconds(written):
    """Read as seconds, an hour of traffic would last 41 days."""
    path = written(
        '{"timestamp": 0, "input_length": 6758, "output_length": 500}\n'
        '\n{"timestamp": 3001, "output_length": 20, "input_length": 7}',
        "trace.jsonl",
    )
    assert columns(load(path)) == [[0.0, 3.001], [6758, 7], [500, 20]]


def test_case_14_vllm_reference_ignores_what_was_measured(written):
    """The measured latencies of a run are not part of its workload."""
    path = written(
        "request_id,arrival_s,input_tokens,output_tokens,ttft_s,e2e_s,tpot_s\n"
        "bench-0,0.0,2358,531,0.69,17.57,0.03\nbench-1,0.265091,1034,769,0.4,25.3,\n"
    )
    assert columns(load(path)) == [[0.0, 0.265091], [2358, 1034], [531, 769]]


def test_case_14_columns_are_found_by_name(written):
    """Positions differ between releases of one trace."""
    path = written("num_decode_tokens,x, arrived_at ,num_prefill_tokens\n5,?,0.25,7\n")
    assert columns(load(path)) == [[0.25], [7], [5]]


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_case_14_bom_and_gzip_are_read_whatever_the_name(written, prefix: bytes, pack):
    """A BOM hides the first column; a .csv may be gzip and a .gz plain."""
    content = pack(prefix + VIDUR.encode() + b"0.5,3,4\n")
    for name in ("trace.csv", "trace.csv.gz"):
        assert columns(load(written(content, name))) == [[0.5], [3], [4]]


def test_case_14_git_lfs_pointer_is_called_that(written):
    """Otherwise its three lines read as a file with strange columns."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 719188\n"
    with pytest.raises(ValueError, match=r"trace.csv is a Git-LFS pointer.*git lfs pull"):
        load(written(pointer))


def test_case_14_missing_columns_are_all_listed_with_the_formats_tried(written):
    """A message that names one missing column at a time costs a run for each."""
    with pytest.raises(ValueError) as caught:
        load(written("TIMESTAMP,tokens\n1,2\n"))
    message = str(caught.value)
    assert "found TIMESTAMP, tokens" in message
    assert "Azure LLM inference trace: missing ContextTokens, GeneratedTokens" in message
    for name in ("BurstGPT", "Mooncake trace", "Vidur trace", "splitwise-sim trace", "plain trace"):
        assert f"{name}: missing" in message


def test_lengths_without_arrivals_are_refused_with_what_is_missing(written):
    path = written("num_prefill_tokens,num_decode_tokens,pd_ratio\n5,6,1.2\n")
    with pytest.raises(NoArrivalsError, match=r"no arrival column arrived_at \(Vidur trace\).*fit"):
        load(path)


def test_case_12_zero_outputs_are_dropped_and_counted(written):
    """Failed requests are recorded with 0 output tokens; playing them would be wrong."""
    trace = load(written(VIDUR + "0,5,6\n1,0,0\n2,7,8\n3,7,0\n4,7,1\n"))
    assert columns(trace) == [[0.0, 2.0, 4.0], [5, 7, 7], [6, 8, 1]]
    assert trace.report is not None
    assert (trace.report.rows_read, trace.report.kept) == (5, 3)
    assert trace.report.dropped == {"with 0 output tokens": 2}


def test_case_12_zero_prompt_is_an_error_with_its_row(written):
    """A served request without a prompt is a broken file, not a failed request."""
    with pytest.raises(ValueError, match=r"prompt_tokens\[2\] = 0; must be >= 1 \(row 4 of trace"):
        load(written(VIDUR + "0,5,6\n1,0,0\n2,0,8\n"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,5,6\n0.5,5,6\n", r"arrival_s\[1\] = 0.5; must not be before .*sort=True.*\(row 3 of"),
        ("-1,5,6\n", r"arrival_s\[0\] = -1; must be >= 0 \(row 2 of trace.csv\)"),
        ("0,5,6\n,5,6\n", r"arrival_s\[1\] is missing \(row 3 of trace.csv\)"),
        ("0,5,6\n\n1,5\n", r"output_tokens\[1\] is missing \(row 4 of trace.csv\)"),
        (
            "0,5,6\nnan,5,6\n",
            r"arrival_s\[1\] = nan; must be a finite number \(row 3 of trace.csv\)",
        ),
        ("0,5,6\n1,5,nan\n", r"output_tokens\[1\] = nan; must be a finite number \(row 3 of"),
        ("0,5,6\n1,-5,6\n", r"prompt_tokens\[1\] = -5; must be >= 1 \(row 3 of trace.csv\)"),
        ("0,5,6\n1,5,-6\n", r"output_tokens\[1\] = -6; must be >= 0 \(row 3 of trace.csv\)"),
        ("0,5,6\n1,five,6\n", r"prompt_tokens\[1\] = 'five'; must be a number \(row 3 of trace"),
        ("0,5,6\n1,5.5,6\n", r"prompt_tokens\[1\] = 5.5; must be a whole number \(row 3 of trace"),
        ("0,5,6\n1,5,6,7\n", r"row 3 of trace.csv has 4 fields; the header has 3"),
    ],
)
def test_case_13_bad_rows_are_named_and_nothing_loads(written, rows: str, message: str):
    """A partial load with a warning ends in results about another workload."""
    with pytest.raises(ValueError, match=message):
        load(written(VIDUR + rows))


@pytest.mark.parametrize(
    ("stamp", "message"),
    [
        ("", r"TIMESTAMP\[1\] is missing \(row 3 of trace.csv\)"),
        ("noon", r"TIMESTAMP\[1\] = 'noon'; must be YYYY.*\(row 3 of trace.csv\)"),
        ("2023-13-16 18:15:46.68", r"TIMESTAMP\[1\] = '2023-13-16 .*; must be YYYY.*\(row 3 of"),
        ("2023-11-16 18:15:46.68+02:00", "must be YYYY.*without a zone or in UTC"),
    ],
)
def test_case_13_bad_timestamps_are_named(written, stamp: str, message: str):
    """A timestamp that becomes NaT would sort to the end or vanish."""
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    with pytest.raises(ValueError, match=message):
        load(written(f"{header}2023-11-16 18:15:46.68,5,6\n{stamp},5,6\n"))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            '{"timestamp": 1, "input_length": 5}',
            r"output_tokens\[1\] is missing \(row 2 of t.jsonl\)",
        ),
        ('{"timestamp": 1, ', "row 2 of t.jsonl is not JSON"),
        ("[1, 2]", "row 2 of t.jsonl is not a JSON object"),
    ],
)
def test_case_13_bad_json_lines_are_named(written, second: str, message: str):
    """One cut line must not pass as the end of the file."""
    first = '{"timestamp": 0, "input_length": 5, "output_length": 6}\n'
    with pytest.raises(ValueError, match=message):
        load(written(first + second, "t.jsonl"))


def test_case_13_sort_orders_stably_and_leaves_a_note(written):
    """Sorting is a choice that the result must show."""
    path = written(VIDUR + "3,1,1\n1,2,2\n1,3,3\n4,4,4\n")
    trace = load(path, sort=True)
    assert columns(trace) == [[1.0, 1.0, 3.0, 4.0], [2, 3, 1, 4], [2, 3, 1, 4]]
    assert trace.notes == ("sorted by arrival: 3 rows moved",)
    assert load(written(VIDUR + "1,1,1\n2,2,2\n"), sort=True).notes == ()
    with pytest.raises(ValueError, match="is missing"):
        load(written(VIDUR + ",1,1\n2,2,2\n"), sort=True)


def test_unsorted_azure_counts_from_the_earliest_row(written):
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    path = written(header + "2023-11-16 18:00:01,5,6\n2023-11-16 18:00:00,7,8\n")
    with pytest.raises(ValueError, match=r"arrival_s\[1\] = -1; must not be before"):
        load(path)
    assert columns(load(path, sort=True)) == [[0.0, 1.0], [7, 5], [8, 6]]


def test_report_conserves_rows_and_prints_the_rates(written):
    trace = load(written(VIDUR + "0,5,6\n1,9,0\n2,7,8\n"), end_s=2.0)
    assert str(trace.report) == (
        "trace.csv (Vidur trace): 3 rows read, 1 kept, "
        "dropped: 1 with 0 output tokens, 1 outside the window\n"
        "1 requests over 0.0 s, rate undefined, mean prompt 5.0, mean output 6.0 tokens"
    )
    assert (trace.name, trace.source) == ("trace", "Vidur trace, trace.csv")


def test_window_and_max_rows_limit_what_is_kept_and_read(written):
    path = written(VIDUR + "0,1,1\n1,2,2\n2,3,3\n3,4,4\nbroken,5,5\n")
    assert columns(load(path, start_s=1.0, end_s=3.0, max_rows=4))[:2] == [[0.0, 1.0], [2, 3]]
    assert len(load(path, max_rows=0)) == 0
    with pytest.raises(ValueError, match="max_rows = -1"):
        load(path, max_rows=-1)


def test_header_alone_is_an_empty_trace_and_nothing_at_all_is_an_error(written):
    assert len(load(written(VIDUR))) == 0
    assert len(load(written("TIMESTAMP,ContextTokens,GeneratedTokens"))) == 0
    for content in ("", "\n\n"):
        with pytest.raises(ValueError, match="trace.csv is empty"):
            load(written(content))


def test_unreadable_files_say_so(written, tmp_path: Path):
    cut = gzip.compress(VIDUR.encode() * 50)[:-12]
    with pytest.raises(ValueError, match="trace.csv cannot be read"):
        load(written(cut))
    with pytest.raises(ValueError, match="trace.csv cannot be read"):
        load(written(VIDUR.encode() + b"\xff\xfe\n"))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.csv")


def test_repeated_column_is_refused(written):
    with pytest.raises(ValueError, match="column 'arrived_at' appears twice"):
        load(written("arrived_at," + VIDUR + "0,0,1,1\n"))


def test_decimal_times_are_rounded_correctly(written):
    text = "0.1234567890123456789"
    assert load(written(VIDUR + f"{text},1,1\n")).arrival_s[0] == float(text)


PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
MOONCAKE = '{{"timestamp": {}, "input_length": {}, "output_length": 6}}\n'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 719188\n"


def test_our_own_columns_win_over_another_formats(written):
    """With input_tokens beside prompt_tokens the file was read as a vLLM run, of other lengths."""
    path = written("arrival_s,input_tokens,prompt_tokens,output_tokens\n0,99,5,6\n")
    assert columns(load(path)) == [[0.0], [5], [6]]
    assert load(path).source == "plain trace, trace.csv"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("true", r"prompt_tokens\[1\] = True; must be a number, not bool \(row 2 of t.jsonl\)"),
        ("[5]", r"prompt_tokens\[1\] = \[5\]; must be a number, not list \(row 2 of t.jsonl\)"),
        ("9" * 400, r"prompt_tokens\[1\] = 9{77}\.\.\.; must be .* float .*\(row 2 of t.jsonl\)"),
        ("9" * 5000, "row 2 of t.jsonl is not JSON: "),
        ("[" * 100_000, "row 2 of t.jsonl is not JSON that can be read: too nested"),
    ],
    ids=["true", "list", "400 digits", "5000 digits", "nested"],
)
def test_json_values_that_are_no_numbers_are_named(written, value: str, message: str):
    """Each of these was read as 1, or ended in an error that named neither file nor row."""
    path = written(MOONCAKE.format(0, 5) + MOONCAKE.format(1, value), "t.jsonl")
    with pytest.raises(ValueError, match=message):
        load(path)


@pytest.mark.parametrize("output", [0, 6])
def test_json_lists_for_lengths_are_named_in_every_row(written, output: int):
    """Rows that are all lists made a table, with failed requests among them or not."""
    failed = f'{{"timestamp": 0, "input_length": [5], "output_length": {output}}}\n'
    with pytest.raises(ValueError, match=r"prompt_tokens\[.\] = \[5\]; must be .* \(row . of t.j"):
        load(written(failed + MOONCAKE.format(1, "[5]"), "t.jsonl"))


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbf" + LFS, gzip.compress(LFS), b"\n" + LFS],
    ids=["bom", "gzip", "blank line"],
)
def test_git_lfs_pointers_are_told_with_a_bom_or_packed(written, content: bytes):
    with pytest.raises(ValueError, match=r"trace.csv is a Git-LFS pointer.*git lfs pull"):
        load(written(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" + '{"arrival_s": 0}, ' * 6000 + "]", "trace.csv is a JSON array, not JSON lines"),
        ("[\n{}\n]\n", "trace.csv is a JSON array, not JSON lines"),
        (b"PK\x03\x04\x00\x00\x08\x00abc\n", "trace.csv is not a text file: it has NUL bytes"),
        ("x" * 100_000 + "\n", r"found x{77}\.\.\.; tried"),
        (",".join(f"column_{n}" for n in range(9_000)), "column_19 and 8,980 more; tried"),
        (PLAIN + "0," + "y" * 100_000 + ",1\n", r"prompt_tokens\[0\] = 'y{76}\.\.\.; must be a"),
    ],
    ids=["array", "array of lines", "zip", "long name", "many names", "long value"],
)
def test_messages_quote_little_of_a_file_that_is_no_trace(written, content, message: str):
    """A terminal full of the file hides what is wrong with it."""
    with pytest.raises(ValueError, match=message) as caught:
        load(written(content))
    assert len(str(caught.value)) < 3000


def test_azure_timestamps_centuries_apart_are_too_long_not_unsorted(written):
    """Their difference does not fit int64 nanoseconds and came out negative."""
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    path = written(header + "1700-01-01 00:00:00,5,6\n2250-01-01 00:00:00,7,8\n")
    with pytest.raises(ValueError, match=r"arrival_s\[1\] = 17\d{9}; .*106 days.*\(row 3 of trace"):
        load(path)
    assert columns(load(path, end_s=9.0)) == [[0.0], [5], [6]]
    path = written(header + "1700-01-01 00:00:00,5,6\n2350-01-01 00:00:00,7,8\n")
    with pytest.raises(ValueError, match=r"TIMESTAMP\[1\] = '2350.*must be in the years 1678 to"):
        load(path)


@pytest.mark.parametrize("blank", ["", "\n\n", "\r\n \n"])
def test_rows_are_line_numbers_whatever_is_blank(written, blank: str):
    line = blank.count("\n") + 4
    with pytest.raises(ValueError, match=rf"arrival_s\[1\] = 'x'; .*\(row {line} of trace.csv\)"):
        load(written(blank + PLAIN + "0,5,6\n\nx,5,6\n"))
    with pytest.raises(ValueError, match=rf"row {line} of trace.csv has 4 fields"):
        load(written(blank + PLAIN + "0,5,6\n\n1,5,6,7\n"))
    with pytest.raises(ValueError, match=rf"missing \(row {line - 1} of trace.csv\)"):
        load(written(blank + MOONCAKE.format(0, 5) + "\n" + '{"timestamp": 1}\n'))
