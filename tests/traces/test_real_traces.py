"""Every real trace that should load does, with the row counts and rates that were measured."""

from pathlib import Path

import numpy as np
import pytest

from servegym.traces import load

pytestmark = pytest.mark.data

# file, requests, mean req/s (None where it was not measured), mean prompt, mean output
REAL = [
    ("traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv", 8_819, 2.566, 2047.8, 27.9),
    ("traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 19_366, 5.53, 1154.7, 211.1),
    ("traces/mooncake_fast25/conversation_trace.jsonl.gz", 12_031, 3.401, 12035.1, 342.6),
    ("traces/mooncake_fast25/synthetic_trace.jsonl.gz", 3_993, 3.906, 15325.5, 149.1),
    ("traces/vidur_processed/splitwise_code.csv.gz", 8_819, 2.566, 2047.8, 27.9),
    ("traces/vidur_processed/splitwise_conv.csv.gz", 19_366, 5.53, 1154.7, 211.1),
    ("reference/vidur/trace_n1000_q2.csv", 1_000, None, None, None),
    ("reference/vidur/trace_n1000_q3p5.csv", 1_000, None, None, None),
    ("reference/vidur/trace_n4000_q20.csv", 4_000, None, None, None),
    ("reference/vllm/RTX4090_Llama-3.1-8B.csv", 300, None, None, None),
    ("reference/vllm/RTXPRO6000_Llama-3.1-8B.csv", 300, None, None, None),
]

REFUSED = [
    ("traces/burstgpt_sample/BurstGPT_1.first400.csv", "is BurstGPT, which is not supported yet"),
    ("traces/splitwise_sim/test_trace.csv", "is splitwise-sim, which is not supported yet"),
    ("traces/servegen/reason_deepseek-r1.tar.gz", "is ServeGen client data"),
    ("traces/servegen/language_total_rate_14d.derived.csv", "found window_start_s, m_small"),
    ("traces/sharegpt_lengths/sharegpt_val_10k_llama2.csv.gz", "no arrival column arrived_at"),
    (
        "traces/vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
        "no arrival column arrived_at",
    ),
    ("reference/vidur/r1_vllm_q2.csv", r"no arrival column arrival_s \(vLLM reference run\)"),
]


@pytest.mark.parametrize(("file", "n", "rate", "prompt", "output"), REAL)
def test_real_trace_loads_whole_with_its_measured_rate(
    data_dir: Path, file: str, n: int, rate: float | None, prompt: float, output: float
):
    trace = load(data_dir / file)
    assert trace.report is not None
    assert (trace.report.rows_read, trace.report.kept, trace.report.dropped) == (n, n, {})
    assert trace.mean_rate_per_s is not None
    if rate is not None:
        assert trace.mean_rate_per_s == pytest.approx(rate, rel=1e-3)
        assert trace.prompt_tokens.mean() == pytest.approx(prompt, abs=0.05)
        assert trace.output_tokens.mean() == pytest.approx(output, abs=0.05)


@pytest.mark.parametrize(("file", "message"), REFUSED)
def test_real_file_that_is_no_trace_is_refused_with_the_reason(
    data_dir: Path, file: str, message: str
):
    with pytest.raises(ValueError, match=message):
        load(data_dir / file)


@pytest.mark.parametrize("kind", ["code", "conv"])
def test_azure_and_its_vidur_copy_are_the_same_trace(data_dir: Path, kind: str):
    azure = load(data_dir / f"traces/azure_llm_2023/AzureLLMInferenceTrace_{kind}.csv")
    vidur = load(data_dir / f"traces/vidur_processed/splitwise_{kind}.csv.gz")
    np.testing.assert_array_equal(azure.prompt_tokens, vidur.prompt_tokens)
    np.testing.assert_array_equal(azure.output_tokens, vidur.output_tokens)
    np.testing.assert_allclose(azure.arrival_s, vidur.arrival_s, atol=1e-6)


def test_azure_arrivals_are_exact_to_100_ns(data_dir: Path):
    trace = load(data_dir / "traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
    # First rows: 18:15:46.6805900 and 18:15:50.9951690, 4.3145790 s apart.
    assert trace.arrival_s[1] == 4.314579
    picoseconds = np.rint(trace.arrival_s * 1e12).astype(np.int64)
    assert not np.any(picoseconds % 100_000)


def test_mooncake_times_stay_on_their_grid(data_dir: Path):
    trace = load(data_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")
    assert len(np.unique(trace.arrival_s)) == 1_180
