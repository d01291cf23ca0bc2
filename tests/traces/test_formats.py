"""What each public format keeps, drops and refuses, on rows as published."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from servegym.traces import NOT_RECORDED, Labels, Trace, load, load_lengths

BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
SPLITWISE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
)
LENGTHS = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"


@pytest.fixture
def written(tmp_path: Path):
    """Write a small file and return its path."""

    def write(content: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def named(labels: Labels | None) -> list[str] | None:
    """The label of each request."""
    return None if labels is None else [labels.names[code] for code in labels.codes]


def dropped(trace: Trace) -> dict[str, int]:
    """What the load report says was dropped."""
    assert trace.report is not None
    return trace.report.dropped


def test_case_14_burstgpt_drops_failures_and_keeps_model_and_log_type(written):
    """Failed requests are rows of zeros: played, they would be requests of no tokens."""
    rows = (
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,0,0,0,API log\n45,GPT-4,9,8,17,API log\n"
    )
    trace = load(written(BURSTGPT + rows))
    assert trace.arrival_s.tolist() == [5.0, 45.0]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([472, 9], [18, 8])
    assert dropped(trace) == {"with 0 output tokens": 1}
    assert named(trace.model) == ["ChatGPT", "GPT-4"]
    assert named(trace.category) == ["Conversation log", "API log"]
    assert trace.session is None


def test_case_14_burstgpt_times_are_whole_seconds_and_the_trace_says_so(written):
    """Every burst within a second is an artefact of the recording."""
    trace = load(written(BURSTGPT + "5,A,4,1,5,L\n5,A,4,1,5,L\n7,A,4,1,5,L\n"))
    assert trace.resolution_s == 1.0
    assert "times recorded every 1 s" in trace.notes
    assert any("known only to 1 s" in warning for warning in trace.warnings)
    assert "warning: arrivals are known only to 1 s" in str(trace.report)
    fine = load(written(BURSTGPT + "5,A,4,1,5,L\n5.5,A,4,1,5,L\n"))
    assert (fine.resolution_s, fine.warnings) == (None, ())


def test_case_14_burstgpt_3_keeps_sessions_and_counts_from_its_first_midnight(written):
    """Its clock began 225 days earlier: as it stands, no arrival would fit the engine's 106 days."""
    rows = (
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
        "19440161.0,,2,ChatGPT,36,29,65,API log\n"
    )
    trace = load(written(BURSTGPT_3 + rows))
    assert trace.arrival_s.tolist() == [110.0, 161.0]
    assert named(trace.session) == ["1722ac82", NOT_RECORDED]
    assert "arrivals count from second 19,440,000 of BurstGPT's clock" in trace.notes


def test_burstgpt_of_more_than_106_days_loads_by_window(written):
    path = written(BURSTGPT + f"5,A,4,1,5,L\n{106 * 86_400 + 60},A,4,1,5,L\n")
    with pytest.raises(ValueError, match=r"106 days.*start_s and end_s load a part \(row 3 of"):
        load(path)
    assert load(path, start_s=86_400.0).arrival_s.tolist() == [105 * 86_400 + 60]
    with pytest.raises(ValueError, match=r"arrival_s\[0\] = -5; must be >= 0 \(row 2 of"):
        load(written(BURSTGPT + "-5,A,4,1,5,L\n"))


def test_case_14_azure_2025_says_that_images_are_not_kept(written):
    """NumImages comes second: a reader by position takes it for the prompt."""
    path = written(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.5Z,3,374,44\n"
    )
    trace = load(path)
    assert (trace.prompt_tokens.tolist(), trace.notes) == ([374], ("column NumImages is not kept",))


def test_case_14_mooncake_keeps_prefix_block_ids(written):
    """Without them no cache policy can ever be studied on the trace that is made for it."""
    rows = [
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}',
        '{"timestamp": 1, "input_length": 9, "output_length": 0, "hash_ids": [0]}',
        '{"timestamp": 2, "input_length": 1500, "output_length": 7, "hash_ids": [0, 1, 7]}',
    ]
    trace = load(written("\n".join(rows), "t.jsonl"))
    blocks = trace.prefix_blocks
    assert blocks is not None and blocks.block_tokens == 512
    assert [blocks.of_request(r).tolist() for r in range(2)] == [[0, 1], [0, 1, 7]]
    assert any("no prefix cache" in warning for warning in trace.warnings)


@pytest.mark.parametrize("ids", ["null", '{"user": [1]}', "[1.5]", '["a"]', f"[{2**64}]"])
def test_case_13_bad_prefix_blocks_are_named(written, ids: str):
    """Other traces use the same field for something else."""
    start = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": '
    with pytest.raises(ValueError, match=r"hash_ids\[1\].*\(row 2 of t.jsonl\)"):
        load(written(start + "[1]}\n" + start + ids + "}\n", "t.jsonl"))


def test_case_14_mooncake_batches_are_recognised(written):
    """A 3 s grid: nine in ten inter-arrival times are 0."""
    row = '{{"timestamp": {}, "input_length": 6, "output_length": 5}}'
    grid_ms = [3000 * k + (k % 3) for k in range(12)]
    lines = [row.format(t) for t in grid_ms for _ in range(3)]
    assert load(written("\n".join(lines), "t.jsonl")).resolution_s == pytest.approx(3.0, abs=0.002)
    spread = [row.format(1000 * k + 7 * k * k) for k in range(36)]
    assert load(written("\n".join(spread), "t.jsonl")).resolution_s is None


def test_case_14_splitwise_keeps_applications_and_drops_what_is_no_llm(written):
    """Its request_type 2 is LLM inference; others have no tokens."""
    path = written(SPLITWISE + "0,2,7,1,1,4096,32\n1,1,7,2,1,,\n2,2,8,3,1,2048,8\n")
    trace = load(path)
    assert trace.arrival_s.tolist() == [1.0, 3.0]
    assert named(trace.tenant) == ["7", "8"]
    assert dropped(trace) == {"that are no LLM inference (request_type other than 2)": 1}
    with pytest.raises(ValueError, match=r"batch_size\[0\] = 4; must be 1 \(row 2 of trace.csv\)"):
        load(written(SPLITWISE + "0,2,7,1,4,4096,32\n"))


def test_plain_files_keep_tiers_and_labels(written):
    path = written(
        "arrival_s,prompt_tokens,output_tokens,tier,tenant,model\n0,5,6,1,a,x\n1,5,6,0,,x\n"
    )
    trace = load(path)
    assert trace.tier.tolist() == [1, 0]
    assert (named(trace.tenant), named(trace.model)) == (["a", NOT_RECORDED], ["x", "x"])
    with pytest.raises(ValueError, match=r"tier\[1\] = -1; must be >= 0 \(row 3 of"):
        load(written("arrival_s,prompt_tokens,output_tokens,tier\n0,5,6,1\n1,5,6,-1\n"))


def test_csv_of_a_trace_loads_back_with_its_labels(tmp_path: Path):
    trace = Trace([0.1, 0.25], [5, 6], [7, 8], [1, 0], tenant=Labels.of(["b", "a"]))
    trace.to_frame().to_csv(tmp_path / "t.csv", index=False)
    assert load(tmp_path / "t.csv").workload_hash == trace.workload_hash


def pack(path: Path, name: str) -> Path:
    """Write a tar.gz with one small file."""
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    return path


def test_case_14_servegen_is_refused_with_what_to_use_instead(written, tmp_path: Path):
    """Its clients are distributions; a list of missing columns would suggest a broken file."""
    refused = [
        pack(tmp_path / "reason.tar.gz", "reason/chunk-0-dataset.json"),
        pack(tmp_path / "renamed.csv", "a/b/chunk-12-trace.csv"),
        written("0,1.5,1.0,Gamma,1,1\n", "chunk-3-trace.csv"),
    ]
    for path in refused:
        with pytest.raises(ValueError, match=f"{path.name} is ServeGen client data.*trace fit"):
            load(path)
    with pytest.raises(ValueError, match="is a table of ServeGen rates.*trace fit"):
        load(written("window_start_s,m_small_req_per_s\n0,1.5\n", "rates.csv"))
    with pytest.raises(ValueError, match="other.tar.gz is a tar archive; unpack it"):
        load(pack(tmp_path / "other.tar.gz", "readme.md"))


def test_case_14_lengths_alone_load_with_arrivals_drawn_on_request(written):
    """ShareGPT files have no times: any would be invented, so only when asked for, and noted."""
    path = written(LENGTHS + "".join(f"{n},6,9,1\n" for n in range(1, 2001)) + "9,0,9,1\n")
    with pytest.raises(ValueError, match="no arrival column.*load_lengths"):
        load(path)
    trace = load_lengths(path, rate_per_s=20.0, seed=3)
    assert trace.prompt_tokens.tolist() == list(range(1, 2001))
    # 2,000 gaps: the mean rate has a standard error of 20 / sqrt(2000) = 0.45; five of them.
    assert trace.mean_rate_per_s == pytest.approx(20.0, abs=2.3)
    assert dropped(trace) == {"with 0 output tokens": 1}
    assert trace.notes == ("poisson arrivals at 20 req/s drawn with seed 3: no recording",)
    assert load_lengths(path, 20.0, 3, max_rows=7).workload_hash == trace.head(7).workload_hash
    assert load_lengths(path, 20.0, 4).workload_hash != trace.workload_hash


def test_lengths_are_not_drawn_over_recorded_arrivals(written):
    path = written("arrival_s,prompt_tokens,output_tokens\n0,5,6\n")
    with pytest.raises(ValueError, match="has arrivals .arrival_s.: load it without a rate"):
        load_lengths(path, 1.0, 0)
    with pytest.raises(ValueError, match="no known length columns; found a, b"):
        load_lengths(written("a,b\n1,2\n"), 1.0, 0)
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="rate_per_s = .*; must be finite and > 0"):
            load_lengths(written(LENGTHS), rate, 0)


@pytest.mark.parametrize(
    ("rows", "doubt"),
    [
        ("0,100,5\n1,100,5\n", None),
        ("0,100,5\n0.00005,100,5\n", "mean rate .* is above 10,000"),
        ("0,100,5\n3700,100,5\n", "below one an hour"),
        ("3,100,5\n3,100,5\n", "all 2 requests arrive at the same instant"),
        ("0,3,5\n1,4,5\n", "mean prompt 3.5 tokens is below 4"),
        ("0,2000001,5\n1,2000001,5\n", "mean prompt .* is above 1,000,000"),
        ("0,100,2000001\n1,100,2000001\n", "mean output .* is above 1,000,000"),
    ],
)
def test_case_14_figures_that_suggest_a_wrong_unit_are_warned_of(
    written, rows: str, doubt: str | None
):
    """Milliseconds read as seconds run for days and overload nothing; nobody looks at the file."""
    report = load(written("arrival_s,prompt_tokens,output_tokens\n" + rows)).report
    assert report is not None
    assert len(report.warnings) == (doubt is not None)
    assert doubt is None or re.search(doubt, report.warnings[0])
